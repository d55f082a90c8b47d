"""Who is there: death without a word is noticed, by neighbours or by silence; returns too; and nobody is slandered."""

from broadloom.groups.messages import Suspect
from broadloom.groups.model import MemberOffline, MemberOnline, MemberStatus
from broadloom.groups.store import MemoryStore
from tests.groups.group_bus import BusMember, GroupBus


def make_members(bus: GroupBus, count: int) -> list[BusMember]:
    members = [bus.add(f"m{number}") for number in range(count)]
    members[0].participant.create("a group", group=7)
    bus.run(10.0)
    for member in members[1:]:
        member.participant.join(7)
    bus.run(20.0)
    return members


def member_statuses(member: BusMember) -> dict[str, MemberStatus]:
    return {who.name: here for who, here in member.participant.members(7).items()}


def test_a_lost_neighbour_is_shown_as_gone_within_seconds() -> None:
    ether = GroupBus(1)
    members = make_members(ether, 12)
    dead = members.pop()
    ether.kill(dead)
    begun = ether.clock.now
    for neighbour in members[:4]:
        neighbour.participant.on_neighbor_lost(dead.peer_id)
    ether.run(10.0)
    assert ether.count(begun)["Suspect"] <= 3
    for member in members:
        assert member_statuses(member)["m11"] is MemberStatus.OFFLINE
        assert [event.member.name for event in member.events_of(MemberOffline)] == ["m11"]


def test_silence_is_noticed_if_no_neighbour_is_left_to_tell() -> None:
    ether = GroupBus(2)
    members = make_members(ether, 5)
    ether.kill(members.pop())
    ether.run(120.0)
    for member in members:
        assert member_statuses(member) == {
            "m0": MemberStatus.ONLINE,
            "m1": MemberStatus.ONLINE,
            "m2": MemberStatus.ONLINE,
            "m3": MemberStatus.ONLINE,
            "m4": MemberStatus.OFFLINE,
        }


def test_who_is_suspected_wrongly_speaks_up() -> None:
    ether = GroupBus(3)
    members = make_members(ether, 5)
    members[0].participant.on_neighbor_lost(members[4].peer_id)
    members[1].participant.send(Suspect(members[3].peer_id, members[3].participant.me.id))
    ether.run(20.0)
    assert all(here is MemberStatus.ONLINE for member in members for here in member_statuses(member).values())
    assert not any(member.events_of(MemberOffline) for member in members)


def test_who_returns_is_shown_at_once() -> None:
    ether = GroupBus(4)
    store = MemoryStore()
    members = make_members(ether, 3)
    other = ether.add("other", store)
    ether.run(5.0)
    other.participant.join(7)
    ether.run(10.0)
    ether.go_offline(other)
    ether.run(2.0)
    assert all(member_statuses(member)["other"] is MemberStatus.OFFLINE for member in members)
    ether.add("other", store)
    ether.run(2.0)
    assert all(member_statuses(member)["other"] is MemberStatus.ONLINE for member in members)
    assert [event.member.name for event in members[0].events_of(MemberOnline)] == ["other"]


def test_a_newcomer_is_told_who_is_gone() -> None:
    ether = GroupBus(5)
    members = make_members(ether, 4)
    ether.go_offline(members.pop())
    ether.run(2.0)
    late = ether.add("late")
    ether.run(5.0)
    assert member_statuses(late)["m3"] is MemberStatus.OFFLINE
    assert member_statuses(late)["m2"] is MemberStatus.ONLINE


def test_many_members_do_not_speak_more_often() -> None:
    ether = GroupBus(6)
    members = [ether.add(f"m{number}") for number in range(60)]
    members[0].participant.create("a group", group=7)
    ether.run(10.0)
    for member in members[1:]:
        member.participant.join(7)
    ether.run(60.0)
    begun = ether.clock.now
    ether.run(90.0)
    assert 60 <= ether.count(begun)["PresenceHeartbeat"] <= 2.5 * 90
    assert not any(member.events_of(MemberOffline) for member in members)


def test_lists_that_differ_find_each_other() -> None:
    """Two parts form and meet again without any new arrival."""
    ether = GroupBus(7)
    members = make_members(ether, 10)
    for member in members[:5]:
        member.partition = 1
    members[0].participant.create("on one side", group=8)
    members[9].participant.create("on the other", group=9)
    members[9].participant.leave(7)
    members[1].send_text(7, "left")
    members[8].send_text(7, "right")
    ether.run(150.0)
    assert all(member_statuses(members[0])[f"m{number}"] is MemberStatus.OFFLINE for number in range(5, 9))
    for member in members:
        member.partition = 0
    ether.run(150.0)
    assert len({member.participant.directory.hash for member in members}) == 1
    assert all(sorted(member.texts()) == ["left", "right"] for member in members[:9])
    for member in members[:9]:
        assert set(member_statuses(member).values()) == {MemberStatus.ONLINE, MemberStatus.LEFT}
