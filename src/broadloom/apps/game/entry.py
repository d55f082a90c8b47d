"""`Entry`: one line of a game's history, and its JSON."""

import contextlib
import json
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from broadloom.apps.nesting import NESTING_MAX, is_too_deep

ENTRY_BYTES_MAX = 16 << 10
TEXT_MAX = 200
NUMBER_MAX = (1 << 64) - 1
TOO_DEEP = f"the values of an action are nested too deeply: at most {NESTING_MAX} levels are possible"
PLAIN_BYTES_MAX = ENTRY_BYTES_MAX // 4
"""Values of this size stay below the limit when they are encoded again: no number becomes four times as long."""
TIME_MAX = NUMBER_MAX >> 2
"""Latest time in a state that another member sends, so that time cannot be used up."""


class Kind(StrEnum):
    ACT = "act"
    """A role acts; `name` is the action."""
    SIT = "sit"
    """A player takes a role, or comes back to it; `name` is the player."""
    LEAVE = "leave"
    """A player gives up its role, or a member frees the role of a player that is gone; `values` names the player."""
    STAND_IN = "stand_in"
    """A member's automaton acts for a role from now on, instead of the member in `values`."""
    START = "start"
    """The first game, or a rematch."""


class Key(NamedTuple):
    """Where an entry is in the history."""

    time: int
    """The index in the agreed order; in free order, logical (Lamport) time."""
    author: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    author: int
    number: int
    """Counts the entries of its author."""
    kind: Kind
    role: str = ""
    name: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    time: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "author", int(self.author))  # a `PeerId` is written in another way

    @property
    def key(self) -> tuple[int, int, int]:
        """The fields of its `Key`, as a plain tuple: Python's garbage collector leaves those alone."""
        return self.time, self.author, self.number

    def fields(self) -> list[Any]:
        return [self.time, self.number, self.kind, self.role, self.name, self.values]

    def encode(self) -> bytes:
        """Raises `ValueError` if it is too large, or has values that are not JSON."""
        data = to_json(self.fields())
        if len(data) > ENTRY_BYTES_MAX:
            raise ValueError(f"an action of {len(data):,} bytes: at most {ENTRY_BYTES_MAX:,} are possible")
        return data


def to_json(fields: Any) -> bytes:
    """Raises `ValueError`, also for text that is not valid Unicode and for numbers that are not finite."""
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("the text of an action must be valid Unicode: remove lone surrogates") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except (TypeError, ValueError) as problem:
        raise ValueError(f"the values of an action, and of a state, must be JSON: {problem}") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the values of an action must be JSON: {text} is not")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def from_json(data: bytes) -> Any:
    """What another member sent. Raises `ValueError`, also for numbers that are not finite."""
    try:
        return _DECODER.decode(data.decode())
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def decode_message(data: bytes) -> dict[str, Any]:
    """Empty if it is malformed."""
    with contextlib.suppress(ValueError):
        if isinstance(message := from_json(data), dict):
            return message
    return {}


def is_plain(data: bytes) -> bool:
    """Whether `to_json` can certainly encode what `from_json` has decoded, within the limits. Trying it would take
    longer: only escapes can hide text that is not valid Unicode, and only many brackets can be too deep."""
    is_small = len(data) <= PLAIN_BYTES_MAX
    return is_small and b"\\u" not in data and data.count(b"[") + data.count(b"{") <= NESTING_MAX


def is_text(text: object) -> bool:
    """Whether it can be the name of a player, a role or an action."""
    if not isinstance(text, str) or len(text) > TEXT_MAX:
        return False
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= NUMBER_MAX


def key_of(fields: Any) -> Key:
    """A key that another member sent. Raises `ValueError`."""
    if not isinstance(fields, list) or len(fields) != len(Key._fields) or not all(map(is_count, fields)):
        raise ValueError("not the key of an entry of a game: three whole numbers")
    if fields[0] > TIME_MAX:
        raise ValueError(f"the time in a state is at most {TIME_MAX:,}")
    return Key(*fields)


def counts_of(pairs: Any) -> dict[int, int]:
    """Numbers of entries by author, that another member sent. Raises `ValueError`."""
    if not isinstance(pairs, list) or not all(isinstance(each, list) and all(map(is_count, each)) for each in pairs):
        raise ValueError("not numbers of entries by author")
    return dict(pairs)


def checked_name(name: str) -> str:
    """The name of a player, if it can be one. Raises `ValueError`."""
    if not is_text(name):
        raise ValueError(f"the name of a player is valid Unicode of at most {TEXT_MAX} characters")
    return name


def entry_of(author: int, fields: Any, time: int | None = None, *, is_checked: bool = False) -> Entry:
    """`is_checked`: they come from data that is plain. Raises `ValueError`."""
    try:
        own_time, number, kind, role, name, values = fields
        numbers = all(is_count(each) for each in (int(author), number, own_time))
        if not is_text(role) or not is_text(name) or not numbers or not isinstance(values, dict):
            raise ValueError(f"not an entry of a game: names are text of at most {TEXT_MAX} characters, values named")
        if not is_checked and is_too_deep(values):
            raise ValueError(TOO_DEEP)
        if not is_checked and len(to_json(values)) > ENTRY_BYTES_MAX:
            raise ValueError(f"an action has at most {ENTRY_BYTES_MAX:,} bytes")
        return Entry(author, number, Kind(kind), role, name, values, own_time if time is None else time)
    except (TypeError, OverflowError) as problem:
        raise ValueError(f"not an entry of a game: {problem}") from None


def decode_entry(author: int, data: bytes, time: int | None = None) -> Entry:
    """Raises `ValueError`."""
    if len(data) > ENTRY_BYTES_MAX:
        raise ValueError(f"an action has at most {ENTRY_BYTES_MAX:,} bytes")
    return entry_of(author, from_json(data), time, is_checked=is_plain(data))
