"""`broadloom join`: a person at a terminal, or a program at two pipes, takes part in a channel."""

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from broadloom.cli.exit_codes import FAILURE, SUCCESS
from broadloom.cli.formatting import EventFormatter
from broadloom.cli.output import Output, input_lines
from broadloom.cli.prompt import PromptLine
from broadloom.cli.runner import StopSignal, print_error, run
from broadloom.cli.screen import Terminal, at_terminal, typed_input
from broadloom.cli.taking_part import joined_channel
from broadloom.protocol.events import LinkUp

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.cli.options import JoinOptions


def join(channel: str, join_options: "JoinOptions", *, stay: bool) -> int:
    async def work(end: StopSignal) -> int:
        async with joined_channel(channel, join_options, end) as joined:
            end.interrupt_is_success = True
            async with Output(end) as out:
                return await _JoinSession(joined, out).run(stay=stay)

    return run("join", work)


class _JoinSession:
    def __init__(self, channel: "Channel", out: Output) -> None:
        self._channel = channel
        self._formatter = EventFormatter(channel)
        self._out = out
        self._terminal = Terminal(out)
        self._had_peers = bool(channel.status().neighbors)

    async def run(self, *, stay: bool) -> int:
        """Until the input ends, or (`stay`) for longer; or until the channel is closed."""
        with self._terminal.prompt() if at_terminal() else nullcontext() as prompt:
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
                    if not stay:
                        return self._exit_code(sent)
                await reading
            finally:
                unsubscribe()
                for task in (reading, writing):
                    task.cancel()
        print_error("join", "the channel was closed for all")
        return SUCCESS

    def _exit_code(self, sent: int) -> int:
        if sent and not self._had_peers:
            print_error("join", f"nobody else was on {self._channel.name}, so nobody got what you sent")
            return FAILURE
        return SUCCESS

    # -- from the channel

    async def _print_messages(self) -> None:
        async for message in self._channel:
            self._terminal.show(self._formatter.message(message))
            if not self._channel.unread_count:
                await self._out.write("")  # who reads slowly makes us wait here, where the channel counts what waits

    def _on_event(self, event: "ChannelEvent") -> None:
        self._had_peers = self._had_peers or isinstance(event, LinkUp)
        text = self._formatter.event(event)
        if text is not None:
            self._terminal.notice(text)

    # -- to the channel

    async def _forward_input(self) -> int:
        """Lines from a pipe or a file. A line that cannot be sent ends it."""
        sent = 0
        async for line in input_lines():
            await self._channel.broadcast(line)
            sent += 1
        return sent

    async def _read_terminal(self, prompt: PromptLine) -> int:
        """Lines from a person, who is told of one that cannot be sent and may try another."""
        from broadloom.errors import BroadloomError

        sent = 0
        async for data in typed_input(prompt):
            for line in filter(None, prompt.feed(data)):
                try:
                    await self._channel.broadcast_text(line)
                    sent += 1
                except BroadloomError as problem:
                    self._terminal.notice(f"! {problem}")
        return sent
