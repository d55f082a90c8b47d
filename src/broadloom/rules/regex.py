"""Regular expressions in linear time, whatever the pattern and the text.

Python's `re` backtracks, so a pattern can take exponential time on a hostile text. Here a pattern becomes a
nondeterministic automaton (Thompson's construction), which is run as a deterministic one whose states, sets of the
former as bits of a number, are built when they are first needed. Each character of a text costs one step.

Syntax: literals, `.` (any character but a newline), classes `[a-z]` and `[^a-z]`, `\\d \\w \\s \\D \\W \\S` (ASCII),
`\\n \\r \\t \\xHH`, `\\` before a symbol, groups `(…)`, `|`, `*`, `+`, `?`, `{m}`, `{m,}`, `{m,n}`, `^` and `$` for the
beginning and the end of the text. No back references and no lookaround: they cannot be matched in linear time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

STATES_MAX = 2_000
"""States of one pattern, with its repetitions written out."""
CACHED_MAX = 20_000
"""Steps that are remembered; all are forgotten when there are more."""
CHUNK_CHARACTERS = 4096
"""A search looks after this many characters whether it has found something."""
REPEAT_MAX = 250
DEPTH_MAX = 50

_DIGITS = ((48, 57),)
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE = ((9, 13), (32, 32))
_NOT_NEWLINE = ((0, 9), (11, 0x10FFFF))
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}

Ranges = tuple[tuple[int, int], ...]
CHARACTERS, SPLIT, BEGIN, END, MATCH = range(5)


class RegexError(ValueError):
    """A pattern is malformed, or not supported. `position` is its place in the pattern."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text)
        self.position = position


@dataclass(slots=True)
class _State:
    """A state of the nondeterministic automaton."""

    kind: int
    ranges: Ranges = ()
    out: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Fragment:
    """A part of the automaton: where it starts, and the states whose exits are open."""

    start: int
    open: list[int]


