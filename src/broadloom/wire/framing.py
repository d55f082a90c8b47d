"""Byte stream to whole frames, independent of how the stream was split into reads."""

from broadloom.wire.codec import HEAD, LENGTH_BYTES
from broadloom.wire.xdr import WireError

FRAME_BYTES_MAX = 1 << 20
"""The largest frame, including its length. Larger messages are sent as fragments."""


PIECE_BYTES_MIN = 4 << 10
"""Pieces of a frame of at least this size are kept as they came until it is complete, so that they are copied once;
smaller ones are collected in one buffer."""


class FrameSplitter:
    """Returns the complete frames of each read and keeps the rest."""

    __slots__ = ("_needed_bytes", "_pieces", "buffered_bytes", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._pieces: list[bytes | bytearray | memoryview] = []
        """The beginning of a frame."""
        self.buffered_bytes = 0
        """Their size."""
        self._needed_bytes = 0
        """Size of the frame; `LENGTH_BYTES` if that is not known yet."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return all frames that `data` completes. Raises `WireError` for an invalid length; the stream is then
        unusable."""
        position, end = 0, len(data)
        frames: list[bytes] = []
        if self.buffered_bytes:
            if self.buffered_bytes + end < self._needed_bytes:
                self._hold(data)
                return frames
            if self._needed_bytes > LENGTH_BYTES:
                position = self._needed_bytes - self.buffered_bytes
                frames.append(b"".join((*self._pieces, memoryview(data)[:position])))
            else:
                data = b"".join((*self._pieces, data))
                end = len(data)
            self._pieces, self.buffered_bytes = [], 0
        while end - position >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            if not HEAD.size <= size <= self.frame_bytes_max:
                raise WireError(f"invalid frame size: {size} bytes, allowed are {HEAD.size} to {self.frame_bytes_max}")
            if end - position < size:
                self._needed_bytes = size
                break
            if size == end:
                return [data]  # the usual case of a quiet connection: one read, one frame
            frames.append(data[position : position + size])
            position += size
        else:
            self._needed_bytes = LENGTH_BYTES
        if position < end:
            self._hold(memoryview(data)[position:])
        return frames

    def _hold(self, piece: bytes | memoryview) -> None:
        self.buffered_bytes += len(piece)
        if len(piece) >= PIECE_BYTES_MIN:
            self._pieces.append(piece)
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
            last += piece  # in place: copying on every small read would take quadratic time
        else:
            self._pieces.append(bytearray(piece))
