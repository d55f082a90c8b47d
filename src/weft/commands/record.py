"""`weft record` and `weft tape`: a listener that writes down what it sees, and what is on such a tape.

The rule of the end: first the channel is left, so that the tape tells of it, then the tape is closed, and then it is
said what it holds. Rows that were lost are told, and make the exit code.
"""

import asyncio
import json as json_module
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from weft.commands.ending import End, complain, run, told
from weft.commands.errors import FAILED, FINE, Failed, Mistake
from weft.commands.taking_part import taking_part

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.commands.options import Joining
    from weft.record import ChannelSummary, Tape

LOOK_S = 0.5
RATE_LOOKS = 10
"""The rate shown is that of the last so many looks."""


def record(channel: str, joining: "Joining", *, to: Path, payload: bool, for_s: float | None) -> int:
    async def work(end: End) -> int:
        joining.connect(channel)  # what is wrong with it is told before anything is written
        tape = open_tape(to, payload=payload)
        try:
            async with taking_part(channel, joining, end, tape=tape) as joined:
                end.by_hand_is_fine = True
                joined.on_message(lambda _message: None)  # the tape has it, and nobody else reads
                await _show_progress(joined, tape, for_s)
        except asyncio.CancelledError:
            if not end.by_hand_is_fine:
                raise
        finally:
            await asyncio.to_thread(tape.close)
        return _tell_end(tape)

    return run("record", work)


def tape(directory: Path, *, json: bool) -> int:
    return told("tape", lambda: _summary(directory, json))


def open_tape(
    directory: Path,
    *,
    payload: bool = False,
    wait_when_full: bool = False,
    wall_clock: Callable[[], float] = time.time,
) -> "Tape":
    """A tape to write; what keeps it from being written is a mistake that a person can mend."""
    _needs_extra()
    from weft.record import Tape, TapeSettings, Unwritable

    settings = TapeSettings(payload=payload, wait_when_full=wait_when_full)
    try:
        return Tape(directory, settings=settings, wall_clock=wall_clock, on_problem=_tell_problem)
    except Unwritable as problem:
        raise Mistake(str(problem)) from None


def _needs_extra() -> None:
    try:
        import weft.record  # noqa: F401
    except ImportError as problem:
        raise Mistake(str(problem)) from None


async def _show_progress(channel: "Channel", tape: "Tape", for_s: float | None) -> None:
    """Until the time is over, or the channel closed."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    looks: deque[tuple[float, int]] = deque(maxlen=RATE_LOOKS)
    clock = asyncio.get_running_loop().time
    end_at = clock() + for_s if for_s is not None else None
    closed = asyncio.ensure_future(_closed(channel))
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not closed.done() and (end_at is None or clock() < end_at):
            if console.is_terminal:
                line = _progress(channel, tape, looks, clock)
                live.update(Text(line, style="red" if tape.problem else "", no_wrap=True), refresh=True)
            wait_s = LOOK_S if end_at is None else min(LOOK_S, max(0.0, end_at - clock()))
            await asyncio.wait([closed], timeout=wait_s)
    closed.cancel()


async def _closed(channel: "Channel") -> None:
    async for _ in channel.events():
        pass


def _progress(channel: "Channel", tape: "Tape", looks: deque[tuple[float, int]], clock: Callable[[], float]) -> str:
    status = channel.status()
    messages = status.counters["delivered"]
    looks.append((clock(), messages))
    passed_s = looks[-1][0] - looks[0][0]
    rate = (messages - looks[0][1]) / passed_s if passed_s else 0.0
    lost = f", {tape.lost_rows:,} rows lost" if tape.lost_rows else ""
    problem = f": {tape.problem}" if tape.problem else ""
    return (
        f"{status.channel}: {messages:,} messages, {rate:,.0f} a second, {len(status.neighbours)} neighbours, "
        f"{_size(tape)} finished{lost}{problem}"
    )


def _size(tape: "Tape") -> str:
    counters = tape.counters
    return f"{counters.files:,} files of {counters.rows:,} rows and {counters.bytes / 1e6:,.2f} MB"


def _tell_problem(problem: str) -> None:
    complain("record", f"rows are being lost: {problem}")


def _tell_end(tape: "Tape") -> int:
    print(f"recorded to {tape.directory}: {_size(tape)}", flush=True)
    if not tape.lost_rows:
        return FINE
    complain("record", f"{tape.lost_rows:,} rows were lost" + (f": {tape.problem}" if tape.problem else ""))
    return FAILED


# -- what is on a tape


def _summary(directory: Path, json: bool) -> int:
    _needs_extra()
    from weft.record import Unreadable, summarize

    try:
        found = summarize(directory)
    except FileNotFoundError as problem:
        raise Mistake(str(problem)) from None
    except Unreadable as problem:
        raise Failed(str(problem)) from None
    if json:
        for each in found:
            print(json_module.dumps(_as_dict(each)))
    elif not found:
        raise Mistake(f"there is no tape at {directory}: no finished file")
    else:
        _print_table(found)
    return FINE


def _print_table(found: "list[ChannelSummary]") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for each in found:
        table = Table(box=None, show_header=False, title=f"channel {each.channel}", title_justify="left")
        table.add_row("time", f"{_second(each.first)} to {_second(each.last)} UTC")
        table.add_row("observers", f"{len(each.observers):,}")
        table.add_row("files", f"{each.files:,}, {each.bytes / 1e6:,.2f} MB")
        table.add_row("rows", f"{each.rows:,}" + (f", and {each.lost:,} lost" if each.lost else ""))
        for kind, count in each.kinds.most_common():
            table.add_row(f"  {kind}", f"{count:,}")
        console.print(table)


def _second(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" if time is not None else ""


def _as_dict(summary: "ChannelSummary") -> dict[str, object]:
    return {
        "channel": summary.channel,
        "first": summary.first.isoformat() if summary.first is not None else None,
        "last": summary.last.isoformat() if summary.last is not None else None,
        "observers": sorted(summary.observers),
        "files": summary.files,
        "bytes": summary.bytes,
        "rows": summary.rows,
        "lost": summary.lost,
        "kinds": dict(summary.kinds),
    }
