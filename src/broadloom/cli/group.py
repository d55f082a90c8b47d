"""`broadloom group`: list, create, join and read the groups of a channel.

With --store you are the same member every time and remain in your groups when the command ends. Without it you are a
new member each time, and leave the group for good at the end. Readers (`list`, `history`) never appear as members.
"""

import asyncio
import getpass
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from broadloom.cli.exit_codes import FAILURE, CommandFailedError, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars, json_line
from broadloom.cli.group_formatting import format_history_entry, group_fields, group_row, history_entries, message_json
from broadloom.cli.group_session import GroupSession, parse_message_id
from broadloom.cli.options import (
    ChannelArgument,
    JoinOptions,
    JsonOption,
    KeepOpenOption,
    argument,
    command_group,
    option,
)
from broadloom.cli.output import Output, console, table
from broadloom.cli.runner import StopSignal, command, hint, joined_channel, print_error
from broadloom.errors import StoreError
from broadloom.groups import (
    CatchingUp,
    CaughtUp,
    GroupEvent,
    GroupInfo,
    GroupNotFoundError,
    Groups,
    RetentionPolicy,
    SqliteStore,
)

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.groups import Group

PROGRESS_S = 1.0

group = command_group(
    "Talk in groups: conversations on a channel, with members, replies and history.\n\n"
    "With --store you are the same member every time, remain in your groups and receive what you missed. Without it "
    "you are a new member each time.\n\n"
    "Examples:\n\n"
    '- `broadloom group join chat/lobby "Chess club" --create`\n'
    "- `broadloom group list chat/lobby`",
)

NameOption = Annotated[
    str | None,
    option("Your display name. Default: the name on your ticket, or your login name."),
]
StoreOption = Annotated[
    Path | None,
    option("SQLite file with your identity, groups and history. One program at a time can use it.", "FILE"),
]
GroupArgument = Annotated[str, argument("Description or well-known name, or the first digits of the ID.", "GROUP")]


