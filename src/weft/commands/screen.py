"""What a conversation shows, line by line, and at a terminal the line that a person types below it."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

from weft.commands.ending import warnings_go_to
from weft.commands.output import Output, chunks_of_input
from weft.commands.prompt import Prompt, sign_by_sign


def at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class Screen:
    def __init__(self, out: Output) -> None:
        self._out = out
        self._coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.show: Callable[[str], None] = self._show_plainly

    def _show_plainly(self, text: str) -> None:
        self._out.put(text + "\n")

    def aside(self, text: str) -> None:
        """What nobody said."""
        self.show(self.as_aside(text))

    def as_aside(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self._coloured else f"* {text}"

    @contextmanager
    def prompt(self) -> Iterator[Prompt]:
        """Lines go above the one that is typed, and so do warnings of the library."""
        prompt = Prompt(self._out.put)
        loop = asyncio.get_running_loop()
        with sign_by_sign() as again, warnings_go_to(_Shown(self.aside)):
            self.show = prompt.tell

            def go_on() -> None:
                again()
                prompt.redraw()

            loop.add_signal_handler(signal.SIGCONT, go_on)
            try:
                yield prompt
            finally:
                loop.remove_signal_handler(signal.SIGCONT)
                self.show = self._show_plainly
                prompt.close()


async def typed(prompt: Prompt) -> AsyncIterator[bytes]:
    """Until whoever types ends it."""
    async for chunk in chunks_of_input():
        yield chunk
        if prompt.typing.ended:
            return


class _Shown(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show_text = show

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):
            self._show_text(f"! {record.getMessage()}")
