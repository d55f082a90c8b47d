"""`broadloom listen`: what members of a channel broadcast, to standard output."""

import asyncio
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom.cli.exit_codes import FAILURE, SUCCESS, CommandFailed
from broadloom.cli.formatting import EventFormatter, escape_control_chars
from broadloom.cli.output import Output
from broadloom.cli.runner import StopSignal, hint, print_error, run
from broadloom.cli.saving import prepare_directory
from broadloom.cli.saving import save as save_file
from broadloom.cli.taking_part import joined_channel
from broadloom.protocol.events import Message, Missed
from broadloom.wire.broadcast_frame import PayloadKind

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.cli.options import JoinOptions

BATCH_MESSAGES = 1000
"""Messages that are written at once, if so many have come."""


def listen(
    channel: str,
    join_options: "JoinOptions",
    *,
    json: bool,
    events: bool,
    count: int | None,
    for_s: float | None,
    save: Path | None,
) -> int:
    async def work(end: StopSignal) -> int:
        directory = prepare_directory(save) if save is not None else None
        async with joined_channel(channel, join_options, end) as joined:
            listener = _ListenSession(joined, end, json=json, events=events, count=count, save=directory)
            return await listener.listen(for_s)

    return run("listen", work)


class _ListenSession:
    def __init__(
        self, channel: "Channel", end: StopSignal, *, json: bool, events: bool, count: int | None, save: Path | None
    ) -> None:
        self._channel = channel
        self._end = end
        self._json = json
        self._events = events
        self._remaining = count
        self._save = save
        self._has_lost_file = False
        self._formatter = EventFormatter(channel)
        self._out = Output(end)
        self._read = 0
        self._pending_events: deque[tuple[int, str]] = deque()
        """Events that came when messages were unread: how many have to be read before, and the line."""

    async def listen(self, for_s: float | None) -> int:
        self._end.interrupt_is_success = self._remaining is None
        unsubscribe = self._channel.on_event(self._on_event)
        self._show_joined()
        try:
            async with self._out, asyncio.timeout(for_s):
                await self._messages()
        except TimeoutError:
            pass
        finally:
            unsubscribe()
        if self._remaining:
            print_error("listen", f"{self._remaining} of the messages that were waited for did not come")
            return FAILURE
        return FAILURE if self._has_lost_file else SUCCESS

    async def _messages(self) -> None:
        """As many as were asked for, or until the channel is closed."""
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
        print_error("listen", "the channel was closed for all")

    async def _format_message(self, message: Message) -> str:
        """The line for it. A file is put where files go, beside the event loop, because it may be large."""
        show = self._formatter.message_json if self._json else self._formatter.message
        if message.kind != PayloadKind.FILE:
            return show(message)
        saved = None
        if self._save is not None:
            try:
                saved = await asyncio.to_thread(_save_message, self._save, message)
            except (CommandFailed, ValueError) as problem:
                self._has_lost_file = True
                author = self._formatter.name(message.author)
                print_error("listen", f"a file of {author} was not saved: {escape_control_chars(str(problem))}")
        return show(message, saved)

    def _show_joined(self) -> None:
        if self._events:
            self._out.put((self._formatter.joined_json() if self._json else self._formatter.joined()) + "\n")
        else:
            hint(self._formatter.joined())

    def _on_event(self, event: "ChannelEvent") -> None:
        """Missed messages are always told: in JSON here, else by the warning that the channel itself gives."""
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
        """Events whose turn it is: an event is told after the messages that came before it."""
        due = []
        while self._pending_events and (self._pending_events[0][0] <= self._read or not self._channel.unread_count):
            due.append(self._pending_events.popleft()[1])
        return due


def _save_message(directory: Path, message: Message) -> Path:
    file = message.file
    assert file is not None
    return save_file(directory, file.name, file.content)
