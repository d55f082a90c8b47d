"""The messages of layers to bytes and back: XDR, as on links, behind a header of their own.

A message starts with the magic bytes of its layer, if it has any, a version byte and the message number; the fields
follow in declaration order. The numbers of each layer are its own.
"""

import struct
import zlib
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from broadloom.wire.codec import WireMessage, declared, packed, unpacked
from broadloom.wire.xdr import UnknownMessageError, WireError, Xdr

K = TypeVar("K", bound="LayerMessage")


class LayerCodec(Generic[K]):
    """Reads and writes the messages of one layer, which have a base class of their own."""

    def __init__(self, magic: bytes, version: int, noun: str) -> None:
        self._magic = magic
        self._version = version
        self._noun = noun
        self.kinds: dict[int, type[K]] = {}

    def message_types(self) -> dict[int, type[K]]:
        """All messages by number."""
        return dict(self.kinds)

    def head(self, number: int) -> bytes:
        return self._magic + bytes((self._version, number))

    def encode(self, message: K) -> bytes:
        return self.head(message.number) + packed(message)

    def decode(self, data: bytes) -> K:
        """Raises `WireError` if this is not a valid message of the layer."""
        size = len(self._magic)
        if len(data) < size + 2 or data[:size] != self._magic:
            raise WireError(f"not a {self._noun}")
        if data[size] != self._version:
            raise UnknownMessageError(
                f"{self._noun} of version {data[size]}; this program supports version {self._version}"
            )
        kind = self.kinds.get(data[size + 1])
        if kind is None:
            raise UnknownMessageError(f"unknown {self._noun} number {data[size + 1]}")
        return kind(*unpacked(kind, data, size + 2))


class LayerMessage(WireMessage):
    """Base class of the messages of layers; the base class of each layer sets `codec`."""

    __slots__ = ()
    codec: ClassVar[LayerCodec[Any]]


@dataclass_transform(frozen_default=True)
def layer_message(number: int) -> Any:
    """Make a class a frozen dataclass and the message `number` of its layer. Numbers are never reused."""

    def declare(kind: type[K]) -> type[K]:
        return declared(kind, number, kind.codec.kinds)  # type: ignore[no-any-return]

    return declare


def compressed(kind: Xdr, value: Any) -> bytes:
    """The fields around short values are larger than the values, and nearly the same each time."""
    out: list[bytes] = []
    kind.pack(value, out)
    return zlib.compress(b"".join(out), 1)


def decompressed(kind: Xdr, data: bytes, bytes_max: int, noun: str) -> Any:
    """Raises `WireError`. Rejects decompression bombs at `bytes_max`."""
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(data, bytes_max)
        value, position = kind.unpack(plain, 0)
    except (struct.error, zlib.error):
        raise WireError(f"damaged {noun}") from None
    if not decompressor.eof or decompressor.unused_data:
        raise WireError(f"{noun} is too large, or has trailing data")
    if position != len(plain):
        raise WireError(f"{len(plain) - position} trailing bytes in a {noun}")
    return value
