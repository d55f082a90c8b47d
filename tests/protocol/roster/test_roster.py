"""The roster of one peer: its own record, those of others, and the events that follow."""

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.roster.member import LossCause, MemberLost
from broadloom.protocol.roster.sync import COMPLETE_S_MAX, INCOMPLETE_S_MAX, WANT_INTERVAL_S
from broadloom.wire.codec import number_of
from broadloom.wire.fields import BUCKET_COUNT, ROSTER_RECORDS_MAX
from broadloom.wire.link_messages import Heartbeat
from broadloom.wire.roster_messages import (
    RosterBuckets,
    RosterDigest,
    RosterRecords,
    RosterVersions,
    RosterWant,
    decode_record,
)
from broadloom.wire.types import RecordVersion
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime, creator, link
from tests.protocol.roster.roster_kit import (
    linked,
    member,
    member_events,
    record,
    records,
    records_sent,
    signed,
)

ALL_BUCKETS = (1 << 64) - 1


def own_records(connection: FakeConnection) -> list[tuple[int, ...]]:
    """The neighbors that our records listed, one after the other."""
    made = [decode_record(each.record) for sent in connection.sent_messages(RosterRecords) for each in sent.records]
    return [each.neighbors for each in made if each.peer_id == ME]


# -- our own record


def test_record_lists_neighbors_and_is_signed_again_when_they_change() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    first, second = linked(runtime, peer, 2, 3)
    assert own_records(first)[-1] == (2, 3)
    second.remote_closes()
    runtime.advance(0.5)
    assert own_records(first)[-1] == (2,)


def test_burst_of_changes_is_published_at_a_limited_pace() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (watcher,) = linked(runtime, peer, 2)
    for _ in range(40):
        link(peer, 3).remote_closes()
        runtime.advance(0.05)
    assert len(own_records(watcher)) <= 2 + 2 / peer.settings.roster_publish_s


def test_layers_that_are_opened_right_after_connecting_are_published_at_once() -> None:
    """A newcomer would take this member for one without the layer."""
    runtime = FakeRuntime()
    peer = member(runtime)
    peer.roster.set_layers((1 << 16,))
    runtime.advance(peer.settings.roster_gather_s)
    member_record = peer.roster.get(ME)
    assert member_record is not None
    assert len(member_record.layers) == 1


def test_unchanged_links_are_not_published_again() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (watcher,) = linked(runtime, peer, 2)
    runtime.advance(1)
    count = len(own_records(watcher))
    again = link(peer, 3)
    again.remote_closes()  # before it was published
    runtime.advance(1)
    assert own_records(watcher)[count:] in ([], [(2, 3), (2,)])


def test_last_record_says_that_the_member_leaves() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (watcher,) = linked(runtime, peer, 2)
    peer.leave()
    (last,) = watcher.sent_messages(RosterRecords)[-1].records
    assert decode_record(last.record).is_leaving


def test_peer_without_roster_sends_heartbeats_only() -> None:
    runtime = FakeRuntime()
    neighbor = link(creator(runtime, Tuning(roster_max=0, heartbeat_timeout_s=1e9)), 2)
    neighbor.remote_sends(RosterDigest(5), records(record(2, ME)), RosterWant((2,)))
    runtime.advance(10)
    assert neighbor.sent_messages(Heartbeat)
    for kind in (RosterDigest, RosterRecords, RosterBuckets, RosterVersions):
        assert neighbor.sent_messages(kind) == []


# -- members


def test_member_is_present_when_both_ends_list_an_edge() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.remote_sends(records(record(7, 2, 8)))
    assert peer.roster.peer_ids() == [2, ME]
    neighbor.remote_sends(records(record(2, ME, 7, incarnation=2)))
    assert peer.roster.peer_ids() == [2, 7, ME]
    assert member_events(runtime) == [("MemberJoined", 2), ("MemberJoined", 7)]


def test_exchange_of_edges_within_the_grace_period_is_no_loss() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.remote_sends(records(record(7, 2), record(2, ME, 7, incarnation=2)))
    neighbor.remote_sends(records(record(2, ME, incarnation=3)))
    runtime.advance(0.9)
    assert peer.roster.peer_ids() == [2, 7, ME]
    neighbor.remote_sends(records(record(2, ME, 7, incarnation=4)))
    runtime.advance(5)
    assert peer.roster.peer_ids() == [2, 7, ME]
    assert [name for name, _ in member_events(runtime)] == ["MemberJoined"] * 2