@command("group list", group)
async def list_groups(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    name: NameOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the groups of a channel and their members.

    Queries the other peers, which takes a few seconds. Exit status 1 if there are none.

    Examples:

    - `broadloom group list chat/lobby`
    - `broadloom group list chat/lobby --store anna.db --json | jq .description`
    """
    async with _joined_groups(channel, join_options, name, store, stop) as (joined, groups):
        if not _is_alone(joined):
            hint("querying the groups")
            await groups.wait_until_synced()
        elif not groups.list_groups():
            raise _no_peers_error(joined)
        known = sorted(groups.list_groups(), key=lambda info: (info.description.casefold(), info.id))
        listed = [group_fields(info, groups.members(info), groups.stored_count(info)) for info in known]
    if json:
        _print_lines(map(json_line, listed))
    elif listed:
        columns = ["group", "description", "online", "offline", "left", "messages"]
        console().print(table(columns, map(group_row, listed), right=columns[3:]))
        if any(each["is_joined"] for each in listed):
            hint("* you are a member")
    else:
        shown = escape_control_chars(channel)
        print_error("group list", f"no groups on {shown}; create one with `broadloom group create`")


@command("group create", group)
async def create(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    description: Annotated[str, argument("Name or topic of the group.", "DESCRIPTION")],
    name: NameOption = None,
    store: StoreOption = None,
    well_known_name: Annotated[
        str | None,
        option("Derive the group ID from this text, so that everyone who creates it gets the same group.", "TEXT"),
    ] = None,
    retain_messages: Annotated[int, option("Messages that members keep. Default: no limit.", "N", min=0)] = 0,
    retain_age: Annotated[
        int, option("Age up to which members keep messages. Default: no limit.", "SECONDS", min=0)
    ] = 0,
    retain_bytes: Annotated[int, option("Approximate size of the history. Default: no limit.", "BYTES", min=0)] = 0,
    ids_only: Annotated[bool, option("Keep message IDs only, not contents.")] = False,
    json: JsonOption = False,
) -> None:
    """Create a group and print its ID.

    Peers that use groups on the channel remember it. With --store you do, too, and become its first member. Exit
    status 1 if there are no other peers and no --store.

    Examples:

    - `broadloom group create chat/lobby "Chess club"`
    - `broadloom group create chat/lobby Prices --well-known-name prices --retain-messages 10000 --store feed.db`
    """
    with usage_errors():
        retention = RetentionPolicy(
            messages_max=retain_messages, age_max_s=retain_age, bytes_max=retain_bytes, ids_only=ids_only
        )
    _check_not_empty(description)
    async with _joined_groups(channel, join_options, name, store, stop) as (joined, groups):
        if store is None and _is_alone(joined):
            raise CommandFailedError(
                f"no other peer on {escape_control_chars(channel)} would remember the group, so it was not "
                "created: use --store, or stay in the group with `broadloom group join --create`"
            )
        with usage_errors():
            group = await groups.create(description, retention=retention, well_known_name=well_known_name)
        fields = group_fields(group.info, group.members(), groups.stored_count(group.id))
        if store is None:
            await group.leave()
    _print_lines([json_line(fields) if json else fields["group"]])


@command("group join", group)
async def join(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    group: GroupArgument,
    name: NameOption = None,
    store: StoreOption = None,
    create: Annotated[bool, option("Create the group if it does not exist.")] = False,
    reply_to: Annotated[str | None, option("Post every line as a reply to this message.", "ID")] = None,
    json: Annotated[
        bool,
        option(
            "One JSON object per line, in both directions: messages and events as output; `text` (or `data`) and "
            "`reply_to` as input.",
            None,
            "--json",
            "-j",
        ),
    ] = False,
    keep_open: KeepOpenOption = False,
) -> int:
    """Join a group: post each input line and print incoming messages.

    The history comes first; with --store, only what you have not seen yet. Each message has a number: a line that
    starts with it, as in `>3 I do`, replies to message 3. The start of an ID works too, as in `>a1b2c3d4-7 I do`. At
    a terminal, Ctrl-D or Ctrl-C leaves; in a pipe, the end of the input does.

    Examples:

    - `broadloom group join chat/lobby "Chess club" --name Anna --store anna.db`
    - `echo "Server is up" | broadloom group join ops/x alerts --name cron --create`
    - `echo "I do" | broadloom group join chat/lobby "Chess club" --reply-to 00c0ffee00c0ffee-3`
    - `./bot | broadloom group join chat/lobby "Chess club" --json --keep-open`
    """
    _check_not_empty(group)
    reply_to_id = parse_message_id(reply_to) if reply_to is not None else None
    async with _joined_groups(channel, join_options, name, store, stop) as (joined, groups):
        try:
            info = await _find_group(groups, joined, group)
            chosen = await groups.join(info)
            await groups.listen(info)  # a group from the store may not be catching up yet
        except CommandFailedError:
            if not create:
                raise
            chosen = await groups.create(group, well_known_name=group)
        stop.interrupt_is_success = True
        try:
            async with Output(stop) as out:
                session = GroupSession(joined, groups, chosen, out, json=json, reply_to=reply_to_id)
                had_receivers = await session.run(keep_open=keep_open)
        finally:
            if store is None and chosen.id in groups.joined:
                await chosen.leave()
    return session.exit_code if had_receivers or store is not None else FAILURE


@command("group history", group)
async def history(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    group: GroupArgument,
    name: NameOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Print the history of a group as a tree without joining it.

    Fetches what you do not have from the other peers. If there are none, prints what your --store has.

    Examples:

    - `broadloom group history chat/lobby "Chess club"`
    - `broadloom group history chat/lobby "Chess club" --json | jq -r .text`
    """
    _check_not_empty(group)
    async with _joined_groups(channel, join_options, name, store, stop) as (joined, groups):
        info = await _find_group(groups, joined, group)
        if _is_alone(joined):
            shown = escape_control_chars(channel)
            print_error("group history", f"no other peers on {shown}: showing the history in your store")
            unavailable = 0
            chosen = await groups.listen(info)
        else:
            chosen, unavailable = await _catch_up(groups, info)
        entries = list(history_entries(chosen.history()))
    _print_lines(
        message_json(each.message, depth=each.depth) if json else format_history_entry(each) for each in entries
    )
    if unavailable:
        print_error("group history", f"{unavailable:,} more messages are no longer available from any peer")


# -- shared


def _check_not_empty(description: str) -> None:
    if not description.strip():
        raise UsageError("the description of the group is empty: members find the group by it")


@asynccontextmanager
async def _joined_groups(
    channel: str, join_options: JoinOptions, name: str | None, store_path: Path | None, stop: StopSignal
) -> "AsyncIterator[tuple[Channel, Groups]]":
    joining = joined_channel(channel, join_options, stop)  # a missing ticket must not leave a new store behind
    try:
        store = SqliteStore(store_path) if store_path is not None else None
    except StoreError as problem:
        raise UsageError(f"--store {problem}") from None
    try:
        async with joining as joined:
            groups = _make_groups(joined, name, store)
            store = None  # from here on the groups close it
            async with groups:
                yield joined, groups
    finally:
        if store is not None:
            store.close()


def _make_groups(channel: "Channel", name: str | None, store: SqliteStore | None) -> Groups:
    identity = channel.identity(channel.peer_id)
    own_name = name or (identity.name if identity is not None else "") or _login_name()
    with usage_errors("--name: "):
        return Groups(channel, own_name, store=store)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user ID has no name, as in many containers
        return "unnamed"


def _is_alone(channel: "Channel") -> bool:
    return not channel.status().neighbors


def _no_peers_error(channel: "Channel") -> CommandFailedError:
    return CommandFailedError(
        f"no other peers found on {escape_control_chars(channel.name)} (see --bootstrap and --key)"
    )


async def _find_group(groups: Groups, channel: "Channel", name: str) -> GroupInfo:
    """Resolve a name, waiting for the answers of other peers."""
    try:
        return await groups.find(name, 0.0 if _is_alone(channel) else None)
    except GroupNotFoundError as problem:
        if _is_alone(channel) and not groups.list_groups():
            raise _no_peers_error(channel) from None
        raise CommandFailedError(f"{problem}; create it with `broadloom group create`") from None


async def _catch_up(groups: Groups, info: GroupInfo) -> "tuple[Group, int]":
    """Fetch the history. Returns the group and the number of messages that no peer has any more."""
    caught_up: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reported_at = 0.0

    def on_event(event: GroupEvent) -> None:
        nonlocal reported_at
        now = asyncio.get_running_loop().time()
        if isinstance(event, CatchingUp) and event.group_id == info.id and now > reported_at + PROGRESS_S:
            reported_at = now
            hint(f"{event.received:,} messages, {event.remaining:,} remaining")
        elif isinstance(event, CaughtUp) and event.group_id == info.id and not caught_up.done():
            caught_up.set_result(event.unavailable)

    unsubscribe = groups.on_event(on_event)
    try:
        group = await groups.listen(info)
        hint("fetching the history")
        return group, await caught_up
    finally:
        unsubscribe()


def _print_lines(lines: Iterable[str]) -> None:
    """Print after leaving the channel, so that a slow reader does not keep the peer alive."""
    for line in lines:
        print(line)
    sys.stdout.flush()
