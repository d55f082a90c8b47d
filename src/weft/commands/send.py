"""`weft send`: broadcast and go.

The rule: a message that nobody could get is not sent. Whoever sends before anybody is there is told so, and gets an
exit code that a script can see.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.commands.ending import End, hint, run
from weft.commands.errors import FINE, Failed, Mistake
from weft.commands.output import chunks_of_input, lines_of_input
from weft.commands.taking_part import taking_part

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.commands.options import Joining

STDIN = "-"


def send(channel: str, joining: "Joining", *, words: Sequence[str], files: Sequence[Path]) -> int:
    async def work(end: End) -> int:
        if words and files:
            raise Mistake("give the text or --file, not both")
        contents = [_read(path) for path in files if str(path) != STDIN]
        deadline = asyncio.get_running_loop().time() + joining.timeout
        async with taking_part(channel, joining, end) as joined:
            await _somebody(joined, deadline, joining.timeout)
            await _broadcast(joined, _messages(words, files, contents))
        return FINE

    return run("send", work)


async def _broadcast(channel: "Channel", messages: AsyncIterator[bytes]) -> None:
    from weft.channel import WeftError

    sent = 0
    try:
        async for message in messages:
            await channel.broadcast(message)
            sent += 1
    except (WeftError, Failed) as problem:
        before = f" ({sent:,} before it were sent)" if sent else ""
        raise Failed(f"message {sent + 1:,} was not sent: {problem}{before}") from None


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


async def _messages(words: Sequence[str], files: Sequence[Path], contents: Sequence[bytes]) -> AsyncIterator[bytes]:
    """One for the words, or one for each file, or one for each line of standard input."""
    if files:
        read = iter(contents)
        for path in files:
            yield next(read) if str(path) != STDIN else b"".join([chunk async for chunk in chunks_of_input()])
    elif words and list(words) != [STDIN]:
        yield " ".join(words).encode(errors="surrogateescape")
    else:
        if sys.stdin is not None and sys.stdin.isatty():
            hint("each line is a message; Ctrl-D ends")
        async for line in lines_of_input():
            yield line


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise Mistake(f"cannot read {path}: {problem.strerror}") from None
