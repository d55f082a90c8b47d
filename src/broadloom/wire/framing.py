"""Byte stream to whole frames, independent of how the stream was split into reads."""

from broadloom.wire.codec import HEAD, LENGTH_BYTES, Frame
from broadloom.wire.xdr import WireError

FRAME_BYTES_MAX = 1 << 20
"""The largest frame, including its length. Larger messages are sent as fragments."""
LARGE_FRAME_BYTES_MIN = 16 << 10
"""Frames from this size on are filled as their bytes arrive, and not copied again."""


class FrameSplitter:
    """Returns the complete frames of each read and keeps the rest."""

    __slots__ = ("_begun", "_frame", "_missing", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._begun = b""
        """The beginning of a frame, as long as its length is unknown."""
        self._frame = bytearray()
        """The frame that has begun."""
        self._missing: memoryview | None = None
        """The part of it that has not arrived."""

    @property
    def buffered_bytes(self) -> int:
        return len(self._begun) if self._missing is None else len(self._frame) - len(self._missing)

    @property
    def missing(self) -> memoryview | None:
        """The missing part of a large frame: the next bytes of the stream may be read straight into it, followed by
        `advance`."""
        return self._missing if len(self._frame) >= LARGE_FRAME_BYTES_MIN else None

    def advance(self, count: int) -> Frame | None:
        """Count missing bytes that have been read. Returns the frame if it is complete."""
        assert self._missing is not None
        if count < len(self._missing):
            self._missing = self._missing[count:]
            return None
        frame, self._frame, self._missing = self._frame, bytearray(), None
        return frame if len(frame) >= LARGE_FRAME_BYTES_MIN else bytes(frame)

    def feed(self, data: bytes) -> list[Frame]:
        """Return all frames that `data` completes. Raises `WireError` for an invalid length; the stream is then
        unusable."""
        position, end = 0, len(data)
        frames: list[Frame] = []
        if self._missing is not None:
            position = min(len(self._missing), end)
            self._missing[:position] = memoryview(data)[:position]
            if (frame := self.advance(position)) is None:
                return frames
            frames.append(frame)
        elif self._begun:
            data, self._begun = self._begun + data, b""
            end = len(data)
        while end - position >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            if not HEAD.size <= size <= self.frame_bytes_max:
                raise WireError(f"invalid frame size: {size} bytes, allowed are {HEAD.size} to {self.frame_bytes_max}")
            if end - position < size:
                self._frame = bytearray(size)
                self._frame[: end - position] = memoryview(data)[position:]
                self._missing = memoryview(self._frame)[end - position :]
                return frames
            if size == end:
                return [data]  # the usual case of a quiet connection: one read, one frame
            frames.append(data[position : position + size])
            position += size
        self._begun = data[position:]
        return frames
