"""Encoding and decoding: every message survives the round trip, malformed ones are counted and dropped."""

import zlib
from contextlib import suppress
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.groups import message_fields as f
from broadloom.groups import messages as m
from broadloom.groups.codec import GroupWireMessage, decode, encode, message_types
from broadloom.groups.creator_proofs import CREATOR_PROOF_BYTES
from broadloom.groups.messages import PayloadIds, payload_ids
from broadloom.groups.model import GroupMessage, MessageId, Post
from broadloom.groups.settings import BODY_BYTES_MAX, RetentionPolicy
from broadloom.wire.fields import Bool, Hyper, UInt
from broadloom.wire.xdr import UnknownMessageError, WireError
from tests.groups.group_bus import GroupBus

u64 = st.integers(0, (1 << 64) - 1)
u32 = st.integers(0, (1 << 32) - 1)
counts = st.integers(1, 1 << 40)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
intervals = st.tuples(counts, counts).map(lambda pair: (min(pair), max(pair)))


@st.composite
def posts(draw: st.DrawFn) -> Post:
    author, sequence = draw(u64), draw(counts)
    parent = draw(st.none() | st.builds(MessageId, u64.filter(lambda each: each != author), counts))
    is_stripped = draw(st.booleans())
    proof = draw(st.just(b"") | st.binary(min_size=104, max_size=104))[: 104 if is_stripped else 72]
    data = b"" if is_stripped else draw(st.binary(max_size=20))
    return Post(author, sequence, parent, draw(u64), data, is_stripped, proof=proof)


def tuples(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(elements, max_size=4).map(tuple)


proofs = st.sampled_from([(b"", b""), (bytes(CREATOR_PROOF_BYTES), b"one"), (bytes(CREATOR_PROOF_BYTES), b"other")])
descriptors = st.builds(
    lambda creator, description, retention, proof: f.GroupDescriptor(creator, description, retention, *proof),
    u64,
    names,
    st.builds(RetentionPolicy, u32, u32, u64, st.booleans()),
    proofs,
)
member_records = st.builds(f.MembershipRecord, u64, names, counts)
group_records = st.builds(f.GroupRecord, u64, st.none() | descriptors, tuples(member_records))
held_intervals = tuples(st.builds(f.AuthorIntervals, u64, tuples(intervals)))
KINDS: dict[Any, st.SearchStrategy[Any]] = {
    Hyper: u64,
    f.MemberIdField: u64,
    f.GroupIdField: u64,
    UInt: u32,
    Bool: st.booleans(),
    f.Name: names,
    f.PostField: posts(),
    f.Buckets: tuples(u64),
    f.MemberIds: tuples(u64),
    f.HeldIntervals: held_intervals,
    f.HistoryDigests: tuples(st.builds(f.HistoryDigest, u64, u64, u64)),
    f.MessageIds: tuples(st.builds(MessageId, u64, counts)),
    f.Names: tuples(st.tuples(u64, names)),
    f.Body: st.binary(max_size=40),
}


def group_messages() -> st.SearchStrategy[GroupWireMessage]:
    strategies = []
    for kind in message_types().values():
        hints = get_type_hints(kind, include_extras=True)
        strategies.append(st.builds(kind, *(KINDS[hints[each.name]] for each in fields_of(kind))))  # type: ignore[arg-type]
    return st.one_of(strategies)


@given(st.builds(m.PostMessage, u64, names, posts()), st.integers(0, 300))
def test_payload_ids_are_read_from_partial_payload(message: m.PostMessage, size: int) -> None:
    data = encode(message)
    expected = PayloadIds(message.group, message.post.id, message.post.parent_id)
    assert payload_ids(data) == payload_ids(data, is_partial=True) == expected
    proof_bytes = 4 + len(message.post.proof) if message.post.proof else 0
    head = len(data) - proof_bytes - 4 - (len(message.post.data) + 3) // 4 * 4
    assert payload_ids(data[:size], is_partial=True) == (expected if size >= head else None)
    assert payload_ids(data[:size]) == (expected if size >= len(data) else None)


@given(group_messages())
def test_every_message_survives_encoding(message: GroupWireMessage) -> None:
    assert decode(encode(message)) == message


@given(tuples(group_records), tuples(posts()))
def test_page_bodies_survive_encoding(some: tuple[f.GroupRecord, ...], others: tuple[Post, ...]) -> None:
    assert f.unpack_group_records(f.pack_group_records(some)) == some
    assert f.unpack_posts(f.pack_posts(others)) == others


def test_decompression_bomb_is_rejected() -> None:
    bomb = zlib.compress(bytes(50 << 20))
    assert len(bomb) < BODY_BYTES_MAX
    for body in (bomb, b"", b"nonsense", f.pack_posts([])[:-1], f.pack_posts([]) + b"x", zlib.compress(b"\0" * 8)):
        with pytest.raises(WireError):
            f.unpack_posts(body)


def test_message_numbers_are_complete() -> None:
    assert sorted(message_types()) == list(range(1, 11))


@given(st.data(), group_messages())
def test_damaged_bytes_raise_only_wire_error(data: st.DataObject, message: GroupWireMessage) -> None:
    """No other exception, and no allocation of memory for lengths that are only announced."""
    damaged = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(4, len(damaged))) :]
    with suppress(WireError):
        decode(bytes(damaged))


@given(st.lists(st.binary(max_size=60).map(lambda rest: b"BG\x01" + rest) | group_messages().map(encode), max_size=12))
def test_member_survives_arbitrary_payloads(payloads: list[bytes]) -> None:
    bus = GroupBus()
    a, b = bus.add("a"), bus.add("b")
    a.participant.create("a group", group=7)
    b.participant.create("a group", group=7)
    bus.run(10.0)
    for data in payloads:
        a.participant.on_message(77, data)
        bus.run(1.0)
    bus.run(60.0)
    sent = b.send_text(7, "still there?")
    bus.run(5.0)
    assert sent.id in a.tree(7)


def test_malformed_messages_are_counted() -> None:
    a = GroupBus().add("a")
    for data in (b"BG", b"BG\x01\x07", b"BG\x09\x01", b"BG\x01\xff", encode(m.GoingOffline(1)) + b"\0\0\0\0"):
        a.participant.on_message(5, data)
    assert a.participant.malformed_messages == 5
    a.participant.on_message(5, b"not ours")
    assert a.participant.malformed_messages == 5


@pytest.mark.parametrize(
    "post", [Post(1, 2, MessageId(1, 2), 0, b""), Post(1, 2, MessageId(1, 3), 0, b""), Post(1, 2, None, 0, b"x", True)]
)
def test_inconsistent_post_is_rejected(post: Post) -> None:
    with pytest.raises(WireError):
        decode(encode(m.PostMessage(7, "", post)))


@pytest.mark.parametrize("sent_at_ms", [-(1 << 63), 1 << 62, 253_402_300_800_000])
def test_time_of_message_is_none_for_numbers_beyond_every_calendar(sent_at_ms: int) -> None:
    sent = GroupMessage(1, MessageId(2, 3), "Anna", None, 1_700_000_000_000, b"")
    assert sent.sent_at is not None
    assert sent.sent_at.timestamp() == 1_700_000_000
    assert replace(sent, sent_at_ms=sent_at_ms).sent_at is None


def test_later_version_raises_unknown_message_error() -> None:
    with pytest.raises(UnknownMessageError, match="version 2"):
        decode(b"BG\x02\x01")
