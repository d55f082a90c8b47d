"""Program types: programs that the switch starts, or queues messages for, when they do not run. Read from a TOML file.

[programs.starcalc]
start = ["starcalc", "--quiet"]     # a list of words, never a shell
ready_s = 10
again_after_s = 5
idle_s = 600
start_for = ["anna", "ops-*"]
[[programs.starcalc.handles]]
operation = "create_object"
absent = "start"
rank = 5
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from broadloom.switch import settings
from broadloom.switch.codec import RANK_MAX
from broadloom.switch.model import Disposition, MessageClass, Pattern, Scope

READY_S = 10.0
AGAIN_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class ProgramType:
    """A program that other programs need not start themselves."""

    name: str
    start: tuple[str, ...] = ()
    """The command, as a list of words. Without it, messages can only be queued."""
    ready_s: float = READY_S
    """The program must have registered its type by then."""
    again_after_s: float = AGAIN_AFTER_S
    """Pause after a failed start. It doubles with each further one, up to 300 s."""
    idle_s: float | None = None
    """A program that was started, and has got no message for this time, is terminated."""
    start_for: tuple[str, ...] = ()
    """Patterns of sessions, besides one's own, whose messages start it or are queued for it."""
    handles: tuple[Pattern, ...] = ()

    def is_allowed(self, session: str, own_session: str) -> bool:
        return session == own_session or any(fnmatchcase(session, each) for each in self.start_for)


def load_program_types(path: str | os.PathLike[str]) -> dict[str, ProgramType]:
    """Read a file of program types. Raises `OSError`, or `ValueError` that names the entry and what is wrong."""
    text = Path(path).read_bytes()
    try:
        parsed = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path}: {problem}") from None
    try:
        return parse_program_types(parsed)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def parse_program_types(parsed: Mapping[str, Any]) -> dict[str, ProgramType]:
    _check_keys("the file", parsed, ("programs",))
    programs = parsed.get("programs", {})
    if not isinstance(programs, dict):
        raise ValueError("programs must be a table: [programs.NAME]")
    return {name: _parse_program(name, fields) for name, fields in programs.items()}


def _parse_program(name: str, fields: Any) -> ProgramType:
    where = f"programs.{name}"
    if not isinstance(fields, dict):
        raise ValueError(f"{where} must be a table: [{where}]")
    _check_keys(where, fields, ("start", "ready_s", "again_after_s", "idle_s", "start_for", "handles"))
    _check_name(where, name)
    start = _texts(f"{where}.start", fields.get("start", []), 'a list of words, as in ["starcalc", "--quiet"]')
    handles = fields.get("handles", [])
    if not isinstance(handles, list) or not handles:
        raise ValueError(f"{where} needs at least one [[{where}.handles]]")
    patterns = tuple(_parse_handles(f"{where}.handles[{number}]", name, each) for number, each in enumerate(handles))
    if not start and any(pattern.disposition is Disposition.START for pattern in patterns):
        raise ValueError(f'{where}: absent = "start" needs a command: start = ["{name}"]')
    return ProgramType(
        name,
        start,
        _seconds(f"{where}.ready_s", fields.get("ready_s", READY_S)),
        _seconds(f"{where}.again_after_s", fields.get("again_after_s", AGAIN_AFTER_S)),
        _seconds(f"{where}.idle_s", fields["idle_s"]) if "idle_s" in fields else None,
        _texts(f"{where}.start_for", fields.get("start_for", []), "a list of sessions"),
        patterns,
    )


def _parse_handles(where: str, program: str, fields: Any) -> Pattern:
    if not isinstance(fields, dict):
        raise ValueError(f"{where} must be a table")
    _check_keys(where, fields, ("operation", "class", "scope", "file", "absent", "rank"))
    operations = _names(f"{where}.operation", fields.get("operation"))
    files = _names(f"{where}.file", fields["file"]) if "file" in fields else None
    rank = fields.get("rank", 0)
    if isinstance(rank, bool) or not isinstance(rank, int) or abs(rank) > RANK_MAX:
        raise ValueError(f"{where}.rank must be a whole number of at most {RANK_MAX:,}")
    return Pattern(
        True,
        operations,
        _choice(f"{where}.class", MessageClass, fields["class"]) if "class" in fields else None,
        _choice(f"{where}.scope", Scope, fields["scope"]) if "scope" in fields else None,
        files,
        None,
        rank,
        program,
        _choice(f"{where}.absent", Disposition, fields.get("absent", "fail")),
    )


def _check_keys(where: str, fields: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in fields:
        if key not in allowed:
            raise ValueError(f"{where}: unknown entry {key!r}; known are {', '.join(allowed)}")


def _check_name(where: str, name: object) -> str:
    if not isinstance(name, str) or not name or len(name.encode()) > settings.NAME_BYTES_MAX or "\0" in name:
        raise ValueError(f"{where}: {name!r} must be text of 1 to {settings.NAME_BYTES_MAX} bytes")
    return name


def _names(where: str, value: Any) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    if not listed:
        raise ValueError(f"{where} is empty")
    return tuple(_check_name(where, each) for each in listed)


def _texts(where: str, value: Any, expected: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and "\0" not in each for each in value):
        raise ValueError(f"{where} must be {expected}")
    return tuple(value)


def _seconds(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= settings.DEADLINE_S_MAX:
        raise ValueError(f"{where} must be a number of seconds greater than 0")
    return float(value)


def _choice(where: str, kind: Any, value: Any) -> Any:
    names = [each.name.lower() for each in kind if each.value]
    if value not in names:
        raise ValueError(f"{where} must be one of {', '.join(names)}")
    return kind[value.upper()]
