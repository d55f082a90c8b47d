"""Untrusted bytes: any input gives frames and messages, or raises `WireError`."""

import random
from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broadloom.wire.broadcast_frame import (
    BUNDLE_MESSAGES_MAX,
    decode_broadcast,
    encode_broadcast,
    forwarded,
    read_header,
    read_hops_and_age,
)
from broadloom.wire.codec import HEAD, Frame, decode, encode, number_of
from broadloom.wire.direct_messages import (
    Reply,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from broadloom.wire.framing import FrameSplitter
from broadloom.wire.roster_messages import MemberRecord, decode_record, encode_record, record_head
from broadloom.wire.types import Address
from broadloom.wire.xdr import WireError
from tests.wire.wire_strategies import ALL, HYPER_MAX, MESSAGES, frame_of, frame_with, resized

EXAMPLES = 250
MUTATIONS_EACH = 120


def decode_like_peer(frame: Frame) -> bool:
    """Read a frame in every way the code does. Returns True if it is a valid message."""
    for read in (number_of, read_hops_and_age):
        with suppress(WireError):
            read(frame)
    with suppress(WireError):
        _, first, last, _, _ = read_header(frame)
        assert 1 <= first <= last <= min(HYPER_MAX, first + BUNDLE_MESSAGES_MAX - 1)
    for read_direct, kind in ((decode_request, Request), (decode_reply, Reply)):
        with suppress(WireError):
            assert kind(*read_direct(frame)) == decode(frame)
    # A valid message encodes to the same frame again.
    with suppress(WireError):
        made = decode(frame)
        assert encode(made) == frame
        if isinstance(made, Request):
            assert decode_request(frame) == (made.id, made.flags, made.deadline_ms, made.layer, made.data)
            assert encode_request(made.id, made.flags, made.deadline_ms, made.layer, made.data) == frame
        elif isinstance(made, Reply):
            assert decode_reply(frame) == (made.id, made.status, made.flags, made.data)
            assert encode_reply(made.id, made.status, made.flags, made.data) == frame
        return True
    with suppress(WireError):
        broadcast = decode_broadcast(frame)
        assert encode_broadcast(broadcast) == frame
        hops, age_ms = read_hops_and_age(frame)
        expected = broadcast.author, broadcast.sequence, broadcast.last_sequence, hops, broadcast.dissemination
        assert read_header(frame) == expected
        assert read_header(forwarded(frame, hops + 1, age_ms + 1))[:3] == read_header(frame)[:3]
        return True
    return False


def read_stream(stream: bytes) -> None:
    try:
        frames = FrameSplitter().feed(stream)
    except WireError:
        return
    for frame in frames:
        decode_like_peer(frame)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"")
@example(bytes(8))
@example(b"\xff" * 16)
def test_random_bytes_decode_or_raise_wire_error(data: bytes) -> None:
    read_stream(data)
    decode_like_peer(data)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.binary(max_size=200))
def test_random_bodies_of_known_messages_decode_or_raise_wire_error(number: int, body: bytes) -> None:
    read_stream(frame_with(number, body))


words = st.one_of(
    st.integers(0, 3), st.integers(0, 300), st.sampled_from([65535, 65536, 1 << 20, 1 << 31, (1 << 32) - 1])
)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.lists(words, max_size=40))
def test_bodies_of_plausible_words_decode_or_raise_wire_error(number: int, body: list[int]) -> None:
    # Small words are valid flags, counts and enums, so these get further into a message than random bytes do.
    read_stream(frame_with(number, b"".join(word.to_bytes(4, "big") for word in body)))


def mutated(frame: bytes, rng: random.Random) -> bytes:
    made = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(6):
            case 0 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(made):
                made[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 2:
                word = rng.choice((0, 1, 2, 5, 257, 65536, 1 << 31, (1 << 32) - 1))
                made[at & ~3 : (at & ~3) + 4] = word.to_bytes(4, "big")
            case 3:
                del made[at:]
            case 4:
                del made[at : at + rng.randrange(9)]
            case _:
                made[at:at] = rng.randbytes(rng.randrange(9))
    # Mostly with a correct length, or the splitter would reject nearly all of them.
    return resized(bytes(made)) if len(made) >= HEAD.size and rng.random() < 0.9 else bytes(made)


@settings(max_examples=EXAMPLES, deadline=None)
@given(MESSAGES, st.integers(0, 1 << 32))
def test_mutated_frames_decode_or_raise_wire_error(made: Any, seed: int) -> None:
    # Hypothesis draws a message and a seed; `random` does the rest, because it is much faster.
    frame = frame_of(made)
    rng = random.Random(seed)
    assert decode_like_peer(frame)
    for _ in range(MUTATIONS_EACH):
        mutant = mutated(frame, rng)
        read_stream(mutant)
        decode_like_peer(mutant)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=300))
def test_random_records_of_members_decode_or_raise_wire_error(data: bytes) -> None:
    with suppress(WireError):
        peer_id, incarnation = record_head(data)
        record = decode_record(data)
        assert (record.peer_id, record.incarnation) == (peer_id, incarnation)
        assert encode_record(record) == data


RECORD = MemberRecord(1, 2, False, False, Address("host", 80), "ann", (3, 4), (5,), (6,))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 32))
def test_mutated_records_of_members_decode_or_raise_wire_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(MUTATIONS_EACH):
        mutant = mutated(encode_record(RECORD), rng)
        with suppress(WireError):
            assert encode_record(decode_record(mutant)) == mutant
