"""`broadloom record` and `broadloom tape info`: record what a listening peer sees, and summarize tapes."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from broadloom.cli.exit_codes import FAILURE, SUCCESS, UsageError, require_extra
from broadloom.cli.formatting import escape_control_chars
from broadloom.cli.options import (
    ChannelArgument,
    DurationOption,
    JoinOptions,
    JsonOption,
    argument,
    command_group,
    option,
)
from broadloom.cli.output import console, print_json, print_result
from broadloom.cli.runner import StopSignal, command, joined_channel, print_error, report_end

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.record import ChannelSummary, Tape

POLL_S = 0.5
RATE_SAMPLES = 10
"""The rate is averaged over this number of samples."""

tape = command_group("Inspect tapes.\n\nExamples:\n\n- `broadloom tape info tapes`")


@command("record", extra="record")
async def record(
    stop: StopSignal,
    join_options: JoinOptions,
    channel: ChannelArgument,
    out: Annotated[Path, option("Directory of the tape. It may hold other tapes.", "DIR", "--out", "-o")],
    include_payload: Annotated[bool, option("Record message payloads too.")] = False,
    duration: DurationOption = None,
    json: JsonOption = False,
) -> int:
    """Record a channel to a tape (Parquet files) until interrupted.

    Needs the extra `record`. Exit status 1 if rows were lost, as on a full disk, or if your ticket was revoked or
    expired.

    Examples:

    - `broadloom record chess/club-42 --out tapes`
    - `broadloom record news/today --out tapes --include-payload --duration 3600`
    """
    join_options.connect(channel)  # report usage errors before anything is written
    tape = open_tape(out, include_payload=include_payload)
    code = SUCCESS
    # The tape is closed after leaving, so that it records the leave.
    try:
        async with joined_channel(channel, join_options, stop, tape=tape) as joined:
            stop.interrupt_is_success = True
            joined.on_message(lambda _message: None)  # keep the inbox empty: the tape has the messages
            if await _show_progress(joined, tape, duration):
                code = report_end("record", joined)
    except asyncio.CancelledError:
        if not stop.interrupt_is_success:
            raise
    finally:
        await asyncio.to_thread(tape.close)
    return _report(tape, json=json) or code


def open_tape(
    directory: Path,
    *,
    include_payload: bool = False,
    block_when_full: bool = False,
    wall_clock: Callable[[], float] = time.time,
) -> "Tape":
    require_extra("record")
    from broadloom.record import Tape, TapeSettings

    settings = TapeSettings(include_payload=include_payload, block_when_full=block_when_full)
    return Tape(directory, settings=settings, wall_clock=wall_clock, on_error=_report_error)


TapeOption = Annotated[Path | None, option("Record your part to a tape with payloads, in this directory.", "DIR")]


@asynccontextmanager
async def recorded(directory: Path | None) -> "AsyncIterator[Tape | None]":
    """A tape with payloads, if a directory is given. It is closed after leaving."""
    tape = open_tape(directory, include_payload=True) if directory is not None else None
    try:
        yield tape
    finally:
        if tape is not None:
            await asyncio.to_thread(tape.close)


async def _show_progress(channel: "Channel", tape: "Tape", duration_s: float | None) -> bool:
    """Return when the time is up or the channel is closed: whether it was closed."""
    from rich.live import Live
    from rich.text import Text

    err = console(stderr=True)
    samples: deque[tuple[float, int]] = deque(maxlen=RATE_SAMPLES)
    clock = asyncio.get_running_loop().time
    end_at = clock() + duration_s if duration_s is not None else None
    closed = asyncio.ensure_future(_wait_until_closed(channel))
    with Live(console=err, auto_refresh=False, transient=True) as live:
        while not closed.done() and (end_at is None or clock() < end_at):
            if err.is_terminal:
                line = _progress_line(channel, tape, samples, clock)
                live.update(Text(line, style="red" if tape.last_error else "", no_wrap=True), refresh=True)
            wait_s = POLL_S if end_at is None else min(POLL_S, max(0.0, end_at - clock()))
            await asyncio.wait([closed], timeout=wait_s)
    return not closed.cancel()


async def _wait_until_closed(channel: "Channel") -> None:
    async for _ in channel.events():
        pass


def _progress_line(
    channel: "Channel", tape: "Tape", samples: deque[tuple[float, int]], clock: Callable[[], float]
) -> str:
    status = channel.status()
    messages = status.counters["delivered"]
    samples.append((clock(), messages))
    elapsed_s = samples[-1][0] - samples[0][0]
    rate = (messages - samples[0][1]) / elapsed_s if elapsed_s else 0.0
    lost = f", {tape.dropped_rows:,} rows lost" if tape.dropped_rows else ""
    error = f": {tape.last_error}" if tape.last_error else ""
    return (
        f"{status.channel}: {messages:,} messages, {rate:,.0f} per second, {len(status.neighbors)} neighbors, "
        f"{_size(tape)} written{lost}{error}"
    )


def _size(tape: "Tape") -> str:
    counters = tape.counters
    return f"{counters.files:,} files, {counters.rows:,} rows, {counters.bytes / 1e6:,.2f} MB"


def _report_error(text: str) -> None:
    print_error("record", f"losing rows: {text}")


def _report(tape: "Tape", *, json: bool) -> int:
    counters = tape.counters
    sizes = {"files": counters.files, "rows": counters.rows, "bytes": counters.bytes}
    fields = {"directory": tape.directory, **sizes, "dropped_rows": tape.dropped_rows}
    print_result(fields, f"recorded to {tape.directory}: {_size(tape)}", json=json)
    if not tape.dropped_rows:
        return SUCCESS
    print_error("record", f"{tape.dropped_rows:,} rows lost" + (f": {tape.last_error}" if tape.last_error else ""))
    return FAILURE


# -- tape info


@command("tape info", tape, extra="record")
def info(
    directory: Annotated[Path, argument("Directory of tapes, as of `broadloom record --out`.", "DIR")],
    json: JsonOption = False,
) -> int:
    """Summarize the channels on a tape.

    Damaged files are listed on standard error, and the exit status is 1.

    Examples:

    - `broadloom tape info tapes`
    - `broadloom tape info tapes --json | jq .kinds`
    """
    from broadloom.record import TapeReadError, summarize

    damaged: list[TapeReadError] = []
    try:
        found = summarize(directory, on_error=damaged.append)
    except FileNotFoundError as problem:
        raise UsageError(str(problem)) from None
    if not found and not damaged:
        raise UsageError(f"no tape in {directory}: it has no complete file")
    if json:
        for each in found:
            print_json(_summary_fields(each))
    else:
        _print_summaries(found)
    for each_damaged in damaged:
        print_error("tape info", str(each_damaged))
    return FAILURE if damaged else SUCCESS


def _print_summaries(found: "list[ChannelSummary]") -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    for each in found:
        title = Text(f"channel {escape_control_chars(each.channel)}")
        table = Table(box=None, show_header=False, title=title, title_justify="left")
        table.add_row("time", f"{_format_second(each.start_time)} to {_format_second(each.end_time)} UTC")
        table.add_row("recorded peers", f"{len(each.peers):,}")
        table.add_row("files", f"{each.files:,}, {each.bytes / 1e6:,.2f} MB")
        table.add_row("rows", f"{each.rows:,}" + (f", {each.dropped_rows:,} lost" if each.dropped_rows else ""))
        for kind, count in each.kinds.most_common():
            table.add_row(Text(f"  {escape_control_chars(kind)}"), f"{count:,}")
        out.print(table)


def _format_second(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" if time is not None else ""


def _summary_fields(summary: "ChannelSummary") -> dict[str, object]:
    return {
        "channel": summary.channel,
        "start_time": summary.start_time,
        "end_time": summary.end_time,
        "peers": sorted(summary.peers),
        "files": summary.files,
        "bytes": summary.bytes,
        "rows": summary.rows,
        "dropped_rows": summary.dropped_rows,
        "kinds": dict(summary.kinds),
    }
