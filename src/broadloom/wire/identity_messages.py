"""The messages of the layer `Id`: a member identifies itself, or announces an ad. Recorders write them to the tape.

The payload is an XDR union: the number of the message, then its fields in declaration order. The numbers are separate
from those of link messages: links do not look into payloads.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, dataclass_transform

from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, declared, packed, unpacked
from broadloom.wire.fields import MEMBER_NAME_BYTES_MAX
from broadloom.wire.message_headers import TOPIC_BYTES_MAX, checked_topic
from broadloom.wire.payload_kind import layer_kind
from broadloom.wire.xdr import UnknownMessageError, WireError, Xdr

IDENTITY_KIND = layer_kind("Id")
"""Kind of the frames."""
ATTRIBUTES_MAX = 32
ATTRIBUTE_BYTES_MAX = 256
"""Of a name, and of a value."""
AD_NAME_BYTES_MAX = 256
_NUMBER_BYTES = 4

M = TypeVar("M", bound=type[WireMessage])
_KINDS: dict[int, type[WireMessage]] = {}
_TEXT = xdr.string(ATTRIBUTE_BYTES_MAX)


def _pack_attribute(attribute: tuple[str, str], out: list[bytes]) -> None:
    for text in attribute:
        _TEXT.pack(text, out)


def _unpack_attribute(buffer: xdr.Buffer, position: int) -> tuple[tuple[str, str], int]:
    name, position = _TEXT.unpack(buffer, position)
    value, position = _TEXT.unpack(buffer, position)
    return (name, value), position


@dataclass_transform(frozen_default=True)
def _identity_message(number: int) -> Any:
    def declare(kind: M) -> M:
        return declared(kind, number, _KINDS)  # type: ignore[no-any-return]

    return declare


@_identity_message(1)
class Identification(WireMessage):
    """The author identifies itself. Its ticket, if it has one, proves another name than this one."""

    name: Annotated[str, xdr.string(MEMBER_NAME_BYTES_MAX)]
    """The name that it chose; empty if it has none."""
    attributes: Annotated[
        tuple[tuple[str, str], ...], xdr.array(Xdr(_pack_attribute, _unpack_attribute), ATTRIBUTES_MAX)
    ]
    """Names and values of the application."""


@_identity_message(2)
class Advert(WireMessage):
    """The author announces that an ad is shown at every member."""

    name: Annotated[str, xdr.string(AD_NAME_BYTES_MAX)]
    topic: Annotated[str, xdr.string(TOPIC_BYTES_MAX)]
    """Empty if it has none."""


def encode_identity(message: Identification | Advert) -> bytes:
    return message.number.to_bytes(_NUMBER_BYTES, "big") + packed(message)


def decode_identity(data: bytes) -> Identification | Advert:
    """Raises `WireError` if it is malformed, `UnknownMessageError` if it is of a later version."""
    if len(data) < _NUMBER_BYTES:
        raise WireError("message truncated")
    number = int.from_bytes(data[:_NUMBER_BYTES], "big")
    if number not in _KINDS:
        raise UnknownMessageError(f"message number {number} of the layer Id is unknown")
    message = _KINDS[number](*unpacked(_KINDS[number], data, _NUMBER_BYTES))
    assert isinstance(message, Identification | Advert)
    if not message.name.isprintable() or not (message.name or isinstance(message, Identification)):
        raise WireError(f"{type(message).__name__}.name: empty or not printable")
    if isinstance(message, Advert) and message.topic:
        try:
            checked_topic(message.topic)
        except ValueError as problem:
            raise WireError(f"Advert: {problem}") from None
    return message


def identification(name: str, attributes: Mapping[str, str] | None) -> bytes:
    """Raises `TypeError` or `ValueError` for attributes that receivers would reject."""
    if attributes is not None and not isinstance(attributes, Mapping):
        raise TypeError(f"attributes must be a mapping of names to values, not {type(attributes).__name__}")
    items = tuple((attributes or {}).items())
    if len(items) > ATTRIBUTES_MAX:
        raise ValueError(f"{len(items)} attributes: at most {ATTRIBUTES_MAX} are allowed")
    for item in items:
        for text in item:
            _check_text("attribute", text, ATTRIBUTE_BYTES_MAX)
        if not item[0]:
            raise ValueError("the name of an attribute must not be empty")
    return encode_identity(Identification(name, items))


def advert(name: str, topic: str | None) -> bytes:
    """Raises `TypeError` or `ValueError` for what receivers would reject."""
    _check_text("name of an ad", name, AD_NAME_BYTES_MAX)
    if not name:
        raise ValueError("the name of an ad must not be empty")
    if topic is not None:
        _check_text("topic", topic, TOPIC_BYTES_MAX)
        checked_topic(topic)
    return encode_identity(Advert(name, topic or ""))


def _check_text(what: str, text: object, bytes_max: int) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what}: must be text, not {text!r}")
    if not text.isprintable() or len(text.encode(errors="surrogatepass")) > bytes_max:
        raise ValueError(f"{what} {text[:40]!r}: must be at most {bytes_max} bytes of printable text")
