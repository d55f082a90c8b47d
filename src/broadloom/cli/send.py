"""`broadloom send`: broadcast and leave.

A message that nobody could receive is not sent: without other peers the command fails, so that a script can notice.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.cli.exit_codes import CommandFailedError, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import (
    ChannelArgument,
    JoinOptions,
    JsonOption,
    argument,
    checked_option,
    named_values,
    option,
)
from broadloom.cli.output import STDIN, ProgressBar, argument_data, input_lines, print_json
from broadloom.cli.runner import StopSignal, command, hint, joined_channel
from broadloom.errors import BroadloomError
from broadloom.protocol.identity import Role
from broadloom.security import Ticket
from broadloom.wire.broadcast_frame import PRIORITY_MAX, Priority
from broadloom.wire.message_headers import checked_headers, checked_topic, encode_headers

if TYPE_CHECKING:
    from broadloom.channel import Channel

HeaderOption = Annotated[list[str] | None, option("Header of the message; repeatable.", "NAME=VALUE", "--header")]


@command("send")
async def send(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    text: Annotated[
        list[str] | None,
        argument("The message. Without it, or with `-`: one message per input line.", "[TEXT]..."),
    ] = None,
    file: Annotated[
        list[Path] | None, option("Broadcast a file; repeatable. `-` sends the input as one message.", "FILE")
    ] = None,
    topic: Annotated[
        str | None, option("Topic of the messages, as in sports/nfl, for `listen --topic`.", "TOPIC")
    ] = None,
    header: HeaderOption = None,
    priority: Annotated[
        str, option("Priority; a slow receiver drops low-priority messages first.", "low|normal|high|0..255")
    ] = "normal",
    ttl: Annotated[
        float | None,
        option(
            "Time to live. Receivers that have not got the message by then get a `Missed` event instead.", "SECONDS"
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Broadcast a message, lines of standard input, or files, then leave.

    Waits for another peer. If none joins within --timeout, sends nothing and exits with status 1. A message or a file
    can have up to 64 MiB.

    Examples:

    - `broadloom send news/today Rain at noon`
    - `tail -f log | broadloom send logs/web -`
    - `broadloom send news/today --topic sports/nfl Kickoff at noon`
    - `broadloom send office/hq --rules out.rules --header subject=plans Plan B`
    - `broadloom send pics/x --file a.png --file b.png`
    - `broadloom send games/x --priority high --ttl 2 "the ball is at 3,4"`
    """
    messages, files = text or [], file or []
    if messages and files:
        raise UsageError("use TEXT or --file, not both")
    if ttl is not None and not ttl > 0:
        raise UsageError(f"--ttl {ttl:g}: must be more than 0 seconds; omit it for messages that do not expire")
    if topic is not None:
        checked_option(checked_topic, "--topic", topic)
    headers = named_values(header, "--header")
    with usage_errors("--header: "):
        encode_headers(*checked_headers(topic, None, headers))
    options = {"topic": topic, "headers": headers or None, "priority": _parse_priority(priority), "ttl_s": ttl}
    for path in files:
        if str(path) != STDIN:
            _check_readable(path)
    if join_options.ticket is not None and Ticket.load(join_options.ticket).role is Role.CONSUMER:
        raise CommandFailedError(
            f"{join_options.ticket}: the ticket has the role consumer, which may only receive; ask the channel's owner "
            "for another"
        )
    deadline = asyncio.get_running_loop().time() + join_options.timeout
    async with joined_channel(channel, join_options, stop) as joined:
        await wait_for_peers(joined, deadline, join_options)
        sent = await _send_all(joined, options, messages, files)
        peer_id = str(joined.status().peer_id)
    if json:
        print_json({"channel": channel, "peer_id": peer_id, "sent": sent})


async def wait_for_peers(channel: "Channel", deadline: float, join_options: JoinOptions) -> None:
    """Raises `CommandFailedError` if there are none in time."""
    if not channel.status().neighbors:
        hint(f"no other peers on {channel.name} yet; waiting")
    try:
        await channel.wait_for_peers(max(0.0, deadline - asyncio.get_running_loop().time()))
    except TimeoutError:
        raise CommandFailedError(
            f"no other peers found on {channel.name} within {join_options.timeout:g} s (see --bootstrap and --key); "
            "nothing was sent"
        ) from None


def _parse_priority(text: str) -> int:
    if text.upper() in Priority.__members__:
        return Priority[text.upper()]
    if text.isascii() and text.isdigit() and int(text) <= PRIORITY_MAX:
        return int(text)
    names = ", ".join(each.name.lower() for each in Priority)
    raise UsageError(f"--priority {text}: must be {names}, or a number from 0 to {PRIORITY_MAX}")


async def _send_all(channel: "Channel", options: dict[str, Any], text: Sequence[str], files: Sequence[Path]) -> int:
    """Send everything and return the number of messages."""
    sent = 0
    try:
        if files:
            for path in files:
                await _send_file(channel, options, path)
                sent += 1
        else:
            async for message in _messages(text):
                await channel.broadcast(message, **options)
                sent += 1
    except (BroadloomError, CommandFailedError, OSError) as problem:
        before = f" ({sent:,} sent before it)" if sent else ""
        raise CommandFailedError(f"message {sent + 1:,} was not sent: {problem}{before}") from None
    return sent


async def _send_file(channel: "Channel", options: dict[str, Any], path: Path) -> None:
    """A file travels with its name. Standard input has none, so it becomes an ordinary message."""
    if str(path) == STDIN:
        await channel.broadcast(await argument_data(STDIN), **options)
        return
    # Importing rich takes longer than sending most files.
    bar = ProgressBar(escape_control_chars(path.name), in_bytes=True) if sys.stderr.isatty() else nullcontext()
    with bar as progress:
        on_progress = progress.update if progress is not None else None
        await channel.broadcast_file(path, on_progress=on_progress, **options)


async def _messages(text: Sequence[str]) -> AsyncIterator[bytes]:
    """The text, or the lines of standard input."""
    if text and list(text) != [STDIN]:
        yield " ".join(text).encode(errors="surrogateescape")
        return
    if sys.stdin is not None and sys.stdin.isatty():
        hint("each line is a message; Ctrl-D ends the input")
    async for line in input_lines():
        yield line


def _check_readable(path: Path) -> None:
    """Fail before joining if a file cannot be read."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from None
