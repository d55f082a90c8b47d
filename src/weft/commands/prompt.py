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

_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?")
"""The beginning of what arrow keys and their like send; one more sign that does not fit in is its end."""
_LAST_WORD = re.compile(r"\S*\s*$")


class Typing:
    """The line so far. Knows no terminal."""

    def __init__(self) -> None:
        self.line = ""
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        """Of an arrow key or the like, so far."""

    def feed(self, data: bytes) -> list[str]:
        """What was typed; returns the lines that were finished by it."""
        finished = []
        for sign in self._decoder.decode(data):
            if self._held or sign == "\x1b":
                self._held += sign
                if not _UNFINISHED.fullmatch(self._held):
                    self._held = ""
                continue
            match sign:
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
                    self.ended = self.ended or not self.line
                case "\t":
                    self.line += " "
                case _ if sign.isprintable():
                    self.line += sign
        return finished

    def shown(self, columns: int) -> str:
        """Of a line that does not fit, its end."""
        from rich.cells import cell_len

        shown = self.line
        while shown and cell_len(shown) > columns - len(PROMPT) - 1:
            shown = shown[1:]
        return PROMPT + shown


class Prompt:
    """On a terminal: lines that come in go above the one that is typed."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.typing = Typing()
        self._write = write

    def tell(self, text: str) -> None:
        self._write(f"{CLEAR}{text}\n{self._shown()}")

    def redraw(self) -> None:
        self._write(f"{CLEAR}{self._shown()}")

    def feed(self, data: bytes) -> list[str]:
        finished = self.typing.feed(data)
        for line in finished:
            self._write(f"{CLEAR}{PROMPT}{line}\n")
        self.redraw()
        return finished

    def close(self) -> None:
        self._write(CLEAR)

    def _shown(self) -> str:
        return self.typing.shown(shutil.get_terminal_size().columns)


@contextmanager
def sign_by_sign() -> Iterator[Callable[[], None]]:
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
