"""`broadloom record` and `broadloom tape`: a listener that writes down what it sees, and what is on such a tape.

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

from broadloom.cli.exit_codes import FAILURE, SUCCESS, CommandFailed, UsageError
from broadloom.cli.runner import StopSignal, print_error, run, run_reporting_errors
from broadloom.cli.taking_part import joined_channel

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.cli.options import JoinOptions
    from broadloom.record import ChannelSummary, Tape

POLL_S = 0.5
RATE_SAMPLES = 10
"""The rate shown is that of the last so many looks."""


def record(channel: str, join_options: "JoinOptions", *, to: Path, include_payload: bool, for_s: float | None) -> int:
    async def work(end: StopSignal) -> int:
        join_options.connect(channel)  # what is wrong with it is told before anything is written
        tape = open_tape(to, include_payload=include_payload)
        try:
            async with joined_channel(channel, join_options, end, tape=tape) as joined:
                end.interrupt_is_success = True
                joined.on_message(lambda _message: None)  # the tape has it, and nobody else reads
                await _show_progress(joined, tape, for_s)
        except asyncio.CancelledError:
            if not end.interrupt_is_success:
                raise
        finally:
            await asyncio.to_thread(tape.close)
        return _report_end(tape)

    return run("record", work)


def tape(directory: Path, *, json: bool) -> int:
    return run_reporting_errors("tape", lambda: _summary(directory, json))


def open_tape(
    directory: Path,
    *,
    include_payload: bool = False,
    block_when_full: bool = False,
    wall_clock: Callable[[], float] = time.time,
) -> "Tape":
    """A tape to write; what keeps it from being written is a mistake that a person can mend."""
    _require_extra()
    from broadloom.record import Tape, TapeSettings, TapeWriteError

    settings = TapeSettings(include_payload=include_payload, block_when_full=block_when_full)
    try:
        return Tape(directory, settings=settings, wall_clock=wall_clock, on_error=_report_problem)
    except TapeWriteError as problem:
        raise UsageError(str(problem)) from None


def _require_extra() -> None:
    try:
        import broadloom.record  # noqa: F401
    except ImportError as problem:
        raise UsageError(str(problem)) from None


async def _show_progress(channel: "Channel", tape: "Tape", for_s: float | None) -> None:
    """Until the time is over, or the channel closed."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    samples: deque[tuple[float, int]] = deque(maxlen=RATE_SAMPLES)
    clock = asyncio.get_running_loop().time
    end_at = clock() + for_s if for_s is not None else None
    closed = asyncio.ensure_future(_wait_until_closed(channel))
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not closed.done() and (end_at is None or clock() < end_at):
            if console.is_terminal:
                line = _progress(channel, tape, samples, clock)
                live.update(Text(line, style="red" if tape.last_error else "", no_wrap=True), refresh=True)
            wait_s = POLL_S if end_at is None else min(POLL_S, max(0.0, end_at - clock()))
            await asyncio.wait([closed], timeout=wait_s)
    closed.cancel()


async def _wait_until_closed(channel: "Channel") -> None:
    async for _ in channel.events():
        pass


def _progress(channel: "Channel", tape: "Tape", samples: deque[tuple[float, int]], clock: Callable[[], float]) -> str:
    status = channel.status()
    messages = status.counters["delivered"]
    samples.append((clock(), messages))
    passed_s = samples[-1][0] - samples[0][0]
    rate = (messages - samples[0][1]) / passed_s if passed_s else 0.0
    lost = f", {tape.dropped_rows:,} rows lost" if tape.dropped_rows else ""
    problem = f": {tape.last_error}" if tape.last_error else ""
    return (
        f"{status.channel}: {messages:,} messages, {rate:,.0f} a second, {len(status.neighbors)} neighbours, "
        f"{_size(tape)} finished{lost}{problem}"
    )


def _size(tape: "Tape") -> str:
    counters = tape.counters
    return f"{counters.files:,} files of {counters.rows:,} rows and {counters.bytes / 1e6:,.2f} MB"


def _report_problem(problem: str) -> None:
    print_error("record", f"rows are being lost: {problem}")


def _report_end(tape: "Tape") -> int:
    print(f"recorded to {tape.directory}: {_size(tape)}", flush=True)
    if not tape.dropped_rows:
        return SUCCESS
    print_error("record", f"{tape.dropped_rows:,} rows were lost" + (f": {tape.last_error}" if tape.last_error else ""))
    return FAILURE


# -- what is on a tape


def _summary(directory: Path, json: bool) -> int:
    _require_extra()
    from broadloom.record import TapeReadError, summarize

    try:
        found = summarize(directory)
    except FileNotFoundError as problem:
        raise UsageError(str(problem)) from None
    except TapeReadError as problem:
        raise CommandFailed(str(problem)) from None
    if json:
        for each in found:
            print(json_module.dumps(_as_dict(each)))
    elif not found:
        raise UsageError(f"there is no tape at {directory}: no finished file")
    else:
        _print_table(found)
    return SUCCESS


def _print_table(found: "list[ChannelSummary]") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for each in found:
        table = Table(box=None, show_header=False, title=f"channel {each.channel}", title_justify="left")
        table.add_row("time", f"{_format_second(each.start_time)} to {_format_second(each.end_time)} UTC")
        table.add_row("observers", f"{len(each.peers):,}")
        table.add_row("files", f"{each.files:,}, {each.bytes / 1e6:,.2f} MB")
        table.add_row("rows", f"{each.rows:,}" + (f", and {each.dropped_rows:,} lost" if each.dropped_rows else ""))
        for kind, count in each.kinds.most_common():
            table.add_row(f"  {kind}", f"{count:,}")
        console.print(table)


def _format_second(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" if time is not None else ""


def _as_dict(summary: "ChannelSummary") -> dict[str, object]:
    return {
        "channel": summary.channel,
        "first": summary.start_time.isoformat() if summary.start_time is not None else None,
        "last": summary.end_time.isoformat() if summary.end_time is not None else None,
        "observers": sorted(summary.peers),
        "files": summary.files,
        "bytes": summary.bytes,
        "rows": summary.rows,
        "lost": summary.dropped_rows,
        "kinds": dict(summary.kinds),
    }
