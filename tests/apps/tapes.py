"""Tapes with payloads for tests of logs, and tapes that somebody has changed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broadloom.record import Tape, TapeSettings
from broadloom.record.arrow_import import pa, pq
from broadloom.testing.sim.simulation import TapeFactory

PAYLOAD = TapeSettings(include_payload=True, block_when_full=True)


def payload_tape(folder: Path) -> Tape:
    return Tape(folder, settings=PAYLOAD)


@contextmanager
def simulated_tape(folder: Path) -> Iterator[TapeFactory]:
    """A factory for one simulation. Its tape is closed at the end of the block."""
    tapes: list[Tape] = []

    def make(clock: Callable[[], float]) -> Tape:
        tapes.append(Tape(folder, settings=PAYLOAD, wall_clock=clock))
        return tapes[-1]

    yield make
    for tape in tapes:
        tape.close()


def tape_file(folder: Path) -> Path:
    """The only file of a short tape."""
    (path,) = folder.rglob("*.parquet")
    return path


def change_lines(folder: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Replace the rows with lines of a log by others."""
    path = tape_file(folder)
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    lines = [row for row in rows if row["kind"] == "app_log"]
    changed = [row for row in rows if row["kind"] != "app_log"] + change(lines)
    pq.write_table(pa.Table.from_pylist(changed, table.schema), path)
