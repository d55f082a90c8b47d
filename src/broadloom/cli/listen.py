"""`broadloom listen`: incoming messages to standard output, and incoming files to a directory."""

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broadloom.cli.exit_codes import FAILURE, SUCCESS, CommandFailedError, UsageError
from broadloom.cli.formatting import EventFormatter, escape_control_chars
from broadloom.cli.options import (
    ChannelArgument,
    DurationOption,
    JoinOptions,
    JsonOption,
    option,
    with_join_options,
)
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, hint, joined_channel, print_error, run
from broadloom.protocol.events import Message, Missed
from broadloom.wire.broadcast_frame import PayloadKind

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent

BATCH_MESSAGES = 1000
"""Messages written at once, at most."""
NAME_BYTES_MAX = 200
"""Below the limit of every file system, with room for a number."""
NUMBERS_MAX = 10_000
"""Files with the same name in one directory."""


@with_join_options
def listen(
    channel: ChannelArgument,
    join_options: JoinOptions,
    json: JsonOption = False,
    events: Annotated[bool, typer.Option("--events", help="Also print neighbors that connect and disconnect.")] = False,
    count: Annotated[int | None, option("--count", "-n", min=0, metavar="N", help="Exit after N messages.")] = None,
    duration: DurationOption = None,
    save_dir: Annotated[
        Path | None,
        option("--save-dir", metavar="DIR", help="Save received files here; existing files are never overwritten."),
    ] = None,
) -> int:
    """Print incoming messages until interrupted.

    A file is printed as one line with its name and size; --save-dir keeps it. With --count and --duration together, the
    exit status is 1 if fewer messages arrived in time; with --save-dir, if a file was corrupt or could not be written.

    Examples:

    - `broadloom listen news/today`
    - `broadloom listen news/today --json | jq .text`
    - `broadloom listen jobs/x --count 1 --duration 60`
    - `broadloom listen pics/x --save-dir pictures`
    """

    async def work(stop: StopSignal) -> int:
        directory = prepare_directory(save_dir) if save_dir is not None else None
        async with joined_channel(channel, join_options, stop) as joined:
            session = _ListenSession(joined, stop, json=json, events=events, count=count, save_dir=directory)
            return await session.listen(duration)

    return run("listen", work)


class _ListenSession:
    def __init__(
        self,
        channel: "Channel",
        stop: StopSignal,
        *,
        json: bool,
        events: bool,
        count: int | None,
        save_dir: Path | None,
    ) -> None:
        self._channel = channel
        self._stop = stop
        self._json = json
        self._events = events
        self._remaining = count
        self._save_dir = save_dir
        self._has_lost_file = False
        self._formatter = EventFormatter(channel)
        self._out = Output(stop)
        self._read = 0
        self._pending_events: deque[tuple[int, str]] = deque()
        """Events that occurred while messages were unread: the number of messages to print first, and the line."""

    async def listen(self, duration_s: float | None) -> int:
        self._stop.interrupt_is_success = self._remaining is None
        unsubscribe = self._channel.on_event(self._on_event)
        self._show_joined()
        try:
            async with self._out, asyncio.timeout(duration_s):
                await self._print_messages()
        except TimeoutError:
            pass
        finally:
            unsubscribe()
        if self._remaining:
            print_error("listen", f"{self._remaining} of the expected messages did not arrive")
            return FAILURE
        return FAILURE if self._has_lost_file else SUCCESS

    async def _print_messages(self) -> None:
        """Until `--count` is reached or the channel is closed."""
        if self._remaining == 0:
            return
        lines: list[str] = []
        messages = 0
        async for message in self._channel:
            lines.append(await self._format_message(message))
            messages += 1
            self._read += 1
            lines += self._due_events()
            is_last = self._remaining is not None and messages >= self._remaining
            if is_last or not self._channel.unread_count or messages >= BATCH_MESSAGES:
                if self._remaining is not None:
                    self._remaining -= messages
                text, messages = "\n".join(lines) + "\n", 0
                lines.clear()
                await self._out.write(text)
                if is_last:
                    return
        print_error("listen", "the channel was closed for all members")

    async def _format_message(self, message: Message) -> str:
        """The line for a message. A file is saved in a thread, because it may be large."""
        show = self._formatter.message_json if self._json else self._formatter.message
        if message.kind != PayloadKind.FILE:
            return show(message)
        saved = None
        if self._save_dir is not None:
            try:
                saved = await asyncio.to_thread(_save_message, self._save_dir, message)
            except (CommandFailedError, ValueError) as problem:
                self._has_lost_file = True
                author = self._formatter.name(message.author)
                print_error("listen", f"a file from {author} was not saved: {escape_control_chars(str(problem))}")
        return show(message, saved)

    def _show_joined(self) -> None:
        if self._events:
            self._out.put((self._formatter.joined_json() if self._json else self._formatter.joined()) + "\n")
        else:
            hint(self._formatter.joined())

    def _on_event(self, event: "ChannelEvent") -> None:
        """Missed messages are always reported: in JSON here, in text by the channel's own warning."""
        if not self._events and not isinstance(event, Missed):
            return
        line = self._formatter.event_json(event) if self._json else self._formatter.event(event)
        if line is None:
            return
        if self._channel.unread_count:
            self._pending_events.append((self._read + self._channel.unread_count, line))
        else:
            self._out.put(line + "\n")

    def _due_events(self) -> list[str]:
        """Events whose preceding messages have been printed."""
        due = []
        while self._pending_events and (self._pending_events[0][0] <= self._read or not self._channel.unread_count):
            due.append(self._pending_events.popleft()[1])
        return due


# -- files. The sender chooses the content but only suggests the name: nothing is overwritten, hidden, or written
# outside the directory.


def prepare_directory(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"cannot save files in {path}: {problem.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"cannot save files in {path}: it is not writable")
    return path


def safe_name(name: str) -> str:
    """A visible file name without directories and control characters, of limited length."""
    name = "".join(char if char.isprintable() and char not in "/\\:" else "_" for char in name)
    if not name or name.startswith("."):
        name = f"_{name}"
    stem, suffix = os.path.splitext(name)
    suffix = suffix if len(suffix.encode()) <= NAME_BYTES_MAX // 4 else ""
    stem = name.removesuffix(suffix) if suffix else name
    while len((stem + suffix).encode()) > NAME_BYTES_MAX:
        stem = stem[:-1]
    return stem + suffix


def save_file(directory: Path, name: str, content: bytes) -> Path:
    """Write a new file, numbered if the name is taken, and return its path."""
    stem, suffix = os.path.splitext(safe_name(name))
    for number in range(1, NUMBERS_MAX):
        path = directory / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            file = path.open("xb")
        except FileExistsError:
            continue
        except OSError as problem:
            raise CommandFailedError(f"cannot save {path}: {problem.strerror}") from None
        try:
            with file:
                file.write(content)
        except OSError as problem:
            path.unlink(missing_ok=True)  # an incomplete file is worse than none
            raise CommandFailedError(f"cannot save {path}: {problem.strerror}") from None
        return path
    raise CommandFailedError(f"cannot save {stem}{suffix}: {directory} has {NUMBERS_MAX:,} files of that name")


def _save_message(directory: Path, message: Message) -> Path:
    file = message.file
    assert file is not None
    return save_file(directory, file.name, file.content)