@pytest.mark.parametrize("is_silent", [False, True])
def test_lost_members_are_dead_or_a_partition(is_silent: bool) -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.remote_sends(records(record(7, 2, 8), record(8, 7), record(2, ME, 7, incarnation=2)))
    runtime.events.clear()
    neighbor.remote_sends(records(record(2, ME, incarnation=3, unresponsive=(7,) if is_silent else ())))
    runtime.advance(2)
    assert peer.roster.peer_ids() == [2, ME]
    lost = [("MemberLost", 7), ("MemberLost", 8)]
    assert member_events(runtime) == ([*lost, ("Partitioned", (7, 8))] if is_silent else lost)
    cause = LossCause.UNREACHABLE if is_silent else LossCause.DEAD
    assert all(event.cause is cause for event in runtime.events if isinstance(event, MemberLost))
    runtime.events.clear()
    neighbor.remote_sends(records(record(2, ME, 7, incarnation=4)))
    runtime.advance(2)
    joined = [("MemberJoined", 7), ("MemberJoined", 8)]
    assert member_events(runtime) == ([*joined, ("Merged", (7, 8))] if is_silent else joined)


def test_peer_that_loses_all_neighbors_is_partitioned() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    for neighbor in linked(runtime, peer, 2, 3):
        neighbor.remote_closes()
    runtime.advance(2)
    assert member_events(runtime)[-1] == ("Partitioned", (2, 3))


def test_leaving_member_is_gone_at_once_and_its_older_records_do_not_return_it() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.remote_sends(records(record(7, 2), record(2, ME, 7, incarnation=2)))
    neighbor.remote_sends(records(record(7, 2, incarnation=2, is_leaving=True)))
    assert peer.roster.peer_ids() == [2, ME]
    neighbor.remote_sends(records(record(7, 2)))
    runtime.advance(3)
    assert peer.roster.peer_ids() == [2, ME]
    assert member_events(runtime)[-1] == ("MemberLeft", 7)


def test_records_of_members_that_are_gone_are_forgotten() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.remote_sends(records(record(7, 2), record(8, 7, is_leaving=True)))
    runtime.advance(peer.settings.roster_forget_s + 200)
    assert [peer_id for _, peer_id in peer.roster.signed_records()] == [ME, 2]
    assert [sorted(each.credentials_sent) for each in peer.roster.sync.neighbors.values()] == [[2, ME]]


# -- relaying


def test_new_record_is_relayed_once_and_not_back() -> None:
    runtime = FakeRuntime()
    first, second, third = linked(runtime, member(runtime), 2, 3, 4)
    made = records(record(7, 2))
    first.remote_sends(made)
    second.remote_sends(made)  # before we have relayed it
    runtime.advance(1)
    third.remote_sends(made)
    runtime.advance(1)
    assert [records_sent(each).count((7, 1)) for each in (first, second, third)] == [0, 0, 1]


def test_credential_is_sent_once_over_each_link() -> None:
    runtime = FakeRuntime()
    first, second = linked(runtime, member(runtime), 2, 3)
    first.remote_sends(records(record(7, 2)))
    runtime.advance(1)
    first.remote_sends(records(record(7, 2, 8, incarnation=2)))
    runtime.advance(1)
    sent = [each for message in second.sent_messages(RosterRecords) for each in message.records]
    of_seven = [bool(each.credential) for each in sent if decode_record(each.record).peer_id == 7]
    assert of_seven == [True, False]


# -- anti-entropy


def test_nothing_is_sent_while_digests_are_equal() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    runtime.advance(5)
    neighbor.sent.clear()
    for _ in range(30):
        neighbor.remote_sends(RosterDigest(peer.roster.sync.digest))
        runtime.advance(1)
    sent = {number_of(frame) for frame in neighbor.sent}
    assert RosterDigest.number in sent
    assert not sent & {kind.number for kind in (RosterRecords, RosterBuckets, RosterVersions, RosterWant)}


def test_difference_is_found_by_buckets_and_requested() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.sent.clear()
    neighbor.remote_sends(RosterDigest(1), RosterDigest(1))
    assert len(neighbor.sent_messages(RosterBuckets)) == 1
    neighbor.remote_sends(RosterVersions(ALL_BUCKETS, False, (RecordVersion(2, 1, 0), RecordVersion(7, 4, 0))))
    (wanted,) = neighbor.sent_messages(RosterWant)
    assert wanted.members == (7,)
    (response,) = neighbor.sent_messages(RosterVersions)
    assert response.is_response
    assert {version.peer_id for version in response.versions} == {2, ME}  # of 2 we have another record
    neighbor.remote_sends(RosterWant((2, ME, 99)))
    served = neighbor.sent_messages(RosterRecords)[-1].records
    assert [decode_record(each.record).peer_id for each in served] == [2, ME]
    assert all(each.credential for each in served)