class _Parser:
    """Recursive descent. A repetition parses its operand as often as it occurs, so no state is ever copied."""

    def __init__(self, source: str, ignores_case: bool) -> None:
        self.source = source
        self.at = 0
        self.depth = 0
        self.ignores_case = ignores_case
        self.states: list[_State] = []

    def parse(self) -> int:
        """The first state."""
        fragment = self._alternation()
        if self.at < len(self.source):
            raise self._error("`)` without `(`")
        end = self._state(MATCH)
        self._connect(fragment, end)
        return fragment.start

    def _error(self, text: str, at: int | None = None) -> RegexError:
        return RegexError(text, self.at if at is None else at)

    def _state(self, kind: int, ranges: Ranges = ()) -> int:
        if len(self.states) >= STATES_MAX:
            raise self._error(f"too large: more than {STATES_MAX:,} states")
        self.states.append(_State(kind, ranges))
        return len(self.states) - 1

    def _connect(self, fragment: _Fragment, target: int) -> None:
        for state in fragment.open:
            self.states[state].out.append(target)

    def _peek(self) -> str:
        return self.source[self.at] if self.at < len(self.source) else ""

    def _alternation(self) -> _Fragment:
        branches = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        split = self._state(SPLIT)
        self.states[split].out = [branch.start for branch in branches]
        return _Fragment(split, [state for branch in branches for state in branch.open])

    def _sequence(self) -> _Fragment:
        start = self._state(SPLIT)
        whole = _Fragment(start, [start])
        while (character := self._peek()) and character not in "|)":
            part = self._repetition()
            self._connect(whole, part.start)
            whole = _Fragment(start, part.open)
        return whole

    def _repetition(self) -> _Fragment:
        begin = self.at
        part = self._atom()
        low, high = self._bounds()
        if (low, high) == (1, 1):
            return part
        end = self.at
        if self._peek() and self._peek() in "*+?":
            raise self._error("a repetition cannot be repeated, and there are no lazy ones")
        copies = [part]
        for _ in range(max(low, high or 0, 1) - 1):
            self.at = begin
            copies.append(self._atom())
        self.at = end
        return self._repeated(copies, low, high)

    def _repeated(self, copies: list[_Fragment], low: int, high: int | None) -> _Fragment:
        start = self._state(SPLIT)
        whole = _Fragment(start, [start])
        exits: list[int] = []
        for number, copy in enumerate(copies):
            if number >= low:
                choice = self._state(SPLIT)
                self._connect(whole, choice)
                exits.append(choice)
                whole = _Fragment(start, [choice])
            if number >= low and high == 0:
                break
            self._connect(whole, copy.start)
            whole = _Fragment(start, copy.open)
        if high is None:
            loop = self._state(SPLIT)
            self._connect(whole, loop)
            self.states[loop].out.append(copies[-1].start)
            whole = _Fragment(start, [loop])
        return _Fragment(start, [*whole.open, *exits])

    def _bounds(self) -> tuple[int, int | None]:
        """How often the atom before it may occur."""
        character = self._peek()
        if character and character in "*+?":
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        if character != "{":
            return 1, 1
        begin, end = self.at, self.source.find("}", self.at)
        text = self.source[begin + 1 : end] if end > 0 else ""
        low, comma, high = text.partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            raise self._error(r"`{` begins a repetition as in {2,5}; write \{ for the character")
        bounds = int(low[:6]), (int(high[:6]) if high else None) if comma else int(low[:6])
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise self._error(f"{{{text}}}: the second number is smaller than the first")
        if max(bounds[0], bounds[1] or 0) > REPEAT_MAX:
            raise self._error(f"{{{text}}}: at most {REPEAT_MAX} repetitions")
        self.at = end + 1
        return bounds

    def _atom(self) -> _Fragment:
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            return self._character(self._class())
        if character in "*+?{":
            raise self._error(f"nothing to repeat before `{character}`")
        self.at += 1
        if character == ".":
            return self._character(_NOT_NEWLINE)
        if character in "^$":
            state = self._state(BEGIN if character == "^" else END)
            return _Fragment(state, [state])
        if character == "\\":
            return self._character(self._escape())
        return self._character(((ord(character), ord(character)),))

    def _group(self) -> _Fragment:
        begin = self.at
        self.at += 1
        if self._peek() == "?":
            if self.source[self.at : self.at + 2] != "?:":
                raise self._error("lookaround, named groups and flags are not supported")
            self.at += 2
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._error(f"more than {DEPTH_MAX} groups in each other")
        inner = self._alternation()
        self.depth -= 1
        if self._peek() != ")":
            raise self._error("`(` without `)`", begin)
        self.at += 1
        return inner

    def _character(self, ranges: Ranges) -> _Fragment:
        state = self._state(CHARACTERS, _with_both_cases(ranges) if self.ignores_case else ranges)
        return _Fragment(state, [state])

    def _escape(self) -> Ranges:
        """After a backslash."""
        character = self._peek()
        if not character:
            raise self._error("the pattern ends with a backslash")
        self.at += 1
        named = {"d": _DIGITS, "w": _WORD, "s": _SPACE}.get(character.lower())
        if named is not None:
            return named if character.islower() else _inverted(named)
        if character == "x":
            digits = self.source[self.at : self.at + 2]
            if len(digits) < 2 or not all(each in "0123456789abcdefABCDEF" for each in digits):
                raise self._error(r"\x needs two hexadecimal digits")
            self.at += 2
            return ((int(digits, 16), int(digits, 16)),)
        if character.isalnum() and character not in _ESCAPES:
            raise self._error(f"\\{character} is not supported")
        code = ord(_ESCAPES.get(character, character))
        return ((code, code),)

    def _class(self) -> Ranges:
        begin = self.at
        self.at += 1
        is_inverted = self._peek() == "^"
        self.at += is_inverted
        ranges: list[tuple[int, int]] = []
        is_first = True
        while (character := self._peek()) != "]" or is_first:
            if not character:
                raise self._error("`[` without `]`", begin)
            is_first = False
            low = self._class_item()
            if self._peek() == "-" and self.source[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._class_item()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] < low[0][0]:
                    raise self._error("a range goes from a character to a later one, as in a-z")
                low = ((low[0][0], high[0][1]),)
            ranges += low
        self.at += 1
        if not is_inverted:
            return tuple(ranges)
        return _inverted(_with_both_cases(tuple(ranges)) if self.ignores_case else tuple(ranges))

    def _class_item(self) -> Ranges:
        character = self._peek()
        self.at += 1
        return self._escape() if character == "\\" else ((ord(character), ord(character)),)


def _inverted(ranges: Ranges) -> Ranges:
    result, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            result.append((at, low - 1))
        at = max(at, high + 1)
    return (*result, (at, 0x10FFFF)) if at <= 0x10FFFF else tuple(result)


def _with_both_cases(ranges: Ranges) -> Ranges:
    """ASCII letters only, as everywhere in these patterns."""
    extra = []
    for low, high in ranges:
        for first, shift in ((65, 32), (97, -32)):
            begin, end = max(low, first), min(high, first + 25)
            if begin <= end:
                extra.append((begin + shift, end + shift))
    return (*ranges, *extra)


class _Step(dict[str, "_Step"]):
    """A deterministic state: the next one for each character that was met here."""

    __slots__ = ("found", "make", "mask")

    def __init__(self, mask: int, found: int, make: "Callable[[_Step, str], _Step]") -> None:
        self.mask = mask
        """States in which the nondeterministic automaton may be."""
        self.found = found
        """Backward: of these, the states that the character was read in."""
        self.make = make

    def __missing__(self, character: str) -> "_Step":
        return self.make(self, character)


