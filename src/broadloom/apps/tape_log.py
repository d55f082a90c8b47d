"""The log of a game or an auction: the lines of its file, or the same lines as rows of a tape.

A tape with payloads (`TapeSettings(include_payload=True)`) has one row for each line, numbered from 1, and one for the
end. So a line that is missing is noticed, and the same code checks and replays both.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.protocol.events import LayerEvent

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Observer

APP_ENTRY, APP_LOG, ROWS_DROPPED = "app_entry", "app_log", "rows_dropped"
"""Kinds on the tape (docs/tape.md)."""
HEAD, LINE, END = "head", "line", "end"
PARQUET = b"PAR1"
"""The first bytes of a tape file."""
REMEDY = "give the whole directory of the tape, or the tape of another member"
RECORD = "record a program that takes part, with `TapeSettings(include_payload=True)`"
_COLUMNS = (
    *("run_id", "ordinal", "kind", "event_time", "end_time", "peer"),
    *("sequence", "name", "status", "actions", "payload"),
)


class TapeLog:
    """Writes the log of one session to the tape of its channel, if that has payloads."""

    def __init__(self, observer: "Observer | None", what: str) -> None:
        self._observer = observer if getattr(observer, "has_payload", False) else None
        self._what = what
        self._number = 0
        """Of the last line."""

    @property
    def is_open(self) -> bool:
        """Whether lines are recorded."""
        return self._observer is not None and self._number > 0

    def begin(self, line: str, **figures: Any) -> None:
        """Write the first line. `figures` tell the logs of a tape apart."""
        self._put(HEAD, line.encode(), json.dumps(figures))

    def write(self, line: str) -> None:
        self._put(LINE, line.encode())

    def end(self) -> None:
        """Nothing is written any more."""
        if self.is_open:
            self._put(END, None)
        self._observer = None

    def _put(self, status: str, payload: bytes | None, figures: str | None = None) -> None:
        if self._observer is not None:
            self._number += 1
            event = LayerEvent(
                APP_LOG, None, self._number, name=self._what, status=status, actions=figures, payload=payload
            )
            self._observer.on_event(event)


def log_lines(
    path: Path, what: str, error: type[BroadloomError], number: int | None = None, line_bytes_max: int = -1
) -> Iterator[bytes]:
    """The lines of a log file, of a tape file, or of a directory with tapes; `number` chooses one of several logs on a
    tape, from 1. Raises this error if a tape does not have all lines, and `OSError`."""
    if not path.is_dir():
        with path.open("rb") as file:
            if not file.peek(len(PARQUET)).startswith(PARQUET):
                if number not in (None, 1):
                    raise error(f"{path} is the log of one {what}: `--number` is for tapes")
                yield from iter(lambda: file.readline(line_bytes_max), b"")
                return
    yield from _tape_lines(path, what, error, number)


def _tape_lines(path: Path, what: str, error: type[BroadloomError], number: int | None) -> list[bytes]:
    try:
        from broadloom.record.reader import TapeReadError, read
    except ImportError as problem:  # the hint for the extra `record`
        raise error(str(problem)) from None
    try:
        rows = read(path, kinds=[APP_LOG, ROWS_DROPPED], columns=_COLUMNS).to_pylist()
        logs = _logs(rows, what)
        if not logs:
            has_figures = what in read(path, kinds=[APP_ENTRY], columns=["name"])["name"].to_pylist()
            found = f"figures of the {what}, but not its entries" if has_figures else f"no {what}"
            raise error(f"{path} has {found}: {RECORD}")
    except TapeReadError as problem:
        raise error(str(problem)) from None
    if len(logs) > 1 or number is not None:
        if number is None or not 0 < number <= len(logs):
            text = f"{path}: choose one {what} by its number (`--number`):"
            raise error("\n".join([text, *map(_title, logs, count(1))]))
        logs = [logs[number - 1]]
    (log,) = logs
    missing = next((place for place, row in enumerate(log, 1) if row["sequence"] != place or _is_empty(row)), None)
    if missing is None and log[-1]["status"] != END and _is_followed_by_loss(log[-1], rows):
        missing = len(log) + 1
    if missing is not None:
        text = f"line {missing} of this {what} is not on the tape: rows were dropped, or a file is missing"
        raise error(f"{path}: {text}; {REMEDY}")
    return [row["payload"] for row in log if row["status"] != END]


def _logs(rows: list[dict[str, Any]], what: str) -> list[list[dict[str, Any]]]:
    """The rows of each log, in order."""
    logs: list[list[dict[str, Any]]] = []
    current: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["run_id"], row["ordinal"])):
        if row["kind"] != APP_LOG or row["name"] != what:
            continue
        source = row["run_id"], row["peer"]
        if source not in current or row["status"] == HEAD or current[source][-1]["status"] == END:
            current[source] = []
            logs.append(current[source])
        current[source].append(row)
    return logs


def _title(log: list[dict[str, Any]], number: int) -> str:
    first = log[0]
    return (
        f"{number}: {first['actions'] or 'incomplete'}, peer {first['peer']}, {first['event_time']:%Y-%m-%d %H:%M} UTC"
    )


def _is_empty(row: dict[str, Any]) -> bool:
    return row["payload"] is None and row["status"] != END


def _is_followed_by_loss(last: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether the recorder dropped rows after this one."""
    return any(
        row["kind"] == ROWS_DROPPED
        and row["run_id"] == last["run_id"]
        and (row["end_time"] or row["event_time"]) >= last["event_time"]
        for row in rows
    )
