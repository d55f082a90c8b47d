"""`broadloom keep` and `broadloom mailbox`: store, list, read, write and watch the values of a channel."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from broadloom.cli.exit_codes import CommandFailedError, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars, json_line, message_text, payload_json
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, argument, command_group, option
from broadloom.cli.output import STDIN, Output, argument_data, console, print_json, print_result, table
from broadloom.cli.runner import StopSignal, command, joined_channel
from broadloom.mailboxes import CLASSES, Change, ChangeKind, Mailboxes, MailboxInfo, Value

if TYPE_CHECKING:
    from broadloom.channel import Channel


mailbox = command_group(
    "Read and write mailboxes: named values and queues of the members of a channel.\n\n"
    "Examples:\n\n"
    "- `broadloom mailbox put plant/hall-3 kiln/temperature 21.5 --as kiln`\n"
    "- `broadloom mailbox get plant/hall-3 kiln/temperature`",
)

NameArgument = Annotated[str, argument("Name of the mailbox, as in `kiln/temperature`.", "NAME")]
DataArgument = Annotated[str, argument("The data. Without it, or with `-`: standard input.", "[DATA]")]
OwnerOption = Annotated[str | None, option("Only the mailbox of this owner.", "OWNER")]


@command("keep")
async def keep(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    store: Annotated[Path, option("SQLite file with the values. One program at a time can use it.", "FILE")],
    json: JsonOption = False,
) -> None:
    """Keep the values of a channel on disk, so that they outlive their owners.

    Runs until interrupted. Owners of held mailboxes wait until a keeper has stored their values; run two on different
    machines for `copies=2`.

    Examples:

    - `broadloom keep plant/hall-3 --store hall-3.db`
    """
    async with _mailboxes(channel, join_options, stop, store=store) as (_joined, boxes):
        stop.interrupt_is_success = True
        async with Output(stop) as out:
            count = len(await boxes.list_mailboxes())
            fields = {"event": "keeping", "channel": channel, "store": str(store), "mailboxes": count}
            text = f"keeping {escape_control_chars(channel)} in {escape_control_chars(str(store))}: {count:,} mailboxes"
            await out.write(f"{json_line(fields) if json else text}\n")
            async for event in boxes.events():
                name = type(event).__name__
                await out.write(f"{json_line({'event': name, **_fields(event)}) if json else f'! {name}'}\n")


@command("mailbox list", mailbox)
async def list_mailboxes(
    stop: StopSignal, join_options: JoinOptions, channel: ChannelArgument, json: JsonOption = False
) -> None:
    """List the mailboxes of a channel.

    Examples:

    - `broadloom mailbox list plant/hall-3`
    - `broadloom mailbox list plant/hall-3 --json | jq .name`
    """
    async with _mailboxes(channel, join_options, stop) as (_joined, boxes):
        listed = await boxes.list_mailboxes()
    if json:
        for each in listed:
            print_json(_info_fields(each))
        return
    rows = table(["mailbox", "owner", "class", "revision", "value"], right="revision")
    for each in listed:
        name, owner = Text(escape_control_chars(each.name)), Text(escape_control_chars(each.owner))
        rows.add_row(name, owner, str(each.mailbox_class), f"{each.revision:,}", "yes" if each.is_valid else "")
    if not listed:
        rows.add_row(Text("none", style="dim"))
    console().print(rows)


@command("mailbox get", mailbox)
async def get(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    name: NameArgument,
    of: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Print the value of a mailbox.

    Exit status 1 if there is none, or if several owners have one and `--of` does not choose.

    Examples:

    - `broadloom mailbox get plant/hall-3 kiln/temperature`
    - `broadloom mailbox get plant/hall-3 plan --of ann --json`
    """
    async with _mailboxes(channel, join_options, stop) as (_joined, boxes):
        with usage_errors():
            value = await boxes.fetch(name, of=of)
    print_result(_value_fields(value), message_text(value.data), json=json)


