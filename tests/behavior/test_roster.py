"""The roster, the same on the simulator and on real sockets."""

from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost
from tests.behavior.harness import Harness, HarnessPeer, OpenHarness


def all_know(harness: Harness, expected: list[HarnessPeer]) -> bool:
    """Whether these peers know each other and no one else."""
    ids = sorted(peer.id for peer in expected)
    return all(peer.peer.roster.peer_ids() == ids for peer in expected)


def sum_of_events(peer: HarnessPeer) -> list[int]:
    found = {peer.id: None}
    for event in peer.events:
        if isinstance(event, MemberJoined):
            found[event.member.peer_id] = None
        elif isinstance(event, MemberLeft | MemberLost):
            del found[event.member.peer_id]
    return sorted(found)


async def test_members_know_each_other_through_joins_leaves_and_crashes(open_harness: OpenHarness) -> None:
    harness = open_harness()
    await harness.add(8)
    await harness.until(lambda: all_know(harness, harness.peers))
    await harness.until(lambda: all(peer.peer.roster.is_complete for peer in harness.peers))
    killed = harness.peers[3]
    harness.kill([killed])
    await harness.until(lambda: all_know(harness, harness.peers))
    leaver = harness.peers[2]
    leaver.peer.leave()
    stayed = [peer for peer in harness.peers if peer is not leaver]
    await harness.until(lambda: all_know(harness, stayed))
    (newcomer,) = await harness.add(1)
    await harness.until(lambda: all_know(harness, [*stayed, newcomer]))
    for peer in stayed:
        lost = [event.member.peer_id for event in peer.events if isinstance(event, MemberLost)]
        left = [event.member.peer_id for event in peer.events if isinstance(event, MemberLeft)]
        assert (lost, left) == ([killed.id], [leaver.id])
        assert sum_of_events(peer) == peer.peer.roster.peer_ids()


async def test_partition_and_merge_show_in_the_roster(open_harness: OpenHarness) -> None:
    harness = open_harness()
    await harness.add(8)
    await harness.until(lambda: all_know(harness, harness.peers))
    here, there = harness.peers[:4], harness.peers[4:]
    harness.partition(here)
    await harness.until(lambda: all_know(harness, here) and all_know(harness, there), 30)
    harness.heal()
    await harness.until(lambda: all_know(harness, harness.peers), 30)
    assert all(sum_of_events(peer) == peer.peer.roster.peer_ids() for peer in harness.peers)


async def test_address_in_the_roster_is_where_the_member_listens(open_harness: OpenHarness) -> None:
    harness = open_harness()
    await harness.add(3)
    await harness.until(lambda: all_know(harness, harness.peers))
    for peer in harness.peers:
        for other in harness.peers:
            member = peer.peer.roster.get(other.id)
            assert member is not None
            assert member.address == other.peer.me.address
