"""Byte stream to whole frames, independent of how the stream was split into reads."""

from broadloom.wire.codec import HEAD, LENGTH_BYTES, Frame
from broadloom.wire.xdr import WireError

FRAME_BYTES_MAX = 1 << 20
"""The largest frame, including its length. Larger messages are sent as fragments."""
LARGE_FRAME_BYTES_MIN = 128 << 10
"""The rest of a frame of this size is read straight into it. For smaller ones that would take too many reads."""
RESERVED_BYTES_MIN = 64 << 10
"""Memory that is reserved for a frame before its bytes are there."""

# glibc maps new pages for each large block, which the kernel has to clear, until the program has freed a block of that
# size. From then on it reuses memory: bundles of small messages take up to a tenth less CPU time.
bytearray(FRAME_BYTES_MAX)


class FrameSplitter:
    """Returns the complete frames of each read and keeps the rest."""

    __slots__ = ("_begun", "_frame", "_largest_bytes", "_missing", "_size", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._begun = b""
        """The beginning of a frame, as long as its length is unknown."""
        self._size = 0
        """The length of the frame that has begun."""
        self._frame = bytearray()
        """The memory that is reserved for it."""
        self._missing: memoryview | None = None
        """The part of that memory whose bytes have not arrived."""
        self._largest_bytes = RESERVED_BYTES_MIN
        """The size of the largest frame so far: so much is reserved at once, more only as the bytes arrive, because a
        length alone costs its sender nothing."""

    @property
    def buffered_bytes(self) -> int:
        return len(self._begun) if self._missing is None else len(self._frame) - len(self._missing)

    @property
    def missing(self) -> memoryview | None:
        """A missing part of a large frame: the next bytes of the stream may be read straight into it, followed by
        `advance`."""
        return self._missing if self._size >= LARGE_FRAME_BYTES_MIN else None

    def advance(self, count: int) -> Frame | None:
        """Count missing bytes that have been read. Returns the frame if it is complete."""
        assert self._missing is not None
        if count < len(self._missing):
            self._missing = self._missing[count:]
            return None
        frame, self._frame, self._missing = self._frame, bytearray(), None
        if len(frame) < self._size:
            self._reserve(frame, 4 * len(frame))
            return None
        self._size, self._largest_bytes = 0, max(self._largest_bytes, len(frame))
        return frame

    def _reserve(self, arrived: Frame | memoryview, wanted_bytes: int) -> None:
        self._frame = bytearray(min(self._size, wanted_bytes))
        self._frame[: len(arrived)] = arrived
        self._missing = memoryview(self._frame)[len(arrived) :]

    def feed(self, data: bytes) -> list[Frame]:
        """Return all frames that `data` completes. Raises `WireError` for an invalid length; the stream is then
        unusable."""
        position, end = 0, len(data)
        frames: list[Frame] = []
        while self._missing is not None and position < end:
            count = min(len(self._missing), end - position)
            self._missing[:count] = memoryview(data)[position : position + count]
            position += count
            if (frame := self.advance(count)) is not None:
                frames.append(frame)
        if self._begun:
            data, self._begun = self._begun + data, b""
            end = len(data)
        while end - position >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            if not HEAD.size <= size <= self.frame_bytes_max:
                raise WireError(f"invalid frame size: {size} bytes, allowed are {HEAD.size} to {self.frame_bytes_max}")
            if end - position < size:
                self._size = size
                self._reserve(memoryview(data)[position:], max(self._largest_bytes, 2 * (end - position)))
                return frames
            if size == end:
                return [data]  # the usual case of a quiet connection: one read, one frame
            frames.append(data[position : position + size])
            position += size
        if position < end:
            self._begun = data[position:]
        return frames
