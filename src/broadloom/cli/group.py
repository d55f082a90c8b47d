"""`broadloom group`: the groups of a channel, listed, made, read and talked in. Talking itself is `group_talk.py`.

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

from broadloom.cli.exit_codes import FAILURE, SUCCESS, CommandFailed, UsageError
from broadloom.cli.formatting import SHORT_ID_DIGITS, escape_control_chars
from broadloom.cli.group_formatting import (
    HistoryEntry,
    format_history_entry,
    group_json,
    hex_id,
    history_entries,
    message_json,
)
from broadloom.cli.runner import StopSignal, hint, print_error, run
from broadloom.cli.taking_part import joined_channel
from broadloom.groups import (
    CatchingUp,
    CaughtUp,
    GroupEvent,
    GroupInfo,
    GroupNotFoundError,
    Groups,
    Member,
    MemberStatus,
    RetentionPolicy,
    SqliteStore,
    StoreError,
)

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.cli.options import JoinOptions
    from broadloom.groups import Group

NAMES_SHOWN = 5
"""Of members that are there; `--json` has all."""
PROGRESS_S = 1.0


class MemberOptions(NamedTuple):
    """As whom one takes part."""

    name: str | None
    store: Path | None


@asynccontextmanager
async def joined_groups(
    channel: str, join_options: "JoinOptions", member_options: MemberOptions, end: StopSignal
) -> "AsyncIterator[tuple[Channel, Groups]]":
    store = _open_store(member_options.store) if member_options.store is not None else None
    try:
        async with joined_channel(channel, join_options, end) as joined:
            groups = _make_groups(joined, member_options, store)
            store = None  # from here on it is closed with the groups
            async with groups:
                yield joined, groups
    finally:
        if store is not None:
            store.close()


def _open_store(path: Path) -> SqliteStore:
    try:
        return SqliteStore(path)
    except StoreError as problem:
        raise UsageError(f"--store {problem}") from None


def _make_groups(channel: "Channel", member_options: MemberOptions, store: SqliteStore | None) -> Groups:
    identity = channel.identity(channel.peer_id)
    name = member_options.name or (identity.name if identity is not None else "") or _login()
    try:
        return Groups(channel, name, store=store)
    except ValueError as problem:
        raise UsageError(f"--name: {problem}") from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return "somebody"


def is_alone(channel: "Channel") -> bool:
    return not channel.status().neighbors


def no_peers_error(channel: "Channel") -> CommandFailed:
    return CommandFailed(
        f"nobody else is on {escape_control_chars(channel.name)}, or nobody was found (see --portal and --key)"
    )


async def find_group(groups: Groups, channel: "Channel", name: str) -> GroupInfo:
    """The group that is meant; waits for those who know it, if there is anybody."""
    try:
        return await groups.find(name, 0.0 if is_alone(channel) else None)
    except GroupNotFoundError as problem:
        if is_alone(channel) and not groups.list_groups():
            raise no_peers_error(channel) from None
        raise CommandFailed(f"{problem}. `broadloom group create` makes one") from None


# -- list


def list_groups(channel: str, join_options: "JoinOptions", member_options: MemberOptions, *, json: bool) -> int:
    async def work(end: StopSignal) -> int:
        async with joined_groups(channel, join_options, member_options, end) as (joined, groups):
            if not is_alone(joined):
                hint("asking which groups there are")
                await groups.wait_until_synced()
            elif not groups.list_groups():
                raise no_peers_error(joined)
            known = sorted(groups.list_groups(), key=lambda info: (info.description.casefold(), info.id))
            listed = [(info, groups._participant.members(info.id), groups.held_count(info)) for info in known]
        if json:
            _print(group_json(*each) for each in listed)
        elif listed:
            _print_table(listed)
        else:
            print_error(
                "group list",
                f"there are no groups on {escape_control_chars(channel)}; `broadloom group create` makes one",
            )
        return SUCCESS

    return run("group list", work)


def _print_table(listed: list[tuple[GroupInfo, dict[Member, MemberStatus], int]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("group", "description", "present", "gone", "left", "held"):
        table.add_column(name, justify="left" if name in ("group", "description", "present") else "right")
    for info, members, held in listed:
        counts = {status: [member for member, each in members.items() if each is status] for status in MemberStatus}
        names = ", ".join(escape_control_chars(str(member)) for member in counts[MemberStatus.ONLINE][:NAMES_SHOWN])
        more = ", …" if len(counts[MemberStatus.ONLINE]) > NAMES_SHOWN else ""
        online = f"{len(counts[MemberStatus.ONLINE])}" + (f" ({names}{more})" if names else "")
        table.add_row(
            hex_id(info.id)[:SHORT_ID_DIGITS],
            Text(escape_control_chars(info.description) + (" *" if info.is_joined else "")),
            Text(online),
            f"{len(counts[MemberStatus.OFFLINE]):,}",
            f"{len(counts[MemberStatus.LEFT]):,}",
            f"{held:,}",
        )
    Console(highlight=False).print(table)
    if any(info.is_joined for info, _, _ in listed):
        hint("* you are in it")


# -- create


def create(
    channel: str,
    join_options: "JoinOptions",
    member_options: MemberOptions,
    *,
    description: str,
    well_known_name: str | None,
    retention: RetentionPolicy,
    json: bool,
) -> int:
    async def work(end: StopSignal) -> int:
        async with joined_groups(channel, join_options, member_options, end) as (joined, groups):
            if member_options.store is None and is_alone(joined):
                raise CommandFailed(
                    f"nobody else is on {escape_control_chars(channel)} who would remember the group, "
                    "so it was not made: give --store, or stay in it yourself with `broadloom group join --create`"
                )
            try:
                group = await groups.create(description, retention=retention, well_known_name=well_known_name)
            except ValueError as problem:
                raise UsageError(str(problem)) from None
            text = group_json(group.info, group.members(), groups.held_count(group.id)) if json else hex_id(group.id)
            if member_options.store is None:
                await group.leave()
        _print([text])
        return SUCCESS

    return run("group create", work)


# -- history


def history(channel: str, join_options: "JoinOptions", member_options: MemberOptions, *, name: str, json: bool) -> int:
    async def work(end: StopSignal) -> int:
        async with joined_groups(channel, join_options, member_options, end) as (joined, groups):
            info = await find_group(groups, joined, name)
            if is_alone(joined):
                print_error(
                    "group history", f"nobody else is on {escape_control_chars(channel)}: this is what your store holds"
                )
                unavailable = 0
                group = await groups.listen(info)
            else:
                group, unavailable = await _catch_up(groups, info)
            entries = list(history_entries(group.history()))
        _print(_format_entry(entry, json) for entry in entries)
        if unavailable:
            print_error("group history", f"{unavailable:,} more messages were said, and nobody there holds them")
        return SUCCESS

    return run("group history", work)


def _format_entry(entry: HistoryEntry, json: bool) -> str:
    return message_json(entry.message, depth=entry.depth) if json else format_history_entry(entry)


async def _catch_up(groups: Groups, info: GroupInfo) -> "tuple[Group, int]":
    """Take in what the others hold; how much of it nobody has."""
    caught_up: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reported_at = 0.0

    def on_event(event: GroupEvent) -> None:
        nonlocal reported_at
        now = asyncio.get_running_loop().time()
        if isinstance(event, CatchingUp) and event.group == info.id and now > reported_at + PROGRESS_S:
            reported_at = now
            hint(f"{event.received:,} messages, {event.remaining:,} to come")
        elif isinstance(event, CaughtUp) and event.group == info.id and not caught_up.done():
            caught_up.set_result(event.unavailable)

    unsubscribe = groups.on_event(on_event)
    try:
        group = await groups.listen(info)
        hint("asking for its history")
        return group, await caught_up
    finally:
        unsubscribe()


def _print(lines: Iterable[str]) -> None:
    """After the channel was left: who reads slowly keeps nobody waiting."""
    for line in lines:
        print(line)
    sys.stdout.flush()


# -- join


def join(
    channel: str,
    join_options: "JoinOptions",
    member_options: MemberOptions,
    *,
    name: str,
    create_missing: bool,
    reply_to: str | None,
    json: bool,
    stay: bool,
) -> int:
    from broadloom.cli.group_session import GroupSession, parse_message_id
    from broadloom.cli.output import Output

    async def work(end: StopSignal) -> int:
        reply_to_id = parse_message_id(reply_to) if reply_to is not None else None
        async with joined_groups(channel, join_options, member_options, end) as (joined, groups):
            try:
                info = await find_group(groups, joined, name)
                group = await groups.join(info)
                await groups.listen(info)  # a group of the store may wait for its turn to catch up
            except CommandFailed:
                if not create_missing:
                    raise
                group = await groups.create(name, well_known_name=name)
            end.interrupt_is_success = True
            try:
                async with Output(end) as out:
                    session = GroupSession(joined, groups, group, out, json=json, reply_to=reply_to_id)
                    had_no_receivers = await session.run(stay=stay)
            finally:
                if member_options.store is None and group.id in groups.joined:
                    await group.leave()
            if had_no_receivers and member_options.store is None:
                print_error(
                    "group join", f"nobody else was on {escape_control_chars(channel)}, so nobody got what you said"
                )
                return FAILURE
        return SUCCESS

    return run("group join", work)
