"""What a conversation shows, line by line, and at a terminal the line that a person types below it."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

from broadloom.cli.output import Output, input_chunks
from broadloom.cli.prompt import PromptLine, raw_mode
from broadloom.cli.runner import route_warnings_to


def at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class Terminal:
    def __init__(self, out: Output) -> None:
        self._out = out
        self._is_colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.show: Callable[[str], None] = self._show_plain

    def _show_plain(self, text: str) -> None:
        self._out.put(text + "\n")

    def notice(self, text: str) -> None:
        """What nobody said."""
        self.show(self.format_notice(text))

    def format_notice(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self._is_colored else f"* {text}"

    @contextmanager
    def prompt(self) -> Iterator[PromptLine]:
        """Lines go above the one that is typed, and so do warnings of the library."""
        prompt = PromptLine(self._out.put)
        loop = asyncio.get_running_loop()
        with raw_mode() as reenter_raw_mode, route_warnings_to(_PromptHandler(self.notice)):
            self.show = prompt.print_above

            def on_continue() -> None:
                reenter_raw_mode()
                prompt.redraw()

            loop.add_signal_handler(signal.SIGCONT, on_continue)
            try:
                yield prompt
            finally:
                loop.remove_signal_handler(signal.SIGCONT)
                self.show = self._show_plain
                prompt.close()


async def typed_input(prompt: PromptLine) -> AsyncIterator[bytes]:
    """Until whoever types ends it."""
    async for chunk in input_chunks():
        yield chunk
        if prompt.editor.is_ended:
            return


class _PromptHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show_text = show

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):
            self._show_text(f"! {record.getMessage()}")
