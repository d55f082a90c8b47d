"""`weft join`: a person at a terminal, or a program at two pipes, takes part in a channel."""

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from weft.commands.ending import End, complain, run
from weft.commands.errors import FAILED, FINE
from weft.commands.output import Output, lines_of_input
from weft.commands.prompt import Prompt
from weft.commands.screen import Screen, at_terminal, typed
from weft.commands.taking_part import taking_part
from weft.commands.telling import Telling
from weft.fabric.events import LinkUp

if TYPE_CHECKING:
    from weft.channel import Channel, ChannelEvent
    from weft.commands.options import Joining


def join(channel: str, joining: "Joining", *, stay: bool) -> int:
    async def work(end: End) -> int:
        async with taking_part(channel, joining, end) as joined:
            end.by_hand_is_fine = True
            async with Output(end) as out:
                return await _Taking(joined, out).part(stay=stay)

    return run("join", work)


class _Taking:
    def __init__(self, channel: "Channel", out: Output) -> None:
        self._channel = channel
        self._telling = Telling(channel)
        self._out = out
        self._screen = Screen(out)
        self._had_company = bool(channel.status().neighbours)

    async def part(self, *, stay: bool) -> int:
        """Until the input ends, or (`stay`) for longer; or until the channel is closed."""
        with self._screen.prompt() if at_terminal() else nullcontext() as prompt:
            self._screen.aside(self._telling.joined())
            stop_telling = self._channel.on_event(self._happened)
            reading = asyncio.ensure_future(self._print_messages())
            writing = asyncio.ensure_future(self._type(prompt) if prompt is not None else self._pass_on())
            try:
                await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
                if writing.done():
                    sent = writing.result()
                    if not stay:
                        return self._verdict(sent)
                await reading
            finally:
                stop_telling()
                for task in (reading, writing):
                    task.cancel()
        complain("join", "the channel was closed for all")
        return FINE

    def _verdict(self, sent: int) -> int:
        if sent and not self._had_company:
            complain("join", f"nobody else was on {self._channel.name}, so nobody got what you sent")
            return FAILED
        return FINE

    # -- from the channel

    async def _print_messages(self) -> None:
        async for message in self._channel:
            self._screen.show(self._telling.message(message))
            if not self._channel.unread:
                await self._out.write("")  # who reads slowly makes us wait here, where the channel counts what waits

    def _happened(self, event: "ChannelEvent") -> None:
        self._had_company = self._had_company or isinstance(event, LinkUp)
        text = self._telling.event(event)
        if text is not None:
            self._screen.aside(text)

    # -- to the channel

    async def _pass_on(self) -> int:
        """Lines from a pipe or a file. A line that cannot be sent ends it."""
        sent = 0
        async for line in lines_of_input():
            await self._channel.broadcast(line)
            sent += 1
        return sent

    async def _type(self, prompt: Prompt) -> int:
        """Lines from a person, who is told of one that cannot be sent and may try another."""
        from weft.channel import WeftError

        sent = 0
        async for data in typed(prompt):
            for line in filter(None, prompt.feed(data)):
                try:
                    await self._channel.broadcast_text(line)
                    sent += 1
                except WeftError as problem:
                    self._screen.aside(f"! {problem}")
        return sent
