"""Standard output and input: JSON, tables, progress, and pipes that never block the event loop.

A slow reader of our output (`broadloom listen … | less`) or a slow writer of our input must not block the peer, which
has neighbors to serve. So one thread writes and another one reads, directly on the file descriptors. Neither is
joined, so that a reader that never reads cannot keep the command from exiting.
"""

import asyncio
import os
import queue
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from broadloom.cli.exit_codes import FAILURE, SUCCESS, CommandFailedError
from broadloom.cli.formatting import to_json
from broadloom.cli.runner import StopSignal, print_error
from broadloom.cli.stdout import STDOUT, discard_output, os_error_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import ProgressColumn
    from rich.table import Table

STDIN = "-"
"""As an argument: read standard input."""
POLL_S = 0.5
"""How often an idle output is checked for a reader that has gone."""
DRAIN_S = 2.0
"""Maximum time at the end for the reader to take the rest."""
CHUNK_BYTES = 64 << 10
CHUNKS_AHEAD = 4
"""Chunks of input that are read ahead."""
LINE_BYTES_MAX = 1 << 20
PIPE_COLUMNS = 240

_Job = tuple[bytes, "asyncio.Future[None] | None"]


def print_json(value: Any) -> None:
    print(to_json(value), flush=True)


def print_result(fields: Mapping[str, Any], text: str, *, json: bool) -> None:
    print(to_json(fields) if json else text, flush=True)


def print_rows(rows: Iterable[Mapping[str, Any]], *, json: bool) -> None:
    """Print a list: one JSON object per line, or a table with the fields as columns."""
    listed = list(rows)
    if json:
        for row in listed:
            print_json(row)
    elif listed:
        console().print(table(listed[0], [map(str, row.values()) for row in listed]))


def table(
    columns: Iterable[str], rows: Iterable[Iterable["RenderableType"]] = (), *, right: Collection[str] = ()
) -> "Table":
    """A table without lines; the columns in `right` are aligned there."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        made.add_row(*row)
    return made


def console(*, stderr: bool = False) -> "Console":
    """For tables. In a file or a pipe, lines are not wrapped at the width of a terminal."""
    from rich.console import Console

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, width=None if is_terminal else PIPE_COLUMNS)


class ProgressBar:
    """A progress bar on standard error, shown only at a terminal.

    It has no refresh thread, so a command may fork while it is shown; it is redrawn by its methods.
    """

    def __init__(self, text: str = "", total: float | None = None, *, quiet: bool = False, in_bytes: bool = False):
        from rich.markup import escape
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

        columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
        columns.append(DownloadColumn() if in_bytes else TimeElapsedColumn())
        shown = sys.stderr.isatty() and not quiet
        # Byte counts remain visible at the end, because a transfer may be over too fast to be seen.
        self._progress = Progress(
            *columns, console=console(stderr=True), auto_refresh=False, transient=not in_bytes, disable=not shown
        )
        self._escape = escape
        self._task = self._progress.add_task(escape(text), total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def phase(self, text: str) -> None:
        self._progress.update(self._task, description=self._escape(text), refresh=True)

    def update(self, completed: float, total: float | None = None) -> None:
        self._progress.update(self._task, completed=completed, total=total, refresh=True)

    def advance(self) -> None:
        self._progress.update(self._task, advance=1, refresh=True)


class Output:
    """Standard output: `put` returns at once, `write` waits until the text is out. If the reader has gone, or the
    disk is full, the command is stopped."""

    def __init__(self, stop: StopSignal) -> None:
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        sys.stdout.flush()
        self._file = sys.stdout.fileno()
        self._is_broken = False
        threading.Thread(target=self._work, name="broadloom-output", daemon=True).start()

    def put(self, text: str) -> None:
        self._jobs.put((_encode(text), None))

    async def write(self, text: str) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((_encode(text), done))
        await done

    async def flush(self) -> None:
        await self.write("")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_broken:
            await asyncio.wait([asyncio.ensure_future(self.flush())], timeout=DRAIN_S)

    # -- in the thread

    def _work(self) -> None:
        hang_up = select.poll()
        hang_up.register(self._file, 0)  # errors and hang-ups are always reported
        while True:
            try:
                data, done = self._jobs.get(timeout=POLL_S)
            except queue.Empty:
                if hang_up.poll(0):
                    self._notify_loop(self._on_error, BrokenPipeError())
                    return
                continue
            try:
                _write_all(self._file, data)
            except OSError as problem:
                self._notify_loop(self._on_error, problem)
                return
            if done is not None:
                self._notify_loop(_set_done, done)

    def _notify_loop(self, act: Callable[[Any], None], argument: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(act, argument)

    # -- in the event loop

    def _on_error(self, problem: OSError) -> None:
        """Pending writes are canceled with the command."""
        self._is_broken = True
        discard_output()
        if isinstance(problem, BrokenPipeError):
            self._stop.request_stop(SUCCESS)
        else:
            problem.filename = STDOUT
            print_error(self._stop.command, os_error_text(problem))
            self._stop.request_stop(FAILURE)


def _set_done(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


def _encode(text: str) -> bytes:
    return text.encode(errors="replace")


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(file, left) :]
        except BlockingIOError:  # another process that shares the file made it non-blocking
            select.select([], [file], [])


async def input_chunks() -> AsyncIterator[bytes]:
    """Standard input as it arrives."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD)
    file = sys.stdin.fileno() if sys.stdin is not None else -1

    def work() -> None:
        data = b"more"
        while data:
            room.acquire()
            try:
                select.select([file], [], [])
                data = os.read(file, CHUNK_BYTES)
            except (OSError, ValueError):
                data = b""  # the terminal has gone
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, data)
            except RuntimeError:
                return  # the loop has ended

    threading.Thread(target=work, name="broadloom-input", daemon=True).start()
    while data := await chunks.get():
        room.release()
        yield data


async def argument_data(text: str) -> bytes:
    """The data that an argument gives, or all of standard input for `-`."""
    if text != STDIN:
        return text.encode(errors="surrogateescape")
    return b"".join([chunk async for chunk in input_chunks()])


async def input_lines() -> AsyncIterator[bytes]:
    """Lines of standard input without their line ends."""
    rest = b""
    async for chunk in input_chunks():
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield line.removesuffix(b"\r")
        if len(rest) > LINE_BYTES_MAX:
            raise CommandFailedError(
                f"a line of more than {LINE_BYTES_MAX:,} bytes is too large for a message; send a file instead"
            )
    if rest:
        yield rest
