"""The worked example 5.1.3 of the M2MC thesis: processes come and go and learn of all groups, step by step."""

from broadloom.groups.model import GroupDiscovered, MemberStatus
from broadloom.groups.store import MemoryStore
from tests.groups.group_bus import BusMember, GroupBus

EXCHANGE_S = 10.0
"""Long enough for a directory request, its reply and a join."""


def discovered_groups(member: BusMember) -> list[str]:
    return [event.group.description for event in member.events_of(GroupDiscovered)]


def online_members(member: BusMember, group: int) -> list[str]:
    return [each.name for each, status in member.participant.members(group).items() if status is MemberStatus.ONLINE]


def test_protocol_illustration_thesis_5_1_3() -> None:
    bus = GroupBus()
    store_a = MemoryStore()

    # A connects and creates G1.
    a = bus.add("A", store_a)
    bus.run(EXCHANGE_S)
    g1 = a.participant.create("G1")
    bus.run(EXCHANGE_S)

    # B connects later and sends a request; A replies with G1; B knows no groups and sends none.
    started_at = bus.clock.now
    b = bus.add("B")
    bus.run(EXCHANGE_S)
    assert bus.kinds_sent_by("A", started_at).count("DirectoryPage") == 1
    assert "DirectoryPage" not in bus.kinds_sent_by("B", started_at)
    assert discovered_groups(b) == ["G1"]
    # B joins: both have the same members.
    b.participant.join(g1)
    bus.run(EXCHANGE_S)
    assert online_members(a, g1) == online_members(b, g1) == ["A", "B"]

    # C connects. Both could reply; C discovers G1 once, and declines it.
    started_at = bus.clock.now
    c = bus.add("C")
    bus.run(EXCHANGE_S)
    assert 1 <= bus.count(started_at)["DirectoryPage"] <= 2
    assert discovered_groups(c) == ["G1"]
    c.participant.decline(g1)
    # It is not reported again, whatever C receives.
    bus.add("passer-by")
    bus.run(EXCHANGE_S)
    assert discovered_groups(c) == ["G1"]
    assert c.participant.info(g1).is_declined
    # C creates G2 and announces it.
    g2 = c.participant.create("G2")
    bus.run(EXCHANGE_S)
    assert discovered_groups(a) == discovered_groups(b)[1:] == ["G2"]
    assert online_members(b, g2) == ["C"]

    # A and B disconnect, and D connects: it learns of G2 from C and joins it.
    bus.go_offline(a)
    bus.go_offline(b)
    bus.run(1.0)
    d = bus.add("D")
    bus.run(EXCHANGE_S)
    assert "G2" in discovered_groups(d)
    d.participant.join(g2)
    bus.run(EXCHANGE_S)
    assert online_members(c, g2) == online_members(d, g2) == ["C", "D"]
    # Unlike in the thesis, C remembers G1 although it declined it, so D learns of G1 too, with its members offline.
    assert set(d.participant.members(g1).values()) == {MemberStatus.OFFLINE}

    # A returns. It knows G1 and learns the changes of G2; now all know every group.
    a = bus.add("A", store_a)
    bus.run(EXCHANGE_S)
    for member in (a, c, d):
        assert sorted(each.description for each in member.participant.groups()) == ["G1", "G2"]
        assert online_members(member, g2) == ["C", "D"]
        assert online_members(member, g1) == ["A"]
    assert len({member.participant.directory.hash for member in (a, c, d)}) == 1
    # In its new session, A discovers the group it has not joined.
    assert discovered_groups(a) == ["G2"]
