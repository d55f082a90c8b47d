"""Windows of a server that is one participant of a channel."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import broadloom
from broadloom import BroadloomError
from broadloom.apps.conference import ConferenceError, Meeting
from broadloom.web.own_peer import OwnPeer
from broadloom.web.pages import review
from broadloom.web.review_seats import ReviewSeats
from tests.channel.joined import QUICK, connected_channels
from tests.support import eventually


async def test_windows_on_a_channel_share_the_participant_of_the_server() -> None:
    async with connected_channels(1) as (channel,):
        seats = ReviewSeats(OwnPeer(channel=channel, on_joined=lambda _peer: None))
        assert not seats.asks_for_name
        first, second = await seats.join("first", ""), await seats.join("second", "")
        assert first is second
        await seats.leave("first")
        assert [each.is_me for each in second.participants()] == [True]
        await seats.close()


async def test_reply_to_a_note_that_is_no_longer_shown_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "NOTES_MAX", 2)
    async with connected_channels(1) as (channel,), Meeting(channel) as meeting:
        first = await meeting.annotate("rib", "thin")
        await meeting.annotate("rib", "how thin?", reply_to=first)
        second = await meeting.annotate("spar", "thick")
        assert [each["replyTo"] for each in review.snapshot(meeting)["notes"]] == [None, None]
        await meeting.annotate("spar", "how thick?", reply_to=second)
        assert [each["replyTo"] for each in review.snapshot(meeting)["notes"]] == [None, second]


async def test_shared_meeting_that_has_failed_is_joined_again() -> None:
    async def fail() -> None:
        raise BroadloomError("a fault")

    async with connected_channels(2) as (channel, other), Meeting(other) as others:
        seats = ReviewSeats(OwnPeer(channel=channel, on_joined=lambda _peer: None))
        first = await seats.join("first", "")
        first._start(fail)
        await eventually(lambda: first.is_ended)
        second, third = await asyncio.gather(seats.join("second", ""), seats.join("third", ""))
        assert second is third is not first
        await second.load("rib-4")
        await eventually(lambda: "rib-4" in others.state.parts)
        await seats.close()


async def test_window_that_closes_while_it_joins_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected_channels(1, tls=True) as (channel,), Meeting(channel):
        monkeypatch.setattr(broadloom, "connect", partial(broadloom.connect, settings=QUICK))
        cluster: Any = SimpleNamespace(channel=channel.name, bootstrap=lambda: ["127.0.0.1"])
        seats = ReviewSeats(OwnPeer(cluster=cluster, on_joined=lambda _peer: None))
        joining = asyncio.create_task(seats.join("first", "Anna"))
        await eventually(lambda: "first" in seats._seats, poll_s=0)
        await seats.leave("first")
        with pytest.raises(ConferenceError, match="closed before"):
            await joining
        await eventually(lambda: len(channel.members()) == 1, "Anna has left")
        assert not seats._seats
        await seats.close()
