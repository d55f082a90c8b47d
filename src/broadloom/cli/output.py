"""Standard output and input beside an event loop: a thread writes, another one reads.

The rule: neither who reads our output slowly (`broadloom listen … | less`) nor who writes our input slowly may stop the
peer, which has neighbours to serve. Both threads work on the bare file numbers and are never waited for, so that a
reader who does not read cannot keep us from ending either.
"""

import asyncio
import os
import queue
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from broadloom.cli.exit_codes import SUCCESS, CommandFailed
from broadloom.cli.runner import StopSignal, discard_output

POLL_S = 0.5
"""How often a quiet output is looked at: is its reader still there?"""
DRAIN_S = 2.0
"""At the end, how long a reader has to take what is left."""
CHUNK_BYTES = 64 << 10
CHUNKS_AHEAD = 4
"""Input that is read before it is asked for."""
LINE_BYTES_MAX = 1 << 20
"""Whatever is longer is no line that somebody wrote; large things are sent as files."""

_Job = tuple[bytes, "asyncio.Future[None] | None"]


class Output:
    """`put` and go on, or `write` and wait until it is out. If nobody reads any more, the command is asked to end."""

    def __init__(self, end: StopSignal) -> None:
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        sys.stdout.flush()
        self._file = sys.stdout.fileno()
        self._is_broken = False
        threading.Thread(target=self._work, name="broadloom-output", daemon=True).start()

    def put(self, text: str) -> None:
        self._jobs.put((_bytes(text), None))

    async def write(self, text: str) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((_bytes(text), done))
        await done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Everything is out, unless its reader does not read."""
        if not self._is_broken:
            await asyncio.wait([asyncio.ensure_future(self.write(""))], timeout=DRAIN_S)

    # -- in the thread

    def _work(self) -> None:
        watched = select.poll()
        watched.register(self._file, 0)  # errors and hang-ups are told unasked
        while True:
            try:
                data, done = self._jobs.get(timeout=POLL_S)
            except queue.Empty:
                if watched.poll(0):
                    self._notify_loop(self._on_broken_pipe, None)
                    return
                continue
            try:
                _write_all(self._file, data)
            except OSError:
                self._notify_loop(self._on_broken_pipe, done)
                return
            if done is not None:
                self._notify_loop(_set_done, done)

    def _notify_loop(self, act: Callable[[Any], None], done: "asyncio.Future[None] | None") -> None:
        with suppress(RuntimeError):  # the loop has ended before us
            self._loop.call_soon_threadsafe(act, done)

    # -- in the loop

    def _on_broken_pipe(self, _done: "asyncio.Future[None] | None") -> None:
        """Whoever waits for its words to be out is cancelled with the command."""
        self._is_broken = True
        discard_output()
        self._end.request_stop(SUCCESS)


def _set_done(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(file, left) :]
        except BlockingIOError:  # somebody we share it with has made it so
            select.select([], [file], [])


async def input_chunks() -> AsyncIterator[bytes]:
    """Standard input as it comes: of a terminal, a pipe or a file."""
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
                data = b""  # a terminal that went away has no more to say
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, data)
            except RuntimeError:
                return  # the loop has ended before us

    threading.Thread(target=work, name="broadloom-input", daemon=True).start()
    while data := await chunks.get():
        room.release()
        yield data


async def input_lines() -> AsyncIterator[bytes]:
    """Without their ends; the last one needs none."""
    rest = b""
    async for chunk in input_chunks():
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield line.removesuffix(b"\r")
        if len(rest) > LINE_BYTES_MAX:
            raise CommandFailed(
                f"a line of more than {LINE_BYTES_MAX:,} bytes is too large for a message; send a file instead"
            )
    if rest:
        yield rest
