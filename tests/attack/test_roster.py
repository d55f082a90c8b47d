"""Lies about who is on the channel: forged, replayed and invented records. On a manual clock."""

from typing import Any

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.roster.sync import COMPARES_SERVED_MAX, RECORDS_SERVED_MAX, UNLISTED_MAX
from broadloom.wire import PeerId
from broadloom.wire.codec import encode, packed
from broadloom.wire.fields import BUCKET_COUNT, RECORD_BYTES_MAX, ROSTER_RECORDS_MAX
from broadloom.wire.roster_messages import (
    INCARNATION_MAX,
    RosterBuckets,
    RosterDigest,
    RosterRecords,
    RosterVersions,
    RosterWant,
)
from broadloom.wire.types import RecordVersion, SignedRecord
from broadloom.wire.xdr import WireError
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime
from tests.protocol.roster.roster_kit import linked, member, member_events, record, records, records_sent, signed
from tests.protocol.signed_runtime import FakeSigner

LIAR, HONEST, VICTIM = 2, 3, 7
NO_TIMEOUT_S = 1e9
ALL_BUCKETS = (1 << 64) - 1


def with_victim(runtime: FakeRuntime, **settings: Any) -> tuple[Peer, FakeConnection, FakeConnection]:
    """A peer with two neighbors, both linked to a third member, whose records stay at incarnation 5."""
    peer = member(runtime, Tuning(heartbeat_timeout_s=NO_TIMEOUT_S, **settings))
    liar, honest = linked(runtime, peer, LIAR, HONEST)
    liar.remote_sends(records(record(VICTIM, LIAR, HONEST, incarnation=5)))
    for connection, neighbor in ((liar, LIAR), (honest, HONEST)):
        connection.remote_sends(records(record(neighbor, ME, VICTIM, incarnation=2)))
    runtime.advance(0.5)
    assert peer.roster.peer_ids() == [LIAR, HONEST, VICTIM, ME]
    runtime.events.clear()
    return peer, liar, honest


FORGERIES = {
    "signed by another member": signed(record(VICTIM, incarnation=6), by=LIAR),
    "signed for another channel": signed(record(VICTIM, incarnation=6), channel=bytes(16)),
    "not signed": signed(record(VICTIM, incarnation=6))._replace(signature=b""),
    "changed after it was signed": signed(record(VICTIM, LIAR, incarnation=6))._replace(
        record=signed(record(VICTIM, incarnation=6)).record
    ),
    "credential of another member": signed(record(9, LIAR))._replace(credential=FakeSigner(LIAR).credential),
    "in the receiver's name": signed(record(ME, incarnation=99)),
    "incarnation too large": signed(record(VICTIM, incarnation=INCARNATION_MAX + 1)),
    "name with a line break": signed(record(VICTIM, incarnation=6, name="a\nb")),
    "truncated": SignedRecord(b"\0" * 12, b"", b""),
    "extra bytes": signed(record(VICTIM, incarnation=6))._replace(
        record=signed(record(VICTIM, incarnation=6)).record + bytes(4)
    ),
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES)
def test_forged_record_is_neither_believed_nor_relayed_and_costs_the_link(forged: SignedRecord) -> None:
    runtime = FakeRuntime()
    peer, liar, honest = with_victim(runtime)
    before = records_sent(honest)
    liar.remote_sends(RosterRecords((forged,)))
    assert liar.closed
    runtime.advance(0.9)
    assert (VICTIM, 6) not in records_sent(honest)[len(before) :]
    assert VICTIM in peer.roster.peer_ids()
    assert not honest.closed


def test_replayed_older_record_changes_nothing() -> None:
    runtime = FakeRuntime()
    peer, liar, _ = with_victim(runtime)
    digest = peer.roster.sync.digest
    liar.remote_sends(records(record(VICTIM, incarnation=4), record(VICTIM, incarnation=1, is_leaving=True)))
    runtime.advance(3)
    assert peer.roster.peer_ids() == [LIAR, HONEST, VICTIM, ME]
    assert peer.roster.sync.digest == digest
    assert member_events(runtime) == []


