"""Output lines that scroll above the line being typed.

The editor knows letters, Backspace, Ctrl-U (clear), Ctrl-W (delete a word) and Ctrl-D (end of input). The terminal does
not echo input while the prompt is active, so its mode must be restored however the command ends. Kept instead of
prompt_toolkit, whose import takes 110 ms of CPU and 19 MB; that of this module takes 2 ms.
"""

import asyncio
import codecs
import os
import re
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from broadloom.cli.output import Output, input_chunks
from broadloom.cli.runner import route_warnings_to

PROMPT = "> "
CLEAR = "\r\x1b[K"

_PARTIAL_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?")
"""The prefix of a key sequence, as of an arrow key. The first character that does not match ends it."""
_LAST_WORD = re.compile(r"\S*\s*$")


class LineEditor:
    """The line so far, independent of a terminal."""

    def __init__(self) -> None:
        self.line = ""
        self.is_ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial_escape = ""

    def feed(self, data: bytes) -> list[str]:
        """Process typed bytes and return the lines that they complete."""
        finished = []
        for char in self._decoder.decode(data):
            if self._partial_escape or char == "\x1b":
                self._partial_escape += char
                if not _PARTIAL_ESCAPE.fullmatch(self._partial_escape):
                    self._partial_escape = ""
                continue
            match char:
                case "\n" | "\r":
                    finished.append(self.line)
                    self.line = ""
                case "\x7f" | "\b":
                    self.line = self.line[:-1]
                case "\x15":
                    self.line = ""
                case "\x17":
                    self.line = _LAST_WORD.sub("", self.line)
                case "\x04":
                    self.is_ended = self.is_ended or not self.line
                case "\t":
                    self.line += " "
                case _ if char.isprintable():
                    self.line += char
        return finished

    def visible_text(self, columns: int) -> str:
        """The end of the line, as far as it fits."""
        from rich.cells import cell_len

        text = self.line
        while text and cell_len(text) > columns - len(PROMPT) - 1:
            text = text[1:]
        return PROMPT + text


class PromptLine:
    def __init__(self, write: Callable[[str], None]) -> None:
        self.editor = LineEditor()
        self._write = write

    def print_above(self, text: str) -> None:
        self._write(f"{CLEAR}{text}\n{self._visible_line()}")

    def redraw(self) -> None:
        self._write(f"{CLEAR}{self._visible_line()}")

    async def read_lines(self, send: Callable[[bytes], Awaitable[bool]], *, echo: bool) -> int:
        """Pass typed lines to `send` until Ctrl-D. Returns how many it accepted."""
        accepted = 0
        async for data in input_chunks():
            finished = self.editor.feed(data)
            if echo:
                for line in finished:
                    self._write(f"{CLEAR}{PROMPT}{line}\n")
            self.redraw()
            for line in filter(None, finished):
                accepted += await send(line.encode())
            if self.editor.is_ended:
                break
        return accepted

    def close(self) -> None:
        self._write(CLEAR)

    def _visible_line(self) -> str:
        return self.editor.visible_text(shutil.get_terminal_size().columns)


def at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class Terminal:
    """Messages and notices of a session, line by line."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._is_colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.show: Callable[[str], None] = self._show_plain

    def _show_plain(self, text: str) -> None:
        self._out.put(text + "\n")

    def notice(self, text: str) -> None:
        """Show a line that is not a message."""
        self.show(f"\x1b[2m{text}\x1b[0m" if self._is_colored else f"* {text}")

    @contextmanager
    def prompt(self) -> Iterator[PromptLine]:
        """Show lines, and warnings of the library, above the line being typed."""
        prompt = PromptLine(self._out.put)
        loop = asyncio.get_running_loop()
        with _raw_mode() as reenter_raw_mode, route_warnings_to(lambda text: self.notice(f"! {text}")):
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


@contextmanager
def _raw_mode() -> Iterator[Callable[[], None]]:
    """Read single characters without echo; Ctrl-C still sends SIGINT. Yields a function that sets the mode again, for
    when the process was suspended and continues."""
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    tty.setcbreak(file, termios.TCSADRAIN)
    try:
        yield lambda: tty.setcbreak(file, termios.TCSADRAIN)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
