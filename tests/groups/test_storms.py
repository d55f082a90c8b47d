"""Answers do not storm: how many messages an arrival and a question cause does not grow with the peers."""

import pytest

from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MemberRecord, pack_group_records
from broadloom.groups.messages import DirectoryRequest, Suspect
from broadloom.groups.settings import RetentionPolicy
from tests.groups.group_bus import GroupBus

GROUPS = 20
WARMUP_S = 40.0
"""Who has been there for so long is not new any more, and answers sooner where few listen."""


def messages_per_arrival(peers: int, arrivals: int = 5, seed: int = 0) -> float:
    """With all peers knowing the same groups, as after a while. The arrival itself counts."""
    ether = GroupBus(seed)
    charters = [GroupDescriptor(1, f"group {number}", RetentionPolicy()) for number in range(GROUPS)]
    stands = [MemberRecord(number + 1, f"m{number}", 1) for number in range(peers)]
    for number in range(peers):
        member = ether.add(f"m{number}", announces=False)
        for group, charter in enumerate(charters, 1):
            member.participant.directory.merge(GroupRecord(group, charter, tuple(stands[group::GROUPS])))
        for stand in stands:
            member.participant.presence.add_member(stand.member)
        member.participant._is_open = True
    ether.run(WARMUP_S)
    begun = ether.clock.now
    for number in range(arrivals):
        newcomer = ether.add(f"n{number}")
        ether.run(10.0)
        assert len(newcomer.participant.directory.entries) == GROUPS
        assert newcomer.participant.directory.hash == ether.members[0].participant.directory.hash
    counts = ether.count(begun)
    return (counts["DirectoryRequest"] + counts["DirectoryPage"]) / arrivals


@pytest.mark.parametrize("peers", [5, 10, 30, 100])
def test_messages_per_arrival(peers: int) -> None:
    assert messages_per_arrival(peers) <= 6


def test_a_hundred_arrive_at_once() -> None:
    ether = GroupBus(1)
    first = ether.add("first")
    for number in range(GROUPS):
        first.participant.create(f"group {number}")
    ether.run(10.0)
    begun = ether.clock.now
    newcomers = [ether.add(f"n{number}") for number in range(100)]
    ether.run(20.0)
    assert len({member.participant.directory.hash for member in [first, *newcomers]}) == 1
    assert ether.count(begun)["DirectoryPage"] <= 110, "not many for each"


def test_who_arrives_without_end_gets_little() -> None:
    ether = GroupBus(2)
    members = [ether.add(f"m{number}") for number in range(10)]
    for number in range(500):
        members[0].participant.create(f"group {number}", group=number + 1)
    ether.run(60.0)
    hostile = ether.add("hostile", announces=False)
    begun = ether.clock.now
    for _ in range(600):
        hostile.participant._is_open = True
        hostile.participant.send(DirectoryRequest(99, "hostile", True, (0,)))
        ether.run(0.1)
    whole = sum(size for at, _, kind, size in ether.sent if kind == "DirectoryPage" and at >= begun)
    each = len(pack_group_records(members[0].participant.directory.group_record(group) for group in range(1, 501)))
    assert whole < 20 * each, "600 times asked for"


def test_who_suspects_everybody_is_not_believed() -> None:
    ether = GroupBus(3)
    members = [ether.add(f"m{number}") for number in range(60)]
    ether.run(10.0)
    begun = ether.clock.now
    for _ in range(20):
        for member in members[1:]:
            members[0].participant.send(Suspect(member.peer_id, 0))
        ether.run(1.0)
    assert ether.count(begun)["PresenceHeartbeat"] < 60 + 2 * 2.5 * 20


def sync_duration_s(members: int, known_peer_count: int | None = None) -> float:
    """How long somebody who arrives waits for the groups."""
    ether = GroupBus(3, delay=lambda _random: 0.01)
    first, *_ = [ether.add(f"m{number}") for number in range(members)]
    first.participant.create("a group", group=7)
    ether.run(WARMUP_S)
    for member in ether.members:
        member.known_peer_count = known_peer_count
    newcomer = ether.add("newcomer", announces=False)
    newcomer.known_peer_count = known_peer_count
    begun = ether.clock.now
    newcomer.participant.announce()
    while not newcomer.participant.directory_sync.is_synced:
        ether.run(0.005)
        assert ether.clock.now < begun + 5.0
    return ether.clock.now - begun


def test_where_few_listen_the_answer_comes_soon() -> None:
    assert sync_duration_s(1, known_peer_count=2) < 0.05, "nobody else can answer, so nobody is waited for"
    assert sync_duration_s(5) < 0.6
    assert sync_duration_s(10) < 1.1


def test_who_is_new_thinks_of_many_until_it_is_told() -> None:
    ether = GroupBus(4)
    members = [ether.add(f"m{number}") for number in range(6)]
    members[0].participant.create("a group", group=7)
    ether.run(WARMUP_S)
    newcomer = ether.add("newcomer")
    whole_s = newcomer.participant.settings.reply_window_s
    assert newcomer.participant.reply_window_s == whole_s
    ether.run(2.0)
    assert newcomer.participant.reply_window_s == members[0].participant.reply_window_s < whole_s / 4
