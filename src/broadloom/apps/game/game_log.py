"""Game logs: everything that entered the timeline of one player, as lines of JSON. Replaying it gives the same state.

A log is a file, or on a tape with payloads. The first line names the game; the last one has the hash of the final
state, if the program had time to write it.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from broadloom.apps.game.entry import Entry, entry_of
from broadloom.apps.game.errors import GameError
from broadloom.apps.game.game import Game
from broadloom.apps.game.games import make_game
from broadloom.apps.game.timeline import Timeline
from broadloom.apps.tape_log import log_lines

VERSION = 1
LINE_MAX = 64 << 20


def head_line(game: Game, seed: str) -> str:
    return log_line("game", {"version": VERSION, "name": game.name, "players": len(game.seats()), "seed": seed})


def log_line(kind: str, value: Any) -> str:
    """ASCII: the state of another member may have text that is not valid Unicode."""
    return json.dumps([kind, value], separators=(",", ":")) + "\n"


class GameLog:
    """Writes the log of one play."""

    def __init__(self, path: Path, game: Game, seed: str) -> None:
        """Raises `OSError`."""
        self._file: IO[str] = path.open("w", encoding="utf-8", buffering=1)
        self._file.write(head_line(game, seed))

    def write(self, kind: str, value: Any) -> None:
        self._file.write(log_line(kind, value))

    def abandon(self) -> None:
        """It cannot be written any more."""
        with contextlib.suppress(OSError):
            self._file.close()

    def close(self, state_hash: str) -> None:
        self.write("hash", state_hash)
        self._file.close()


class Replayed(NamedTuple):
    timeline: Timeline
    entry: Entry | None
    """What was applied; None for a rewind or a snapshot."""
    recorded_hash: str
    """The hash at the end of the log; empty before it."""


def replay(path: str | os.PathLike[str], game: Game | None = None, *, number: int | None = None) -> Iterator[Replayed]:
    """Replay a game log line by line; the last one has the final state. `path` is a log file, or a tape with payloads:
    a directory or a file; `number` chooses one of several games on it, from 1. `game` is for games that do not come
    with Broadloom. Raises `GameError`, or `OSError`."""
    path = Path(path)
    timeline: Timeline | None = None
    for place, line in enumerate(log_lines(path, "game", GameError, number, LINE_MAX), 1):
        try:
            kind, value = json.loads(line)
            if timeline is None:
                timeline = _begin(path, kind, value, game)
                continue
            yield _step(timeline, kind, value)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as problem:
            if timeline is not None and not line.endswith(b"\n"):
                return  # the program was killed while it wrote this
            raise GameError(f"{path}, line {place}: not a game log") from problem
    if timeline is None:
        raise GameError(f"{path} is empty: record a game with `broadloom game join --log`")


def _begin(path: Path, kind: str, value: Any, game: Game | None) -> Timeline:
    if kind != "game" or value["version"] != VERSION:
        raise GameError(f"{path} is not a game log of this version of Broadloom")
    return Timeline(game or make_game(value["name"], value["players"]), value["seed"])


def _step(timeline: Timeline, kind: str, value: Any) -> Replayed:
    entry = None
    match kind:
        case "entry":
            entry = entry_of(value[0], value[1:])
            timeline.insert(entry)
        case "rewound":
            timeline.truncate(value)
        case "snapshot":
            timeline.restore(value)
        case "hash":
            return Replayed(timeline, None, str(value))
    return Replayed(timeline, entry, "")
