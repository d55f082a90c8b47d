"""Presence: crashes are detected by neighbors or by silence, returns at once, and false suspicions are refuted."""

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
    return {each.name: status for each, status in member.participant.members(7).items()}


def test_crashed_neighbor_is_offline_within_seconds() -> None:
    bus = GroupBus(1)
    members = make_members(bus, 12)
    crashed = members.pop()
    bus.kill(crashed)
    started_at = bus.clock.now
    for neighbor in members[:4]:
        neighbor.participant.on_neighbor_lost(crashed.peer_id)
    bus.run(10.0)
    assert bus.count(started_at)["Suspect"] <= 3
    for member in members:
        assert member_statuses(member)["m11"] is MemberStatus.OFFLINE
        assert [event.member.name for event in member.events_of(MemberOffline)] == ["m11"]


def test_silent_member_is_offline_when_no_neighbor_reports_it() -> None:
    bus = GroupBus(2)
    members = make_members(bus, 5)
    bus.kill(members.pop())
    bus.run(120.0)
    for member in members:
        assert member_statuses(member) == {
            "m0": MemberStatus.ONLINE,
            "m1": MemberStatus.ONLINE,
            "m2": MemberStatus.ONLINE,
            "m3": MemberStatus.ONLINE,
            "m4": MemberStatus.OFFLINE,
        }


def test_suspected_member_refutes_suspicion() -> None:
    bus = GroupBus(3)
    members = make_members(bus, 5)
    members[0].participant.on_neighbor_lost(members[4].peer_id)
    members[1].participant.send(Suspect(members[3].peer_id, members[3].participant.me.id))
    bus.run(20.0)
    assert all(status is MemberStatus.ONLINE for member in members for status in member_statuses(member).values())
    assert not any(member.events_of(MemberOffline) for member in members)


def test_returning_member_is_online_at_once() -> None:
    bus = GroupBus(4)
    store = MemoryStore()
    members = make_members(bus, 3)
    other = bus.add("other", store)
    bus.run(5.0)
    other.participant.join(7)
    bus.run(10.0)
    bus.go_offline(other)
    bus.run(2.0)
    assert all(member_statuses(member)["other"] is MemberStatus.OFFLINE for member in members)
    bus.add("other", store)
    bus.run(2.0)
    assert all(member_statuses(member)["other"] is MemberStatus.ONLINE for member in members)
    assert [event.member.name for event in members[0].events_of(MemberOnline)] == ["other"]


def test_new_member_learns_offline_members() -> None:
    bus = GroupBus(5)
    members = make_members(bus, 4)
    bus.go_offline(members.pop())
    bus.run(2.0)
    late = bus.add("late")
    bus.run(5.0)
    assert member_statuses(late)["m3"] is MemberStatus.OFFLINE
    assert member_statuses(late)["m2"] is MemberStatus.ONLINE


def test_heartbeat_rate_does_not_grow_with_members() -> None:
    bus = GroupBus(6)
    members = [bus.add(f"m{number}") for number in range(60)]
    members[0].participant.create("a group", group=7)
    bus.run(10.0)
    for member in members[1:]:
        member.participant.join(7)
    bus.run(60.0)
    started_at = bus.clock.now
    bus.run(90.0)
    assert 60 <= bus.count(started_at)["PresenceHeartbeat"] <= 2.5 * 90
    assert not any(member.events_of(MemberOffline) for member in members)


def test_partitioned_members_converge_after_healing() -> None:
    """Without any new directory request at reconnection."""
    bus = GroupBus(7)
    members = make_members(bus, 10)
    for member in members[:5]:
        member.partition = 1
    members[0].participant.create("on one side", group=8)
    members[9].participant.create("on the other", group=9)
    members[9].participant.leave(7)
    members[1].send_text(7, "left")
    members[8].send_text(7, "right")
    bus.run(150.0)
    assert all(member_statuses(members[0])[f"m{number}"] is MemberStatus.OFFLINE for number in range(5, 9))
    for member in members:
        member.partition = 0
    bus.run(150.0)
    assert len({member.participant.directory.hash for member in members}) == 1
    assert all(sorted(member.texts()) == ["left", "right"] for member in members[:9])
    for member in members[:9]:
        assert set(member_statuses(member).values()) == {MemberStatus.ONLINE, MemberStatus.LEFT}