class CompiledRegex:
    """A pattern that can be searched for."""

    def __init__(self, source: str, ignores_case: bool = False) -> None:
        """Raises `RegexError`."""
        parser = _Parser(source, ignores_case)
        self._start = parser.parse()
        self._states = parser.states
        self._match_bit = 1 << next(at for at, each in enumerate(self._states) if each.kind == MATCH)
        self._readers = [
            (1 << at, each) for at, each in enumerate(self._states) if each.kind == CHARACTERS and each.out
        ]
        self._closures: dict[tuple[int, bool, bool], int] = {}
        self._steps: dict[tuple[str, int, int], _Step] = {}
        self._remembered = 0
        self._accepted = _Step(self._match_bit, 0, lambda step, _character: step)

    def search(self, text: str) -> bool:
        """Whether the pattern occurs in the text."""
        step = self._searching(self._closure(self._start, begin=True, end=not text))
        for at in range(0, len(text), CHUNK_CHARACTERS):
            for character in text[at : at + CHUNK_CHARACTERS]:
                step = step[character]
            if step is self._accepted:
                return True
        return step is self._accepted or bool(self._at_end(step.mask) & self._match_bit)

    def covered(self, text: str) -> list[tuple[int, int]]:
        """The characters that belong to any occurrence, as ranges: where they begin and end.

        All occurrences together can be found in linear time, one after the other they cannot. A character belongs to
        one if a state that is reached by what is before it leads, over this character, to a state from which what
        follows leads to the end of the pattern.
        """
        step = self._backward(self._into(self._match_bit, at_end=True), 0)
        leading = [0] * len(text)
        for at in range(len(text) - 1, -1, -1):
            step = step[text[at]]
            leading[at] = step.found
        ranges: list[tuple[int, int]] = []
        forward = self._forward(self._closure(self._start, begin=True, end=False))
        begin = -1
        for at, character in enumerate(text):
            if forward.mask & leading[at]:
                begin = at if begin < 0 else begin
            elif begin >= 0:
                ranges.append((begin, at))
                begin = -1
            forward = forward[character]
        return [*ranges, (begin, len(text))] if begin >= 0 else ranges

    # -- steps

    def _remember(self, kind: str, mask: int, found: int, make: Callable[[_Step, str], _Step]) -> _Step:
        step = self._steps.get((kind, mask, found))
        if step is None:
            step = self._steps[kind, mask, found] = _Step(mask, found, make)
        return step

    def _kept(self, step: _Step, character: str, following: _Step) -> _Step:
        self._remembered += 1
        if self._remembered > CACHED_MAX:
            for each in self._steps.values():
                each.clear()
            self._steps.clear()
            self._remembered = 0
        step[character] = following
        return following

    def _searching(self, mask: int) -> _Step:
        if mask & self._match_bit:
            return self._accepted
        return self._remember(
            "search", mask, 0, lambda step, each: self._kept(step, each, self._searching(self._after(step.mask, each)))
        )

    def _forward(self, mask: int) -> _Step:
        return self._remember(
            "forward", mask, 0, lambda step, each: self._kept(step, each, self._forward(self._after(step.mask, each)))
        )

    def _backward(self, mask: int, found: int) -> _Step:
        def make(step: _Step, character: str) -> _Step:
            code, read = ord(character), 0
            for bit, state in self._readers:
                if step.mask >> state.out[0] & 1 and any(low <= code <= high for low, high in state.ranges):
                    read |= bit
            return self._kept(step, character, self._backward(self._into(read | self._match_bit, at_end=False), read))

        return self._remember("backward", mask, found, make)

    def _after(self, mask: int, character: str) -> int:
        """The states after reading a character; an occurrence may also begin there."""
        code = ord(character)
        following = self._closure(self._start, begin=False, end=False)
        for bit, state in self._readers:
            if mask & bit and any(low <= code <= high for low, high in state.ranges):
                following |= self._closure(state.out[0], begin=False, end=False)
        return following

    # -- states that are reached without reading

    def _closure(self, start: int, *, begin: bool, end: bool) -> int:
        """All states that can be reached from this one at the beginning, at the end, or in the middle of a text."""
        known = self._closures.get((start, begin, end))
        if known is not None:
            return known
        mask, pending = 0, [start]
        while pending:
            at = pending.pop()
            if not mask >> at & 1:
                mask |= 1 << at
                if self._passes(self._states[at].kind, begin=begin, end=end):
                    pending += self._states[at].out
        self._closures[start, begin, end] = mask
        return mask

    def _into(self, mask: int, *, at_end: bool) -> int:
        """All states from which one of these can be reached; not at the beginning of the text."""
        has_grown = True
        while has_grown:
            has_grown = False
            for at in range(len(self._states) - 1, -1, -1):
                state = self._states[at]
                if not mask >> at & 1 and self._passes(state.kind, begin=False, end=at_end):
                    if any(mask >> each & 1 for each in state.out):
                        mask |= 1 << at
                        has_grown = True
        return mask

    def _at_end(self, mask: int) -> int:
        for at, state in enumerate(self._states):
            if state.kind == END and mask >> at & 1:
                mask |= self._closure(at, begin=False, end=True)
        return mask

    @staticmethod
    def _passes(kind: int, *, begin: bool, end: bool) -> bool:
        return kind == SPLIT or (kind == BEGIN and begin) or (kind == END and end)
