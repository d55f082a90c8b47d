"""`weft group`: the groups of a channel, listed, made, read and talked in. Talking itself is `group_talk.py`.

The rule of membership: with --store you are one member from day to day, and stay in your groups when the command ends.
Without it you are somebody new each time, so whoever talked leaves for good. Who only reads is never in any list.
"""

import asyncio
import getpass
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.commands.ending import End, complain, hint, run
from weft.commands.errors import FAILED, FINE, Failed, Mistake
from weft.commands.group_telling import Line, group_json, hexed, history_line, message_json, tree
from weft.commands.taking_part import taking_part
from weft.commands.telling import SHORT, harmless
from weft.groups import CatchingUp, CaughtUp, GroupEvent, GroupInfo, Here, Keep, Member, NoSuchGroup
from weft.groups.sqlite_store import SqliteStore, StoreUnusable

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.commands.options import Joining
    from weft.groups import Group, Groups

NAMES_SHOWN = 5
"""Of members that are there; `--json` has all."""
PROGRESS_S = 1.0


class Who(NamedTuple):
    """As whom one takes part."""

    name: str | None
    store: Path | None


@asynccontextmanager
async def taking_part_in_groups(
    channel: str, joining: "Joining", who: Who, end: End
) -> "AsyncIterator[tuple[Channel, Groups]]":
    store = _opened(who.store) if who.store is not None else None
    try:
        async with taking_part(channel, joining, end) as joined:
            here = _groups(joined, who, store)
            store = None  # from here on it is closed with the groups
            async with here:
                yield joined, here
    finally:
        if store is not None:
            store.close()


def _opened(path: Path) -> SqliteStore:
    try:
        return SqliteStore(path)
    except StoreUnusable as problem:
        raise Mistake(f"--store {problem}") from None


def _groups(channel: "Channel", who: Who, store: SqliteStore | None) -> "Groups":
    proven = channel.identity(channel.peer)
    name = who.name or (proven.name if proven is not None else "") or _login()
    try:
        return channel.groups(name, store=store)
    except ValueError as problem:
        raise Mistake(f"--name: {problem}") from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return "somebody"


def is_alone(channel: "Channel") -> bool:
    return not channel.status().neighbours


def nobody_there(channel: "Channel") -> Failed:
    return Failed(f"nobody else is on {harmless(channel.name)}, or nobody was found (see --portal and --key)")


async def found(here: "Groups", channel: "Channel", called: str) -> GroupInfo:
    """The group that is meant; waits for those who know it, if there is anybody."""
    try:
        return await here.find(called, 0.0 if is_alone(channel) else None)
    except NoSuchGroup as problem:
        if is_alone(channel) and not here.known():
            raise nobody_there(channel) from None
        raise Failed(f"{problem}. `weft group create` makes one") from None


# -- list


def list_groups(channel: str, joining: "Joining", who: Who, *, json: bool) -> int:
    async def work(end: End) -> int:
        async with taking_part_in_groups(channel, joining, who, end) as (joined, here):
            if not is_alone(joined):
                hint("asking which groups there are")
                await here.greeted()
            elif not here.known():
                raise nobody_there(joined)
            known = sorted(here.known(), key=lambda info: (info.description.casefold(), info.id))
            told = [(info, here.participant.members(info.id), here.held(info)) for info in known]
        if json:
            _print(group_json(*each) for each in told)
        elif told:
            _print_table(told)
        else:
            complain("group list", f"there are no groups on {harmless(channel)}; `weft group create` makes one")
        return FINE

    return run("group list", work)