@command("mailbox put", mailbox)
async def put(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    name: NameArgument,
    data: DataArgument = STDIN,
    copies: Annotated[
        int, option("Wait until this many keepers have stored the value. 0: do not wait.", "N", min=0)
    ] = 0,
    if_revision: Annotated[int | None, option("Only if this is the current revision.", "N", min=0)] = None,
    ttl: Annotated[float | None, option("The value is gone after this time.", "SECONDS")] = None,
    json: JsonOption = False,
) -> None:
    """Put a value into a mailbox of your own.

    Its owner is the name on your ticket, or the one given with `--as`. Without keepers it stays as long as any member
    with mailboxes does.

    Examples:

    - `broadloom mailbox put plant/hall-3 kiln/temperature 21.5 --as kiln`
    - `cat plan.json | broadloom mailbox put plant/hall-3 plan --as ann --copies 2`
    """
    if join_options.ticket is None and not join_options.member_name:
        raise UsageError("a value needs an owner: give a name with --as, or a --ticket")
    async with _mailboxes(channel, join_options, stop) as (_joined, boxes):
        own = [each for each in await boxes.list_mailboxes() if (each.name, each.owner) == (name, boxes.owner)]
        if not copies and not boxes._runtime.peers():
            raise CommandFailedError(
                f"no other member of {channel} has mailboxes: start `broadloom keep`, or give the key of the channel"
            )
        number = 10 if copies else own[0].mailbox_class.number if own and own[0].mailbox_class.is_value else 8
        with usage_errors():
            found = await boxes.bind(name, number, copies=max(1, copies) if CLASSES[number].held else 1)
            revision = await found.put(await argument_data(data), if_revision=if_revision, ttl_s=ttl)
    fields = {"name": name, "owner": boxes.owner, "revision": revision}
    print_result(fields, f"revision {revision}", json=json)


@command("mailbox watch", mailbox)
async def watch(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    pattern: Annotated[str, argument("Names, with `*` for one level and `**` for any.", "[PATTERN]")] = "**",
    of: OwnerOption = None,
    after: Annotated[int, option("Leave out present values up to this revision.", "N", min=0)] = 0,
    count: Annotated[int, option("Stop after this many lines. Default: until interrupted.", "N", min=0)] = 0,
    json: JsonOption = False,
) -> None:
    """Print the values whose names match, then every change.

    Examples:

    - `broadloom mailbox watch plant/hall-3`
    - `broadloom mailbox watch plant/hall-3 "kiln/*" --json`
    """
    async with _mailboxes(channel, join_options, stop) as (_joined, boxes), Output(stop) as out:
        stop.interrupt_is_success = True
        with usage_errors():
            news = await boxes.watch(pattern, of=of, after=after)
        printed = 0
        async for change in news:
            line = json_line(_change_fields(change)) if json else _change_text(change)
            await out.write(f"{line}\n")
            printed += 1
            if printed == count:
                return


@command("mailbox post", mailbox)
async def post(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    owner: Annotated[str, argument("Owner of the mailbox.", "OWNER")],
    name: NameArgument,
    data: DataArgument = STDIN,
    json: JsonOption = False,
) -> None:
    """Post a letter to a mailbox of another member, and wait until it has arrived.

    Examples:

    - `broadloom mailbox post plant/hall-3 kiln jobs "heat to 900"`
    """
    async with _mailboxes(channel, join_options, stop) as (_joined, boxes):
        with usage_errors():
            await boxes.post(owner, name, await argument_data(data), timeout_s=join_options.timeout)
    if json:
        print_json({"name": name, "owner": owner, "arrived": True})


@asynccontextmanager
async def _mailboxes(
    channel: str, join_options: JoinOptions, stop: StopSignal, *, store: Path | None = None
) -> "AsyncIterator[tuple[Channel, Mailboxes]]":
    async with joined_channel(channel, join_options, stop) as joined, Mailboxes(joined, store=store) as boxes:
        await boxes.wait_until_synced()
        yield joined, boxes


def _fields(event: Any) -> dict[str, Any]:
    return {name: str(value) for name, value in event._asdict().items()}


def _info_fields(info: MailboxInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "owner": info.owner,
        "class": info.mailbox_class.number,
        "revision": info.revision,
        "is_valid": info.is_valid,
        "while_here": info.while_here,
        "writer": str(info.writer),
    }


def _value_fields(value: Value) -> dict[str, Any]:
    return {
        "name": value.name,
        "owner": value.owner,
        "revision": value.revision,
        **payload_json(value.data),
        "at_ms": value.at_ms,
        "writer": str(value.writer),
    }


def _change_fields(change: Change) -> dict[str, Any]:
    return {"event": change.kind, **_value_fields(change.value), "reason": change.reason}


def _change_text(change: Change) -> str:
    value = change.value
    name = f"{escape_control_chars(value.name)} of {escape_control_chars(value.owner)}"
    if change.kind is ChangeKind.GONE:
        return f"- {name}: {change.reason}"
    return f"{name}: {message_text(value.data)}"
