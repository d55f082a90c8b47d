"""`Monitor`: watches every game of a lobby and reports what goes on there: players, open roles, stand-ins, score."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from broadloom.apps.game.errors import GameError
from broadloom.apps.game.lobby import Activity, Listing, Lobby, activity_of
from broadloom.apps.game.play import Play
from broadloom.channel import Channel
from broadloom.errors import BroadloomError

log = logging.getLogger("broadloom")

POLL_S = 0.5
RETRY_S = 5.0
WATCHED_MAX = 256
"""Games that one monitor watches: each is a channel of its own."""

Connect = Callable[[str], contextlib.AbstractAsyncContextManager[Channel]]
"""Connects to the channel of a game."""


class Monitor:
    def __init__(self, lobby: Lobby, connect: Connect) -> None:
        self._lobby = lobby
        self._connect = connect
        self._watching: dict[str, asyncio.Task[None]] = {}

    @property
    def watched_count(self) -> int:
        return len(self._watching)

    async def run(self) -> None:
        """Until canceled."""
        try:
            while True:
                for listing in self._lobby.games:
                    task = self._watching.get(listing.name)
                    if (task is None or task.done()) and len(self._watching) < WATCHED_MAX:
                        self._watching[listing.name] = asyncio.create_task(self._watch(listing))
                await asyncio.sleep(POLL_S)
        finally:
            for task in self._watching.values():
                task.cancel()
            await asyncio.gather(*self._watching.values(), return_exceptions=True)

    async def _watch(self, listing: Listing) -> None:
        while True:
            try:
                async with self._connect(listing.channel) as channel, Play(channel, listing.make_game()) as play:
                    await self._report(listing, play)
            except GameError as problem:
                log.warning("%s: %s", listing.name, problem)
            except BroadloomError as problem:
                log.info("%s: %s", listing.name, problem)
            await asyncio.sleep(RETRY_S)

    async def _report(self, listing: Listing, play: Play) -> None:
        reported: Activity | None = None
        while not play.is_ended:
            activity = activity_of(play)
            if activity != reported:
                reported = activity
                await self._lobby.report(listing.name, activity)
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def monitoring(lobby: Lobby, connect: Connect) -> AsyncIterator[Monitor]:
    monitor = Monitor(lobby, connect)
    task = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
