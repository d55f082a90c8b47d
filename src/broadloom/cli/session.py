"""What `listen`, `join` and `group join` have in common: messages to the output, input lines to the channel or group.

Everything is shown in order: an event that occurs while messages are unread is shown after them. A slow reader of the
output delays reading from the channel, so that messages queue in the inbox, which has a limit.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from broadloom.channel.reader import Reader
from broadloom.cli.exit_codes import SUCCESS
from broadloom.cli.formatting import EventFormatter, escape_control_chars
from broadloom.cli.output import Output, input_lines
from broadloom.cli.prompt import Terminal, at_terminal
from broadloom.cli.runner import print_error, report_end
from broadloom.errors import BroadloomError
from broadloom.protocol.events import LinkUp

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent

BATCH_MESSAGES = 1000
"""Messages handed to the output before waiting for it."""
PENDING_EVENTS_MAX = 1000
"""Events that wait for earlier messages to be shown."""


class Session:
    """Shows what a channel receives, and broadcasts input lines. Subclasses do the same with another `source`."""

    echo_input = True
    """Whether a typed line remains on the screen; not if the session shows what it sends as a message."""

    def __init__(self, command: str, channel: "Channel", out: Output, *, json: bool, source: Any = None) -> None:
        self.command = command
        self.channel = channel
        self.source = source if source is not None else channel
        self.out = out
        self.json = json
        self.terminal = Terminal(out)
        self.at_terminal = at_terminal() and not json
        self.formatter = EventFormatter(channel, json=json)
        self.read_count = self.printed_count = 0
        self.exit_code = SUCCESS
        """Not 0 if this program was excluded from the channel."""
        self._had_peers = False
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()
        """What happened while messages were unread: the number of messages to show first, and how to show it."""

    # -- what subclasses change

    def show_joined(self) -> None:
        self.show_notice(self.formatter.joined())

    async def show_message(self, message: Any) -> None:
        self.terminal.show(self.formatter.message(message))

    def on_event(self, event: "ChannelEvent") -> None:
        self.show_event(self.formatter.event(event))

    async def send(self, line: bytes) -> None:
        await self.channel.broadcast(line)

    def after_message(self) -> None:
        """Called when a message was shown."""

    def show_notice(self, line: str) -> None:
        """Show a line that is not a message."""
        (self.terminal.show if self.json else self.terminal.notice)(line)

    # -- output

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Show events until the session ends: those of leaving the channel are not shown."""
        unsubscribe = self.channel.on_event(self._on_channel_event)
        try:
            yield
        finally:
            unsubscribe()

    def _on_channel_event(self, event: "ChannelEvent") -> None:
        self._had_peers = self._had_peers or isinstance(event, LinkUp)
        if isinstance(self.source, Reader):
            self.on_event(event)

    async def print_messages(self, count: int | None = None) -> None:
        """Until there were `count` messages, or the channel is closed."""
        async for message in self.source:
            await self.show_message(message)
            self.read_count += 1
            while self._pending and (self._pending[0][0] <= self.read_count or not self.source.unread_count):
                self._pending.popleft()[1]()
            is_last = count is not None and self.read_count >= count
            if is_last or not self.source.unread_count or self.read_count - self.printed_count >= BATCH_MESSAGES:
                await self.out.flush()
                self.printed_count = self.read_count
            self.after_message()
            if is_last:
                return
        self.exit_code = report_end(self.command, self.channel)

    def show_in_order(self, show: Callable[[], None]) -> None:
        if not self.source.unread_count:
            show()
        elif len(self._pending) < PENDING_EVENTS_MAX:
            self._pending.append((self.read_count + self.source.unread_count, show))
        else:
            self.warn("events were dropped because the output was too slow")

    def show_event(self, line: str | None) -> None:
        if line is not None:
            self.show_in_order(partial(self.show_notice, line))

    def warn(self, text: str) -> None:
        if self.at_terminal:
            self.terminal.notice(f"! {text}")
        else:
            print_error(self.command, text)

    # -- both directions

    async def run(self, *, keep_open: bool) -> bool:
        """Exchange messages until the end of the input, unless `keep_open`, or until the channel is closed. Returns
        False, with a warning, if messages were sent while there were no other peers."""
        self._had_peers = bool(self.channel.status().neighbors)
        with self.subscribed(), self.terminal.prompt() if self.at_terminal else nullcontext() as prompt:
            self.show_joined()
            reading = asyncio.ensure_future(self.print_messages())
            writing = asyncio.ensure_future(
                self._forward_input() if prompt is None else prompt.read_lines(self._send_typed, echo=self.echo_input)
            )
            try:
                await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
                if not writing.done() or (writing.exception() is None and keep_open):
                    await reading
                    return True
                sent = writing.result()
            finally:
                for task in (reading, writing):
                    task.cancel()
        if sent and not self._had_peers:
            shown = escape_control_chars(self.channel.name)
            print_error(self.command, f"no other peers on {shown}: your messages reached nobody")
            return False
        return True

    async def _forward_input(self) -> int:
        """Send lines from a pipe or a file and return their number. An error stops the command."""
        sent = 0
        async for line in input_lines():
            await self.send(line)
            sent += 1
        return sent

    async def _send_typed(self, line: bytes) -> bool:
        """Send a typed line. An error is shown, and the user can go on."""
        try:
            await self.send(line)
        except (BroadloomError, ValueError) as problem:
            self.terminal.notice(f"! {problem}")
            return False
        return True