def test_neighbor_that_drops_a_member_does_not_remove_it() -> None:
    runtime = FakeRuntime()
    peer, liar, _ = with_victim(runtime)
    liar.remote_sends(records(record(LIAR, ME, incarnation=3, unresponsive=(VICTIM,))))
    runtime.advance(60)
    assert VICTIM in peer.roster.peer_ids()
    assert member_events(runtime) == []


def test_member_that_claims_edges_to_all_reaches_none_of_them() -> None:
    runtime = FakeRuntime()
    peer, liar, _ = with_victim(runtime)
    liar.remote_sends(records(record(LIAR, ME, *range(100, 160), incarnation=3)))
    liar.remote_sends(records(*(record(each, ME, HONEST) for each in range(100, 110))))
    runtime.advance(3)
    assert [each for each in peer.roster.peer_ids() if 100 <= each < 160] == []


def test_dead_member_is_lost_even_if_a_liar_goes_on_listing_it() -> None:
    runtime = FakeRuntime()
    peer = member(runtime, Tuning(heartbeat_timeout_s=NO_TIMEOUT_S))
    liar, honest, third = linked(runtime, peer, LIAR, HONEST, 4)
    liar.remote_sends(records(record(VICTIM, LIAR, HONEST, 4)))
    for connection, neighbor in ((liar, LIAR), (honest, HONEST), (third, 4)):
        connection.remote_sends(records(record(neighbor, ME, VICTIM, incarnation=2)))
    for connection, neighbor in ((honest, HONEST), (third, 4)):
        connection.remote_sends(records(record(neighbor, ME, incarnation=3)))
    runtime.advance(5)
    assert VICTIM in peer.roster.peer_ids()
    runtime.advance(8)
    assert VICTIM not in peer.roster.peer_ids()
    liar.remote_sends(records(record(LIAR, ME, VICTIM, incarnation=3)))
    runtime.advance(3)
    assert VICTIM not in peer.roster.peer_ids()
    liar.remote_sends(records(record(VICTIM, LIAR, incarnation=2)))  # it lives
    runtime.advance(3)
    assert VICTIM in peer.roster.peer_ids()


def test_neighbor_that_hides_us_is_disconnected() -> None:
    runtime = FakeRuntime()
    peer, liar, honest = with_victim(runtime)
    liar.remote_sends(records(record(LIAR, VICTIM, incarnation=3)))
    for _ in range(UNLISTED_MAX):
        for connection in (liar, honest):
            connection.remote_sends(RosterDigest(peer.roster.sync.digest))
        runtime.advance(2)
    assert liar.closed
    assert not honest.closed


def test_invented_members_are_bounded() -> None:
    runtime = FakeRuntime()
    peer, liar, _ = with_victim(runtime, roster_max=50)
    invented = range(10_000, 10_400)
    listed = record(LIAR, ME, VICTIM, *invented[:50], incarnation=3)
    liar.remote_sends(records(listed))
    for start in range(0, 400, 50):
        liar.remote_sends(records(*(record(each, LIAR) for each in invented[start : start + 50])))
    runtime.advance(3)
    assert len(peer.roster.signed_records()) <= 50
    assert {LIAR, HONEST, VICTIM, ME} <= set(peer.roster.peer_ids())
    assert peer.counters.roster_records_dropped > 300


def test_flood_of_new_records_of_one_member_is_limited() -> None:
    runtime = FakeRuntime()
    peer, liar, honest = with_victim(runtime)
    before = len(records_sent(honest))
    for incarnation in range(3, 503):
        liar.remote_sends(records(record(LIAR, ME, VICTIM, incarnation=incarnation)))
        runtime.advance(0.01)
    assert len(records_sent(honest)) - before <= 16 + 4 * 5 + 1
    assert peer.counters.roster_records_dropped > 400


def test_flood_of_records_over_one_link_is_limited() -> None:
    runtime = FakeRuntime()
    peer, liar, _ = with_victim(runtime)
    for start in range(10_000, 18_000, ROSTER_RECORDS_MAX):
        liar.remote_sends(records(*(record(each, LIAR) for each in range(start, start + ROSTER_RECORDS_MAX))))
    assert len(peer.roster.signed_records()) <= 4004
    assert peer.counters.roster_records_dropped >= 3900


