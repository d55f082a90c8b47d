"""Catching up: one answers, the others keep quiet, pages, holders that die, what is gone, and askers that abuse it."""

from pathlib import Path

import pytest

from tests.groups.ether import Ether, EtherMember
from weft.groups.events import CatchingUp, CaughtUp
from weft.groups.history import MemoryStore
from weft.groups.messages import Ask, Said, Want
from weft.groups.names import Message, MessageId, Post
from weft.groups.settings import Keep, Settings
from weft.groups.sqlite_store import SqliteStore


def crew(ether: Ether, count: int, settings: Settings | None = None, keep: Keep | None = None) -> list[EtherMember]:
    """So many members of group 7."""
    members = [ether.add(f"m{number}", settings=settings) for number in range(count)]
    members[0].participant.create("a group", keep, group=7)
    ether.run(10.0)
    for member in members[1:]:
        member.participant.join(7)
    ether.run(20.0)
    return members


def page_bytes(ether: Ether, since: float) -> int:
    return sum(size for at, _, kind, size in ether.sent if kind == "Page" and at >= since)


def chat(ether: Ether, members: list[EtherMember], count: int, data: str = "") -> None:
    """Everybody answers somebody."""
    last: Message | None = None
    for number in range(count):
        member = members[number % len(members)]
        known = last if last is not None and member.participant.conversations[7].order.has(last.id) else None
        last = member.says(7, f"{number} {data}", known)
        ether.run(0.02)


def test_history_comes_once_whoever_holds_it() -> None:
    ether = Ether(1)
    members = crew(ether, 20)
    chat(ether, members, 600, "x" * 300)
    ether.run(5.0)
    begun = ether.clock.now
    late = ether.add("late")
    ether.run(5.0)
    late.participant.join(7)
    ether.run(30.0)
    assert late.tree(7) == members[0].tree(7)
    assert len(late.delivered) == 600
    missing = sum(len(each.data) for each in late.delivered)
    assert page_bytes(ether, begun) < 1.5 * missing
    (end,) = late.told(CaughtUp)
    assert (end.received, end.unavailable) == (600, 0)
    steps = late.told(CatchingUp)
    assert len(steps) > 5
    assert [step.remaining for step in steps] == sorted((step.remaining for step in steps), reverse=True)
    assert all(step.received + step.remaining == 600 for step in steps)


def test_who_returns_gets_what_it_missed_and_gives_what_only_it_had() -> None:
    ether = Ether(2)
    store = MemoryStore()
    a, b = crew(ether, 2)
    c = ether.add("c", store)
    ether.run(5.0)
    c.participant.join(7)
    ether.run(20.0)
    a.says(7, "all have this")
    ether.run(5.0)
    c.side = 1  # cut off, and it goes on speaking
    question = c.says(7, "only c has this")
    c.says(7, "and this", question)
    a.says(7, "c misses this")
    ether.run(3.0)
    ether.depart(c)
    c = ether.add("c", store)
    ether.run(40.0)
    for member in (a, b):
        assert sorted(member.texts()) == sorted(["all have this", "c misses this", "only c has this", "and this"])
    assert c.texts() == ["c misses this"]
    assert c.says(7, "next").sequence == 3, "it goes on with its numbering"


def test_live_messages_do_not_wait_for_history() -> None:
    slow = Settings(pages_bytes_per_s=20_000, pages_burst_bytes=20_000)
    ether = Ether(3)
    members = crew(ether, 4, slow)
    chat(ether, members, 300, "x" * 2000)
    ether.run(60.0)
    late = ether.add("late", settings=slow)
    ether.run(5.0)
    late.participant.join(7)
    ether.run(8.0)
    assert late.participant.conversations[7].asking.is_active
    members[0].says(7, "live")
    ether.run(1.0)
    assert "live" in late.texts()
    assert len(late.delivered) < 300
    ether.run(120.0)
    assert len(late.delivered) == 301


def test_the_holder_dies_and_another_goes_on() -> None:
    slow = Settings(pages_bytes_per_s=100_000, pages_burst_bytes=50_000)
    ether = Ether(4)
    members = crew(ether, 4, slow)
    chat(ether, members, 400, "x" * 2000)
    ether.run(60.0)
    late = ether.add("late", settings=slow)
    ether.run(5.0)
    begun = ether.clock.now
    late.participant.join(7)
    while not late.delivered:
        ether.run(0.1)
    holder = next(each for each in members if "Page" in ether.said_by(each.participant.me.name, begun))
    ether.kill(holder)
    ether.run(120.0)
    assert len(late.delivered) == 400
    (end,) = late.told(CaughtUp)
    assert end.unavailable == 0


