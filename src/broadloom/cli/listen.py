"""`broadloom listen`: incoming messages to standard output, and incoming files to a directory."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from broadloom.channel import SubscriptionOverflow
from broadloom.channel.topics import checked_pattern
from broadloom.cli.exit_codes import FAILURE, SUCCESS
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import ChannelArgument, DurationOption, JoinOptions, JsonOption, checked_option, option
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, command, hint, joined_channel, print_error
from broadloom.cli.saving import prepare_directory, reason, save_message
from broadloom.cli.session import Session
from broadloom.protocol.events import Message, Missed
from broadloom.wire.broadcast_frame import PayloadKind

if TYPE_CHECKING:
    from broadloom.channel import ChannelEvent


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
    return FAILURE if session.has_lost_file else SUCCESS


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
                saved = await asyncio.to_thread(save_message, self._save_dir, message)
            except (OSError, ValueError) as problem:
                self.has_lost_file = True
                author = self.formatter.name(message.author)
                print_error("listen", f"a file from {author} was not saved: {escape_control_chars(reason(problem))}")
        self.terminal.show(self.formatter.message(message, saved))

    def on_event(self, event: "ChannelEvent") -> None:
        """Missed messages are always reported: in JSON here, in text by the channel's own warning."""
        if self._events or isinstance(event, Missed | SubscriptionOverflow):
            super().on_event(event)
