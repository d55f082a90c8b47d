"""Topics, headers and subscriptions on real channels."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import broadloom
from broadloom import Message, Missed, NotConnectedError, SubscriptionOverflow
from broadloom.channel.topics import PatternTrie, _Node, checked_pattern
from broadloom.errors import InboxOverflowError
from broadloom.protocol.link import Link
from broadloom.wire import WireError
from broadloom.wire.broadcast_frame import BROADCAST
from broadloom.wire.codec import number_of
from broadloom.wire.message_headers import checked_headers, decode_headers, encode_headers, split_headers, with_headers
from broadloom.wire.payload_kind import HAS_HEADERS
from tests.channel.joined import connected_channels
from tests.support import eventually

# -- patterns


def matches(pattern: list[str], topic: list[str]) -> bool:
    """What a pattern means, in the simplest words."""
    if not pattern:
        return not topic
    if pattern[0] == "**":
        return any(matches(pattern[1:], topic[start:]) for start in range(len(topic) + 1))
    return bool(topic) and pattern[0] in ("*", topic[0]) and matches(pattern[1:], topic[1:])


LEVELS = st.sampled_from(["a", "b", "c"])
PATTERNS = st.lists(LEVELS | st.sampled_from(["*", "**"]), min_size=1, max_size=5).filter(
    lambda levels: levels.count("**") <= 2
)


@given(st.lists(PATTERNS, max_size=12), st.lists(st.lists(LEVELS, min_size=1, max_size=5), min_size=1, max_size=5))
def test_trie_finds_what_the_patterns_mean(patterns: list[list[str]], topics: list[list[str]]) -> None:
    trie: PatternTrie[int] = PatternTrie()
    for number, pattern in enumerate(patterns):
        trie.add(checked_pattern("/".join(pattern)), number)
    for topic in topics:
        expected = [number for number, pattern in enumerate(patterns) if matches(pattern, topic)]
        assert sorted(trie.readers("/".join(topic))) == expected
        assert sorted(trie.readers("/".join(topic))) == expected, "remembered"
    for number, pattern in enumerate(patterns):
        trie.remove("/".join(pattern), number)
    assert not trie._root.children
    assert all(trie.readers("/".join(topic)) == () for topic in topics)


class CountingChildren(dict[str, _Node[int]]):
    """Children of a node; every child that is looked up or iterated over is a visit."""

    def __init__(self, visits: list[str]) -> None:
        super().__init__()
        self._visits = visits

    def __contains__(self, level: object) -> bool:
        self._visits.append(str(level))
        return super().__contains__(level)

    def __getitem__(self, level: str) -> _Node[int]:
        self._visits.append(level)
        return super().__getitem__(level)

    def get(self, level: str, default: Any = None) -> Any:
        self._visits.append(level)
        return super().get(level, default)

    def __iter__(self) -> Iterator[str]:
        for level in super().__iter__():
            self._visits.append(level)
            yield level

    def keys(self) -> Any:
        return iter(self)

    def values(self) -> Any:
        return (super(CountingChildren, self).__getitem__(level) for level in self)

    def items(self) -> Any:
        return ((level, super(CountingChildren, self).__getitem__(level)) for level in self)


def visits_of_a_match(monkeypatch: pytest.MonkeyPatch, subscriptions: int) -> list[str]:
    """The levels that matching one topic looks at, among this many subscriptions."""
    visits: list[str] = []

    class CountingNode(_Node[int]):
        def __init__(self, takes_any_levels: bool) -> None:
            super().__init__(takes_any_levels)
            self.children = CountingChildren(visits)

    with monkeypatch.context() as patched:
        patched.setattr(broadloom.channel.topics, "_Node", CountingNode)
        trie: PatternTrie[int] = PatternTrie()
        for number in range(subscriptions):
            trie.add(f"sensors/{number}/*/value", number)
    visits.clear()
    assert trie.readers("sensors/7/x/value") == (7,)
    return visits


def test_matching_costs_the_same_with_ten_thousand_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (visits_of_a_match(monkeypatch, count) for count in (10, 10_000))
    assert many == few
    assert set(many) == {"sensors", "7", "x", "value", "*", "**"}, "levels of the topic and wildcards, no other pattern"


@pytest.mark.parametrize(
    "pattern", ["", "/a", "a/", "a//b", "a*", "*a/b", "a/***", "**/**/**", "a\nb", "x/" * 16 + "x", "a" * 257]
)
def test_invalid_patterns_are_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        checked_pattern(pattern)


# -- headers

TEXTS = st.text(max_size=20)
TOPICS = st.lists(
    st.text("abc é/", min_size=1, max_size=5).filter(lambda text: "/" not in text), min_size=1, max_size=4
)


@given(
    TOPICS.map("/".join) | st.none(),
    TEXTS | st.none(),
    st.dictionaries(TEXTS.filter(lambda name: name and "\0" not in name), TEXTS, max_size=5),
    st.integers(0, 2**48 - 1),
    st.binary(max_size=50),
)
def test_headers_round_trip(
    topic: str | None, content_type: str | None, values: dict[str, str], time_ms: int, data: bytes
) -> None:
    block = encode_headers(*checked_headers(topic, content_type, values))
    envelope, rest = split_headers(with_headers(block, time_ms, data))
    assert rest == data
    assert (envelope.headers.topic, envelope.headers.content_type) == (topic, content_type)
    assert dict(envelope.headers.user_headers) == values
    assert envelope.sent_at_ms == time_ms


@given(st.binary(max_size=60))
def test_any_bytes_are_headers_or_a_wire_error(payload: bytes) -> None:
    with suppress(WireError):
        split_headers(payload)


def test_unknown_optional_field_is_skipped_and_unknown_critical_one_is_not() -> None:
    assert decode_headers(b"\x09\0\x01x" + encode_headers("a/b", None, ())).topic == "a/b"
    with pytest.raises(WireError, match="unknown header field 200"):
        decode_headers(b"\xc8\0\0")


async def test_bad_headers_are_rejected_before_anything_is_sent() -> None:
    async with connected_channels(1) as (channel,):
        for arguments, problem, text in (
            ({"topic": "a//b"}, ValueError, "topic 'a//b': a level is empty"),
            ({"topic": "a/*"}, ValueError, "allowed in patterns only"),
            ({"topic": "a\x1b[31m"}, ValueError, "topic"),
            ({"topic": "a" * 10_000_000}, ValueError, "10,000,000 bytes; at most 256 are allowed"),
            ({"topic": 7}, TypeError, "topic"),
            ({"content_type": b"text/plain"}, TypeError, "content_type"),
            ({"headers": {"a": 1}}, TypeError, "header"),
            ({"headers": [("a", "b")]}, TypeError, "must be a mapping"),
            ({"headers": {"": "x"}}, ValueError, "header"),
            ({"headers": {"big": "x" * 10_000_000}}, ValueError, "headers of 10,000,007 bytes: at most 4,096"),
            ({"headers": {str(number): "" for number in range(33)}}, ValueError, "at most 32"),
        ):
            with pytest.raises(problem, match=text) as raised:
                await channel.broadcast(b"x", **arguments)
            assert len(str(raised.value)) < 200
            with pytest.raises(problem, match=text):
                channel.broadcast_nowait(b"x", **arguments)
        assert channel.status().counters["sent"] == 0


# -- subscriptions on a channel


async def test_message_carries_topic_headers_and_time() -> None:
    async with connected_channels(2) as (one, two):
        await one.broadcast(b"17:3", topic="sports/nfl", content_type="text/plain", headers={"quarter": "2"})
        message = await two.receive(20)
        assert (message.data, message.topic, message.content_type) == (b"17:3", "sports/nfl", "text/plain")
        assert message.headers == {"quarter": "2"}
        assert message.sent_at_ms is not None
        await one.broadcast(b"plain")
        message = await two.receive(20)
        assert (message.topic, message.headers, message.sent_at_ms) == (None, {}, None)


async def test_message_without_headers_is_sent_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[bytes] = []
    on_frame = Link.on_frame

    def keep(link: Link, frame: bytes) -> None:
        if number_of(frame) == BROADCAST:
            arrived.append(frame)
        on_frame(link, frame)

    monkeypatch.setattr(Link, "on_frame", keep)
    async with connected_channels(2) as (one, two):
        await one.broadcast(b"hello")
        message = await two.receive(20)
        assert [frame.hex() for frame in arrived] == [
            "0000004c 00000015 00000001 00000000"  # length, broadcast, hops, age
            f"{one.peer_id:016x} 0000000000000001"  # author, sequence
            "00000000 00000001 00000000 00000000"  # first of the stream, one message, flood, data
            "00000001 00000000 00000000"  # normal priority, no TTL, no signature
            "00000001 00000005 00000005 68656c6c 6f000000".replace(" ", "")  # one size, sum of sizes, "hello"
        ]
        assert message == Message(one.peer_id, 1, b"hello", 1)


async def test_each_subscription_gets_what_matches_and_the_channel_gets_everything() -> None:
    async with connected_channels(2) as (one, two):
        nfl, scores = two.subscribe("sports/nfl/**"), two.subscribe("sports/*/scores")
        everything, other = two.subscribe(), two.subscribe("weather")
        sent = [("sports/nfl/scores", b"1"), ("sports/nhl/scores", b"2"), ("sports/nfl", b"3"), (None, b"4")]
        for topic, data in sent:
            await one.broadcast(data, topic=topic)
        await eventually(lambda: two.unread_count == 4)

        def taken(reader: broadloom.Subscription) -> list[bytes]:
            return [message.data for message in iter(reader.receive_nowait, None)]

        assert taken(nfl) == [b"1", b"3"]
        assert taken(scores) == [b"1", b"2"]
        assert taken(everything) == [b"1", b"2", b"3", b"4"]
        assert taken(other) == []
        nfl.close()
        await one.broadcast(b"5", topic="sports/nfl/scores")
        assert (await scores.receive(20)).data == b"5"
        assert taken(nfl) == []
        with pytest.raises(NotConnectedError, match="subscribe again"):
            await nfl.receive(1)


async def test_subscription_to_an_invalid_pattern_raises() -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(ValueError, match=r"pattern 'a\*b': `\*` and `\*\*` stand for whole levels"):
            channel.subscribe("a*b")
        with pytest.raises(TypeError, match="pattern"):
            channel.subscribe(7)  # type: ignore[arg-type]


async def test_limits_and_policy_of_a_subscription_are_checked() -> None:
    async with connected_channels(1) as (channel,):
        with pytest.raises(ValueError, match="messages_max=0: must be at least 1"):
            channel.subscribe(messages_max=0)
        with pytest.raises(TypeError, match="bytes_max must be a whole number, not float"):
            channel.subscribe(bytes_max=1.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="overflow='wait': must be one of drop_oldest, pause, leave"):
            channel.subscribe(overflow="wait")
        with pytest.raises(TypeError, match="pattern must be text"):
            channel.subscribe(5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a message is bytes, not str"):
            await channel.layer("zz").broadcast("text")  # type: ignore[arg-type]


async def test_first_subscriptions_get_what_arrived_since_connect() -> None:
    async with connected_channels(2) as (one, two):
        for topic in ("a", "b", "a"):
            await one.broadcast(topic.encode(), topic=topic)
        await eventually(lambda: two.unread_count == 3)
        first, second, everything = two.subscribe("a"), two.subscribe("b"), two.subscribe()
        assert [reader.unread_count for reader in (first, second, everything)] == [2, 1, 3]
        await asyncio.sleep(0)
        assert two.subscribe("a").unread_count == 0, "later ones start now"
        await one.broadcast(b"again", topic="a")
        assert [(await first.receive(20)).data for _ in range(3)] == [b"a", b"a", b"again"]


async def test_large_message_with_a_topic_arrives_whole() -> None:
    data = random.Random(1).randbytes(300_000)
    async with connected_channels(2) as (one, two):
        reader = two.subscribe("maps/*")
        await one.broadcast(data, topic="maps/europe")
        message = await reader.receive(20)
        assert (message.data, message.topic) == (data, "maps/europe")


async def test_full_subscription_reports_exactly_what_it_dropped() -> None:
    async with connected_channels(2) as (one, two):
        events: list[SubscriptionOverflow | Missed] = []
        two.on_event(lambda event: events.append(event) if isinstance(event, SubscriptionOverflow | Missed) else None)
        small, large = two.subscribe("a", messages_max=50), two.subscribe("a")
        for number in range(300):
            await one.broadcast(str(number).encode(), topic="a" if number % 3 else "b")
        await eventually(lambda: large.unread_count == 200)
        kept = [message.sequence for message in iter(small.receive_nowait, None)]
        all_sequences = [message.sequence for message in iter(large.receive_nowait, None)]
        dropped: list[int] = []
        for event in events:
            assert isinstance(event, SubscriptionOverflow)
            dropped += range(event.first_sequence, event.last_sequence + 1)
        assert sorted(dropped + kept) == all_sequences
        assert small.dropped_count == len(dropped) > 0
        assert two.missed_count == 0


async def test_subscription_that_leaves_ends_alone() -> None:
    async with connected_channels(2) as (one, two):
        reader = two.subscribe(overflow="leave", messages_max=10)
        for number in range(30):
            await one.broadcast(b"%d" % number)
        await eventually(lambda: reader.has_overflowed)
        while reader.unread_count:
            await reader.receive(20)
        with pytest.raises(InboxOverflowError, match="did not read it in time"):
            await reader.receive(20)
        await eventually(lambda: two.unread_count > 0)
        assert two.is_connected


async def test_pausing_subscription_slows_the_channel_and_loses_nothing() -> None:
    async with connected_channels(2) as (one, two):
        reader = two.subscribe(overflow="pause", messages_max=20)

        async def send() -> None:
            for number in range(2000):
                await one.broadcast(b"%d" % number)

        sending = asyncio.create_task(send())
        got = [int((await reader.receive(20)).data) for _ in range(2000)]
        await sending
        assert got == list(range(2000))
        assert two.missed_count == 0


async def test_pausing_subscription_without_a_reader_holds_up_the_channel_only_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broadloom.channel.subscription, "PAUSE_S_MAX", 0.2)
    async with connected_channels(2) as (one, two):
        overflows: list[SubscriptionOverflow] = []
        two.on_event(lambda event: overflows.append(event) if isinstance(event, SubscriptionOverflow) else None)
        unread = two.subscribe("a", overflow="pause", messages_max=20)
        reader = two.subscribe()
        for number in range(100):
            await one.broadcast(b"%d" % number, topic="a")
        await eventually(lambda: unread.dropped_count)
        for number in range(100, 200):
            await one.broadcast(b"%d" % number, topic="a")
        got = [int((await reader.receive(20)).data) for _ in range(200)]
        assert got == list(range(200))
        assert two.missed_count == 0
        await eventually(lambda: unread.unread_count <= 20)
        assert unread.dropped_count == 200 - unread.unread_count
        assert [(each.pattern, each.author) for each in overflows] == [("a", one.peer_id)] * len(overflows)
        assert sum(each.last_sequence - each.first_sequence + 1 for each in overflows) == unread.dropped_count
        assert caplog.text.count("the subscription 'a' has held up the channel for 0.2 s") == 1
        # Once it is read again, it pauses again.
        before, kept = unread.dropped_count, unread.unread_count
        rest = [int((await unread.receive(20)).data) for _ in range(kept)]
        assert rest == list(range(200 - kept, 200))
        monkeypatch.setattr(broadloom.channel.subscription, "PAUSE_S_MAX", 60.0)
        sending = asyncio.ensure_future(_broadcast_many(one, 500))
        assert [int((await unread.receive(20)).data) for _ in range(500)] == list(range(500))
        await sending
        assert unread.dropped_count == before


async def _broadcast_many(channel: broadloom.Channel, count: int) -> None:
    for number in range(count):
        await channel.broadcast(b"%d" % number, topic="a")


async def test_paused_channel_goes_on_when_the_subscription_is_closed() -> None:
    async with connected_channels(2) as (one, two):
        unread = two.subscribe("a", overflow="pause", messages_max=5)
        await _broadcast_many(one, 20)
        await eventually(lambda: two._node.peer.is_paused)
        unread.close()
        assert not two._node.peer.is_paused
        assert unread._pause_timer is None


async def test_program_that_only_subscribes_gets_no_missed_events_for_the_unread_inbox() -> None:
    async with connected_channels(2, inbox_messages_max=100) as (one, two):
        missed: list[object] = []
        two.on_event(lambda event: missed.append(event) if isinstance(event, Missed) else None)
        reader = two.subscribe()
        for number in range(1000):
            await one.broadcast(b"%d" % number + b"x" * 10_000)
            if number % 50 == 0:
                await eventually(lambda number=number: reader.unread_count > 0)  # type: ignore[misc]
                while reader.receive_nowait() is not None:
                    pass
        await eventually(lambda: two.status().counters["delivered"] == 1000)
        assert missed == []
        assert two.status().unread_bytes <= 2 << 20


async def test_subscription_and_layer_belong_to_the_loop_of_the_channel() -> None:
    async with connected_channels(1) as (channel,):
        for closable in (channel.subscribe("a"), channel.layer("zz", lambda batch: None)):
            with pytest.raises(RuntimeError, match="belongs to the event loop and thread that joined it"):
                await asyncio.to_thread(closable.close)
            closable.close()


async def test_subscriptions_end_with_the_channel() -> None:
    async with connected_channels(2) as (one, two):
        reader = two.subscribe("a")
        await one.broadcast(b"last", topic="a")
        await eventually(lambda: reader.unread_count == 1)
        await two.leave()
        assert [message.data async for message in reader] == [b"last"]
        with pytest.raises(NotConnectedError, match="connect again"):
            two.subscribe("a")


async def test_malformed_headers_cost_one_message_and_are_counted() -> None:
    async with connected_channels(2) as (one, two):
        missed: list[Missed] = []
        two.on_event(lambda event: missed.append(event) if isinstance(event, Missed) else None)
        good = with_headers(encode_headers("a", None, ()), 1, b"good")
        for payload in (good, b"\0" * 7, good, b"\0" * 6 + b"\xff\xff", good):
            one._send(payload, HAS_HEADERS, 1, 0)
        one._send(b"of a later version", 1 << 10, 1, 0)
        one._send(good, HAS_HEADERS, 1, 0)
        assert [(await two.receive(20)).data for _ in range(4)] == [b"good"] * 4
        assert [event.last_sequence - event.first_sequence for event in missed] == [0, 0, 0]
        assert two.status().counters["malformed_headers"] == 3
        assert len(two.status().neighbors) == 1, "the neighbor is not to blame"