@pytest.mark.parametrize("keep", [Keep(messages=50), Keep(total_bytes=50 * 72), Keep(age_s=40)])
def test_what_is_no_longer_kept_is_told(keep: Keep) -> None:
    ether = Ether(5)
    members = crew(ether, 3, keep=keep)
    first = members[0].says(7, "the first of all")
    for _ in range(199):
        members[0].says(7, "and so on")
        ether.run(0.5)
    answer = members[1].says(7, "to the first", first)
    ether.run(1.0)
    for member in members:
        member.participant.conversations[7].prune()
    held = members[0].participant.conversations[7].history.count
    assert 40 <= held <= 90
    late = ether.add("late")
    ether.run(5.0)
    late.participant.join(7)
    ether.run(30.0)
    assert len(late.delivered) == held
    (end,) = late.told(CaughtUp)
    assert (end.received, end.unavailable) == (held, 201 - held)
    assert next(each for each in late.delivered if each.id == answer.id).orphan
    asked = ether.count()["Ask"]
    ether.run(300.0)
    assert ether.count()["Ask"] <= asked + 2, "nobody asks for ever for what nobody has"


def test_what_is_kept_for_a_time_goes_by_itself() -> None:
    ether = Ether(11)
    a, b = crew(ether, 2, keep=Keep(age_s=60))
    a.says(7, "for a minute")
    ether.run(30.0)
    assert b.participant.conversations[7].history.count == 1
    ether.run(60.0)
    for member in (a, b):
        history = member.participant.conversations[7].history
        assert history.count == 0
        assert list(history.forgotten()[a.participant.me.id]) == [(1, 1)]


def test_identities_only() -> None:
    ether = Ether(6)
    members = crew(ether, 3, keep=Keep(ids_only=True))
    question = members[0].says(7, "said aloud")
    ether.run(2.0)
    members[1].says(7, "an answer", question)
    ether.run(2.0)
    assert members[2].texts() == ["said aloud", "an answer"]
    late = ether.add("late")
    ether.run(5.0)
    late.participant.join(7)
    ether.run(20.0)
    assert late.tree(7) == members[2].tree(7)
    assert all(each.hollow and not each.data for each in late.delivered)
    members[0].says(7, "live", question)
    ether.run(2.0)
    assert late.texts()[-1] == "live", "an answer to something that was never seen finds its place"


def test_a_parent_that_is_lacking_is_asked_for() -> None:
    ether = Ether(7)
    a, b, c = crew(ether, 3)
    c.side = 1
    question = a.says(7, "c does not hear this")
    ether.run(1.0)
    c.side = 0
    begun = ether.clock.now
    b.says(7, "an answer", question)
    ether.run(1.0)
    assert c.texts() == []
    ether.run(10.0)
    assert c.texts() == ["c does not hear this", "an answer"]
    assert ether.count(begun)["Want"] == 1
    assert ether.count(begun)["Page"] == 1, "one of the two who could answer did"
    assert not any(each.orphan for each in c.delivered)


@pytest.mark.parametrize("orphan_s", [5.0, None])
def test_a_parent_that_cannot_be_had(orphan_s: float | None) -> None:
    ether = Ether(8)
    a, b = crew(ether, 2, Settings(orphan_s=orphan_s, presence_s=1000))
    lost = Post(99, 1, MessageId(98, 1), 0, b"an answer to nothing")
    b.participant.say(Said(7, "stranger", lost))
    ether.run(4.0)
    assert a.texts() == []
    ether.run(60.0)
    if orphan_s is None:
        assert a.texts() == [], "kept waiting, as the application prefers"
        a.participant.on_message(55, _said(Post(98, 1, None, 0, b"late, but there")))
        assert a.texts() == ["late, but there", "an answer to nothing"]
    else:
        assert [(each.text, each.orphan) for each in a.delivered] == [("an answer to nothing", True)]


def _said(post: Post) -> bytes:
    from weft.groups.codec import encode

    return encode(Said(7, "somebody", post))


def test_who_asks_without_end_gets_little() -> None:
    """Ten questions a second for a minute, each for everything: the holders send what their budget allows, at most."""
    ether = Ether(9)
    limits = Settings(pages_bytes_per_s=50_000, pages_burst_bytes=100_000)
    members = crew(ether, 10, limits)
    chat(ether, members, 300, "x" * 1000)
    ether.run(10.0)
    hostile = ether.add("hostile")
    ether.run(5.0)
    begun = ether.clock.now
    for number in range(600):
        hostile.participant.say(Ask(7, number, 0, ()))
        hostile.participant.say(Want(7, tuple(MessageId(each.participant.me.id, 1) for each in members)))
        ether.run(0.1)
    assert page_bytes(ether, begun) < 60 * 50_000 + 10 * 150_000
    members[0].says(7, "still here")
    ether.run(2.0)
    assert members[5].texts()[-1] == "still here"


def test_the_same_from_a_file(tmp_path: Path) -> None:
    ether = Ether(10)
    store = SqliteStore(tmp_path / "a.db")
    a = ether.add("a", store)
    a.participant.create("a group", group=7)
    ether.run(10.0)
    chat(ether, [a], 3000, "x")
    ether.depart(a)
    store.close()
    store = SqliteStore(tmp_path / "a.db")
    a = ether.add("a", store)
    b = ether.add("b")
    ether.run(10.0)
    b.participant.join(7)
    ether.run(30.0)
    assert len(b.delivered) == 3000
    assert [each.sequence for each in b.delivered] == list(range(1, 3001))
    assert a.says(7, "on").sequence == 3001
    ether.depart(a)
    store.close()
