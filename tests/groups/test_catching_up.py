"""Catching up: one answers, the others keep quiet, pages, holders that die, what is gone, and askers that abuse it."""

from pathlib import Path

import pytest

from broadloom.groups.messages import HistoryRequest, PostMessage, PostRequest
from broadloom.groups.model import CatchingUp, CaughtUp, GroupMessage, MessageId, Post
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.groups.store import MemoryStore
from tests.groups.group_bus import BusMember, GroupBus


def make_members(
    bus: GroupBus, count: int, settings: GroupSettings | None = None, retention: RetentionPolicy | None = None
) -> list[BusMember]:
    """So many members of group 7."""
    members = [bus.add(f"m{number}", settings=settings) for number in range(count)]
    members[0].participant.create("a group", retention, group=7)
    bus.run(10.0)
    for member in members[1:]:
        member.participant.join(7)
    bus.run(20.0)
    return members


def history_page_bytes(bus: GroupBus, since: float) -> int:
    return sum(size for at, _, kind, size in bus.sent if kind == "HistoryPage" and at >= since)


def chat(bus: GroupBus, members: list[BusMember], count: int, data: str = "") -> None:
    """Everybody answers somebody."""
    last: GroupMessage | None = None
    for number in range(count):
        member = members[number % len(members)]
        known = last if last is not None and member.participant.conversations[7].order.has(last.id) else None
        last = member.send_text(7, f"{number} {data}", known)
        bus.run(0.02)


def test_history_comes_once_whoever_holds_it() -> None:
    ether = GroupBus(1)
    members = make_members(ether, 20)
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
    assert history_page_bytes(ether, begun) < 1.5 * missing
    (end,) = late.events_of(CaughtUp)
    assert (end.received, end.unavailable) == (600, 0)
    steps = late.events_of(CatchingUp)
    assert len(steps) > 5
    assert [step.remaining for step in steps] == sorted((step.remaining for step in steps), reverse=True)
    assert all(step.received + step.remaining == 600 for step in steps)


def test_who_returns_gets_what_it_missed_and_gives_what_only_it_had() -> None:
    ether = GroupBus(2)
    store = MemoryStore()
    a, b = make_members(ether, 2)
    c = ether.add("c", store)
    ether.run(5.0)
    c.participant.join(7)
    ether.run(20.0)
    a.send_text(7, "all have this")
    ether.run(5.0)
    c.partition = 1  # cut off, and it goes on speaking
    question = c.send_text(7, "only c has this")
    c.send_text(7, "and this", question)
    a.send_text(7, "c misses this")
    ether.run(3.0)
    ether.go_offline(c)
    c = ether.add("c", store)
    ether.run(40.0)
    for member in (a, b):
        assert sorted(member.texts()) == sorted(["all have this", "c misses this", "only c has this", "and this"])
    assert c.texts() == ["c misses this"]
    assert c.send_text(7, "next").sequence == 3, "it goes on with its numbering"


def test_live_messages_do_not_wait_for_history() -> None:
    slow = GroupSettings(history_bytes_per_s=20_000, history_burst_bytes=20_000)
    ether = GroupBus(3)
    members = make_members(ether, 4, slow)
    chat(ether, members, 300, "x" * 2000)
    ether.run(60.0)
    late = ether.add("late", settings=slow)
    ether.run(5.0)
    late.participant.join(7)
    ether.run(8.0)
    assert late.participant.conversations[7].history_client.is_active
    members[0].send_text(7, "live")
    ether.run(1.0)
    assert "live" in late.texts()
    assert len(late.delivered) < 300
    ether.run(120.0)
    assert len(late.delivered) == 301


def test_the_holder_dies_and_another_goes_on() -> None:
    slow = GroupSettings(history_bytes_per_s=100_000, history_burst_bytes=50_000)
    ether = GroupBus(4)
    members = make_members(ether, 4, slow)
    chat(ether, members, 400, "x" * 2000)
    ether.run(60.0)
    late = ether.add("late", settings=slow)
    ether.run(5.0)
    begun = ether.clock.now
    late.participant.join(7)
    while not late.delivered:
        ether.run(0.1)
    holder = next(each for each in members if "HistoryPage" in ether.kinds_sent_by(each.participant.me.name, begun))
    ether.kill(holder)
    ether.run(120.0)
    assert len(late.delivered) == 400
    (end,) = late.events_of(CaughtUp)
    assert end.unavailable == 0


@pytest.mark.parametrize(
    "keep", [RetentionPolicy(messages_max=50), RetentionPolicy(bytes_max=50 * 72), RetentionPolicy(age_max_s=40)]
)
def test_what_is_no_longer_kept_is_told(keep: RetentionPolicy) -> None:
    ether = GroupBus(5)
    members = make_members(ether, 3, retention=keep)
    first = members[0].send_text(7, "the first of all")
    for _ in range(199):
        members[0].send_text(7, "and so on")
        ether.run(0.5)
    answer = members[1].send_text(7, "to the first", first)
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
    (end,) = late.events_of(CaughtUp)
    assert (end.received, end.unavailable) == (held, 201 - held)
    assert next(each for each in late.delivered if each.id == answer.id).is_orphan
    asked = ether.count()["HistoryRequest"]
    ether.run(300.0)
    assert ether.count()["HistoryRequest"] <= asked + 2, "nobody asks for ever for what nobody has"