def test_buckets_are_answered_with_versions_of_those_that_differ() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    far = 1 << 63
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.remote_sends(records(record(far, 2), record(2, ME, far, incarnation=2)))
    equal = list(peer.roster.sync._buckets)
    neighbor.sent.clear()
    neighbor.remote_sends(RosterBuckets(tuple(equal)))
    assert neighbor.sent_messages(RosterVersions) == []
    equal[32] ^= 1
    neighbor.remote_sends(RosterBuckets(tuple(equal)))
    (versions,) = neighbor.sent_messages(RosterVersions)
    assert (versions.buckets, [each.peer_id for each in versions.versions]) == (1 << 32, [far])


def test_fruitless_comparisons_become_rare() -> None:
    runtime = FakeRuntime()
    (neighbor,) = linked(runtime, member(runtime), 2)
    for _ in range(100):
        neighbor.remote_sends(RosterDigest(1))
        runtime.advance(1)
    assert len(neighbor.sent_messages(RosterBuckets)) <= 6


def newcomer(runtime: FakeRuntime) -> Peer:
    peer = member(runtime)
    peer.roster.sync.is_complete = False
    return peer


def test_records_requested_by_a_newcomer_are_not_relayed() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    first, second = linked(runtime, peer, 2, 3)
    first.remote_sends(RosterDigest(1))
    first.remote_sends(RosterVersions(ALL_BUCKETS, False, (RecordVersion(7, 1, 0), RecordVersion(2, 1, 0))))
    first.remote_sends(records(record(7, 2)))
    runtime.advance(0.01)
    assert (7, 1) not in records_sent(second)
    first.remote_sends(records(record(2, ME, 7, incarnation=2)))
    runtime.advance(0.01)
    assert peer.roster.is_complete


def test_roster_of_a_newcomer_is_complete_only_when_the_records_lead_to_all_that_a_neighbor_knows() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    (first,) = linked(runtime, peer, 2)
    first.remote_sends(RosterDigest(1))
    first.remote_sends(RosterVersions(ALL_BUCKETS, False, tuple(RecordVersion(each, 1, 0) for each in (2, 7, 8))))
    first.remote_sends(records(record(7, 2), record(8, 2)))
    runtime.advance(1)
    assert not peer.roster.is_complete, "2 does not list them yet"
    first.remote_sends(records(record(2, ME, 7, incarnation=2)))
    assert not peer.roster.is_complete
    first.remote_sends(records(record(8, incarnation=2, is_leaving=True)))
    assert peer.roster.is_complete, "one that has left is not waited for"


def test_newcomer_does_not_wait_forever_for_records_that_do_not_come() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    (first,) = linked(runtime, peer, 2)
    first.remote_sends(RosterDigest(1))
    first.remote_sends(RosterVersions(ALL_BUCKETS, False, (RecordVersion(7, 1, 0),)))
    runtime.advance(INCOMPLETE_S_MAX)
    assert not peer.roster.is_complete
    runtime.advance(1)
    assert peer.roster.is_complete


def test_newcomer_does_not_wait_forever_for_neighbors_that_only_send_digests() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    (first,) = linked(runtime, peer, 2)
    peer.roster.sync.begin()
    first.remote_sends(RosterDigest(1))
    runtime.advance(COMPLETE_S_MAX - 0.1)
    assert not peer.roster.sync.is_complete
    runtime.advance(0.2)
    assert peer.roster.sync.is_complete


def test_roster_is_not_complete_while_its_records_are_requested() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    first, second = linked(runtime, peer, 2, 3)
    peer.roster.sync.begin()
    many = tuple(RecordVersion(each, 1, 0) for each in range(1000, 10_000))
    first.remote_sends(RosterDigest(1))
    first.remote_sends(RosterVersions(ALL_BUCKETS, False, many[:100]))
    runtime.advance(1)
    first.remote_closes()
    second.remote_sends(RosterDigest(1))
    second.remote_sends(RosterVersions(ALL_BUCKETS, False, many))
    requesting_s = len(many) / ROSTER_RECORDS_MAX * WANT_INTERVAL_S
    assert INCOMPLETE_S_MAX < requesting_s < COMPLETE_S_MAX
    runtime.advance(requesting_s)
    assert not peer.roster.sync.is_complete
    runtime.advance(INCOMPLETE_S_MAX + 1)
    assert peer.roster.sync.is_complete