def _print_table(told: list[tuple[GroupInfo, dict[Member, Here], int]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("group", "description", "present", "gone", "left", "held"):
        table.add_column(name, justify="left" if name in ("group", "description", "present") else "right")
    for info, members, held in told:
        counts = {here: [member for member, each in members.items() if each is here] for here in Here}
        names = ", ".join(harmless(str(member)) for member in counts[Here.PRESENT][:NAMES_SHOWN])
        more = ", …" if len(counts[Here.PRESENT]) > NAMES_SHOWN else ""
        present = f"{len(counts[Here.PRESENT])}" + (f" ({names}{more})" if names else "")
        table.add_row(
            hexed(info.id)[:SHORT],
            Text(harmless(info.description) + (" *" if info.joined else "")),
            Text(present),
            f"{len(counts[Here.GONE]):,}",
            f"{len(counts[Here.LEFT]):,}",
            f"{held:,}",
        )
    Console(highlight=False).print(table)
    if any(info.joined for info, _, _ in told):
        hint("* you are in it")


# -- create


def create(
    channel: str, joining: "Joining", who: Who, *, description: str, identity: str | None, keep: Keep, json: bool
) -> int:
    async def work(end: End) -> int:
        async with taking_part_in_groups(channel, joining, who, end) as (joined, here):
            if who.store is None and is_alone(joined):
                raise Failed(
                    f"nobody else is on {harmless(channel)} who would remember the group, so it was not made: give "
                    "--store, or stay in it yourself with `weft group join --create`"
                )
            try:
                group = await here.create(description, keep=keep, identity=identity)
            except ValueError as problem:
                raise Mistake(str(problem)) from None
            told = group_json(group.info, group.members(), here.held(group.id)) if json else hexed(group.id)
            if who.store is None:
                await group.leave()
        _print([told])
        return FINE

    return run("group create", work)


# -- history


def history(channel: str, joining: "Joining", who: Who, *, called: str, json: bool) -> int:
    async def work(end: End) -> int:
        async with taking_part_in_groups(channel, joining, who, end) as (joined, here):
            info = await found(here, joined, called)
            if is_alone(joined):
                complain("group history", f"nobody else is on {harmless(channel)}: this is what your store holds")
                unavailable = 0
                group = await here.listen(info)
            else:
                group, unavailable = await _caught_up(here, info)
            lines = list(tree(group.history()))
        _print(_shown(line, json) for line in lines)
        if unavailable:
            complain("group history", f"{unavailable:,} more messages were said, and nobody there holds them")
        return FINE

    return run("group history", work)


def _shown(line: Line, json: bool) -> str:
    return message_json(line.message, depth=line.depth) if json else history_line(line)


async def _caught_up(here: "Groups", info: GroupInfo) -> "tuple[Group, int]":
    """Take in what the others hold; how much of it nobody has."""
    over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    told_at = 0.0

    def happened(event: GroupEvent) -> None:
        nonlocal told_at
        now = asyncio.get_running_loop().time()
        if isinstance(event, CatchingUp) and event.group == info.id and now > told_at + PROGRESS_S:
            told_at = now
            hint(f"{event.received:,} messages, {event.remaining:,} to come")
        elif isinstance(event, CaughtUp) and event.group == info.id and not over.done():
            over.set_result(event.unavailable)

    end = here.on_event(happened)
    try:
        group = await here.listen(info)
        hint("asking for its history")
        return group, await over
    finally:
        end()


def _print(lines: Iterable[str]) -> None:
    """After the channel was left: who reads slowly keeps nobody waiting."""
    for line in lines:
        print(line)
    sys.stdout.flush()


# -- join


def join(
    channel: str,
    joining: "Joining",
    who: Who,
    *,
    called: str,
    create_it: bool,
    reply_to: str | None,
    json: bool,
    stay: bool,
) -> int:
    from weft.commands.group_talk import Talk, message_named
    from weft.commands.output import Output

    async def work(end: End) -> int:
        answered = message_named(reply_to) if reply_to is not None else None
        async with taking_part_in_groups(channel, joining, who, end) as (joined, here):
            try:
                info = await found(here, joined, called)
                group = await here.join(info)
                await here.listen(info)  # a group of the store may wait for its turn to catch up
            except Failed:
                if not create_it:
                    raise
                group = await here.create(called, identity=called)
            end.by_hand_is_fine = True
            try:
                async with Output(end) as out:
                    talk = Talk(joined, here, group, out, json=json, answered=answered)
                    spoke_to_nobody = await talk.part(stay=stay)
            finally:
                if who.store is None and group.id in here.joined:
                    await group.leave()
            if spoke_to_nobody and who.store is None:
                complain("group join", f"nobody else was on {harmless(channel)}, so nobody got what you said")
                return FAILED
        return FINE

    return run("group join", work)