def test_questions_of_one_neighbor_are_limited() -> None:
    runtime = FakeRuntime()
    _, liar, _ = with_victim(runtime)
    liar.sent.clear()
    for _ in range(1000):
        liar.remote_sends(RosterWant((VICTIM,) * ROSTER_RECORDS_MAX), RosterBuckets((1,) * BUCKET_COUNT))
    served = sum(len(each.records) for each in liar.sent_messages(RosterRecords))
    assert served <= RECORDS_SERVED_MAX
    assert len(liar.sent_messages(RosterVersions)) <= COMPARES_SERVED_MAX


def test_unsolicited_versions_cause_nothing() -> None:
    runtime = FakeRuntime()
    peer, liar, _ = with_victim(runtime)
    liar.remote_sends(RosterDigest(peer.roster.sync.digest))
    peer.roster.sync.neighbors[next(iter(peer.roster.sync.neighbors))].awaits_versions = False
    liar.sent.clear()
    claims = tuple(RecordVersion(each, 1, 0) for each in range(5000))
    liar.remote_sends(RosterVersions(ALL_BUCKETS, False, claims))
    assert liar.sent_messages(RosterWant) == []


def test_claimed_versions_that_are_never_sent_cost_little() -> None:
    runtime = FakeRuntime()
    _, liar, _ = with_victim(runtime)
    liar.sent.clear()
    for _ in range(60):
        liar.remote_sends(RosterDigest(1), RosterDigest(2))
        liar.remote_sends(RosterVersions(ALL_BUCKETS, False, tuple(RecordVersion(each, 1, 0) for each in range(640))))
        runtime.advance(1)
    assert len(liar.sent_messages(RosterWant)) <= 6 * 10


def test_oversized_record_is_malformed() -> None:
    runtime = FakeRuntime()
    _, liar, _ = with_victim(runtime)
    frame = bytearray(encode(RosterRecords((SignedRecord(bytes(RECORD_BYTES_MAX), b"", b""),))))
    frame[12:16] = (RECORD_BYTES_MAX + 4).to_bytes(4, "big")
    frame[16:16] = bytes(4)
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    liar.remote_sends(bytes(frame))
    assert liar.closed
    with pytest.raises(WireError, match="at most 64"):
        packed(record(VICTIM, *range(65)))


def test_expired_credential_is_ignored_without_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime()
    peer, liar, _ = with_victim(runtime)
    signer = peer.roster._verifier._signer
    assert isinstance(signer, FakeSigner)
    signer.revoked.add(9)
    liar.remote_sends(records(record(9, LIAR)))
    assert not liar.closed
    assert peer.roster.get(PeerId(9)) is None
    assert peer.counters.roster_records_dropped == 1


def test_two_records_with_one_incarnation_give_equal_rosters() -> None:
    """A member that signs both: everyone keeps the same one, in whatever order they arrive."""
    kept = []
    for order in (1, -1):
        peer, liar, _ = with_victim(FakeRuntime())
        both = [record(LIAR, ME, VICTIM, incarnation=3, name=name) for name in ("a", "b")][::order]
        for each in both:
            liar.remote_sends(records(each))
        found = peer.roster.get(LIAR)
        assert found is not None
        kept.append(found.name)
    assert kept[0] == kept[1]


def test_member_refutes_a_record_in_its_name_on_a_plain_channel() -> None:
    runtime = FakeRuntime()
    peer = member(runtime, plain=True)
    liar, honest = linked(runtime, peer, LIAR, HONEST, plain=True)
    liar.remote_sends(records(record(ME, incarnation=40), plain=True))
    runtime.advance(1)
    assert (ME, 41) in records_sent(honest)
    liar.remote_sends(records(record(ME, incarnation=INCARNATION_MAX), plain=True))
    runtime.advance(1)
    assert not liar.closed
    assert peer.roster.peer_ids() == [LIAR, HONEST, ME]


def test_signed_record_on_a_plain_channel_is_malformed() -> None:
    runtime = FakeRuntime()
    (liar,) = linked(runtime, member(runtime, plain=True), LIAR, plain=True)
    liar.remote_sends(records(record(9, LIAR)))
    assert liar.closed
