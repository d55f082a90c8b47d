"""`Lobby`: the games that are registered on a channel, and what goes on in them.

A game is registered in a mailbox of the lobby, of which every member has a copy, and which keepers store
(docs/mailboxes.md). Monitors write the activity of each game into another one, bound to their presence.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from broadloom.apps.game.errors import GameError, NoGameError
from broadloom.apps.game.game import Game
from broadloom.apps.game.games import make_game
from broadloom.apps.game.play import Play
from broadloom.channel import Channel
from broadloom.mailboxes import Mailbox, Mailboxes
from broadloom.mailboxes.model import Change, ChangeKind
from broadloom.protocol.channel_name import ChannelName
from broadloom.wire.message_headers import checked_topic

OWNER = "games"
"""Of the mailboxes, on a channel without tickets."""
GAMES, ACTIVITY = "games/", "activity/"
NAME_MAX = 40
LISTED_MAX = 10_000
WAIT_S = 10.0

R = TypeVar("R", bound="Listing | Activity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A game as it is registered."""

    name: str
    game: str
    """The kind of game."""
    players: int
    channel: str
    title: str = ""

    def make_game(self) -> Game:
        """Raises `NoGameError`."""
        return make_game(self.game, self.players)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a monitor sees in a game."""

    phase: str
    players: dict[str, str]
    """The name of the player of each role; empty for an open one."""
    stand_ins: list[str]
    """Roles that automatons play."""
    score: dict[str, int]
    members: int
    result: str = ""


def activity_of(play: Play) -> Activity:
    table = play.table
    return Activity(
        phase=table.phase.value,
        players={role: seat.name for role, seat in table.seats.items()},
        stand_ins=[role for role, seat in table.seats.items() if seat.is_stood_in],
        score=play.game.score(table.state) if table.state else {},
        members=len(play.members() or []),
        result=table.result.text if table.result is not None else "",
    )


class Lobby:
    """Use it with `opened`."""

    def __init__(self, channel: Channel, boxes: Mailboxes) -> None:
        self.channel = channel
        self._boxes = boxes
        self._listings: dict[str, Listing] = {}
        self._activities: dict[str, Activity] = {}
        self._own: dict[str, Mailbox] = {}
        self._changed = asyncio.Event()

    @property
    def games(self) -> list[Listing]:
        return [self._listings[name] for name in sorted(self._listings)]

    def activity(self, name: str) -> Activity | None:
        """What a monitor reports; None without one."""
        return self._activities.get(name)

    async def find(self, name: str, timeout_s: float = WAIT_S) -> Listing:
        """Wait for a game. Raises `NoGameError`."""
        try:
            async with asyncio.timeout(timeout_s):
                while name not in self._listings:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise NoGameError(
                f"{self.channel.name} has no game {name!r}; `broadloom game list` shows all, `broadloom game register` "
                "adds one"
            ) from None
        return self._listings[name]

    async def register(self, name: str, game: str, players: int, title: str = "") -> Listing:
        """Register a game. It stays as long as the lobby has members, or a keeper. Raises `GameError`."""
        if not 0 < len(name) <= NAME_MAX or "/" in name or name != name.strip():
            raise GameError(f"the name of a game has 1 to {NAME_MAX} characters and no slash, not {name!r}")
        made = make_game(game, players)
        instance = ChannelName.parse(self.channel.name).instance
        listing = Listing(
            name=name, game=game, players=players, channel=f"{game}/{instance}-{name}", title=title or made.title
        )
        known = self._listings.get(name)
        if known is not None and known.channel != listing.channel:
            raise GameError(f"{name} is registered already, as {known.game}: choose another name")
        try:
            ChannelName.parse(listing.channel)
            checked_topic(f"{GAMES}{name}")
        except ValueError as problem:
            raise GameError(f"{name!r} cannot be the name of a game: {problem}") from None
        await self._put(f"{GAMES}{name}", listing, while_here=False)
        return await self.find(name)

    async def report(self, name: str, activity: Activity) -> None:
        """For monitors."""
        await self._put(f"{ACTIVITY}{name}", activity, while_here=True)

    async def _put(self, name: str, value: Listing | Activity, *, while_here: bool) -> None:
        if name not in self._own:
            self._own[name] = await self._boxes.bind(name, fetch=True, while_here=while_here)
        await self._own[name].put(_encode(value))

    def _on_change(self, change: Change) -> None:
        name, data = change.value.name, change.value.data
        if change.kind is ChangeKind.GONE:
            self._listings.pop(name.removeprefix(GAMES), None)
            self._activities.pop(name.removeprefix(ACTIVITY), None)
        elif name.startswith(GAMES):
            listing = _decode(Listing, data)
            if listing is not None and len(self._listings) < LISTED_MAX:
                self._listings[name.removeprefix(GAMES)] = listing
        elif (activity := _decode(Activity, data)) is not None:
            self._activities[name.removeprefix(ACTIVITY)] = activity
        self._changed.set()


@asynccontextmanager
async def opened(channel: Channel) -> AsyncIterator[Lobby]:
    """The lobby of a channel, with the games that are registered now."""
    owner = OWNER if channel._post_signer is None else None
    async with Mailboxes(channel, owner) as boxes:
        await boxes.wait_until_synced()
        lobby = Lobby(channel, boxes)
        async with await boxes.watch(f"{GAMES}*") as games, await boxes.watch(f"{ACTIVITY}*") as activities:

            async def read(watch: Any) -> None:
                async for change in watch:
                    lobby._on_change(change)

            for watch in (games, activities):
                while watch.unread_count:
                    lobby._on_change(await watch.receive())
            tasks = [asyncio.create_task(read(watch)) for watch in (games, activities)]
            try:
                yield lobby
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def _encode(value: Listing | Activity) -> bytes:
    return json.dumps(asdict(value), ensure_ascii=False, separators=(",", ":")).encode()


def _decode(kind: type[R], data: bytes) -> R | None:
    """None if it is malformed. Fields of later versions are ignored."""
    try:
        values = json.loads(data)
        return kind(**{each.name: values[each.name] for each in fields(kind)})
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