def test_what_is_kept_for_a_time_goes_by_itself() -> None:
    ether = GroupBus(11)
    a, b = make_members(ether, 2, retention=RetentionPolicy(age_max_s=60))
    a.send_text(7, "for a minute")
    ether.run(30.0)
    assert b.participant.conversations[7].history.count == 1
    ether.run(60.0)
    for member in (a, b):
        history = member.participant.conversations[7].history
        assert history.count == 0
        assert list(history.forgotten()[a.participant.me.id]) == [(1, 1)]


def test_identities_only() -> None:
    ether = GroupBus(6)
    members = make_members(ether, 3, retention=RetentionPolicy(ids_only=True))
    question = members[0].send_text(7, "said aloud")
    ether.run(2.0)
    members[1].send_text(7, "an answer", question)
    ether.run(2.0)
    assert members[2].texts() == ["said aloud", "an answer"]
    late = ether.add("late")
    ether.run(5.0)
    late.participant.join(7)
    ether.run(20.0)
    assert late.tree(7) == members[2].tree(7)
    assert all(each.is_stripped and not each.data for each in late.delivered)
    members[0].send_text(7, "live", question)
    ether.run(2.0)
    assert late.texts()[-1] == "live", "an answer to something that was never seen finds its place"


def test_a_parent_that_is_lacking_is_asked_for() -> None:
    ether = GroupBus(7)
    a, b, c = make_members(ether, 3)
    c.partition = 1
    question = a.send_text(7, "c does not hear this")
    ether.run(1.0)
    c.partition = 0
    begun = ether.clock.now
    b.send_text(7, "an answer", question)
    ether.run(1.0)
    assert c.texts() == []
    ether.run(10.0)
    assert c.texts() == ["c does not hear this", "an answer"]
    assert ether.count(begun)["PostRequest"] == 1
    assert ether.count(begun)["HistoryPage"] == 1, "one of the two who could answer did"
    assert not any(each.is_orphan for each in c.delivered)


@pytest.mark.parametrize("orphan_s", [5.0, None])
def test_a_parent_that_cannot_be_had(orphan_s: float | None) -> None:
    ether = GroupBus(8)
    a, b = make_members(ether, 2, GroupSettings(orphan_timeout_s=orphan_s, presence_interval_s=1000))
    lost = Post(99, 1, MessageId(98, 1), 0, b"an answer to nothing")
    b.participant.send(PostMessage(7, "stranger", lost))
    ether.run(4.0)
    assert a.texts() == []
    ether.run(60.0)
    if orphan_s is None:
        assert a.texts() == [], "kept waiting, as the application prefers"
        a.participant.on_message(55, _post_message(Post(98, 1, None, 0, b"late, but there")))
        assert a.texts() == ["late, but there", "an answer to nothing"]
    else:
        assert [(each.text, each.is_orphan) for each in a.delivered] == [("an answer to nothing", True)]


def _post_message(post: Post) -> bytes:
    from broadloom.groups.codec import encode

    return encode(PostMessage(7, "somebody", post))


def test_who_asks_without_end_gets_little() -> None:
    """Ten questions a second for a minute, each for everything: the holders send what their budget allows, at most."""
    ether = GroupBus(9)
    limits = GroupSettings(history_bytes_per_s=50_000, history_burst_bytes=100_000)
    members = make_members(ether, 10, limits)
    chat(ether, members, 300, "x" * 1000)
    ether.run(10.0)
    hostile = ether.add("hostile")
    ether.run(5.0)
    begun = ether.clock.now
    for number in range(600):
        hostile.participant.send(HistoryRequest(7, number, 0, ()))
        hostile.participant.send(PostRequest(7, tuple(MessageId(each.participant.me.id, 1) for each in members)))
        ether.run(0.1)
    assert history_page_bytes(ether, begun) < 60 * 50_000 + 10 * 150_000
    members[0].send_text(7, "still here")
    ether.run(2.0)
    assert members[5].texts()[-1] == "still here"


def test_the_same_from_a_file(tmp_path: Path) -> None:
    ether = GroupBus(10)
    store = SqliteStore(tmp_path / "a.db")
    a = ether.add("a", store)
    a.participant.create("a group", group=7)
    ether.run(10.0)
    chat(ether, [a], 3000, "x")
    ether.go_offline(a)
    store.close()
    store = SqliteStore(tmp_path / "a.db")
    a = ether.add("a", store)
    b = ether.add("b")
    ether.run(10.0)
    b.participant.join(7)
    ether.run(30.0)
    assert len(b.delivered) == 3000
    assert [each.sequence for each in b.delivered] == list(range(1, 3001))
    assert a.send_text(7, "on").sequence == 3001
    ether.go_offline(a)
    store.close()
