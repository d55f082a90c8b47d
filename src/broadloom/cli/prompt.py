"""A line being typed while other lines come in: shown below them, never torn apart.

As little as will do: letters, backspace, Ctrl-U (all), Ctrl-W (a word), Ctrl-D (the end). The terminal no longer
echoes what is typed, because it does not know where; so it has to be put back as it was, whatever happens.
"""

import codecs
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PROMPT = "> "
CLEAR = "\r\x1b[K"

_PARTIAL_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?")
"""The beginning of what arrow keys and their like send; one more sign that does not fit in is its end."""
_LAST_WORD = re.compile(r"\S*\s*$")


class LineEditor:
    """The line so far. Knows no terminal."""

    def __init__(self) -> None:
        self.line = ""
        self.is_ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial_escape = ""
        """Of an arrow key or the like, so far."""

    def feed(self, data: bytes) -> list[str]:
        """What was typed; returns the lines that were finished by it."""
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
        """Of a line that does not fit, its end."""
        from rich.cells import cell_len

        text = self.line
        while text and cell_len(text) > columns - len(PROMPT) - 1:
            text = text[1:]
        return PROMPT + text


class PromptLine:
    """On a terminal: lines that come in go above the one that is typed."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.editor = LineEditor()
        self._write = write

    def print_above(self, text: str) -> None:
        self._write(f"{CLEAR}{text}\n{self._visible_line()}")

    def redraw(self) -> None:
        self._write(f"{CLEAR}{self._visible_line()}")

    def feed(self, data: bytes) -> list[str]:
        finished = self.editor.feed(data)
        for line in finished:
            self._write(f"{CLEAR}{PROMPT}{line}\n")
        self.redraw()
        return finished

    def close(self) -> None:
        self._write(CLEAR)

    def _visible_line(self) -> str:
        return self.editor.visible_text(shutil.get_terminal_size().columns)


@contextmanager
def raw_mode() -> Iterator[Callable[[], None]]:
    """The terminal gives each sign as it is typed, and echoes none; Ctrl-C stays what it is. Yields a function that
    does it again, for when the program was stopped and goes on."""
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    tty.setcbreak(file, termios.TCSADRAIN)
    try:
        yield lambda: tty.setcbreak(file, termios.TCSADRAIN)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
