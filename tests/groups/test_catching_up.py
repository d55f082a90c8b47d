"""Catching up: one server at a time, crashed servers, unavailable messages and abusive clients."""

from pathlib import Path

import pytest

from broadloom.groups.codec import encode
from broadloom.groups.messages import HistoryRequest, PostMessage, PostRequest
from broadloom.groups.model import CatchingUp, CaughtUp, GroupMessage, MessageId, Post
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.groups.store import MemoryStore
from tests.groups.group_bus import BusMember, GroupBus


def make_members(
    bus: GroupBus, count: int, settings: GroupSettings | None = None, retention: RetentionPolicy | None = None
) -> list[BusMember]:
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
    """Members take turns and reply to the previous message."""
    last: GroupMessage | None = None
    for number in range(count):
        member = members[number % len(members)]
        known = last if last is not None and member.participant.conversations[7].order.received.has(last.id) else None
        last = member.send_text(7, f"{number} {data}", known)
        bus.run(0.02)


def test_history_is_served_by_one_holder() -> None:
    bus = GroupBus(1)
    members = make_members(bus, 20)
    chat(bus, members, 600, "x" * 300)
    bus.run(5.0)
    started_at = bus.clock.now
    late = bus.add("late")
    bus.run(5.0)
    late.participant.join(7)
    bus.run(30.0)
    assert late.tree(7) == members[0].tree(7)
    assert len(late.delivered) == 600
    missing = sum(len(each.data) for each in late.delivered)
    assert history_page_bytes(bus, started_at) < 1.5 * missing
    (end,) = late.events_of(CaughtUp)
    assert (end.received, end.unavailable) == (600, 0)
    steps = late.events_of(CatchingUp)
    assert len(steps) > 5
    assert [step.remaining for step in steps] == sorted((step.remaining for step in steps), reverse=True)
    assert all(step.received + step.remaining == 600 for step in steps)


def test_returning_member_exchanges_missing_messages_both_ways() -> None:
    bus = GroupBus(2)
    store = MemoryStore()
    a, b = make_members(bus, 2)
    c = bus.add("c", store)
    bus.run(5.0)
    c.participant.join(7)
    bus.run(20.0)
    a.send_text(7, "all have this")
    bus.run(5.0)
    c.partition = 1  # partitioned, and it keeps sending
    question = c.send_text(7, "only c has this")
    c.send_text(7, "and this", question)
    a.send_text(7, "c misses this")
    bus.run(3.0)
    bus.go_offline(c)
    c = bus.add("c", store)
    bus.run(40.0)
    for member in (a, b):
        assert sorted(member.texts()) == sorted(["all have this", "c misses this", "only c has this", "and this"])
    assert c.texts() == ["c misses this"]
    assert c.send_text(7, "next").sequence == 3, "it continues its sequence numbers"


@pytest.mark.parametrize("parent_turns_up", [False, True])
def test_reply_waits_for_its_parent_as_long_as_the_setting_says(parent_turns_up: bool) -> None:
    """Also if no member that can be reached has the parent, which the history exchange finds out within seconds."""
    bus = GroupBus(5)
    reader, other = make_members(bus, 2)
    author = 99
    question, reply = MessageId(author, 1), Post(author, 2, MessageId(author, 1), 0, b"reply")
    reader.participant.on_message(author, encode(PostMessage(7, "away", reply)))
    reader.participant.on_missed()  # the channel lost the parent
    bus.run(25.0)
    (end,) = reader.events_of(CaughtUp)[1:]
    assert end.unavailable == 1
    assert reader.texts() == []
    if parent_turns_up:
        parent = Post(*question, None, 0, b"question")
        reader.participant.on_message(author, encode(PostMessage(7, "away", parent)))
        assert reader.texts() == ["question", "reply"]
        return
    bus.run(15.0)
    assert [(each.text, each.is_orphan) for each in reader.delivered] == [("reply", True)]
    assert other.texts() == []


def test_live_messages_do_not_wait_for_history() -> None:
    slow = GroupSettings(history_bytes_per_s=20_000, history_burst_bytes=20_000)
    bus = GroupBus(3)
    members = make_members(bus, 4, slow)
    chat(bus, members, 300, "x" * 2000)
    bus.run(60.0)
    late = bus.add("late", settings=slow)
    bus.run(5.0)
    late.participant.join(7)
    bus.run(8.0)
    assert late.participant.conversations[7].history_client.is_active
    members[0].send_text(7, "live")
    bus.run(1.0)
    assert "live" in late.texts()
    assert len(late.delivered) < 300
    bus.run(120.0)
    assert len(late.delivered) == 301


def test_another_holder_continues_when_server_crashes() -> None:
    slow = GroupSettings(history_bytes_per_s=100_000, history_burst_bytes=50_000)
    bus = GroupBus(4)
    members = make_members(bus, 4, slow)
    chat(bus, members, 400, "x" * 2000)
    bus.run(60.0)
    late = bus.add("late", settings=slow)
    bus.run(5.0)
    started_at = bus.clock.now
    late.participant.join(7)
    while not late.delivered:
        bus.run(0.1)
    server = next(each for each in members if "HistoryPage" in bus.kinds_sent_by(each.participant.me.name, started_at))
    bus.kill(server)
    bus.run(120.0)
    assert len(late.delivered) == 400
    (end,) = late.events_of(CaughtUp)
    assert end.unavailable == 0


