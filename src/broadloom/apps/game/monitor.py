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
        self._watching: dict[Listing, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def watched_count(self) -> int:
        return len(self._watching)

    async def run(self) -> None:
        """Until canceled."""
        try:
            while True:
                self._update()
                await asyncio.sleep(POLL_S)
        finally:
            for task in self._watching.values():
                task.cancel()
            await asyncio.gather(*self._watching.values(), *self._ending, return_exceptions=True)

    def _update(self) -> None:
        """Watch the games that are registered now, and no others."""
        listed = self._lobby.games
        for listing in self._watching.keys() - set(listed):
            task = self._watching.pop(listing)
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        for listing in listed:
            if listing not in self._watching and len(self._watching) < WATCHED_MAX:
                self._watching[listing] = asyncio.create_task(self._watch(listing))

    async def _watch(self, listing: Listing) -> None:
        """Until canceled, whatever goes wrong in the game."""
        while True:
            try:
                async with self._connect(listing.channel) as channel, Play(channel, listing.make_game()) as play:
                    await self._report(listing, play)
            except GameError as problem:
                log.warning("%s: %s", listing.name, problem)
            except BroadloomError as problem:
                log.info("%s: %s", listing.name, problem)
            except Exception:
                log.exception("%s: the game cannot be watched", listing.name)
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
