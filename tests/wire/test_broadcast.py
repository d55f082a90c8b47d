"""The broadcast frame: encoding of messages and bundles, and what a relay changes."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.wire.broadcast_frame import (
    BROADCAST,
    BUNDLE_MESSAGES_MAX,
    PRIORITY_MAX,
    SIGNATURE_BYTES_MAX,
    Broadcast,
    Dissemination,
    decode_broadcast,
    encode_broadcast,
    forwarded,
    read_header,
    read_hops_and_age,
    read_signed_part,
    relayed,
    signature_of,
    signed_part,
)
from broadloom.wire.codec import kinds, number_of
from broadloom.wire.framing import FRAME_BYTES_MAX, FrameSplitter
from broadloom.wire.payload_kind import PayloadKind
from broadloom.wire.xdr import WireError
from tests.wire.wire_strategies import BROADCASTS, HYPER_MAX, UINT_MAX, frame_with, resized, uints

PAGE = Path(__file__).parents[2] / "docs" / "protocol" / "README.md"
SMALL = Broadcast(author=7, sequence=3, stream_start=2, messages=(b"e4",))
BUNDLED_AT, PRIORITY_AT, SIGNATURE_AT, SIZES_AT = 36, 48, 56, 60
"""Offsets of the fields; that of the sizes without a signature."""


def with_uint(frame: bytes, at: int, value: int) -> bytes:
    return frame[:at] + value.to_bytes(4, "big") + frame[at + 4 :]


def uint_bytes(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)


def assert_rejected(frame: bytes, match: str | None = None) -> None:
    with pytest.raises(WireError, match=match) as caught:
        decode_broadcast(frame)
    assert type(caught.value) is WireError


@settings(deadline=None)
@given(BROADCASTS)
def test_broadcast_survives_encode_and_decode(made: Broadcast) -> None:
    frame = encode_broadcast(made)
    assert decode_broadcast(frame) == made
    assert FrameSplitter().feed(frame) == [frame]
    assert number_of(frame) == BROADCAST
    assert len(frame) % 4 == 0


def test_frame_of_one_message_has_these_bytes() -> None:
    frame = encode_broadcast(SMALL)
    assert frame == bytes.fromhex(
        "00000048 00000015 00000001 00000000"  # length, broadcast, hops, age
        "00000000 00000007 00000000 00000003"  # author, sequence
        "00000001 00000001 00000000 00000000"  # second of the stream, one message, flood, data
        "00000001 00000000 00000000"  # normal priority, no TTL, no signature
        "00000001 00000002 00000002 65340000"  # one size, sum of sizes, "e4"
    )
    signed = encode_broadcast(SMALL._replace(kind=PayloadKind.FILE, ttl_ms=500, signature=b"abcde"))
    assert signed == bytes.fromhex(
        "00000050 00000015 00000001 00000000"
        "00000000 00000007 00000000 00000003"
        "00000001 00000001 00000000 00000002"  # a file
        "00000001 000001f4 00000005 61626364 65000000"  # TTL of 500 ms, signature
        "00000001 00000002 00000002 65340000"
    )


@settings(deadline=None)
@given(BROADCASTS)
def test_read_header_agrees_with_decode(made: Broadcast) -> None:
    frame = encode_broadcast(made)
    assert read_header(frame) == (
        made.author,
        made.sequence,
        made.sequence + len(made.messages) - 1,
        made.hops,
        made.dissemination,
    )
    assert read_header(frame)[2] == made.last_sequence
    assert read_hops_and_age(frame) == (made.hops, made.age_ms)


@settings(deadline=None)
@given(BROADCASTS)
def test_frame_in_a_bytearray_reads_as_one_in_bytes(made: Broadcast) -> None:
    """Large frames arrive in bytearrays; messages and signatures must be bytes all the same."""
    frame = encode_broadcast(made)
    read = decode_broadcast(bytearray(frame))
    assert read == made
    assert {type(each) for each in (*read.messages, read.signature)} == {bytes}
    for function in (read_header, signature_of, signed_part):
        assert function(bytearray(frame)) == function(frame)
    assert type(signed_part(bytearray(frame))) is type(signature_of(bytearray(frame))) is bytes
    assert b"".join(filter(None, relayed(bytearray(frame), 7, 9))) == forwarded(frame, 7, 9)


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
def test_forwarded_caps_hops_and_age_at_their_maximum(made: Broadcast, hops: int, age_ms: int) -> None:
    # A malicious peer may send the largest hops and age; a relay that adds to them must not fail.
    sent_on = forwarded(encode_broadcast(made), UINT_MAX + hops, UINT_MAX + age_ms)
    assert read_hops_and_age(sent_on) == (UINT_MAX, UINT_MAX)


def test_broadcast_number_is_unique() -> None:
    assert BROADCAST not in kinds()


@settings(deadline=None)
@given(BROADCASTS, uints, uints, st.binary(max_size=SIGNATURE_BYTES_MAX))
def test_signature_covers_all_but_itself_and_the_prefix(
    made: Broadcast, hops: int, age_ms: int, signature: bytes
) -> None:
    unsigned = encode_broadcast(made._replace(signature=b""))
    assert signed_part(encode_broadcast(made._replace(hops=hops, age_ms=age_ms, signature=signature))) == signed_part(
        unsigned
    )
    assert signed_part(unsigned) == unsigned[16:SIGNATURE_AT] + hashlib.sha256(unsigned[SIZES_AT:]).digest()


@settings(deadline=None)
@given(BROADCASTS)
def test_signed_part_identifies_author_and_last_message(made: Broadcast) -> None:
    part = signed_part(encode_broadcast(made))
    assert read_signed_part(part) == (made.author, made.last_sequence)
    with pytest.raises(WireError):
        read_signed_part(part[:-1])
    with pytest.raises(WireError):
        read_signed_part(part[:8] + bytes(8) + part[16:])  # sequence number 0


def test_document_states_size_of_unsigned_prefix() -> None:
    found = re.search(r"the (\d+) bytes\s+of the frame from `author` to `ttl_ms`", PAGE.read_text())
    assert found
    assert int(found[1]) == SIGNATURE_AT - 16


def test_signed_part_differs_for_each_changed_field() -> None:
    changes: list[dict[str, Any]] = [
        {"author": 8},
        {"sequence": 4},
        {"stream_start": 1},
        {"dissemination": Dissemination.TREE},
        {"kind": PayloadKind.FILE},
        {"priority": 2},
        {"ttl_ms": 1},
        {"messages": (b"e5",)},
        {"messages": (b"e4", b"")},
        {"messages": (b"e", b"4")},
        {"messages": (b"", b"e4")},
    ]
    different = {signed_part(encode_broadcast(SMALL._replace(**change))) for change in [{}, *changes]}
    assert len(different) == 1 + len(changes)


@pytest.mark.parametrize(
    "messages",
    [
        (b"",),
        (b"e4",),
        (b"e4", b"e5"),
        (b"one", b"two", b"six"),
        (b"1", b"2", b"3", b"4", b"5"),
        (b"", b""),
        (b"", b"", b"", b"", b""),
        (b"e", b"d4"),
        (b"d4", b"e"),
        (b"", b"e4"),
        (b"e4", b""),
        (b"e4", b"", b"d4"),
        (b"\0\0\0", b"\0", b"\0\0"),
        (b"as", b"l", b"ong"),  # as long together as if all had the size of the first
        (b"same", b"size", b"nor", b"or", b"same", b"size"),
        (bytes(range(256)),) * 100,
    ],
    ids=lambda messages: f"{len(messages)} of {sum(map(len, messages))}",
)
def test_bundle_is_split_into_its_messages(messages: tuple[bytes, ...]) -> None:
    made = SMALL._replace(messages=messages)
    frame = encode_broadcast(made)
    body = b"".join(messages)
    sizes = [len(each) for each in messages]
    assert frame[SIZES_AT:] == uint_bytes(len(sizes), *sizes, len(body)) + body + bytes(-len(body) % 4)
    found = decode_broadcast(frame)
    assert found == made
    assert all(type(each) is bytes for each in found.messages)
    assert read_header(frame) == (7, 3, 2 + len(messages), 1, Dissemination.FLOOD)
    assert found.last_sequence == 2 + len(messages)


@pytest.mark.parametrize("message", [b"", b"e4"])
def test_largest_bundle_is_accepted_and_one_more_message_rejected(message: bytes) -> None:
    made = SMALL._replace(messages=(message,) * BUNDLE_MESSAGES_MAX)
    frame = encode_broadcast(made)
    assert decode_broadcast(frame) == made
    assert read_header(frame) == (7, 3, 2 + BUNDLE_MESSAGES_MAX, 1, Dissemination.FLOOD)
    with pytest.raises(WireError, match="messages in one frame"):
        encode_broadcast(made._replace(messages=(*made.messages, message)))
    # A frame from another encoder is rejected too.
    sizes = uint_bytes(BUNDLE_MESSAGES_MAX + 1, *[0] * (BUNDLE_MESSAGES_MAX + 1), 0)
    more = with_uint(resized(encode_broadcast(SMALL)[:SIZES_AT] + sizes), BUNDLED_AT, BUNDLE_MESSAGES_MAX + 1)
    assert_rejected(more, "out of range")
    with pytest.raises(WireError):
        read_header(more)


def test_highest_sequence_is_accepted_and_the_next_rejected() -> None:
    three = (b"a", b"b", b"c")
    end = Broadcast(author=7, sequence=HYPER_MAX - 2, stream_start=HYPER_MAX - 2, messages=three)
    frame = encode_broadcast(end)
    assert decode_broadcast(frame) == end
    assert read_header(frame) == (7, HYPER_MAX - 2, HYPER_MAX, 1, Dissemination.FLOOD)
    for sequence in (HYPER_MAX - 1, HYPER_MAX):
        with pytest.raises(WireError):
            encode_broadcast(end._replace(sequence=sequence))
        further = frame[:24] + sequence.to_bytes(8, "big") + frame[32:]
        assert_rejected(further, "out of range")
        with pytest.raises(WireError):
            read_header(further)


# Each has one defect and is otherwise valid.

ONE = encode_broadcast(SMALL)
EQUAL = encode_broadcast(SMALL._replace(messages=(b"abcd", b"efgh")))
MIXED = encode_broadcast(SMALL._replace(messages=(b"abcd", b"e", b"")))
SIGNED = encode_broadcast(SMALL._replace(signature=b"abcde"))


def sized(frame: bytes, *sizes: int) -> bytes:
    """The frame with other sizes."""
    return frame[: SIZES_AT + 4] + uint_bytes(*sizes) + frame[SIZES_AT + 4 + 4 * len(sizes) :]


BAD_BYTES = {
    "no message, and a size": with_uint(ONE, BUNDLED_AT, 0),
    "no message": with_uint(resized(ONE[:SIZES_AT] + uint_bytes(0, 0)), BUNDLED_AT, 0),
    "no message, but bytes": with_uint(resized(ONE[:SIZES_AT] + uint_bytes(0, 4) + b"abcd"), BUNDLED_AT, 0),
    "more bundled than sizes": with_uint(EQUAL, BUNDLED_AT, 3),
    "fewer bundled than sizes": with_uint(EQUAL, BUNDLED_AT, 1),
    "more sizes than bundled": with_uint(EQUAL, SIZES_AT, 3),
    "fewer sizes than bundled": with_uint(EQUAL, SIZES_AT, 1),
    "no sizes": with_uint(EQUAL, SIZES_AT, 0),
    "4 billion sizes": with_uint(EQUAL, SIZES_AT, UINT_MAX),
    "4 billion bundled": with_uint(EQUAL, BUNDLED_AT, UINT_MAX),
    "4 billion of both": with_uint(with_uint(EQUAL, BUNDLED_AT, UINT_MAX), SIZES_AT, UINT_MAX),
    "as many as possible and not there": with_uint(
        with_uint(EQUAL, BUNDLED_AT, BUNDLE_MESSAGES_MAX), SIZES_AT, BUNDLE_MESSAGES_MAX
    ),
    "one size too small": sized(ONE, 1),
    "one size too large": sized(ONE, 3),
    "equal sizes too small": sized(EQUAL, 3, 3),
    "equal sizes too large": sized(EQUAL, 5, 5),
    "equal sizes of nothing": sized(EQUAL, 0, 0),
    "mixed sizes too small": sized(MIXED, 4, 0, 0),
    "mixed sizes too large": sized(MIXED, 4, 1, 1),
    "a size that is larger than the rest": sized(MIXED, 5, 1, 0),
    "sizes that add up modulo 2^32": sized(MIXED, UINT_MAX, 6, 0),
    "a size of 4 GB": sized(ONE, UINT_MAX),
    "4 GB of messages": sized(ONE, UINT_MAX, UINT_MAX),
    "fewer bytes of messages, and sizes that fit": sized(EQUAL, 2, 2, 4),
    "more bytes of messages, and sizes that fit": resized(sized(EQUAL, 6, 6, 12)),
    "padding not zero": ONE[:-1] + b"\1",
    "padding of a bundle not zero": MIXED[:-3] + b"\1\0\0",
    "padding missing": resized(ONE[:-2]),
    "padding cut short": resized(MIXED[:-1]),
    "padding too long": resized(ONE + bytes(4)),
    "padding where none is needed": resized(EQUAL + bytes(4)),
    "padding of the signature not zero": SIGNED[: SIGNATURE_AT + 9] + b"\1" + SIGNED[SIGNATURE_AT + 10 :],
    "signature too long": resized(
        ONE[:SIGNATURE_AT] + uint_bytes(SIGNATURE_BYTES_MAX + 4) + bytes(SIGNATURE_BYTES_MAX + 4) + ONE[SIZES_AT:]
    ),
    "signature longer than the frame": with_uint(ONE, SIGNATURE_AT, SIGNATURE_BYTES_MAX),
    "signature of 4 GB": with_uint(ONE, SIGNATURE_AT, UINT_MAX),
    "priority too high": with_uint(ONE, PRIORITY_AT, PRIORITY_MAX + 1),
    "priority of 4 billion": with_uint(ONE, PRIORITY_AT, UINT_MAX),
    "sequence of zero": ONE[:24] + bytes(12) + ONE[36:],
    "a length that is too small": with_uint(ONE, 0, len(ONE) - 8),
    "a length that is too large": with_uint(ONE, 0, len(ONE)),
}


@pytest.mark.parametrize("frame", BAD_BYTES.values(), ids=list(BAD_BYTES))
def test_malformed_bytes_raise_wire_error(frame: bytes) -> None:
    assert_rejected(frame)


def test_unmodified_frames_of_the_malformed_cases_are_valid() -> None:
    assert with_uint(with_uint(EQUAL, BUNDLED_AT, 2), SIZES_AT, 2) == EQUAL
    assert with_uint(with_uint(SIGNED, SIGNATURE_AT, 5), 0, len(SIGNED) - 4) == SIGNED
    assert sized(EQUAL, 4, 4, 8) == EQUAL
    assert with_uint(ONE, PRIORITY_AT, PRIORITY_MAX) == encode_broadcast(SMALL._replace(priority=PRIORITY_MAX))
    assert decode_broadcast(sized(EQUAL, 5, 3)).messages == (b"abcde", b"fgh"), "any sizes that add up are valid"


def test_unknown_payload_kind_is_preserved() -> None:
    for kind in (*PayloadKind, max(PayloadKind) + 1, UINT_MAX):
        assert decode_broadcast(encode_broadcast(SMALL._replace(kind=kind))).kind == kind


@pytest.mark.parametrize("count", [1, 2, 3])
def test_largest_messages_are_accepted_and_one_more_byte_rejected(count: int) -> None:
    room_bytes = FRAME_BYTES_MAX - len(encode_broadcast(SMALL._replace(messages=(b"",) * count)))
    messages = (bytes(room_bytes // count),) * (count - 1) + (bytes(room_bytes - room_bytes // count * (count - 1)),)
    frame = encode_broadcast(SMALL._replace(messages=messages))
    assert len(frame) == FRAME_BYTES_MAX
    assert FrameSplitter().feed(frame) == [frame]
    assert decode_broadcast(frame).messages == messages
    with pytest.raises(WireError):
        encode_broadcast(SMALL._replace(messages=(*messages[1:], messages[0] + b"\0")))


@pytest.mark.parametrize(
    "change",
    [
        {"author": HYPER_MAX + 1},
        {"author": -1},
        {"sequence": HYPER_MAX + 1, "stream_start": HYPER_MAX},
        {"sequence": 0, "stream_start": 0},
        {"stream_start": 0},
        {"stream_start": 4},
        {"sequence": UINT_MAX + 2, "stream_start": 1},
        {"hops": UINT_MAX + 1},
        {"age_ms": -1},
        {"messages": ()},
        {"sequence": HYPER_MAX, "stream_start": HYPER_MAX, "messages": (b"", b"")},
        {"kind": UINT_MAX + 1},
        {"kind": -1},
        {"priority": PRIORITY_MAX + 1},
        {"priority": -1},
        {"ttl_ms": UINT_MAX + 1},
        {"signature": bytes(SIGNATURE_BYTES_MAX + 1)},
    ],
    ids=lambda messages: f"{len(messages)} of {sum(map(len, messages))}",
)
def test_invalid_field_raises_wire_error_when_encoded(change: dict[str, Any]) -> None:
    made = SMALL._replace(**change)
    if change.get("sequence") == UINT_MAX + 2:
        # The longest stream, and one message more.
        assert decode_broadcast(encode_broadcast(made._replace(stream_start=2))).stream_start == 2
        made = made._replace(sequence=made.sequence + 1)
    with pytest.raises(WireError):
        encode_broadcast(made)


@settings(deadline=None)
@given(BROADCASTS)
def test_truncated_broadcast_raises_wire_error(made: Broadcast) -> None:
    frame = encode_broadcast(made)
    for end in range(len(frame)):
        for cut in (frame[:end], resized(frame[:end])):
            with pytest.raises(WireError):
                decode_broadcast(cut)


@settings(deadline=None)
@given(BROADCASTS, st.binary(min_size=1, max_size=8))
def test_trailing_bytes_raise_wire_error(made: Broadcast, extra: bytes) -> None:
    frame = encode_broadcast(made) + extra
    for longer in (frame, resized(frame)):
        with pytest.raises(WireError):
            decode_broadcast(longer)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_read_header_rejects_short_frame(body: bytes) -> None:
    frame = frame_with(BROADCAST, body)
    for read, bytes_min in ((read_header, 68), (read_hops_and_age, 16)):
        if len(frame) < bytes_min:
            with pytest.raises(WireError):
                read(frame)


def test_sequence_before_stream_start_raises_wire_error() -> None:
    frame = bytearray(encode_broadcast(SMALL))
    frame[32:36] = (3).to_bytes(4, "big")
    for read in (read_header, decode_broadcast):
        with pytest.raises(WireError):
            read(bytes(frame))


@pytest.mark.parametrize("number", [0, 1, BROADCAST + 1])
def test_other_message_number_raises_wire_error(number: int) -> None:
    with pytest.raises(WireError):
        decode_broadcast(frame_with(number, encode_broadcast(SMALL)[8:]))
