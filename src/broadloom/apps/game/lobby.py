"""`Lobby`: the games that are registered on a channel, and what goes on in them.

A game is registered in a mailbox of the lobby, of which every member has a copy, and which keepers store
(docs/mailboxes.md). Players and monitors (`monitor.py`) write the activity of a game into another one, bound to their
presence.

With tickets, each member has mailboxes of its own, so several members can use one name. Nobody can prove to have been
the first one: a name with different games, or programs, is ambiguous, and a user chooses the owner.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from broadloom.apps.game.entry import NUMBER_MAX, is_count, is_text
from broadloom.apps.game.errors import GameError, NoGameError
from broadloom.apps.game.game import Game
from broadloom.apps.game.games import GAMES as BUILT_IN
from broadloom.apps.game.games import PROGRAMS, make_game
from broadloom.apps.game.package import Package, package_of
from broadloom.apps.game.play import Play
from broadloom.apps.game.table import Phase
from broadloom.channel import Channel
from broadloom.mailboxes import Mailbox, Mailboxes
from broadloom.mailboxes.model import Change, ChangeKind
from broadloom.protocol.channel_name import ChannelName
from broadloom.wire.message_headers import checked_topic

OWNER = "games"
"""Owner of the mailboxes on a channel without tickets."""
GAMES, ACTIVITY, PACKAGES = "games/", "activity/", "packages/"
NAME_MAX = 40
LISTED_MAX = 10_000
WAIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A game as it is registered."""

    name: str
    game: str
    """The kind of game."""
    players: int
    channel: str
    title: str = ""
    program: str = ""
    """SHA-256 of its program, if the game does not come with Broadloom."""
    owner: str = ""
    """The member that has registered it: the name on a ticket, or empty on a channel without tickets."""

    @property
    def kind(self) -> tuple[str, int, str]:
        """What is played: listings of one name with the same kind are one game."""
        return self.game, self.players, self.program

    @property
    def is_known(self) -> bool:
        """Whether the program of the game is here, in any version."""
        return self.game in BUILT_IN or self.game in PROGRAMS

    def make_game(self) -> Game:
        """Raises `NoGameError`, also if another version of the program was loaded."""
        if self.program and (loaded := PROGRAMS.get(self.game)) is not None and loaded.sha256 != self.program:
            raise NoGameError(
                f"{self.name} is played with another version of {self.game}: download {self.program[:12]}"
            )
        return make_game(self.game, self.players)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a member of a game sees in it."""

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
        self._owner = channel._post_signer.name if channel._post_signer is not None else ""
        self._listings: dict[str, dict[str, Listing]] = {}
        """By name and owner."""
        self._activities: dict[str, dict[str, Activity]] = {}
        """By name and owner, the latest last."""
        self._packages: dict[str, dict[str, Package]] = {}
        """By game and owner."""
        self.version = 0
        """Counts what has changed here."""
        self.reporters: Counter[str] = Counter()
        """How many plays of this program report each game."""
        self._own: dict[str, Mailbox] = {}
        self._binding = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def game_count(self) -> int:
        return len(self._listings)

    @property
    def games(self) -> list[Listing]:
        """By name and owner. A name is there once, unless it is ambiguous."""
        return [each for name in sorted(self._listings) for each in self._games_of(name)]

    def _games_of(self, name: str) -> list[Listing]:
        """The different games of this name, each with the listing of one of its owners."""
        found: dict[tuple[str, int, str], Listing] = {}
        for _, listing in sorted(self._listings[name].items()):
            found.setdefault(listing.kind, listing)
        return list(found.values())

    def is_ambiguous(self, name: str) -> bool:
        """Whether members have registered different games with this name."""
        return len(self._listings.get(name, ())) > 1 and len(self._games_of(name)) > 1

    def activity(self, name: str) -> Activity | None:
        """What a player or a monitor reports; None if nobody does, or if the name is ambiguous."""
        return None if self.is_ambiguous(name) else next(reversed(self._activities.get(name, {}).values()), None)

    async def find(self, name: str, owner: str = "", timeout_s: float = WAIT_S) -> Listing:
        """Wait for a game, or for that of one owner. Raises `NoGameError`, or `GameError` if the name is ambiguous."""
        try:
            async with asyncio.timeout(timeout_s):
                while name not in self._listings or (owner and owner not in self._listings[name]):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            by = f" of {owner}" if owner else ""
            raise NoGameError(
                f"{self.channel.name} has no game {name!r}{by}; `broadloom game list` shows all, `broadloom game "
                "register` adds one"
            ) from None
        if owner:
            return self._listings[name][owner]
        first, *others = self._games_of(name)
        if others:
            texts = (f"{each.owner} ({each.game} for {each.players})" for each in (first, *others))
            raise GameError(f"{name} is the name of different games: choose its owner (--from): {', '.join(texts)}")
        return first

    def channel_of(self, game: str, name: str) -> str:
        """The channel of a game follows from its lobby and its name: nobody can lead players to another one."""
        return f"{game}/{ChannelName.parse(self.channel.name).instance}-{name}"

    async def register(self, name: str, game: str, players: int, title: str = "") -> Listing:
        """Register a game. It stays as long as the lobby has members, or a keeper. Raises `GameError`."""
        if not 0 < len(name) <= NAME_MAX or "/" in name or name != name.strip():
            raise GameError(f"the name of a game has 1 to {NAME_MAX} characters and no slash, not {name!r}")
        made = make_game(game, players)
        channel = self.channel_of(game, name)
        program = PROGRAMS[game].sha256 if game in PROGRAMS and game not in BUILT_IN else ""
        listing = Listing(
            name=name, game=game, players=players, channel=channel, title=title or made.title, program=program
        )
        for owner, known in self._listings.get(name, {}).items():
            is_own = self._owner and owner == self._owner  # without tickets, nobody can prove to be the owner
            if known.channel != listing.channel or (not is_own and known.kind != listing.kind):
                text = f"{known.game} for {known.players} players"
                raise GameError(f"{name} is registered already, as {text}: choose another name")
        try:
            ChannelName.parse(listing.channel)
            checked_topic(f"{GAMES}{name}")
        except ValueError as problem:
            raise GameError(f"{name!r} cannot be the name of a game: {problem}") from None
        await self._put(f"{GAMES}{name}", _encode(listing), while_here=False)
        return await self.find(name, self._owner)

    async def report(self, name: str, activity: Activity | None) -> None:
        """What this program sees in a game; None if it is not there any more."""
        if activity is not None:
            await self._put(f"{ACTIVITY}{name}", _encode(activity), while_here=True)
            return
        async with self._binding:
            if self._own.pop(f"{ACTIVITY}{name}", None) is not None:
                await self._boxes.unbind(f"{ACTIVITY}{name}")

    @property
    def packages(self) -> list[tuple[Package, str]]:
        """The programs that are published, each with its publisher: the name on a ticket, or empty on a channel without
        tickets, where names are not proven."""
        return [
            (package, owner)
            for _, by_owner in sorted(self._packages.items())
            for owner, package in sorted(by_owner.items())
        ]

    def package(self, game: str, owner: str = "") -> Package:
        """What a player needs to join a game that does not come with Broadloom. Raises `NoGameError`, or `GameError`
        if members have published different programs of this game, and none is chosen with `owner`."""
        found = {each: package for each, package in self._packages.get(game, {}).items() if owner in ("", each)}
        if not found:
            by = f" of {owner}" if owner else ""
            raise NoGameError(f"{self.channel.name} has no program of {game!r}{by}; `broadloom game publish` adds one")
        if len({each.sha256 for each in found.values()}) > 1:
            texts = (f"{each} ({package.sha256[:12]})" for each, package in sorted(found.items()))
            raise GameError(f"{game} has different programs: choose their owner (--from): {', '.join(texts)}")
        return found[min(found)]

    async def publish(self, program: str | os.PathLike[str], picture: str | os.PathLike[str] | None = None) -> Package:
        """Load a program, and publish it with its description. It stays as long as a game does. Raises `GameError`."""
        package = package_of(program, picture)
        if package.game in BUILT_IN or "/" in package.game:
            raise GameError(f"{package.game} comes with Broadloom, or cannot be the name of a game: choose another one")
        await self._put(f"{PACKAGES}{package.game}", package.encode(), while_here=False)
        return package

    async def _put(self, name: str, value: bytes, *, while_here: bool) -> None:
        async with self._binding:
            if name not in self._own:
                self._own[name] = await self._boxes.bind(name, fetch=True, while_here=while_here)
        await self._own[name].put(value)

    def _on_change(self, change: Change) -> None:
        box, data = change.value.name, change.value.data
        owner = change.value.owner if self._owner else ""
        prefix, _, name = box.partition("/")
        prefix = f"{prefix}/"
        known: dict[str, dict[str, Any]] = self._listings
        if prefix != GAMES:
            known = self._activities if prefix == ACTIVITY else self._packages
        value = None if change.kind is ChangeKind.GONE else self._decode(prefix, name, owner, data)
        if value is None:
            known.get(name, {}).pop(owner, None)
            if not known.get(name):
                known.pop(name, None)
        elif name in known or len(known) < LISTED_MAX:
            of_name = known.setdefault(name, {})
            if prefix == ACTIVITY:
                of_name.pop(owner, None)
            of_name[owner] = value
        self.version += 1
        self._changed.set()

    def _decode(self, prefix: str, name: str, owner: str, data: bytes) -> "Listing | Activity | Package | None":
        """None if it is malformed."""
        if prefix == ACTIVITY:
            return _decode_activity(data)
        if prefix == PACKAGES:
            package = Package.decode(data)
            return package if package is not None and package.game == name else None
        listing = _decode_listing(data)
        if listing is None or listing.name != name:
            return None
        return replace(listing, channel=self.channel_of(listing.game, name), owner=owner)


@asynccontextmanager
async def opened(channel: Channel) -> AsyncIterator[Lobby]:
    """The lobby of a channel, with the games that are registered now."""
    owner = OWNER if channel._post_signer is None else None
    async with Mailboxes(channel, owner) as boxes:
        await boxes.wait_until_synced()
        lobby = Lobby(channel, boxes)
        async with AsyncExitStack() as stack:
            watches = [
                await stack.enter_async_context(await boxes.watch(f"{prefix}*"))
                for prefix in (GAMES, ACTIVITY, PACKAGES)
            ]

            async def read(watch: Any) -> None:
                async for change in watch:
                    lobby._on_change(change)

            for watch in watches:
                while watch.unread_count:
                    lobby._on_change(await watch.receive())
            tasks = [asyncio.create_task(read(watch)) for watch in watches]
            try:
                yield lobby
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def _encode(value: Listing | Activity) -> bytes:
    return json.dumps(asdict(value), ensure_ascii=False, separators=(",", ":")).encode()


def _decode_listing(data: bytes) -> Listing | None:
    try:
        values = json.loads(data)
        name, game, title, players = (values[each] for each in ("name", "game", "title", "players"))
        program = values.get("program", "")
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    is_valid = all(is_text(each) and each for each in (name, game, title)) and is_text(program)
    if not is_valid or not is_count(players):
        return None
    return Listing(name=name, game=game, players=players, channel="", title=title, program=program)


def _decode_activity(data: bytes) -> Activity | None:
    """Fields of later versions are ignored."""
    try:
        values = json.loads(data)
        found = Activity(**{each.name: values[each.name] for each in fields(Activity)})
        players, stand_ins, score = found.players, found.stand_ins, found.score
        if (type(players), type(stand_ins), type(score)) != (dict, list, dict):
            return None
        texts = (found.result, *players, *players.values(), *stand_ins, *score)
        points = (type(each) is int and abs(each) <= NUMBER_MAX for each in score.values())
        is_valid = all(map(is_text, texts)) and is_count(found.members) and all(points)
        return found if is_valid and Phase(found.phase) else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
