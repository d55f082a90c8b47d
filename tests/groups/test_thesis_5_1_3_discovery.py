"""The worked example 5.1.3 of the M2MC thesis: processes come and go, and learn of all groups, step by step."""

from tests.groups.ether import Ether, EtherMember
from weft.groups.events import GroupOffered, Here
from weft.groups.history import MemoryStore

EXCHANGE_S = 10.0
"""Long enough for an arrival, its answer and a join."""


def offers(member: EtherMember) -> list[str]:
    return [event.group.description for event in member.told(GroupOffered)]


def present(member: EtherMember, group: int) -> list[str]:
    return [who.name for who, here in member.participant.members(group).items() if here is Here.PRESENT]


def test_5_1_3_protocol_illustration() -> None:
    ether = Ether()
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
    assert ether.said_by("A", begun).count("Listing") == 1
    assert "Listing" not in ether.said_by("B", begun)
    assert offers(b) == ["G1"]
    # B joins: both have the same members.
    b.participant.join(g1)
    ether.run(EXCHANGE_S)
    assert present(a, g1) == present(b, g1) == ["A", "B"]

    # C connects. Both could answer; C is offered G1 once, and rejects it.
    begun = ether.clock.now
    c = ether.add("C")
    ether.run(EXCHANGE_S)
    assert 1 <= ether.count(begun)["Listing"] <= 2
    assert offers(c) == ["G1"]
    c.participant.reject(g1)
    # It is not offered again, whatever C hears of it.
    ether.add("passer-by")
    ether.run(EXCHANGE_S)
    assert offers(c) == ["G1"]
    assert c.participant.info(g1).rejected
    # C creates G2 and tells all.
    g2 = c.participant.create("G2")
    ether.run(EXCHANGE_S)
    assert offers(a) == offers(b)[1:] == ["G2"]
    assert present(b, g2) == ["C"]

    # A and B disconnect for a while, and D connects: it learns of G2 from C, and joins it.
    ether.depart(a)
    ether.depart(b)
    ether.run(1.0)
    d = ether.add("D")
    ether.run(EXCHANGE_S)
    assert "G2" in offers(d)
    d.participant.join(g2)
    ether.run(EXCHANGE_S)
    assert present(c, g2) == present(d, g2) == ["C", "D"]
    # (Here C remembers G1 too, though it rejected it, so D hears of G1 even now; its members are shown as gone.)
    assert set(d.participant.members(g1).values()) == {Here.GONE}

    # A returns. It knew G1 and learns what happened to G2; everybody knows every group.
    a = ether.add("A", store_a)
    ether.run(EXCHANGE_S)
    for member in (a, c, d):
        assert sorted(each.description for each in member.participant.groups()) == ["G1", "G2"]
        assert present(member, g2) == ["C", "D"]
        assert present(member, g1) == ["A"]
    assert len({member.participant.directory.hash for member in (a, c, d)}) == 1
    # At its own arrival A is offered what it has not joined.
    assert offers(a) == ["G2"]
