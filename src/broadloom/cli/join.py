"""`broadloom join`: take part in a channel, from a terminal or through pipes."""

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from broadloom.cli.exit_codes import FAILURE, SUCCESS
from broadloom.cli.formatting import EventFormatter
from broadloom.cli.options import ChannelArgument, JoinOptions, JsonOption, KeepOpenOption, with_join_options
from broadloom.cli.output import Output, input_lines
from broadloom.cli.prompt import PromptLine, Terminal, at_terminal, typed_input
from broadloom.cli.runner import StopSignal, joined_channel, print_error, run
from broadloom.errors import BroadloomError
from broadloom.protocol.events import LinkUp

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent


@with_join_options
def join(
    channel: ChannelArgument, join_options: JoinOptions, keep_open: KeepOpenOption = False, json: JsonOption = False
) -> int:
    """Join a channel: broadcast each input line and print incoming messages.

    At a terminal, Ctrl-D or Ctrl-C leaves. In a pipe, the end of the input does.

    Examples:

    - `broadloom join chess/club-42`
    - `broadloom join chess/club-42 --bootstrap 10.0.0.5`
    - `./game | broadloom join chess/x --keep-open`
    """

    async def work(stop: StopSignal) -> int:
        async with joined_channel(channel, join_options, stop) as joined:
            stop.interrupt_is_success = True
            async with Output(stop) as out:
                return await _JoinSession(joined, out, json=json).run(keep_open=keep_open)

    return run("join", work)


class _JoinSession:
    def __init__(self, channel: "Channel", out: Output, *, json: bool) -> None:
        self._channel = channel
        self._formatter = EventFormatter(channel)
        self._out = out
        self._json = json
        self._terminal = Terminal(out)
        self._had_peers = bool(channel.status().neighbors)

    async def run(self, *, keep_open: bool) -> int:
        """Run until the end of the input, unless `keep_open`, or until the channel is closed."""
        with self._terminal.prompt() if at_terminal() and not self._json else nullcontext() as prompt:
            if self._json:
                self._terminal.show(self._formatter.joined_json())
            else:
                self._terminal.notice(self._formatter.joined())
            unsubscribe = self._channel.on_event(self._on_event)
            reading = asyncio.ensure_future(self._print_messages())
            writing = asyncio.ensure_future(
                self._read_terminal(prompt) if prompt is not None else self._forward_input()
            )
            try:
                await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
                if writing.done():
                    sent = writing.result()
                    if not keep_open:
                        return self._exit_code(sent)
                await reading
            finally:
                unsubscribe()
                for task in (reading, writing):
                    task.cancel()
        print_error("join", "the channel was closed for all members")
        return SUCCESS

    def _exit_code(self, sent: int) -> int:
        if sent and not self._had_peers:
            print_error("join", f"no other peers on {self._channel.name}: your messages reached nobody")
            return FAILURE
        return SUCCESS

    # -- from the channel

    async def _print_messages(self) -> None:
        format_message = self._formatter.message_json if self._json else self._formatter.message
        async for message in self._channel:
            self._terminal.show(format_message(message))
            if not self._channel.unread_count:
                await self._out.flush()  # a slow reader holds us up here, so that messages queue in the inbox

    def _on_event(self, event: "ChannelEvent") -> None:
        self._had_peers = self._had_peers or isinstance(event, LinkUp)
        if self._json:
            if (line := self._formatter.event_json(event)) is not None:
                self._terminal.show(line)
        elif (text := self._formatter.event(event)) is not None:
            self._terminal.notice(text)

    # -- to the channel

    async def _forward_input(self) -> int:
        """Broadcast lines from a pipe or a file. An error stops the command."""
        sent = 0
        async for line in input_lines():
            await self._channel.broadcast(line)
            sent += 1
        return sent

    async def _read_terminal(self, prompt: PromptLine) -> int:
        """Broadcast typed lines. An error is shown, and the user can go on."""
        sent = 0
        async for data in typed_input(prompt):
            for line in filter(None, prompt.feed(data)):
                try:
                    await self._channel.broadcast_text(line)
                    sent += 1
                except BroadloomError as problem:
                    self._terminal.notice(f"! {problem}")
        return sent
