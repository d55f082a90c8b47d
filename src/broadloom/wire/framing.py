"""Byte stream to whole frames, independent of how the stream was split into reads."""

from broadloom.wire.codec import HEAD, LENGTH_BYTES
from broadloom.wire.xdr import WireError

FRAME_BYTES_MAX = 1 << 20
"""The largest frame, including its length. Larger messages are sent as fragments."""


class FrameSplitter:
    """Returns the complete frames of each read and keeps the rest."""

    __slots__ = ("_buffer", "_needed_bytes", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._needed_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return all frames that `data` completes. Raises `WireError` for an invalid length; the stream is then
        unusable."""
        end = len(data)
        if (
            not self._buffer
            and HEAD.size <= end <= self.frame_bytes_max
            and int.from_bytes(data[:LENGTH_BYTES], "big") == end - LENGTH_BYTES
        ):
            return [data]  # the usual case of a quiet connection: one read, one frame
        frames: list[bytes] = []
        position = 0
        if self._buffer:
            if len(self._buffer) + end < self._needed_bytes:
                self._buffer += data  # appends in place: copying on every small read would take quadratic time
                return frames
            if self._needed_bytes > LENGTH_BYTES:  # completes a frame without copying what follows
                position = self._needed_bytes - len(self._buffer)
                frames.append(b"".join((self._buffer, memoryview(data)[:position])))
            else:
                data = b"".join((self._buffer, data))
                end = len(data)
        while end - position >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            if not HEAD.size <= size <= self.frame_bytes_max:
                raise WireError(f"invalid frame size: {size} bytes, allowed are {HEAD.size} to {self.frame_bytes_max}")
            if end - position < size:
                self._needed_bytes = size
                break
            frames.append(data[position : position + size])
            position += size
        else:
            self._needed_bytes = LENGTH_BYTES
        self._buffer = bytearray(memoryview(data)[position:])
        return frames

    @property
    def buffered_bytes(self) -> int:
        """Size of the incomplete frame."""
        return len(self._buffer)