@pytest.mark.parametrize(
    "retention", [RetentionPolicy(messages_max=50), RetentionPolicy(bytes_max=50 * 72), RetentionPolicy(age_max_s=40)]
)
def test_pruned_messages_are_reported_as_unavailable(retention: RetentionPolicy) -> None:
    bus = GroupBus(5)
    members = make_members(bus, 3, retention=retention)
    first = members[0].send_text(7, "the first of all")
    for _ in range(199):
        members[0].send_text(7, "and so on")
        bus.run(0.5)
    answer = members[1].send_text(7, "to the first", first)
    bus.run(1.0)
    for member in members:
        member.participant.conversations[7].prune()
    held = members[0].participant.conversations[7].history.count
    assert 40 <= held <= 90
    late = bus.add("late")
    bus.run(5.0)
    late.participant.join(7)
    bus.run(30.0)
    assert len(late.delivered) == held
    (end,) = late.events_of(CaughtUp)
    assert (end.received, end.unavailable) == (held, 201 - held)
    assert next(each for each in late.delivered if each.id == answer.id).is_orphan
    requests = bus.count()["HistoryRequest"]
    bus.run(300.0)
    assert bus.count()["HistoryRequest"] <= requests + 2, "unavailable messages are not requested forever"


def test_expired_messages_are_pruned_in_silent_group() -> None:
    bus = GroupBus(11)
    a, b = make_members(bus, 2, retention=RetentionPolicy(age_max_s=60))
    a.send_text(7, "for a minute")
    bus.run(30.0)
    assert b.participant.conversations[7].history.count == 1
    bus.run(60.0)
    for member in (a, b):
        history = member.participant.conversations[7].history
        assert history.count == 0
        assert list(history.forgotten()[a.participant.me.id]) == [(1, 1)]


def test_late_joiner_gets_stripped_tree_when_group_keeps_ids_only() -> None:
    bus = GroupBus(6)
    members = make_members(bus, 3, retention=RetentionPolicy(ids_only=True))
    question = members[0].send_text(7, "a question")
    bus.run(2.0)
    members[1].send_text(7, "an answer", question)
    bus.run(2.0)
    assert members[2].texts() == ["a question", "an answer"]
    late = bus.add("late")
    bus.run(5.0)
    late.participant.join(7)
    bus.run(20.0)
    assert late.tree(7) == members[2].tree(7)
    assert all(each.is_stripped and not each.data for each in late.delivered)
    members[0].send_text(7, "live", question)
    bus.run(2.0)
    assert late.texts()[-1] == "live", "a reply to a stripped message is delivered"


def test_missing_parent_is_requested() -> None:
    bus = GroupBus(7)
    a, b, c = make_members(bus, 3)
    c.partition = 1
    question = a.send_text(7, "c does not hear this")
    bus.run(1.0)
    c.partition = 0
    started_at = bus.clock.now
    b.send_text(7, "an answer", question)
    bus.run(1.0)
    assert c.texts() == []
    bus.run(10.0)
    assert c.texts() == ["c does not hear this", "an answer"]
    assert bus.count(started_at)["PostRequest"] == 1
    assert bus.count(started_at)["HistoryPage"] == 1, "one of two holders served it"
    assert not any(each.is_orphan for each in c.delivered)


@pytest.mark.parametrize("orphan_timeout_s", [5.0, None])
def test_reply_to_unavailable_parent_is_delivered_after_orphan_timeout(orphan_timeout_s: float | None) -> None:
    bus = GroupBus(8)
    a, b = make_members(bus, 2, GroupSettings(orphan_timeout_s=orphan_timeout_s, presence_interval_s=1000))
    lost = Post(99, 1, MessageId(98, 1), 0, b"an answer to nothing")
    b.participant.send(PostMessage(7, "stranger", lost))
    bus.run(4.0)
    assert a.texts() == []
    bus.run(60.0)
    if orphan_timeout_s is None:
        assert a.texts() == [], "without a timeout it keeps waiting"
        a.participant.on_message(55, _post_message(Post(98, 1, None, 0, b"late, but there")))
        assert a.texts() == ["late, but there", "an answer to nothing"]
    else:
        assert [(each.text, each.is_orphan) for each in a.delivered] == [("an answer to nothing", True)]


def _post_message(post: Post) -> bytes:
    from broadloom.groups.codec import encode

    return encode(PostMessage(7, "Cleo", post))


def test_repeated_history_requests_stay_within_rate_limit() -> None:
    """Ten requests for everything per second, for a minute."""
    bus = GroupBus(9)
    limits = GroupSettings(history_bytes_per_s=50_000, history_burst_bytes=100_000)
    members = make_members(bus, 10, limits)
    chat(bus, members, 300, "x" * 1000)
    bus.run(10.0)
    hostile = bus.add("hostile")
    bus.run(5.0)
    started_at = bus.clock.now
    for number in range(600):
        hostile.participant.send(HistoryRequest(7, number, 0, ()))
        hostile.participant.send(PostRequest(7, tuple(MessageId(each.participant.me.id, 1) for each in members)))
        bus.run(0.1)
    assert history_page_bytes(bus, started_at) < 60 * 50_000 + 10 * 150_000
    members[0].send_text(7, "still here")
    bus.run(2.0)
    assert members[5].texts()[-1] == "still here"


def test_history_is_served_from_sqlite_store(tmp_path: Path) -> None:
    bus = GroupBus(10)
    store = SqliteStore(tmp_path / "a.db")
    a = bus.add("a", store)
    a.participant.create("a group", group=7)
    bus.run(10.0)
    chat(bus, [a], 3000, "x")
    bus.go_offline(a)
    store.close()
    store = SqliteStore(tmp_path / "a.db")
    a = bus.add("a", store)
    b = bus.add("b")
    bus.run(10.0)
    b.participant.join(7)
    bus.run(30.0)
    assert len(b.delivered) == 3000
    assert [each.sequence for each in b.delivered] == list(range(1, 3001))
    assert a.send_text(7, "on").sequence == 3001
    bus.go_offline(a)
    store.close()
