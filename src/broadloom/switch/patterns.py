"""The arguments of registrations and messages, checked and turned into patterns and scopes."""

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TypeVar

from broadloom.switch import settings
from broadloom.switch.codec import RANK_MAX
from broadloom.switch.model import MessageClass, MessageState, Pattern, Scope

NAMES_CACHED = 1024

E = TypeVar("E", bound=IntEnum)


def chosen(label: str, kind: type[E], value: E | str) -> E:
    """An enum value, or its name in lower case."""
    if isinstance(value, kind):
        return value
    allowed = [each.name.lower() for each in kind if each.value]
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{label}={value!r}: must be one of {', '.join(allowed)}")
    return kind[value.upper()]


def name(label: str, value: str) -> str:
    """One name, which is checked once if it is used often."""
    return _checked_name(label, value) if type(value) is str else names(label, value)[0]


@lru_cache(NAMES_CACHED)
def _checked_name(label: str, value: str) -> str:
    return names(label, value)[0]


def names(label: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """One name, or several: text of 1 to 256 bytes each."""
    listed = (value,) if isinstance(value, str) else tuple(value)
    if not listed or len(listed) > settings.NAMES_MAX:
        raise ValueError(f"{label}: must be 1 to {settings.NAMES_MAX:,} names")
    for each in listed:
        if not isinstance(each, str):
            raise TypeError(f"{label} must be text, not {type(each).__name__}")
        if not 0 < len(each.encode()) <= settings.NAME_BYTES_MAX or "\0" in each:
            raise ValueError(f"{label}={each!r}: must be 1 to {settings.NAME_BYTES_MAX} bytes of UTF-8 without NUL")
    return tuple(dict.fromkeys(listed))


def make_pattern(
    is_handler: bool,
    operation: str | Sequence[str] | None,
    *,
    file: str | Sequence[str] | None,
    scope: Scope | str | None,
    message_class: MessageClass | str | None,
    state: MessageState | str | None,
    rank: int,
) -> Pattern:
    files = names("file", file) if file is not None else None
    checked_scope = chosen("scope", Scope, scope) if scope is not None else None
    if checked_scope is Scope.SESSION and files is not None:
        raise ValueError("a pattern for the session has no file; use another scope, or none")
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise TypeError(f"rank must be a whole number, not {type(rank).__name__}")
    if abs(rank) > RANK_MAX:
        raise ValueError(f"rank={rank}: must be from -{RANK_MAX:,} to {RANK_MAX:,}")
    return Pattern(
        is_handler,
        names("operation", operation) if operation is not None else (),
        chosen("message_class", MessageClass, message_class) if message_class is not None else None,
        checked_scope,
        files,
        chosen("state", MessageState, state) if state is not None else None,
        rank,
    )


def message_scope(file: str | None, scope: Scope | str | None) -> Scope:
    """The scope of a message: without a file its session, with one the file, unless another scope was given."""
    if file is not None:
        name("file", file)
    if scope is None:
        return Scope.SESSION if file is None else Scope.FILE
    checked = chosen("scope", Scope, scope)
    if (checked is Scope.SESSION) != (file is None):
        needs = "has no file" if checked is Scope.SESSION else "needs a file"
        raise ValueError(f"scope={checked.name.lower()} {needs}")
    return checked


def check_concurrency(concurrency: object) -> None:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise TypeError(f"concurrency must be a whole number, not {type(concurrency).__name__}")
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: must be at least 1")
