"""From a stream of bytes to whole frames, however the stream was cut into reads."""

from broadloom.wire.codec import HEAD, LENGTH_BYTES
from broadloom.wire.xdr import WireError

FRAME_BYTES_MAX = 1 << 20
"""The largest frame, its length included. Larger payloads are split before they get here."""


class FrameSplitter:
    """Feed it what was read; it hands back the frames that are complete and keeps the rest."""

    __slots__ = ("_buffer", "_needed_bytes", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._needed_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """All frames that `data` completes. A length out of bounds is a WireError: the stream is lost."""
        frames: list[bytes] = []
        position, end = 0, len(data)
        if self._buffer:
            if len(self._buffer) + end < self._needed_bytes:
                self._buffer += data  # and no copy of all that is held, or many small reads would cost its square
                return frames
            if self._needed_bytes > LENGTH_BYTES:  # a frame has come to its end; what is behind it is not moved
                position = self._needed_bytes - len(self._buffer)
                frames.append(b"".join((self._buffer, memoryview(data)[:position])))
            else:
                data = b"".join((self._buffer, data))
                end = len(data)
        while end - position >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            if not HEAD.size <= size <= self.frame_bytes_max:
                raise WireError(f"a frame of {size} bytes; allowed are {HEAD.size} to {self.frame_bytes_max}")
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
        """How much of an unfinished frame is held: never more than one frame."""
        return len(self._buffer)
