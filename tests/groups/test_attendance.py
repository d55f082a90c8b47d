"""Who is there: death without a word is noticed, by neighbours or by silence; returns too; and nobody is slandered."""

from tests.groups.ether import Ether, EtherMember
from weft.groups.events import Here, MemberBack, MemberGone
from weft.groups.history import MemoryStore
from weft.groups.messages import Suspect


def crew(ether: Ether, count: int) -> list[EtherMember]:
    members = [ether.add(f"m{number}") for number in range(count)]
    members[0].participant.create("a group", group=7)
    ether.run(10.0)
    for member in members[1:]:
        member.participant.join(7)
    ether.run(20.0)
    return members


def shown(member: EtherMember) -> dict[str, Here]:
    return {who.name: here for who, here in member.participant.members(7).items()}


def test_a_lost_neighbour_is_shown_as_gone_within_seconds() -> None:
    ether = Ether(1)
    members = crew(ether, 12)
    dead = members.pop()
    ether.kill(dead)
    begun = ether.clock.now
    for neighbour in members[:4]:
        neighbour.participant.on_neighbour_lost(dead.me)
    ether.run(10.0)
    assert ether.count(begun)["Suspect"] <= 3
    for member in members:
        assert shown(member)["m11"] is Here.GONE
        assert [event.member.name for event in member.told(MemberGone)] == ["m11"]


def test_silence_is_noticed_if_no_neighbour_is_left_to_tell() -> None:
    ether = Ether(2)
    members = crew(ether, 5)
    ether.kill(members.pop())
    ether.run(120.0)
    for member in members:
        assert shown(member) == {
            "m0": Here.PRESENT,
            "m1": Here.PRESENT,
            "m2": Here.PRESENT,
            "m3": Here.PRESENT,
            "m4": Here.GONE,
        }


def test_who_is_suspected_wrongly_speaks_up() -> None:
    ether = Ether(3)
    members = crew(ether, 5)
    members[0].participant.on_neighbour_lost(members[4].me)
    members[1].participant.say(Suspect(members[3].me, members[3].participant.me.id))
    ether.run(20.0)
    assert all(here is Here.PRESENT for member in members for here in shown(member).values())
    assert not any(member.told(MemberGone) for member in members)


def test_who_returns_is_shown_at_once() -> None:
    ether = Ether(4)
    store = MemoryStore()
    members = crew(ether, 3)
    other = ether.add("other", store)
    ether.run(5.0)
    other.participant.join(7)
    ether.run(10.0)
    ether.depart(other)
    ether.run(2.0)
    assert all(shown(member)["other"] is Here.GONE for member in members)
    ether.add("other", store)
    ether.run(2.0)
    assert all(shown(member)["other"] is Here.PRESENT for member in members)
    assert [event.member.name for event in members[0].told(MemberBack)] == ["other"]


def test_a_newcomer_is_told_who_is_gone() -> None:
    ether = Ether(5)
    members = crew(ether, 4)
    ether.depart(members.pop())
    ether.run(2.0)
    late = ether.add("late")
    ether.run(5.0)
    assert shown(late)["m3"] is Here.GONE
    assert shown(late)["m2"] is Here.PRESENT


def test_many_members_do_not_speak_more_often() -> None:
    ether = Ether(6)
    members = [ether.add(f"m{number}") for number in range(60)]
    members[0].participant.create("a group", group=7)
    ether.run(10.0)
    for member in members[1:]:
        member.participant.join(7)
    ether.run(60.0)
    begun = ether.clock.now
    ether.run(90.0)
    assert 60 <= ether.count(begun)["Presence"] <= 2.5 * 90
    assert not any(member.told(MemberGone) for member in members)


def test_lists_that_differ_find_each_other() -> None:
    """Two parts form and meet again without any new arrival."""
    ether = Ether(7)
    members = crew(ether, 10)
    for member in members[:5]:
        member.side = 1
    members[0].participant.create("on one side", group=8)
    members[9].participant.create("on the other", group=9)
    members[9].participant.leave(7)
    members[1].says(7, "left")
    members[8].says(7, "right")
    ether.run(150.0)
    assert all(shown(members[0])[f"m{number}"] is Here.GONE for number in range(5, 9))
    for member in members:
        member.side = 0
    ether.run(150.0)
    assert len({member.participant.directory.hash for member in members}) == 1
    assert all(sorted(member.texts()) == ["left", "right"] for member in members[:9])
    for member in members[:9]:
        assert set(shown(member).values()) == {Here.PRESENT, Here.LEFT}
