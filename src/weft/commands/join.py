"""`weft join`: a person at a terminal, or a program at two pipes, takes part in a channel."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from weft.commands.ending import End, complain, run, warnings_go_to
from weft.commands.errors import FAILED, FINE
from weft.commands.output import Output, chunks_of_input, lines_of_input
from weft.commands.prompt import Prompt, sign_by_sign
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
        self._show: Callable[[str], None] = lambda text: out.put(text + "\n")
        self._coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._had_company = bool(channel.status().neighbours)

    async def part(self, *, stay: bool) -> int:
        """Until the input ends, or (`stay`) for longer; or until the channel is closed."""
        at_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        with self._prompt() if at_terminal else _nothing() as prompt:
            self._aside(self._telling.joined())
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
            self._show(self._telling.message(message))
            if not self._channel.unread:
                await self._out.write("")  # who reads slowly makes us wait here, where the channel counts what waits

    def _happened(self, event: "ChannelEvent") -> None:
        self._had_company = self._had_company or isinstance(event, LinkUp)
        text = self._telling.event(event)
        if text is not None:
            self._aside(text)

    def _aside(self, text: str) -> None:
        self._show(f"\x1b[2m{text}\x1b[0m" if self._coloured else f"* {text}")

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
        async for data in _until(chunks_of_input(), lambda: prompt.typing.ended):
            for line in filter(None, prompt.feed(data)):
                try:
                    await self._channel.broadcast_text(line)
                    sent += 1
                except WeftError as problem:
                    self._aside(f"! {problem}")
        return sent

    @contextmanager
    def _prompt(self) -> Iterator[Prompt]:
        prompt = Prompt(self._out.put)
        loop = asyncio.get_running_loop()
        with sign_by_sign() as again, warnings_go_to(_Shown(self._aside)):
            self._show = prompt.tell

            def go_on() -> None:
                again()
                prompt.redraw()

            loop.add_signal_handler(signal.SIGCONT, go_on)
            try:
                yield prompt
            finally:
                loop.remove_signal_handler(signal.SIGCONT)
                self._show = lambda text: self._out.put(text + "\n")
                prompt.close()


async def _until(chunks: AsyncIterator[bytes], ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk
        if ended():
            return


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


class _Shown(logging.Handler):
    """Warnings of the library, above the line that is typed."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show_text = show

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):
            self._show_text(f"! {record.getMessage()}")
