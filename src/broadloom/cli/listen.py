"""`broadloom listen`: incoming messages to standard output, and incoming files to a directory."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from broadloom.channel.saving import save_file
from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError
from broadloom.cli.formatting import EventFormatter, escape_control_chars
from broadloom.cli.options import ChannelArgument, DurationOption, JoinOptions, JsonOption, option
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, command, hint, joined_channel, print_error
from broadloom.cli.session import Session
from broadloom.protocol.events import Message, Missed
from broadloom.wire.broadcast_frame import PayloadKind

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent


@command("listen")
async def listen(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    json: JsonOption = False,
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
    - `broadloom listen jobs/x --count 1 --duration 60`
    - `broadloom listen pics/x --save-dir pictures`
    """
    if save_dir is not None:
        prepare_directory(save_dir)
    async with joined_channel(channel, join_options, stop) as joined:
        session = _ListenSession(joined, Output(stop), json=json, events=events, save_dir=save_dir)
        stop.interrupt_is_success = count is None
        unsubscribe = joined.on_event(session.on_event)
        session.show_joined()
        try:
            with suppress(TimeoutError):
                async with session.out, asyncio.timeout(duration):
                    if count != 0:
                        await session.print_messages(count)
        finally:
            unsubscribe()
    if count is not None and session.printed_count < count:
        print_error("listen", f"{count - session.printed_count} of the expected messages did not arrive")
        return FAILURE
    return FAILURE if session.has_lost_file else SUCCESS


class _ListenSession(Session["Channel"]):
    command = "listen"

    def __init__(self, channel: "Channel", out: Output, *, json: bool, events: bool, save_dir: Path | None) -> None:
        super().__init__(channel, channel, out, json=json)
        self._events = events
        self._save_dir = save_dir
        self._formatter = EventFormatter(channel)
        self.has_lost_file = False

    def show_joined(self) -> None:
        if self._events:
            self.terminal.show(self._formatter.joined_json() if self.json else self._formatter.joined())
        else:
            hint(self._formatter.joined())

    async def show_message(self, message: Message) -> None:
        """A file is saved in a thread, because it may be large."""
        saved = None
        if message.kind == PayloadKind.FILE and self._save_dir is not None:
            try:
                saved = await asyncio.to_thread(_save_message, self._save_dir, message)
            except (OSError, ValueError) as problem:
                self.has_lost_file = True
                author = self._formatter.name(message.author)
                print_error("listen", f"a file from {author} was not saved: {escape_control_chars(_reason(problem))}")
        format_message = self._formatter.message_json if self.json else self._formatter.message
        self.terminal.show(format_message(message, saved))

    def on_event(self, event: "ChannelEvent") -> None:
        """Missed messages are always reported: in JSON here, in text by the channel's own warning."""
        if self._events or isinstance(event, Missed):
            self.show_event(self._formatter.event_json(event) if self.json else self._formatter.event(event))


def prepare_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"cannot save files in {path}: {problem.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"cannot save files in {path}: it is not writable")


def _save_message(directory: Path, message: Message) -> Path:
    file = message.file
    assert file is not None
    return save_file(directory, file.name, file.content)


def _reason(problem: OSError | ValueError) -> str:
    if isinstance(problem, OSError) and problem.filename:
        return f"cannot save {problem.filename}: {problem.strerror}"
    return str(problem)
