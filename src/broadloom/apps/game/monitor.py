"""Reports of what goes on in the games of a lobby: players, open roles, stand-ins, score.

A program that plays or watches a game, and is in its lobby, reports it (`reporting`): that costs no connection. A
`Monitor` watches games that nobody reports, such as those of programs that are not in the lobby.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from broadloom.apps.game.errors import GameError
from broadloom.apps.game.lobby import Activity, Listing, Lobby, activity_of
from broadloom.apps.game.play import Play
from broadloom.channel import Channel
from broadloom.errors import BroadloomError

log = logging.getLogger("broadloom")

POLL_S = 0.5
RETRY_S = 5.0
UNREPORTED_S = 1.0
"""How long nobody has reported a game before a monitor watches it: its first player may be about to."""
WATCHED_MAX = 256
"""Games that one monitor watches: each is a channel of its own, with about 100 KB and 0.06 % of a core at rest."""
SCORES_PER_S = 100
"""Reports of new scores in all games of a lobby. Players and phases are reported at once."""

Connect = Callable[[str], contextlib.AbstractAsyncContextManager[Channel]]
"""Connects to the channel of a game."""


@asynccontextmanager
async def reporting(lobby: Lobby, name: str, play: Play) -> AsyncIterator[None]:
    """Report a game to its lobby while this program is in it."""
    task = asyncio.create_task(_report(lobby, name, play))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _report(lobby: Lobby, name: str, play: Play) -> None:
    """Until the play ends. Of several members that see the same, the first one reports it."""
    lobby.reporters[name] += 1
    try:
        reporter = _Reporter(lobby, name, play)
        while not play.is_ended:
            pause_s = await reporter.update()
            await asyncio.sleep(pause_s)
    finally:
        lobby.reporters[name] -= 1
        if not lobby.reporters[name]:
            with contextlib.suppress(BroadloomError):
                await lobby.report(name, None)


class _Reporter:
    def __init__(self, lobby: Lobby, name: str, play: Play) -> None:
        self._lobby, self._name, self._play = lobby, name, play
        self._last: Activity | None = None
        """What the lobby knew at the last poll."""
        self._right_at = -math.inf
        """When that was right, or another member had just reported it."""
        self._reported: Activity | None = None
        """By this member, since then: other members may not accept it."""

    async def update(self) -> float:
        """Report what the lobby does not know. Returns the time until it is to be called again."""
        lobby, name = self._lobby, self._name
        try:
            seen, known, now = activity_of(self._play), lobby.activity(name), asyncio.get_running_loop().time()
            is_only_score = known is not None and replace(known, score=seen.score) == seen
            wait_s = lobby.game_count / SCORES_PER_S if is_only_score else 0.0
            if known == seen or known != self._last:
                self._right_at, self._last, self._reported = now, known, None
            elif seen != self._reported and now - self._right_at >= wait_s:
                await lobby.report(name, seen)
                self._reported = seen
            return POLL_S
        except BroadloomError as problem:
            log.info("%s: the game is not reported: %s", name, problem)
        except Exception:
            log.exception("%s: the game cannot be reported", name)
        return RETRY_S


class Monitor:
    def __init__(self, lobby: Lobby, connect: Connect) -> None:
        self._lobby = lobby
        self._connect = connect
        self._watching: dict[Listing, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._unreported_since: dict[Listing, float] = {}

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
        """Watch games that are registered now and that nobody reports, and none that was removed, or whose name is
        ambiguous: a report has only the name."""
        listed = [each for each in self._lobby.games if each.is_known and not self._lobby.is_ambiguous(each.name)]
        for listing in self._watching.keys() - set(listed):
            task = self._watching.pop(listing)
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        now = asyncio.get_running_loop().time()
        self._unreported_since = {
            each: self._unreported_since.get(each, now)
            for each in listed
            if each not in self._watching and self._lobby.activity(each.name) is None
        }
        for listing, since in self._unreported_since.items():
            if now - since >= UNREPORTED_S and len(self._watching) < WATCHED_MAX:
                self._watching[listing] = asyncio.create_task(self._watch(listing))

    async def _watch(self, listing: Listing) -> None:
        """Until canceled, whatever goes wrong in the game."""
        while True:
            try:
                async with self._connect(listing.channel) as channel, Play(channel, listing.make_game()) as play:
                    await _report(self._lobby, listing.name, play)
            except GameError as problem:
                log.warning("%s: %s", listing.name, problem)
            except BroadloomError as problem:
                log.info("%s: %s", listing.name, problem)
            except Exception:
                log.exception("%s: the game cannot be watched", listing.name)
            await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def monitoring(lobby: Lobby, connect: Connect) -> AsyncIterator[Monitor]:
    monitor = Monitor(lobby, connect)
    task = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
