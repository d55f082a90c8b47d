"""The worked example 5.1.3 of the M2MC thesis: processes come and go, and learn of all groups, step by step."""

from broadloom.groups.model import GroupDiscovered, MemberStatus
from broadloom.groups.store import MemoryStore
from tests.groups.group_bus import BusMember, GroupBus

EXCHANGE_S = 10.0
"""Long enough for an arrival, its answer and a join."""


def discovered_groups(member: BusMember) -> list[str]:
    return [event.group.description for event in member.events_of(GroupDiscovered)]


def online_members(member: BusMember, group: int) -> list[str]:
    return [who.name for who, here in member.participant.members(group).items() if here is MemberStatus.ONLINE]


def test_5_1_3_protocol_illustration() -> None:
    ether = GroupBus()
    store_a = MemoryStore()

    # A connects and creates G1.
    a = ether.add("A", store_a)
    ether.run(EXCHANGE_S)
    g1 = a.participant.create("G1")
    ether.run(EXCHANGE_S)

    # B connects later and says so; A answers with G1; B, who knows of none, is asked nothing.
    begun = ether.clock.now
    b = ether.add("B")
    ether.run(EXCHANGE_S)
    assert ether.kinds_sent_by("A", begun).count("DirectoryPage") == 1
    assert "DirectoryPage" not in ether.kinds_sent_by("B", begun)
    assert discovered_groups(b) == ["G1"]
    # B joins: both have the same members.
    b.participant.join(g1)
    ether.run(EXCHANGE_S)
    assert online_members(a, g1) == online_members(b, g1) == ["A", "B"]

    # C connects. Both could answer; C is offered G1 once, and rejects it.
    begun = ether.clock.now
    c = ether.add("C")
    ether.run(EXCHANGE_S)
    assert 1 <= ether.count(begun)["DirectoryPage"] <= 2
    assert discovered_groups(c) == ["G1"]
    c.participant.decline(g1)
    # It is not offered again, whatever C hears of it.
    ether.add("passer-by")
    ether.run(EXCHANGE_S)
    assert discovered_groups(c) == ["G1"]
    assert c.participant.info(g1).is_declined
    # C creates G2 and tells all.
    g2 = c.participant.create("G2")
    ether.run(EXCHANGE_S)
    assert discovered_groups(a) == discovered_groups(b)[1:] == ["G2"]
    assert online_members(b, g2) == ["C"]

    # A and B disconnect for a while, and D connects: it learns of G2 from C, and joins it.
    ether.go_offline(a)
    ether.go_offline(b)
    ether.run(1.0)
    d = ether.add("D")
    ether.run(EXCHANGE_S)
    assert "G2" in discovered_groups(d)
    d.participant.join(g2)
    ether.run(EXCHANGE_S)
    assert online_members(c, g2) == online_members(d, g2) == ["C", "D"]
    # (Here C remembers G1 too, though it rejected it, so D hears of G1 even now; its members are shown as gone.)
    assert set(d.participant.members(g1).values()) == {MemberStatus.OFFLINE}

    # A returns. It knew G1 and learns what happened to G2; everybody knows every group.
    a = ether.add("A", store_a)
    ether.run(EXCHANGE_S)
    for member in (a, c, d):
        assert sorted(each.description for each in member.participant.groups()) == ["G1", "G2"]
        assert online_members(member, g2) == ["C", "D"]
        assert online_members(member, g1) == ["A"]
    assert len({member.participant.directory.hash for member in (a, c, d)}) == 1
    # At its own arrival A is offered what it has not joined.
    assert discovered_groups(a) == ["G2"]
