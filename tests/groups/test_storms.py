"""Feedback suppression: the number of replies to a request does not grow with the number of peers."""

import pytest

from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MembershipRecord, pack_group_records
from broadloom.groups.messages import DirectoryRequest, Suspect
from broadloom.groups.settings import RetentionPolicy
from tests.groups.group_bus import GroupBus

GROUPS = 20
WARMUP_S = 40.0
"""After this long a member is no longer new and knows how many peers there are."""


def messages_per_arrival(peers: int, arrivals: int = 5, seed: int = 0) -> float:
    """All peers know the same groups. The arrival itself counts."""
    bus = GroupBus(seed)
    group_descriptors = [GroupDescriptor(1, f"group {number}", RetentionPolicy()) for number in range(GROUPS)]
    records = [MembershipRecord(number + 1, f"m{number}", 1) for number in range(peers)]
    for number in range(peers):
        member = bus.add(f"m{number}", announces=False)
        for group, descriptor in enumerate(group_descriptors, 1):
            member.participant.directory.merge(GroupRecord(group, descriptor, tuple(records[group::GROUPS])))
        for record in records:
            member.participant.presence.add_member(record.member)
        member.participant._is_open = True
    bus.run(WARMUP_S)
    started_at = bus.clock.now
    for number in range(arrivals):
        new_member = bus.add(f"n{number}")
        bus.run(10.0)
        assert len(new_member.participant.directory.entries) == GROUPS
        assert new_member.participant.directory.hash == bus.members[0].participant.directory.hash
    counts = bus.count(started_at)
    return (counts["DirectoryRequest"] + counts["DirectoryPage"]) / arrivals


@pytest.mark.parametrize("peers", [5, 10, 30, 100])
def test_messages_per_arrival_do_not_grow_with_peers(peers: int) -> None:
    assert messages_per_arrival(peers) <= 6


def test_hundred_simultaneous_arrivals_cause_no_storm() -> None:
    bus = GroupBus(1)
    first = bus.add("first")
    for number in range(GROUPS):
        first.participant.create(f"group {number}")
    bus.run(10.0)
    started_at = bus.clock.now
    new_members = [bus.add(f"n{number}") for number in range(100)]
    bus.run(20.0)
    assert len({member.participant.directory.hash for member in [first, *new_members]}) == 1
    assert bus.count(started_at)["DirectoryPage"] <= 110, "about one reply for each"


def test_repeated_directory_requests_are_penalized() -> None:
    bus = GroupBus(2)
    members = [bus.add(f"m{number}") for number in range(10)]
    for number in range(500):
        members[0].participant.create(f"group {number}", group=number + 1)
    bus.run(60.0)
    hostile = bus.add("hostile", announces=False)
    started_at = bus.clock.now
    for _ in range(600):
        hostile.participant._is_open = True
        hostile.participant.send(DirectoryRequest(99, "hostile", True, (0,)))
        bus.run(0.1)
    sent_bytes = sum(size for at, _, kind, size in bus.sent if kind == "DirectoryPage" and at >= started_at)
    directory_bytes = len(
        pack_group_records(members[0].participant.directory.group_record(group) for group in range(1, 501))
    )
    assert sent_bytes < 20 * directory_bytes, "for 600 requests"


def test_member_that_suspects_everyone_is_ignored() -> None:
    bus = GroupBus(3)
    members = [bus.add(f"m{number}") for number in range(60)]
    bus.run(10.0)
    started_at = bus.clock.now
    for _ in range(20):
        for member in members[1:]:
            members[0].participant.send(Suspect(member.peer_id, 0))
        bus.run(1.0)
    assert bus.count(started_at)["PresenceHeartbeat"] < 60 + 2 * 2.5 * 20


def sync_duration_s(members: int, known_peer_count: int | None = None) -> float:
    """How long a new member waits for the directory."""
    bus = GroupBus(3, delay=lambda _random: 0.01)
    first, *_ = [bus.add(f"m{number}") for number in range(members)]
    first.participant.create("a group", group=7)
    bus.run(WARMUP_S)
    for member in bus.members:
        member.known_peer_count = known_peer_count
    new_member = bus.add("new_member", announces=False)
    new_member.known_peer_count = known_peer_count
    started_at = bus.clock.now
    new_member.participant.announce()
    while not new_member.participant.directory_sync.is_synced:
        bus.run(0.005)
        assert bus.clock.now < started_at + 5.0
    return bus.clock.now - started_at


def test_reply_comes_early_on_small_channel() -> None:
    assert sync_duration_s(1, known_peer_count=2) < 0.05, "there is no other candidate to wait for"
    assert sync_duration_s(5) < 0.6
    assert sync_duration_s(10) < 1.1


def test_new_member_assumes_many_peers_until_count_is_reported() -> None:
    bus = GroupBus(4)
    members = [bus.add(f"m{number}") for number in range(6)]
    members[0].participant.create("a group", group=7)
    bus.run(WARMUP_S)
    new_member = bus.add("new_member")
    full_window_s = new_member.participant.settings.reply_window_s
    assert new_member.participant.presence.reply_window_s == full_window_s
    bus.run(2.0)
    assert (
        new_member.participant.presence.reply_window_s
        == members[0].participant.presence.reply_window_s
        < full_window_s / 4
    )
