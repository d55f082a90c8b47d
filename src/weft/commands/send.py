"""`weft send`: broadcast and go.

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

from weft.commands.ending import End, hint, run
from weft.commands.errors import FINE, Failed, Mistake
from weft.commands.output import chunks_of_input, lines_of_input
from weft.commands.taking_part import taking_part

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.commands.options import Joining

STDIN = "-"

Progress = Callable[[int, int], None]
"""Told how many bytes were sent, and how many there are."""


class Manner(NamedTuple):
    """How messages are sent."""

    priority: int
    lifetime_s: float | None


def send(
    channel: str,
    joining: "Joining",
    *,
    words: Sequence[str],
    files: Sequence[Path],
    priority: str,
    lifetime_s: float | None,
) -> int:
    async def work(end: End) -> int:
        if words and files:
            raise Mistake("give the text or --file, not both")
        manner = Manner(_priority(priority), _lifetime(lifetime_s))
        for path in files:
            if str(path) != STDIN:
                _look_at(path)
        deadline = asyncio.get_running_loop().time() + joining.timeout
        async with taking_part(channel, joining, end) as joined:
            await _somebody(joined, deadline, joining.timeout)
            await _send_all(joined, manner, words, files)
        return FINE

    return run("send", work)


def _priority(text: str) -> int:
    from weft.wire.broadcast import PRIORITY_MAX, Priority

    if text.upper() in Priority.__members__:
        return Priority[text.upper()]
    if text.isascii() and text.isdigit() and int(text) <= PRIORITY_MAX:
        return int(text)
    names = ", ".join(each.name.lower() for each in Priority)
    raise Mistake(f"--priority {text}: it is {names}, or a number from 0 to {PRIORITY_MAX}")


def _lifetime(seconds: float | None) -> float | None:
    if seconds is not None and not seconds > 0:
        raise Mistake(f"--lifetime {seconds:g}: a message lives for more than 0 seconds; without it, for ever")
    return seconds


async def _send_all(channel: "Channel", manner: Manner, words: Sequence[str], files: Sequence[Path]) -> None:
    from weft.channel import WeftError

    sent = 0
    try:
        if files:
            for path in files:
                await _send_file(channel, manner, path)
                sent += 1
        else:
            async for message in _messages(words):
                await channel.broadcast(message, priority=manner.priority, lifetime_s=manner.lifetime_s)
                sent += 1
    except (WeftError, Failed, OSError) as problem:
        before = f" ({sent:,} before it were sent)" if sent else ""
        raise Failed(f"message {sent + 1:,} was not sent: {problem}{before}") from None


async def _send_file(channel: "Channel", manner: Manner, path: Path) -> None:
    """With its name; the input has none, and is a message like any other."""
    if str(path) == STDIN:
        data = b"".join([chunk async for chunk in chunks_of_input()])
        await channel.broadcast(data, priority=manner.priority, lifetime_s=manner.lifetime_s)
        return
    with _bar(path.name) as progress:
        await channel.send_file(path, priority=manner.priority, lifetime_s=manner.lifetime_s, progress=progress)


@contextmanager
def _bar(name: str) -> Iterator[Progress | None]:
    """For a person who watches; not for the log of a script."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from weft.commands.telling import harmless

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    console = Console(stderr=True, no_color="NO_COLOR" in os.environ)
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(escape(harmless(name)), total=None)
        yield lambda done, size: shown.update(task, completed=done, total=size)


async def _somebody(channel: "Channel", deadline: float, timeout_s: float) -> None:
    """Wait for a neighbour."""
    from weft.fabric.events import LinkUp

    came = asyncio.Event()
    stop = channel.on_event(lambda event: came.set() if isinstance(event, LinkUp) else None)
    try:
        if channel.status().neighbours:
            return
        hint(f"nobody is on {channel.name} yet; waiting for somebody")
        async with asyncio.timeout_at(deadline):
            await came.wait()
    except TimeoutError:
        raise Failed(
            f"nobody else is on {channel.name}, or nobody was found within {timeout_s:g} s (see --portal and --key); "
            "nothing was sent"
        ) from None
    finally:
        stop()


async def _messages(words: Sequence[str]) -> AsyncIterator[bytes]:
    """One for the words, or one for each line of standard input."""
    if words and list(words) != [STDIN]:
        yield " ".join(words).encode(errors="surrogateescape")
        return
    if sys.stdin is not None and sys.stdin.isatty():
        hint("each line is a message; Ctrl-D ends")
    async for line in lines_of_input():
        yield line


def _look_at(path: Path) -> None:
    """Before anybody is looked for: is it there, and can it be read?"""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as problem:
        raise Mistake(f"cannot read {path}: {problem.strerror}") from None
