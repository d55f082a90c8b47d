"""`broadloom send`: broadcast and go.

The rule: a message that nobody could get is not sent. Whoever sends before anybody is there is told so, and gets an
exit code that a script can see.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broadloom.cli.exit_codes import SUCCESS, CommandFailed, UsageError
from broadloom.cli.output import input_chunks, input_lines
from broadloom.cli.runner import StopSignal, hint, run
from broadloom.cli.taking_part import joined_channel

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.cli.options import JoinOptions

STDIN = "-"

ProgressCallback = Callable[[int, int], None]
"""Told how many bytes were sent, and how many there are."""


class SendOptions(NamedTuple):
    """How messages are sent."""

    priority: int
    ttl_s: float | None


def send(
    channel: str,
    join_options: "JoinOptions",
    *,
    text: Sequence[str],
    files: Sequence[Path],
    priority: str,
    ttl_s: float | None,
) -> int:
    async def work(end: StopSignal) -> int:
        if text and files:
            raise UsageError("give the text or --file, not both")
        options = SendOptions(_priority(priority), _ttl(ttl_s))
        for path in files:
            if str(path) != STDIN:
                _check_readable(path)
        deadline = asyncio.get_running_loop().time() + join_options.timeout_s
        async with joined_channel(channel, join_options, end) as joined:
            await _wait_for_peer(joined, deadline, join_options.timeout_s)
            await _send_all(joined, options, text, files)
        return SUCCESS

    return run("send", work)


def _priority(text: str) -> int:
    from broadloom.wire.broadcast_frame import PRIORITY_MAX, Priority

    if text.upper() in Priority.__members__:
        return Priority[text.upper()]
    if text.isascii() and text.isdigit() and int(text) <= PRIORITY_MAX:
        return int(text)
    names = ", ".join(each.name.lower() for each in Priority)
    raise UsageError(f"--priority {text}: it is {names}, or a number from 0 to {PRIORITY_MAX}")


def _ttl(seconds: float | None) -> float | None:
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--lifetime {seconds:g}: a message lives for more than 0 seconds; without it, for ever")
    return seconds


async def _send_all(channel: "Channel", options: SendOptions, text: Sequence[str], files: Sequence[Path]) -> None:
    from broadloom.errors import BroadloomError

    sent = 0
    try:
        if files:
            for path in files:
                await _send_file(channel, options, path)
                sent += 1
        else:
            async for message in _messages(text):
                await channel.broadcast(message, priority=options.priority, ttl_s=options.ttl_s)
                sent += 1
    except (BroadloomError, CommandFailed, OSError) as problem:
        before = f" ({sent:,} before it were sent)" if sent else ""
        raise CommandFailed(f"message {sent + 1:,} was not sent: {problem}{before}") from None


async def _send_file(channel: "Channel", options: SendOptions, path: Path) -> None:
    """With its name; the input has none, and is a message like any other."""
    if str(path) == STDIN:
        data = b"".join([chunk async for chunk in input_chunks()])
        await channel.broadcast(data, priority=options.priority, ttl_s=options.ttl_s)
        return
    with _progress_bar(path.name) as progress:
        await channel.broadcast_file(path, priority=options.priority, ttl_s=options.ttl_s, on_progress=progress)


@contextmanager
def _progress_bar(name: str) -> Iterator[ProgressCallback | None]:
    """For a person who watches; not for the log of a script."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from broadloom.cli.formatting import escape_control_chars

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    console = Console(stderr=True, no_color="NO_COLOR" in os.environ)
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(escape(escape_control_chars(name)), total=None)
        yield lambda done, size: shown.update(task, completed=done, total=size)


async def _wait_for_peer(channel: "Channel", deadline: float, timeout_s: float) -> None:
    """Wait for a neighbour."""
    from broadloom.protocol.events import LinkUp

    linked = asyncio.Event()
    unsubscribe = channel.on_event(lambda event: linked.set() if isinstance(event, LinkUp) else None)
    try:
        if channel.status().neighbors:
            return
        hint(f"nobody is on {channel.name} yet; waiting for somebody")
        async with asyncio.timeout_at(deadline):
            await linked.wait()
    except TimeoutError:
        raise CommandFailed(
            f"nobody else is on {channel.name}, or nobody was found within {timeout_s:g} s (see --portal and --key); "
            "nothing was sent"
        ) from None
    finally:
        unsubscribe()


async def _messages(text: Sequence[str]) -> AsyncIterator[bytes]:
    """One for the words, or one for each line of standard input."""
    if text and list(text) != [STDIN]:
        yield " ".join(text).encode(errors="surrogateescape")
        return
    if sys.stdin is not None and sys.stdin.isatty():
        hint("each line is a message; Ctrl-D ends")
    async for line in input_lines():
        yield line


def _check_readable(path: Path) -> None:
    """Before anybody is looked for: is it there, and can it be read?"""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from None
