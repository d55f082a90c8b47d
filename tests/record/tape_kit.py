"""A manual clock, a writer that can be paused, and helpers."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from broadloom.protocol import ChannelName
from broadloom.record import Recorder, Tape, TapeSettings, read

CHANNEL = ChannelName("test", "tape")
FOLDER = f"channel={CHANNEL.id.hex()[:16]}"
NOON = 1_800_014_400.0
"""2027-01-15, 12:00 UTC."""
DAY = "2027-01-15"
ME = 0x00000000_000000AB
OTHER = 0xFEDCBA98_76543210
TIMEOUT_S = 30.0


class ManualClock:
    """Both clocks of a tape. Only the writer calls `monotonic`, so the clock can pause it."""

    def __init__(self) -> None:
        self.now = NOON
        self._released = threading.Event()
        self._released.set()
        self.held = threading.Event()

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        if not self._released.is_set():
            self.held.set()
            assert self._released.wait(TIMEOUT_S)
        return self.now

    def hold(self) -> None:
        """Returns once the writer is paused."""
        self.held.clear()
        self._released.clear()
        assert self.held.wait(TIMEOUT_S)

    def release(self) -> None:
        self._released.set()


def make_tape(
    directory: Path, clock: ManualClock, on_error: Callable[[str], None] | None = None, **settings_overrides: Any
) -> Tape:
    """A tape on the manual clock that polls its queue continuously."""
    settings = TapeSettings(**{"poll_interval_s": 0.005, **settings_overrides})
    return Tape(directory, settings=settings, wall_clock=clock.wall, monotonic=clock.monotonic, on_error=on_error)


def send(recorder: Recorder, count: int, *, first: int = 1, data: bytes = b"data") -> None:
    for sequence in range(first, first + count):
        recorder.sent(sequence, data)


def finished_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*.parquet") if not path.name.startswith("."))


def hidden_files(directory: Path) -> list[Path]:
    """Unfinished files: those with a hidden name, and those of this process without a name."""
    nameless = []
    for each in Path("/proc/self/fd").glob("*") if sys.platform == "linux" else ():
        with suppress(OSError):
            target = each.readlink()
            if target.name.endswith(" (deleted)") and directory in target.parents:
                nameless.append(target)
    return sorted([*directory.rglob(".*.unfinished"), *nameless])


def rows(directory: Path, *columns: str, **chosen: Any) -> list[Any]:
    """Values of one column, or tuples of several."""
    table = read(directory, columns=columns, **chosen)
    lists = [table[name].to_pylist() for name in columns]
    return lists[0] if len(columns) == 1 else list(zip(*lists, strict=True))


def read_dropped_rows(directory: Path, **chosen: Any) -> list[Any]:
    return rows(directory, "event_count", "event_time", "end_time", "run_id", "peer", kinds=["rows_dropped"], **chosen)
