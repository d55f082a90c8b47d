"""The messages of the layer `St`: a newcomer asks a member for its state. They travel as direct requests and replies.

The payload is an XDR union: the number of the message, then its fields in declaration order. The reply to a
`ChunkQuery` is the chunk itself.
"""

from typing import Annotated, Any, TypeVar, dataclass_transform

from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, declared, packed, unpacked
from broadloom.wire.fields import AUTHORS_MAX
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_kind
from broadloom.wire.xdr import UnknownMessageError, WireError, Xdr

STATE_KIND = layer_kind("St")
STATE_LAYER = STATE_KIND >> LAYER_SHIFT
STATE_NAME_BYTES_MAX = 256
CHUNK_BYTES_MAX = 256 << 10
CHUNKS_MAX = 4096
"""In one manifest: 1 GiB."""
CHUNK_HASH_BYTES = 16
MISSED_RANGES_MAX = 1024
_NUMBER_BYTES = 4

M = TypeVar("M", bound=type[WireMessage])
_KINDS: dict[int, type[WireMessage]] = {}


def _numbers(layout: str) -> Xdr:
    return xdr.numbers(lambda *values: values, layout)


Positions = Annotated[tuple[tuple[int, int], ...], xdr.array(_numbers(">QQ"), AUTHORS_MAX)]
"""Author and sequence number."""
Ranges = Annotated[tuple[tuple[int, int, int], ...], xdr.array(_numbers(">QQQ"), MISSED_RANGES_MAX)]
"""Author, first and last sequence number."""
Chunks = Annotated[tuple[tuple[bytes, int], ...], xdr.array(_numbers(f">{CHUNK_HASH_BYTES}sI"), CHUNKS_MAX)]
"""Hash and size of each chunk, in order."""


@dataclass_transform(frozen_default=True)
def _state_message(number: int) -> Any:
    def declare(kind: M) -> M:
        return declared(kind, number, _KINDS)  # type: ignore[no-any-return]

    return declare


@_state_message(1)
class StateQuery(WireMessage):
    """Asks for a `StateManifest` whose position is at least `required`; the callee waits a while until it is."""

    name: Annotated[str, xdr.string(STATE_NAME_BYTES_MAX)]
    required: Positions
    """The caller gets everything after this by itself. Authors that are not listed are at 0."""


@_state_message(2)
class ChunkQuery(WireMessage):
    """Asks for a chunk of a manifest that the callee sent a moment ago."""

    digest: Annotated[bytes, xdr.fixed_opaque(CHUNK_HASH_BYTES)]


@_state_message(3)
class StateRelease(WireMessage):
    """One-way: the caller needs no more chunks of this state."""

    name: Annotated[str, xdr.string(STATE_NAME_BYTES_MAX)]


@_state_message(4)
class StateManifest(WireMessage):
    """The reply to a `StateQuery`: what the state contains, and the chunks it is made of."""

    position: Positions
    """The state contains the effect of all messages up to here, and of none after."""
    missed: Ranges
    """Of those, the ones that the callee itself has missed; the newest if there are more."""
    chunks: Chunks


StateMessage = StateQuery | ChunkQuery | StateRelease | StateManifest


def encode_state(message: StateMessage) -> bytes:
    return message.number.to_bytes(_NUMBER_BYTES, "big") + packed(message)


def decode_state(data: bytes) -> StateMessage:
    """Raises `WireError` if it is malformed, `UnknownMessageError` if it is of a later version."""
    if len(data) < _NUMBER_BYTES:
        raise WireError("message truncated")
    number = int.from_bytes(data[:_NUMBER_BYTES], "big")
    if number not in _KINDS:
        raise UnknownMessageError(f"message number {number} of the layer St is unknown")
    message = _KINDS[number](*unpacked(_KINDS[number], data, _NUMBER_BYTES))
    assert isinstance(message, StateMessage)
    return message
