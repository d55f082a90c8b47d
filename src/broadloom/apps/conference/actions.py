"""Actions: what participants do in a meeting, as entries of its order.

An action is bytes that other members wrote, so `decode` returns None for everything that is not one, and all members
ignore that alike. Each has a number, counted by its author: author and number are the id of the item that it creates.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, get_type_hints

TEXT_BYTES_MAX = 2000
"""Of a text, such as an annotation."""
LIST_MAX = 20
"""Options of a poll, items of the agenda."""
ACTION_BYTES_MAX = 16_384
NUMBER_MAX = 1e300
"""Of a value of a result; larger integers cannot be shown by every program."""

COORDINATE_MAX = 1e12

Point = tuple[float, float, float]
"""In the coordinates of the model."""


Value = str | float | bool | None
"""One value of a result."""


class Viewpoint(NamedTuple):
    """Where a viewer is, and what it looks at."""

    eye: Point
    target: Point = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Arrive:
    """The author takes part, under this name. If it was there before, it does not lead any longer."""

    name: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The author takes part no longer, and does not lead any longer."""


@dataclass(frozen=True, slots=True)
class RaiseHand:
    is_up: bool


@dataclass(frozen=True, slots=True)
class RequestFloor:
    """The author leads if the floor is free, else it is the last in the queue."""


@dataclass(frozen=True, slots=True)
class ReleaseFloor:
    """The author does not lead any longer, or leaves the queue."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The leader makes this participant the leader."""

    to: int


@dataclass(frozen=True, slots=True)
class TakeBack:
    """The participant that handed the floor over wants it back; the leader's program hands it over."""


@dataclass(frozen=True, slots=True)
class KeepFloor:
    """The leader is there. This makes reports that it is gone obsolete, if they were made without knowing this."""


@dataclass(frozen=True, slots=True)
class ReportGone:
    """The leader is not in the roster of the sequencer. Valid if `number` is the leader's last action."""

    holder: int
    number: int


@dataclass(frozen=True, slots=True)
class SetView:
    """The viewpoint at which the leader has come to rest."""

    eye: Point
    target: Point


@dataclass(frozen=True, slots=True)
class LoadPart:
    part: str


@dataclass(frozen=True, slots=True)
class UnloadPart:
    part: str


@dataclass(frozen=True, slots=True)
class Measure:
    """The distance between two points, in the unit of the model."""

    part: str
    start: Point
    end: Point


@dataclass(frozen=True, slots=True)
class Annotate:
    """A note on a part, at a place of it, or a reply to another note."""

    part: str
    text: str
    at: Point | None = None
    reply_to: str | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """A result about a part, of a kind that the programs have agreed on."""

    kind: str
    part: str
    values: dict[str, Value]


@dataclass(frozen=True, slots=True)
class OpenPoll:
    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vote:
    """The last vote of each participant counts."""

    poll: str
    option: int


@dataclass(frozen=True, slots=True)
class ClosePoll:
    """By its author or by the leader."""

    poll: str


@dataclass(frozen=True, slots=True)
class SetAgenda:
    items: tuple[str, ...]


GIVE_AWAY = Leave, ReleaseFloor, HandOver
"""Actions after which their author does not lead."""

Action = (
    Arrive | Leave | RaiseHand | RequestFloor | ReleaseFloor | HandOver | TakeBack | KeepFloor | ReportGone | SetView
    | LoadPart | UnloadPart | Measure | Annotate | Publish | OpenPoll | Vote | ClosePoll | SetAgenda
)  # fmt: skip

NAMES: dict[str, type[Action]] = {
    "arrive": Arrive, "leave": Leave, "hand": RaiseHand, "request": RequestFloor, "release": ReleaseFloor,
    "hand-over": HandOver, "take-back": TakeBack, "keep": KeepFloor, "gone": ReportGone, "view": SetView,
    "load": LoadPart, "unload": UnloadPart, "measure": Measure, "annotate": Annotate, "publish": Publish,
    "poll": OpenPoll, "vote": Vote, "close": ClosePoll, "agenda": SetAgenda,
}  # fmt: skip
_NAME_OF = {kind: name for name, kind in NAMES.items()}


def name_of_action(action: Action) -> str:
    return _NAME_OF[type(action)]


def item_id(author: int, number: int) -> str:
    """The id of what this action of an author creates."""
    return f"{author:x}-{number}"


class SentAction(NamedTuple):
    number: int
    """Counts the actions of the author, from 1."""
    at_ms: int
    """When it was done, by the clock of the author (Unix time)."""
    action: Action


def encode(sent: SentAction) -> bytes:
    """Raises `ValueError` if the action breaks a rule of the format."""
    data = json.dumps([sent.number, sent.at_ms, name_of_action(sent.action), asdict(sent.action)], ensure_ascii=False)
    encoded = data.encode()
    if decode(encoded) is None:
        raise ValueError(
            f"not a valid action: {sent.action!r}. Texts have 1 to {TEXT_BYTES_MAX:,} bytes, lists at most {LIST_MAX} "
            "items, points three finite numbers, and results texts, finite numbers, booleans and None"
        )
    return encoded


def decode(data: bytes) -> SentAction | None:
    """None if this is not an action."""
    if len(data) > ACTION_BYTES_MAX:
        return None
    try:
        number, at_ms, name, values = json.loads(data)
        kind = NAMES[name]
        hints = _HINTS[kind]
        if set(values) != set(hints):
            return None
        action = kind(**{name: _CHECKS[hint](values[name]) for name, hint in hints.items()})
        return SentAction(_number(number), _number(at_ms), action)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(value)
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value.encode()) > TEXT_BYTES_MAX:
        raise ValueError(value)
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise ValueError(value)
    return tuple(map(_text, value))


def _values(value: Any) -> dict[str, Value]:
    if not isinstance(value, dict) or not 0 < len(value) <= LIST_MAX:
        raise ValueError(value)
    return {_text(name): _value(each) for name, each in value.items()}


def _value(value: Any) -> Value:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or not abs(value) <= NUMBER_MAX:  # NaN is not either
        raise ValueError(value)
    return value


def point(value: Any) -> Point:
    """Raises `ValueError` if these are not three finite numbers."""
    try:
        x, y, z = (float(each) for each in value)
        if all(abs(each) < COORDINATE_MAX for each in (x, y, z)):  # NaN is not
            return x, y, z
    except (OverflowError, TypeError, ValueError):
        pass
    raise ValueError(f"a point has three numbers between {-COORDINATE_MAX:g} and {COORDINATE_MAX:g}, not {value!r}")


_CHECKS: dict[Any, Callable[[Any], Any]] = {
    int: _number,
    bool: _flag,
    str: _text,
    str | None: lambda value: None if value is None else _text(value),
    tuple[str, ...]: _texts,
    dict[str, Value]: _values,
    Point: point,
    Point | None: lambda value: None if value is None else point(value),
}
_HINTS = {kind: {each.name: get_type_hints(kind)[each.name] for each in fields(kind)} for kind in NAMES.values()}
