"""The characters of a rule file: words, strings, numbers, regular expressions, comments, and where they are."""

import re
from dataclasses import dataclass

from broadloom.errors import RulesError
from broadloom.rules.model import Number, Regex
from broadloom.rules.regex import CompiledRegex, RegexError

SOURCE_BYTES_MAX = 1 << 20
MISTAKES_MAX = 20

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
"""Names in conditions; with dots for headers and JSON."""
WORD = re.compile(r'[^\s{}"#;<>]+')
"""Words in actions: names of programs and their arguments."""
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([A-Za-z]*)")
_BLANK = re.compile(r"\s+")
_BLANK_IN_LINE = re.compile(r"[^\S\n]+")
_COMMENT = re.compile(r"#[^\n]*")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
    "s": 1, "min": 60, "h": 3600, "d": 86400,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something in a rule file that cannot be understood."""

    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.text}"


class SyntaxMistakeError(Exception):
    """Ends the rule that is being read. The parser collects it."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(text)
        self.position = position


class RulesSyntaxError(RulesError):
    """A rule file has mistakes."""

    def __init__(self, mistakes: tuple[Mistake, ...], name: str = "") -> None:
        super().__init__("\n".join(f"{name}: {each}" if name else str(each) for each in mistakes))
        self.mistakes = mistakes


class Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.comments: list[str] = []
        """Comments that were skipped and have no place yet."""

    def mistake(self, text: str, position: int | None = None) -> SyntaxMistakeError:
        return SyntaxMistakeError(self.at if position is None else position, text)

    def place(self, position: int) -> tuple[int, int]:
        """Line and column, from 1."""
        before = self.text.rfind("\n", 0, position)
        return self.text.count("\n", 0, position) + 1, position - before

    def skip(self) -> None:
        """Go to the next character that means something."""
        while self._take(_BLANK) or self._take_comment():
            pass

    def skip_in_line(self) -> None:
        self._take(_BLANK_IN_LINE)

    def _take_comment(self) -> bool:
        comment = self._take(_COMMENT)
        if comment is not None:
            self.comments.append(comment[1:].strip())
        return comment is not None

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.text)

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def looking_at(self, keyword: str) -> bool:
        found = NAME.match(self.text, self.at)
        return found is not None and found[0].upper() == keyword

    def take_keyword(self, keyword: str) -> bool:
        self.skip()
        if not self.looking_at(keyword):
            return False
        self.at += len(keyword)
        return True

    def take(self, symbol: str) -> bool:
        self.skip()
        if not self.text.startswith(symbol, self.at):
            return False
        self.at += len(symbol)
        return True

    def expect(self, symbol: str, why: str) -> None:
        if not self.take(symbol):
            raise self.mistake(f"expected `{symbol}` {why}, found {self.shown()}")

    def shown(self) -> str:
        """What is here, for a message."""
        if self.is_at_end:
            return "the end of the file"
        found = NAME.match(self.text, self.at)
        return f"`{(found[0] if found else self.peek())[:40]}`"

    def name(self) -> str | None:
        return self._take(NAME)

    def word(self) -> str | None:
        return self._take(WORD)

    def string(self) -> str | None:
        """A string in quotes."""
        if self.peek() != '"':
            return None
        begin = self.at
        self.at += 1
        parts: list[str] = []
        while (character := self.peek()) != '"':
            if not character or character == "\n":
                raise self.mistake('a string is not closed by `"`', begin)
            self.at += 1
            if character == "\\":
                parts.append(self._escaped())
            else:
                parts.append(character)
        self.at += 1
        return "".join(parts)

    def _escaped(self) -> str:
        character = self.peek()
        self.at += 1
        if character == "x":
            digits = self.text[self.at : self.at + 2]
            if re.fullmatch("[0-9a-fA-F]{2}", digits):
                self.at += 2
                return chr(int(digits, 16))
        elif character in _ESCAPES:
            return _ESCAPES[character]
        raise self.mistake(r"after a backslash: `\\`, `\"`, `\n`, `\r`, `\t` or `\xHH`", self.at - 2)

    def number(self) -> Number | None:
        """A number, with a unit of size or time."""
        begin, found = self.at, _NUMBER.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        factor = _UNITS.get(found[2].lower())
        if factor is None:
            raise self.mistake(
                f"`{found[2]}` is not a unit; units are B, KB, MB, GB, KiB, MiB, GiB, s, min, h and d", begin
            )
        value = float(found[1]) if "." in found[1] else int(found[1])
        value *= factor
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def regex(self) -> Regex | None:
        """A regular expression between slashes, with `i` if case does not matter."""
        if self.peek() != "/":
            return None
        begin = self.at
        self.at += 1
        while (character := self.peek()) != "/":
            if not character or character == "\n":
                raise self.mistake("a regular expression is not closed by `/`", begin)
            self.at += 2 if character == "\\" else 1
        source = self.text[begin + 1 : self.at]
        self.at += 1
        ignores_case = self.take_flag("i")
        try:
            CompiledRegex(Regex(source).source, ignores_case)
        except RegexError as problem:
            raise self.mistake(f"regular expression: {problem}", begin + 1 + problem.position) from None
        return Regex(source, ignores_case)

    def take_flag(self, flag: str) -> bool:
        if self.peek() != flag:
            return False
        self.at += 1
        return True
