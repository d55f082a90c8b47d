"""`broadloom listen`: incoming messages to standard output, and incoming files to a directory."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.channel import SubscriptionOverflow
from broadloom.channel.topics import checked_pattern
from broadloom.cli.exit_codes import FAILURE, UsageError
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import ChannelArgument, DurationOption, JoinOptions, JsonOption, checked_option, option
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, command, hint, joined_channel, print_error
from broadloom.cli.session import Session
from broadloom.protocol.events import Message, Missed
from broadloom.wire.payload_kind import PayloadKind

if TYPE_CHECKING:
    from broadloom.channel import ChannelEvent


NAME_BYTES_MAX = 200
"""Below the limit of every file system, with room for a number."""
NUMBERS_MAX = 10_000
"""Files with the same name in one directory."""


@command("listen")
async def listen(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    json: JsonOption = False,
    topic: Annotated[
        str | None, option("Only messages whose topic matches; `*` is one level, `**` any number.", "PATTERN")
    ] = None,
    events: Annotated[bool, option("Also print neighbors that connect and disconnect.")] = False,
    count: Annotated[int | None, option("Exit after N messages.", "N", "--count", "-n", min=0)] = None,
    duration: DurationOption = None,
    save_dir: Annotated[
        Path | None, option("Save received files here; existing files are never overwritten.", "DIR")
    ] = None,
) -> int:
    """Print incoming messages until interrupted.

    A file is printed as one line with its name and size; --save-dir keeps it. With --count and --duration together, the
    exit status is 1 if fewer messages arrived in time; with --save-dir, if a file was corrupt or could not be written.

    Examples:

    - `broadloom listen news/today`
    - `broadloom listen news/today --json | jq .text`
    - `broadloom listen news/today --topic "sports/**"`
    - `broadloom listen jobs/x --count 1 --duration 60`
    - `broadloom listen pics/x --save-dir pictures`
    """
    if topic is not None:
        checked_option(checked_pattern, "--topic", topic)
    if save_dir is not None:
        prepare_directory(save_dir)
    async with joined_channel(channel, join_options, stop) as joined:
        stop.interrupt_is_success = count is None
        async with Output(stop) as out:
            source = joined.subscribe(topic) if topic is not None else joined
            session = _ListenSession("listen", joined, out, json=json, source=source, events=events, save_dir=save_dir)
            with session.subscribed(), suppress(TimeoutError):
                session.show_joined()
                async with asyncio.timeout(duration):
                    if count != 0:
                        await session.print_messages(count)
    if count is not None and session.printed_count < count:
        print_error("listen", f"{count - session.printed_count} of the expected messages did not arrive")
        return FAILURE
    return FAILURE if session.has_lost_file else session.exit_code


class _ListenSession(Session):
    def __init__(self, *args: Any, events: bool, save_dir: Path | None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._events = events
        self._save_dir = save_dir
        self.has_lost_file = False

    def show_notice(self, line: str) -> None:
        self.terminal.show(line)

    def show_joined(self) -> None:
        if self._events:
            super().show_joined()
        else:
            hint(self.formatter.joined_text())

    async def show_message(self, message: Message) -> None:
        """A file is saved in a thread, because it may be large."""
        saved = None
        if message.kind == PayloadKind.FILE and self._save_dir is not None:
            try:
                saved = await asyncio.to_thread(_save_message, self._save_dir, message)
            except (OSError, ValueError) as problem:
                self.has_lost_file = True
                author = self.formatter.name(message.author)
                print_error("listen", f"a file from {author} was not saved: {escape_control_chars(_reason(problem))}")
        self.terminal.show(self.formatter.message(message, saved))

    def on_event(self, event: "ChannelEvent") -> None:
        """Missed messages are always reported: in JSON here, in text by the channel's own warning."""
        if self._events or isinstance(event, Missed | SubscriptionOverflow):
            super().on_event(event)


# -- saving: the sender chooses the content but only suggests the name, so nothing is overwritten, hidden, or written
# outside the directory


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
    """Write a new file, numbered if the name is taken, and return its path. Raises `OSError`."""
    stem, suffix = os.path.splitext(safe_name(name))
    for number in range(1, NUMBERS_MAX):
        path = directory / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            opened = path.open("xb")
        except FileExistsError:
            continue
        try:
            with opened:
                opened.write(content)
        except OSError as problem:
            path.unlink(missing_ok=True)  # an incomplete file is worse than none
            problem.filename = str(path)
            raise
        return path
    raise FileExistsError(f"{directory} has {NUMBERS_MAX:,} files named {stem}{suffix}")


def _save_message(directory: Path, message: Message) -> Path:
    """Save the file that a message carries. Raises `ValueError` if it is damaged."""
    file = message.file
    assert file is not None
    return save_file(directory, file.name, file.content)


def prepare_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"cannot save files in {path}: {problem.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"cannot save files in {path}: it is not writable")


def _reason(problem: OSError | ValueError) -> str:
    if isinstance(problem, OSError) and problem.filename:
        return f"cannot save {problem.filename}: {problem.strerror}"
    return str(problem)
