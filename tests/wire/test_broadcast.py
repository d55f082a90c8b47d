"""The broadcast frame: whole and back, and what a relay may and may not change of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.wire_strategies import BROADCASTS, HYPER_MAX, UINT_MAX, frame_with, resized, uints
from weft.wire.broadcast import (
    BROADCAST,
    SIGNATURE_BYTES_MAX,
    Broadcast,
    decode_broadcast,
    encode_broadcast,
    forwarded,
    name_of,
    travelled,
)
from weft.wire.codec import kinds, number_of
from weft.wire.errors import WireError
from weft.wire.framing import FRAME_BYTES_MAX, Splitter

SMALL = Broadcast(author=7, sequence=3, run_start=2, payload=b"e4")


@settings(deadline=None)
@given(BROADCASTS)
def test_round_trip(made: Broadcast) -> None:
    frame = encode_broadcast(made)
    assert decode_broadcast(frame) == made
    assert Splitter().feed(frame) == [frame]
    assert number_of(frame) == BROADCAST
    assert len(frame) % 4 == 0


@settings(deadline=None)
@given(BROADCASTS)
def test_the_quick_looks_agree_with_decode(made: Broadcast) -> None:
    frame = encode_broadcast(made)
    assert name_of(frame) == (made.author, made.sequence, made.run_start)
    assert travelled(frame) == (made.hops, made.age_ms)


@settings(deadline=None)
@given(BROADCASTS, uints, uints)
def test_forwarded_changes_only_hops_and_age(made: Broadcast, hops: int, age_ms: int) -> None:
    frame = encode_broadcast(made)
    sent_on = forwarded(frame, hops, age_ms)
    assert decode_broadcast(sent_on) == made._replace(hops=hops, age_ms=age_ms)
    assert sent_on == frame[:8] + sent_on[8:16] + frame[16:]
    assert forwarded(sent_on, made.hops, made.age_ms) == frame


@settings(deadline=None)
@given(BROADCASTS, st.integers(0, UINT_MAX), st.integers(0, UINT_MAX))
def test_a_copy_that_came_as_far_as_numbers_go_can_be_sent_on(made: Broadcast, hops: int, age_ms: int) -> None:
    # A stranger may send the largest hops and age there are; a relay that adds to them must not fail.
    sent_on = forwarded(encode_broadcast(made), UINT_MAX + hops, UINT_MAX + age_ms)
    assert travelled(sent_on) == (UINT_MAX, UINT_MAX)


def test_its_number_is_not_used_twice() -> None:
    assert BROADCAST not in kinds()


def test_the_largest_payload_fits_and_one_more_byte_does_not() -> None:
    room_bytes = FRAME_BYTES_MAX - len(encode_broadcast(SMALL._replace(payload=b"")))
    frame = encode_broadcast(SMALL._replace(payload=bytes(room_bytes)))
    assert len(frame) == FRAME_BYTES_MAX
    assert Splitter().feed(frame) == [frame]
    with pytest.raises(WireError):
        encode_broadcast(SMALL._replace(payload=bytes(room_bytes + 1)))


@pytest.mark.parametrize(
    "change",
    [
        {"author": HYPER_MAX + 1},
        {"author": -1},
        {"sequence": HYPER_MAX + 1, "run_start": HYPER_MAX},
        {"sequence": 0, "run_start": 0},
        {"run_start": 0},
        {"run_start": 4},
        {"sequence": UINT_MAX + 2, "run_start": 1},
        {"hops": UINT_MAX + 1},
        {"age_ms": -1},
        {"bundled": UINT_MAX + 1},
        {"priority": UINT_MAX + 1},
        {"lifetime_ms": UINT_MAX + 1},
        {"signature": bytes(SIGNATURE_BYTES_MAX + 1)},
    ],
    ids=str,
)
def test_what_no_receiver_would_take_is_not_encoded(change: dict[str, int | bytes]) -> None:
    made = SMALL._replace(**change)  # type: ignore[arg-type]
    if change.get("sequence") == UINT_MAX + 2:
        # The longest run there is, and one more.
        assert decode_broadcast(encode_broadcast(made._replace(run_start=2))).run_start == 2
        made = made._replace(sequence=made.sequence + 1)
    with pytest.raises(WireError):
        encode_broadcast(made)


@settings(deadline=None)
@given(BROADCASTS)
def test_truncation_at_every_position_is_refused(made: Broadcast) -> None:
    frame = encode_broadcast(made)
    for end in range(len(frame)):
        for cut in (frame[:end], resized(frame[:end])):
            with pytest.raises(WireError):
                decode_broadcast(cut)


@settings(deadline=None)
@given(BROADCASTS, st.binary(min_size=1, max_size=8))
def test_trailing_bytes_are_refused(made: Broadcast, extra: bytes) -> None:
    frame = encode_broadcast(made) + extra
    for longer in (frame, resized(frame)):
        with pytest.raises(WireError):
            decode_broadcast(longer)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_a_short_frame_is_refused_by_the_quick_looks_too(body: bytes) -> None:
    frame = frame_with(BROADCAST, body)
    for look, least_bytes in ((name_of, 56), (travelled, 16)):
        if len(frame) < least_bytes:
            with pytest.raises(WireError):
                look(frame)


def test_a_sequence_before_its_run_is_refused() -> None:
    frame = bytearray(encode_broadcast(SMALL))
    frame[32:36] = (3).to_bytes(4, "big")
    for read in (name_of, decode_broadcast):
        with pytest.raises(WireError):
            read(bytes(frame))


@pytest.mark.parametrize("number", [0, 1, BROADCAST + 1])
def test_another_number_is_refused(number: int) -> None:
    with pytest.raises(WireError):
        decode_broadcast(frame_with(number, encode_broadcast(SMALL)[8:]))
