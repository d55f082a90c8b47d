"""The splitter returns the frames that were sent, however the stream was split, and buffers at most one frame."""

import time
import tracemalloc
from itertools import cycle, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.wire.codec import LENGTH_BYTES
from broadloom.wire.framing import FRAME_BYTES_MAX, LARGE_FRAME_BYTES_MIN, RESERVED_BYTES_MIN, FrameSplitter
from broadloom.wire.xdr import WireError
from tests.wire.wire_strategies import MESSAGES, frame_of, frame_with

FRAME_MAX = 100
FRAME_MIN = 8

frames = st.builds(frame_with, st.integers(0, 99), st.binary(max_size=FRAME_MAX - FRAME_MIN))


@st.composite
def streams(draw: st.DrawFn, of: st.SearchStrategy[bytes] = frames) -> tuple[list[bytes], list[bytes]]:
    """Some frames, and their bytes split into reads at random, including empty reads."""
    sent = draw(st.lists(of, max_size=6))
    stream = b"".join(sent)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    return sent, [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]


@settings(deadline=None)
@given(streams())
def test_splitter_returns_same_frames_for_any_split(case: tuple[list[bytes], list[bytes]]) -> None:
    sent, reads = case
    splitter = FrameSplitter(FRAME_MAX)
    got = []
    fed = 0
    for read in reads:
        got += splitter.feed(read)
        fed += len(read)
        assert splitter.buffered_bytes == fed - sum(map(len, got)) < FRAME_MAX
    assert got == sent
    assert splitter.buffered_bytes == 0


@settings(max_examples=50, deadline=None)
@given(streams(MESSAGES.map(frame_of)))
def test_splitter_returns_same_messages_for_any_split(case: tuple[list[bytes], list[bytes]]) -> None:
    sent, reads = case
    splitter = FrameSplitter()
    assert [frame for read in reads for frame in splitter.feed(read)] == sent


@settings(deadline=None)
@given(frames)
def test_splitter_returns_frame_with_its_last_byte(frame: bytes) -> None:
    splitter = FrameSplitter(FRAME_MAX)
    for byte in frame[:-1]:
        assert splitter.feed(bytes([byte])) == []
    assert splitter.feed(frame[-1:]) == [frame]


@settings(deadline=None)
@given(frames)
def test_frames_are_independent_objects(frame: bytes) -> None:
    # They are retained and relayed, so they must not be views of a buffer.
    splitter = FrameSplitter(FRAME_MAX)
    for got in [*splitter.feed(frame), *splitter.feed(frame[:5]), *splitter.feed(frame[5:])]:
        assert isinstance(got, bytes | bytearray)


def test_a_length_alone_reserves_little_memory() -> None:
    splitter, length = FrameSplitter(), (FRAME_BYTES_MAX - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    tracemalloc.start()
    splitter.feed(length)
    assert tracemalloc.get_traced_memory()[0] < 2 * RESERVED_BYTES_MIN
    splitter.feed(bytes(FRAME_BYTES_MAX // 2))
    assert tracemalloc.get_traced_memory()[0] < 2.5 * FRAME_BYTES_MAX
    tracemalloc.stop()


lengths_refused = st.integers(0, FRAME_MIN - LENGTH_BYTES - 1) | st.integers(
    FRAME_MAX - LENGTH_BYTES + 1, (1 << 32) - 1
)


@settings(deadline=None)
@given(lengths_refused, st.integers(0, LENGTH_BYTES), streams())
def test_invalid_length_is_rejected_before_rest_is_read(
    length: int, cut: int, before: tuple[list[bytes], list[bytes]]
) -> None:
    splitter = FrameSplitter(FRAME_MAX)
    for read in before[1]:
        splitter.feed(read)
    word = length.to_bytes(LENGTH_BYTES, "big")
    if cut < LENGTH_BYTES:
        assert splitter.feed(word[:cut]) == []
    with pytest.raises(WireError):
        splitter.feed(word[cut:] if cut < LENGTH_BYTES else word)
    assert splitter.buffered_bytes < FRAME_MAX


@pytest.mark.parametrize("size", [FRAME_MIN, FRAME_MAX])
def test_smallest_and_largest_frame_are_accepted(size: int) -> None:
    frame = frame_with(1, bytes(size - FRAME_MIN))
    assert FrameSplitter(FRAME_MAX).feed(frame + frame) == [frame, frame]


def test_largest_protocol_frame_is_accepted_and_one_more_byte_rejected() -> None:
    body = bytes(FRAME_BYTES_MAX - FRAME_MIN)
    assert FrameSplitter().feed(frame_with(1, body)) == [frame_with(1, body)]
    with pytest.raises(WireError):
        FrameSplitter().feed(frame_with(1, body + b"\0"))


def test_large_frame_in_small_reads_takes_linear_time() -> None:
    # Copying the buffer at each read would move 128 GB.
    frame = frame_with(1, bytes(FRAME_BYTES_MAX - FRAME_MIN))
    splitter = FrameSplitter()
    start_s = time.process_time()
    got = [each for at in range(0, len(frame), 4) for each in splitter.feed(frame[at : at + 4])]
    assert got == [frame]
    assert time.process_time() - start_s < 2


@settings(deadline=None)
@given(st.lists(st.integers(1, LARGE_FRAME_BYTES_MIN), min_size=1), st.integers(0, 40))
def test_rest_of_a_large_frame_can_be_read_straight_into_it(reads: list[int], tail: int) -> None:
    large = frame_with(1, bytes(range(256)) * (3 * LARGE_FRAME_BYTES_MIN // 256))
    stream = memoryview(large + frame_with(2, bytes(tail)))
    splitter, got, position = FrameSplitter(), [], 0
    for size in cycle(reads):
        if position == len(stream):
            break
        if (missing := splitter.missing) is not None:
            size = min(size, len(missing))
            missing[:size] = stream[position : position + size]
            got += [frame] if (frame := splitter.advance(size)) is not None else []
        else:
            got += splitter.feed(bytes(stream[position : position + size]))
        position = min(position + size, len(stream))
    assert got == [large, frame_with(2, bytes(tail))]
    assert splitter.buffered_bytes == 0
