"""The tape: observers on one side, one thread that writes files on the other, a queue between them.

The rule: recording never harms the channel. What the queue cannot hold is dropped and counted, and a gap row tells how
much (or, in a simulation, time waits for the writer). Trouble with the disk is the writer's alone. `docs/tape.md` says
what is guaranteed.
"""

import atexit
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

from weft.fabric import ChannelName
from weft.record.files import Counters, Files
from weft.record.locks import Leftover, sweep
from weft.record.lost import Lost
from weft.record.meaning import meaning
from weft.record.queue import Queue
from weft.record.recorder import Describe, Recorder
from weft.record.settings import TapeSettings
from weft.wire import PeerId

logger = logging.getLogger("weft.record")


class Unwritable(OSError):
    """A tape cannot be written in this directory."""


class Tape:
    """Records any number of peers of one process. Close it, or use it in a `with`; a program's end closes it too."""

    def __init__(
        self,
        directory: Path | str,
        *,
        settings: TapeSettings | None = None,
        wall_clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        """`wall_clock` tells the time of events (seconds since 1970, UTC; virtual in a simulation), `monotonic` the age
        of files. `on_problem` is told of trouble, once each time it begins, in the writer's thread."""
        self.directory = Path(directory)
        self.settings = settings or TapeSettings()
        self.run = f"{datetime.fromtimestamp(wall_clock(), UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        """Names this recording: no two are the same."""
        _prove_writable(self.directory, self.run)
        self.leftovers: list[Leftover] = sweep(self.directory)
        """Unfinished files that were found."""
        self._wall_clock = wall_clock
        self._lost = Lost()
        self._files = Files(self.directory, self.run, self.settings, monotonic, self._lost, on_problem)
        self._thread = threading.Thread(target=self._write, name="weft-tape", daemon=True)
        self._queue = Queue(self.settings, self._lost, self._thread.is_alive)
        self._closing = threading.RLock()
        self._thread.start()
        atexit.register(self.close)
        _tapes.add(self)

    def observer(
        self, channel: ChannelName, me: PeerId, *, name: str = "", describe: Describe | None = meaning
    ) -> Recorder:
        """Records one peer. `name` is who it is to people (for bills); `describe` reads group, message, parent and
        topic in a payload, and is called for each message sent and delivered: messages of groups, unless told."""
        if not 0 <= me < 1 << 64:
            raise ValueError(f"a peer id has 64 bits, {me} has not")
        return Recorder(self._queue, self._wall_clock, channel.id.hex(), me, name, describe, self.settings.payload)

    @property
    def problem(self) -> str | None:
        """What keeps the tape from being written at present."""
        return self._files.problem

    @property
    def counters(self) -> Counters:
        """Finished files, and what is in them."""
        return self._files.counters

    @property
    def lost_rows(self) -> int:
        """Rows lost so far, to a full queue or to trouble."""
        return self._lost.rows

    @property
    def late_rows(self) -> int:
        """Rows that came after the end; they are on no tape, and no gap tells of them."""
        return self._queue.late_rows

    def close(self) -> None:
        """Finish all files. What observers tell from now on is only counted."""
        with self._closing:
            if not self._queue.closed:
                self._queue.close()
                atexit.unregister(self.close)
            if threading.current_thread() is not self._thread:
                self._thread.join()
                self._queue.give_up()

    def __enter__(self) -> "Tape":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def disown(self) -> None:
        """This is a forked child, which has the tape but not its writer: here it is closed, there it goes on."""
        self._closing = threading.RLock()
        self._lost.disown()
        self._queue.disown()
        self._files.disown()
        atexit.unregister(self.close)

    def _write(self) -> None:
        """The writer's thread."""
        queue, files = self._queue, self._files
        try:
            while not queue.closed:
                queue.wait_for_rows(self.settings.poll_s)
                self._write_queued()
                files.tick()
            self._write_queued()
            queue.end()
            files.finish_all()
        except Exception as problem:  # a fault of ours: the channel goes on, and the queue counts what it drops
            logger.exception("the tape's writer has failed")
            files.problem = f"the writer has failed: {problem!r}"
        if self._lost.untold:
            logger.error("the tape ends with lost rows that no gap row tells of; lost in all: %d", self.lost_rows)

    def _write_queued(self) -> None:
        """All that is there now, a batch at a time; observers may be as fast as this."""
        left = len(self._queue.rows)
        while rows := self._queue.take(left):
            left -= len(rows)
            self._files.write(rows)
            self._files.tick()


_tapes: "WeakSet[Tape]" = WeakSet()


def _disown_all() -> None:
    for tape in list(_tapes):
        tape.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _prove_writable(directory: Path, run: str) -> None:
    """Better now, with a clear word, than later."""
    proof = directory / f".{run}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with proof.open("xb") as file:
            file.write(b"weft")
            file.flush()
            os.fsync(file.fileno())
        proof.unlink()
    except OSError as problem:
        raise Unwritable(f"a tape cannot be written to {directory}: {problem.strerror or problem}") from problem
