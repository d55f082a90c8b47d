"""`ordered` on real channels: what a program sees."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import broadloom
import broadloom.order.sync
import broadloom.sync
from broadloom import (
    Authority,
    Channel,
    NoMajorityError,
    NotConnectedError,
    NotPermittedError,
    Order,
    OrderTimeoutError,
    Role,
    StoreError,
    StoreReadOnlyError,
    ordered,
)
from broadloom.order import Entry, OrderSettings, Resumed, SequencerChanged, Skipped, Stalled
from broadloom.order.codec import LAYER
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import TIMEOUT_S, eventually, wait_until

FAST = OrderSettings(stall_s=1.5)
VOTERS = ["v0", "v1", "v2"]


@asynccontextmanager
async def conversation(count: int, **options: Any) -> AsyncIterator[tuple[list[Channel], list[Order]]]:
    """Members of a channel that take part in one conversation."""
    async with connected_channels(count) as channels, AsyncExitStack() as stack:
        orders = [ordered(channel, "moves", settings=FAST, mode="available", **options) for channel in channels]
        for order in orders:
            await stack.enter_async_context(order)
        await eventually(lambda: len({order.epoch for order in orders}) == 1 and orders[0].epoch)
        yield channels, orders


async def voter(name: str, folder: Path, number: int, **options: Any) -> tuple[Channel, Order]:
    channel = await broadloom.connect(name, name=f"v{number}", tls=False, settings=QUICK)
    store = folder / f"{number}.db"
    return channel, ordered(channel, "bids", mode="safe", voters=VOTERS, store=store, settings=FAST, **options)


def stores(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "-" not in path.name)


async def texts(order: Order, count: int) -> list[str]:
    found = []
    for _ in range(count):
        item = await order.receive(20)
        assert isinstance(item, Entry)
        found.append(item.text)
    return found


async def test_members_read_the_same_entries_and_their_own() -> None:
    async with conversation(3) as (_, orders):
        placed = await asyncio.gather(*(order.submit(b"move %d" % place) for place, order in enumerate(orders)))
        assert sorted(each.index for each in placed) == [1, 2, 3]
        assert not any(each.is_final for each in placed)
        read = [await texts(order, 3) for order in orders]
        assert read[0] == read[1] == read[2]
        assert all(order.receive_nowait() is None for order in orders)
        assert sum(order.is_sequencer for order in orders) == 1
        assert {order.last_index for order in orders} == {3}
        await eventually(lambda: sorted(orders[0].participants) == sorted(orders[1].participants))


async def test_alone_on_a_channel_a_program_orders_at_once() -> None:
    async with connected_channels(1) as (channel,), ordered(channel, "solo", mode="available") as order:
        assert (await order.submit(b"one")).index == 1
        await order.submit(b"two")
        assert await texts(order, 2) == ["one", "two"]


async def test_order_continues_after_the_death_of_the_sequencer() -> None:
    async with conversation(4) as (channels, orders):
        await orders[0].submit(b"before")
        await eventually(lambda: all(order.last_index == 1 for order in orders))
        place = next(place for place, order in enumerate(orders) if order.is_sequencer)
        epoch = orders[place].epoch
        channels[place].abort()
        survivors = [order for order in orders if order is not orders[place]]
        await survivors[0].submit(b"after")
        assert [await texts(order, 2) for order in survivors] == [["before", "after"]] * 3
        assert epoch is not None
        assert survivors[0].epoch is not None
        assert survivors[0].epoch > epoch
        with pytest.raises(NotConnectedError, match="the channel was left"):
            await orders[place].submit(b"too late")


async def test_newcomer_reads_history_and_continues_without_gap() -> None:
    async with conversation(2) as (channels, orders):
        for number in range(1, 6):
            await orders[number % 2].submit(b"%d" % number)
        name = channels[0].name
        async with (
            broadloom.connect(name, tls=False, settings=QUICK) as late,
            ordered(late, "moves", mode="available", from_index=3, settings=FAST) as order,
        ):
            assert await texts(order, 3) == ["3", "4", "5"]
            await order.submit(b"6")
            assert await texts(order, 1) == ["6"]
            assert [entry.text for entry in await order.history(2)] == ["2", "3", "4", "5", "6"]
            sequencer = next(each for each in orders if each.is_sequencer)
            assert [entry.index for entry in await sequencer.history()] == [1, 2, 3, 4, 5, 6]
            assert await order.history(100) == []


async def test_large_log_is_fetched_in_pages() -> None:
    async with conversation(2) as (channels, orders):
        await asyncio.gather(*(orders[0].submit(bytes([number]) * 60_000) for number in range(20)))
        async with (
            broadloom.connect(channels[0].name, tls=False, settings=QUICK) as late,
            ordered(late, "moves", mode="available", from_index=1, settings=FAST) as order,
        ):
            items = [await order.receive(20) for _ in range(20)]
            assert [item.data[:1] for item in items if isinstance(item, Entry)] == [bytes([n]) for n in range(20)]


async def test_conversations_on_one_channel_are_independent() -> None:
    async with connected_channels(2) as channels, AsyncExitStack() as stack:
        orders = {
            (channel, name): await stack.enter_async_context(ordered(channel, name, mode="available", settings=FAST))
            for channel in channels
            for name in ("one", "two")
        }
        for name in ("one", "two"):
            await orders[channels[0], name].submit(name.encode())
        assert await texts(orders[channels[1], "one"], 1) == ["one"]
        assert await texts(orders[channels[1], "two"], 1) == ["two"]
        with pytest.raises(ValueError, match="already open in this program"):
            ordered(channels[0], "one", mode="available")
        await channels[0].broadcast(b"plain")
        assert (await channels[1].receive(20)).data == b"plain"


async def test_conversation_can_be_closed_and_opened_again() -> None:
    async with conversation(2) as (channels, orders):
        await orders[0].submit(b"one")
        await orders[0].aclose()
        await orders[0].aclose()
        assert [item.text async for item in orders[0] if isinstance(item, Entry)] == ["one"]
        with pytest.raises(NotConnectedError, match="this conversation was closed"):
            await orders[0].receive()
        await orders[1].submit(b"two")
        async with ordered(channels[0], "moves", mode="available", from_index=1, settings=FAST) as again:
            three = asyncio.create_task(again.submit(b"three"))
            assert await texts(again, 3) == ["one", "two", "three"]
            assert (await three).index == 3
            assert await texts(orders[1], 3) == ["one", "two", "three"]
        await eventually(lambda: not any(LAYER in member.layers for member in channels[1].members()
                                         if member.peer_id == channels[0].peer_id))  # fmt: skip


async def test_conversation_opens_while_the_last_one_is_closed() -> None:
    async with conversation(2) as (channels, (first, other)):
        for number in range(8):
            closing = asyncio.create_task(first.aclose())
            for _ in range(number):
                await asyncio.sleep(0)
            first = ordered(channels[0], f"next {number}", mode="available", settings=FAST)
            await asyncio.gather(closing, first.submit(b"one"))
        await first.aclose()
        assert not channels[0]._layers
        await other.submit(b"two")


async def test_conversation_whose_sender_was_cancelled_can_be_closed() -> None:
    """The end of `asyncio.run` cancels all tasks at once."""
    async with conversation(2) as (_, (order, _other)):
        pump = order._layer._pump_task
        assert pump is not None
        pump.cancel()
        async with asyncio.timeout(TIMEOUT_S):
            await order.aclose()


async def test_closed_conversation_does_not_wait_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected_channels(1) as (channel,):
        one = ordered(channel, "one", mode="available")
        closing = asyncio.create_task(one.aclose())
        await asyncio.sleep(0)
        async with ordered(channel, "other", mode="available") as other:
            layer = other._layer
            broadcast = layer._layer.broadcast

            async def broadcast_and_more(data: bytes) -> int:
                layer.broadcast(data)  # its queue is never empty
                return await broadcast(data)

            with monkeypatch.context() as patched:
                patched.setattr(layer._layer, "broadcast", broadcast_and_more)
                async with asyncio.timeout(TIMEOUT_S):
                    await closing


async def test_failed_conversation_does_not_keep_the_next_from_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise RuntimeError("a fault")

    async with connected_channels(1) as (channel,):
        with monkeypatch.context() as patched:
            patched.setattr("broadloom.order.order.Replica", fail)
            with pytest.raises(RuntimeError, match="a fault"):
                ordered(channel, "one", mode="available")
        async with ordered(channel, "one", mode="available") as order:
            await order.submit(b"one")


async def test_events_name_the_sequencer() -> None:
    async with connected_channels(1) as (channel,):
        async with ordered(channel, "solo", mode="available") as order:
            seen: list[object] = []
            remove = order.on_event(seen.append)
            await order.submit(b"x")
            remove()
            assert [event.epoch for event in seen if isinstance(event, SequencerChanged)] == [order.epoch]
            events = order.events()
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await waiting
        await events.aclose()


async def test_reader_that_does_not_read_is_closed() -> None:
    small = OrderSettings(unread_max=3)
    async with connected_channels(1) as (channel,), ordered(channel, "solo", mode="available", settings=small) as order:
        with pytest.raises(broadloom.InboxOverflowError, match="were not read"):
            await asyncio.gather(*(order.submit(b"%d" % number) for number in range(5)))
        assert [item.text for item in [await order.receive() for _ in range(3)] if isinstance(item, Entry)] == [
                "0", "1", "2",
            ]  # fmt: skip
        with pytest.raises(broadloom.InboxOverflowError):
            await order.receive()


async def test_late_joiner_reads_a_log_that_is_longer_than_what_it_may_leave_unread() -> None:
    small = OrderSettings(stall_s=1.5, log_entries_max=32, unread_max=8)
    async with connected_channels(2) as (one, two), ordered(one, "x", mode="available", settings=small) as order:
        for number in range(1, 51):
            await order.submit(b"%d" % number)
            await order.receive()
        async with ordered(two, "x", mode="available", from_index=1, settings=small) as late:
            await eventually(lambda: late.unread_count > 8, "the log is here")
            skipped = await late.receive()
            assert isinstance(skipped, Skipped)
            expected = [str(number) for number in range(skipped.last_index + 1, 51)]
            assert len(expected) >= 32
            assert await texts(late, len(expected)) == expected


async def test_late_joiner_that_does_not_read_new_entries_is_closed() -> None:
    small = OrderSettings(stall_s=1.5, unread_max=8)
    async with connected_channels(2) as (one, two), ordered(one, "x", mode="available", settings=FAST) as order:
        for number in range(1, 21):
            await order.submit(b"%d" % number)
        async with ordered(two, "x", mode="available", from_index=1, settings=small) as late:
            await eventually(lambda: late.unread_count == 20, "the log is here")
            for number in range(21, 29):
                await order.submit(b"%d" % number)
            await eventually(lambda: late.unread_count == 28, "what is new is here")
            await order.submit(b"29")
            await eventually(lambda: late._end_reason is not None, "it is closed")
            assert await texts(late, 28) == [str(number) for number in range(1, 29)]
            with pytest.raises(broadloom.InboxOverflowError, match="28 items were not read"):
                await late.receive()


async def test_submission_without_a_sequencer_times_out() -> None:
    late = OrderSettings(stall_s=60)  # no sequencer takes over during this test, however busy the machine is
    async with connected_channels(2) as (one, _), ordered(one, "x", mode="available", settings=late) as order:
        with pytest.raises(OrderTimeoutError, match=r"not ordered within 0\.05 s, and it is unknown"):
            await order.submit(b"x", timeout_s=0.05)
        with pytest.raises(TimeoutError, match=r"no entry of \w+ within"):
            await order.receive(0.01)
        assert order.epoch is None
        assert await order.history() == []


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"mode": "fast"}, ValueError, "must be one of safe, available"),
    ({"mode": "safe"}, ValueError, "needs 3, 5, 7, 9 voters with different names, not 0"),
    ({"mode": "safe", "voters": ["a", "b"]}, ValueError, "not 2"),
    ({"mode": "safe", "voters": ["a", "b", "b"]}, ValueError, "not 2"),
    ({"mode": "safe", "voters": ["", "b", "c"]}, ValueError, "a voter has a name"),
    ({"mode": "safe", "voters": "abc"}, TypeError, "voters is a list of names"),
    ({"mode": "safe", "voters": ["a", "b", 5]}, TypeError, "voters is a list of names"),
    ({"mode": "available", "voters": ["a", "b", "c"]}, ValueError, "every participant counts"),
    ({"mode": "available", "from_index": 0}, ValueError, "the first entry has the index 1"),
    ({"mode": "available", "from_index": "1"}, TypeError, "must be a whole number"),
    ({"mode": "available", "settings": 5}, TypeError, "settings are OrderSettings, not int"),
    ({"mode": "available", "store": "x"}, ValueError, 'a store is for the voters of mode="safe"'),
    ({"mode": "safe", "voters": ["me", "b", "c"]}, ValueError, "'me' is a voter: give it a store"),
]


async def test_wrong_arguments_raise_helpful_errors(tmp_path: Path) -> None:
    async with connected_channels(1, name=unique_name()) as (channel,):
        channel._node.name = "me"
        for options, error, text in BAD:
            with pytest.raises(error, match=text):
                ordered(channel, "x", **options)
        with pytest.raises(ValueError, match="1 to 256 bytes"):
            ordered(channel, "", mode="available")
        with pytest.raises(TypeError, match="is text"):
            ordered(channel, 5, mode="available")  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="there is no directory"):
            ordered(channel, "x", mode="safe", voters=["me", "b", "c"], store=tmp_path / "no" / "x")
        with pytest.raises(ValueError, match="must be a positive number"):
            OrderSettings(stall_s=0)
        assert not channel._layers
        async with ordered(channel, "x", mode="available") as order:
            with pytest.raises(TypeError, match="encode"):
                await order.submit("text")  # type: ignore[arg-type]
            with pytest.raises(broadloom.MessageTooLargeError, match="order its hash"):
                await order.submit(bytes(65_537))
            for key in ("k" * 65, b""):
                with pytest.raises(ValueError, match="1 to 64 bytes"):
                    await order.submit(b"", key=key)
            with pytest.raises(TypeError, match="a key is text or bytes"):
                await order.submit(b"", key=0)  # type: ignore[arg-type]
    with pytest.raises(broadloom.NotConnectedError):
        ordered(channel, "x", mode="available")


# -- mode safe


async def test_voters_survive_restarts_and_a_minority_stalls(tmp_path: Path) -> None:
    name = unique_name()
    members = [await voter(name, tmp_path, number) for number in range(3)]
    key = uuid4().bytes
    try:
        placed = await members[0][1].submit(b"100", key=key)
        assert placed.is_final
        assert await texts(members[2][1], 1) == ["100"]
        seen: list[object] = []
        members[0][1].on_event(seen.append)
        for channel, order in members[1:]:
            channel.abort()
            await order.aclose()
        await eventually(lambda: members[0][1].participants == (members[0][0].peer_id,))
        with pytest.raises(NoMajorityError, match="a majority of the 3 voters must be connected"):
            await members[0][1].submit(b"200", key=b"second", timeout_s=0.3)
        await eventually(lambda: any(isinstance(event, Stalled) for event in seen))
        members[1] = await voter(name, tmp_path, 1, from_index=1)
        assert (await members[0][1].submit(b"200", key=b"second")).index == 2
        assert (await members[1][1].submit(b"100", key=key)).index == placed.index
        assert await texts(members[1][1], 2) == ["100", "200"]
        await eventually(lambda: any(isinstance(event, Resumed) for event in seen))
    finally:
        for channel, order in members:
            await order.aclose()
            channel.abort()


async def test_failing_store_ends_the_part_of_a_voter(tmp_path: Path) -> None:
    name = unique_name()
    members = [await voter(name, tmp_path, number) for number in range(3)]
    try:
        await members[0][1].submit(b"1")
        follower = next(order for _, order in members if not order.is_sequencer)
        assert follower._store is not None
        follower._store._file.rows("pragma query_only = on")  # type: ignore[attr-defined]
        others = [order for _, order in members if order is not follower]
        await others[0].submit(b"2")
        assert await texts(others[1], 2) == ["1", "2"]
        await eventually(lambda: follower._end_reason is not None)
        with pytest.raises(StoreReadOnlyError):
            await follower.submit(b"3")
    finally:
        for channel, order in members:
            await order.aclose()
            channel.abort()


async def test_voters_are_known_by_their_tickets_and_consumers_read(tmp_path: Path) -> None:
    name = unique_name()
    authority = Authority.generate()
    expires_at = datetime.now(UTC) + timedelta(hours=1)
    async with AsyncExitStack() as stack:
        orders = []
        for subject in ("v0", "v1", "v2", "guest", "reader"):
            ticket = authority.issue_ticket(
                subject, Role.CONSUMER if subject == "reader" else Role.PRODUCER, expires_at
            )
            channel = await stack.enter_async_context(broadloom.connect(name, ticket=ticket, settings=QUICK))
            order = ordered(
                channel, "bids", mode="safe", voters=VOTERS, store=tmp_path / subject, from_index=1, settings=FAST
            )
            orders.append(await stack.enter_async_context(order))
        await orders[3].submit(b"from a guest")
        assert [await texts(order, 1) for order in orders] == [["from a guest"]] * 5
        with pytest.raises(OrderTimeoutError, match="not ordered within") as timeout:
            await orders[0].submit(b"too little time", timeout_s=1e-6)
        assert not isinstance(timeout.value, NoMajorityError), "all voters are connected"
        assert not orders[3].is_sequencer
        assert stores(tmp_path) == VOTERS
        with pytest.raises(NotPermittedError, match="may only receive"):
            await orders[4].submit(b"no")


# -- synchronous programs


def test_sync_order() -> None:
    name = unique_name()
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as one,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as two,
        broadloom.order.sync.ordered(one, "moves", mode="available", settings=FAST) as white,
        broadloom.order.sync.ordered(two, "moves", mode="available", settings=FAST) as black,
    ):
        assert white.submit(b"e4").index == 1
        item = black.receive(timeout_s=20)
        assert isinstance(item, Entry)
        assert item.text == "e4"
        assert black.submit(b"e5").index == 2
        wait_until(lambda: white.unread_count == 2)
        assert [entry.text for entry in white.history()] == ["e4", "e5"]
        first = white.receive_nowait()
        assert isinstance(first, Entry)
        assert (white.mode, white.name, white.last_index, first.author) == ("available", "moves", 2, one.peer_id)
        assert white.epoch == black.epoch
        assert white.is_sequencer != black.is_sequencer
        assert len(white.participants) == 2