def test_newcomer_does_not_wait_forever_for_a_neighbor_that_is_gone() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    first, second = linked(runtime, peer, 2, 3)
    peer.roster.sync.begin()
    first.remote_sends(RosterDigest(1))
    first.remote_sends(RosterVersions(ALL_BUCKETS, False, (RecordVersion(7, 1, 0),)))
    first.remote_closes()
    second.remote_sends(RosterDigest(1))
    runtime.advance(COMPLETE_S_MAX - 0.1)
    assert not peer.roster.sync.is_complete
    runtime.advance(0.2)
    assert peer.roster.sync.is_complete


@pytest.mark.parametrize("count", [1, 60, 5000])
def test_neighbor_that_lists_members_without_end_delays_nothing_for_long(count: int) -> None:
    """What the others list is requested, and the roster of a newcomer is complete in time."""
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    liar, honest = linked(runtime, peer, 2, 3)
    peer.roster.sync.begin()
    for second in range(30):
        phantoms = (RecordVersion(10_000 + second * count + each, 1, 0) for each in range(count))
        liar.remote_sends(
            RosterBuckets((second + 1,) * BUCKET_COUNT), RosterVersions(ALL_BUCKETS, True, tuple(phantoms))
        )
        if second == 3:
            honest.remote_sends(RosterDigest(1), RosterVersions(ALL_BUCKETS, False, (RecordVersion(7, 1, 0),)))
        assert not peer.roster.sync.is_complete
        runtime.advance(1)
    assert (7,) in [request.members for request in honest.sent_messages(RosterWant)]
    runtime.advance(0.1)
    assert peer.roster.sync.is_complete
    assert not liar.closed


def test_two_neighbors_that_list_members_without_end_keep_no_returning_member_back() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    honest, *liars = linked(runtime, peer, 2, 3, 4)
    honest.remote_sends(records(record(7, 2), record(2, ME, 7, incarnation=2)))
    honest.remote_sends(records(record(2, ME, incarnation=3)))
    runtime.advance(2)
    assert member_events(runtime)[-1] == ("MemberLost", 7)
    honest.remote_sends(records(record(2, ME, 7, incarnation=4)))
    for second in range(90):
        versions = tuple(RecordVersion(10_000 + 640 * second + each, 1, 0) for each in range(640))
        for liar in liars:
            liar.remote_sends(RosterBuckets((second + 1,) * BUCKET_COUNT), RosterVersions(ALL_BUCKETS, True, versions))
        runtime.advance(1)
    assert member_events(runtime)[-1] == ("MemberJoined", 7)
    assert not peer.roster.sync._requested


def test_newcomer_waits_for_all_that_two_neighbors_list() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    first, second = linked(runtime, peer, 2, 3)
    for neighbor, listed in ((first, 7), (second, 8)):
        neighbor.remote_sends(RosterDigest(1), RosterVersions(ALL_BUCKETS, False, (RecordVersion(listed, 1, 0),)))
    for neighbor, record_of_it in ((second, record(3, ME, 8, incarnation=2)), (first, record(2, ME, 7, incarnation=2))):
        assert not peer.roster.sync.is_complete
        runtime.advance(1)
        neighbor.remote_sends(records(record(8, 3), record(7, 2), record_of_it))
    assert peer.roster.sync.is_complete


def test_newcomer_sends_no_digest_before_its_roster_is_complete() -> None:
    runtime = FakeRuntime()
    peer = newcomer(runtime)
    (first,) = linked(runtime, peer, 2)
    runtime.advance(1)
    assert not first.sent_messages(RosterDigest)
    peer.roster.sync._complete()
    assert first.sent_messages(RosterDigest)


def test_wrong_number_of_buckets_ends_the_link() -> None:
    runtime = FakeRuntime()
    (neighbor,) = linked(runtime, member(runtime), 2)
    neighbor.remote_sends(RosterBuckets((0,) * (BUCKET_COUNT - 1)))
    assert neighbor.closed


def test_member_is_read_from_its_record() -> None:
    runtime = FakeRuntime()
    peer = member(runtime)
    (neighbor,) = linked(runtime, peer, 2)
    neighbor.remote_sends(records(record(2, ME, incarnation=2, name="ann", layers=(0x47720000,), is_secondary=True)))
    found = peer.roster.get(2)
    assert found is not None
    assert (found.name, found.layers, found.is_secondary, found.is_proven) == ("ann", ("Gr",), True, False)
    assert signed(record(2)).credential
