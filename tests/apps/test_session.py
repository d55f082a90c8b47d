"""What games, meetings and auctions have in common: leaving, reading events, and failures in the background."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

import broadloom
from broadloom import BroadloomError, NotConnectedError
from broadloom.apps import auction, conference
from broadloom.apps.auction.auctioneer import Auctioneer
from broadloom.apps.session import READ_MAX, own_name
from broadloom.order import Entry, Epoch
from tests.apps.auction.saleroom import Saleroom
from tests.channel.joined import QUICK, connected_channels, unique_name
from tests.support import TIMEOUT_S, eventually


async def fail(*_arguments: Any) -> None:
    raise BroadloomError("a fault")


async def test_session_is_closed_although_leaving_is_canceled_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    is_announcing = asyncio.Event()

    async def hang() -> None:
        is_announcing.set()
        await asyncio.Event().wait()

    async def raise_error() -> None:
        raise RuntimeError("a fault")

    async with connected_channels(1) as (channel,):
        for announce, expected in ((hang, asyncio.CancelledError), (raise_error, RuntimeError)):
            meeting = await conference.Meeting(channel, "Anna").__aenter__()
            monkeypatch.setattr(meeting, "_announce_leave", announce)
            is_announcing.clear()
            leaving = asyncio.create_task(meeting.leave())
            if announce is hang:
                await is_announcing.wait()
                leaving.cancel()
            with pytest.raises(expected):
                await leaving
            assert meeting.is_ended
            assert not meeting._tasks
            assert meeting._layer._is_closed
            with pytest.raises(NotConnectedError, match="closed"):
                await meeting._order.receive()
            await meeting.leave()
        async with conference.Meeting(channel, "Anna") as again:
            await again.raise_hand()


async def test_failure_in_the_background_ends_the_session_unless_it_is_harmless() -> None:
    async with connected_channels(1) as (channel,), conference.Meeting(channel, "Anna") as meeting:
        meeting._start_best_effort(fail)
        await eventually(lambda: len(meeting._tasks) == 1, "only the reader is left")
        assert not meeting.is_ended
        meeting._start(fail)
        await eventually(lambda: meeting.is_ended)
        with pytest.raises(BroadloomError, match="a fault"):
            await meeting.raise_hand()


async def test_auctioneer_that_fails_ends_its_room_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Saleroom(tmp_path) as saleroom:
        notary = await saleroom.open("notary-1")

        def due(*_arguments: object) -> Any:
            raise auction.AuctionError("a fault")

        monkeypatch.setattr(Auctioneer, "due", due)
        with pytest.raises(auction.AuctionError, match="a fault"):
            await notary.receive(timeout_s=TIMEOUT_S)


async def test_other_tasks_run_while_a_late_joiner_applies_many_entries(tmp_path: Path) -> None:
    async with Saleroom(tmp_path) as saleroom:
        room = await saleroom.open("anna")
        author = room.channel.peer_id
        for index in range(1, 10 * READ_MAX + 1):
            room._order._deliver(Entry(index, Epoch(1, author), author, b"", is_final=True))
        turns = 0
        while room.ledger.number < 10 * READ_MAX:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 10


async def test_second_reader_learns_of_dropped_events_and_of_the_reason_of_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conference.Meeting, "_events_max", 2)
    async with connected_channels(1) as (channel,), conference.Meeting(channel, "Anna") as meeting:
        events = meeting.events()
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        viewpoints = [conference.Viewpoint((float(each), 0.0, 0.0)) for each in range(4)]
        for each in viewpoints:
            meeting.emit(conference.ViewMoved(each))
        assert await reading == conference.Missed(2)
        assert [await anext(events), await anext(events)] == [conference.ViewMoved(each) for each in viewpoints[2:]]
        meeting._start(fail)
        with pytest.raises(BroadloomError, match="a fault"):
            await anext(events)
    async with connected_channels(1) as (channel,), conference.Meeting(channel, "Anna") as meeting:
        rest = meeting.events()
        reading = asyncio.ensure_future(anext(rest))
        await asyncio.sleep(0)
        await meeting.leave()
        assert isinstance(await reading, conference.Done)
        assert [event async for event in rest] == []


async def test_timeout_for_an_event_is_checked_and_says_what_it_waited_for() -> None:
    async with connected_channels(1) as (channel,), conference.Meeting(channel, "Anna") as meeting:
        while meeting.receive_nowait() is not None:
            pass
        with pytest.raises(TimeoutError, match=f"no event of the meeting {channel.name} within 0.01 s"):
            await meeting.receive(timeout_s=0.01)
        with pytest.raises(ValueError, match="None waits forever"):
            await meeting.receive(timeout_s=math.nan)


async def test_chosen_name_comes_before_the_one_given_to_connect(tmp_path: Path) -> None:
    async with broadloom.connect(unique_name(), name="Anna", tls=False, settings=QUICK) as channel:
        assert (own_name(channel), own_name(channel, "Ben")) == ("Anna", "Ben")
    async with Saleroom(tmp_path) as saleroom:
        assert own_name((await saleroom.open("carla")).channel, "Ben") == "carla"


async def test_session_that_was_left_takes_no_further_part() -> None:
    async with connected_channels(1) as (channel,):
        meeting = conference.Meeting(channel, "Anna")
        async with meeting:
            with pytest.raises(TypeError):
                meeting.on_event(fail)  # type: ignore[arg-type] # a coroutine function, which nobody would await
        with pytest.raises(NotConnectedError, match="was left"):
            await meeting.__aenter__()
        with pytest.raises(NotConnectedError, match="was left"):
            await meeting.point((0.0, 0.0, 0.0))
        async with conference.Meeting(channel, "Anna") as again:
            assert not again.is_ended
