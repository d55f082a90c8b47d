"""A pool of processes, each of which runs one seed at a time.

A seed that hangs ends with its process, at its deadline. A process that has used much memory ends after its seed: the
memory of a large simulation is not returned to the system.
"""

import multiprocessing
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

MEMORY_MB_MAX = 400
"""A process that has used more ends."""


class Outcome(NamedTuple):
    """What a function of a seed returns."""

    problem: str = ""
    metrics: Mapping[str, float] = {}


SeedFunction = Callable[[int], Outcome]


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    function: SeedFunction
    seed: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class JobResult:
    job: Job
    outcome: Outcome
    wall_s: float
    cpu_s: float = 0.0
    """What it would take on a machine that does nothing else."""
    memory_mb: float = 0.0
    """Peak of the process, including its earlier seeds."""


class SeedPool:
    """Use as a context manager: at its end all processes are killed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._folder = tempfile.TemporaryDirectory(prefix="soak-")
        """For temporary files: those of a killed process go as well."""

    def __enter__(self) -> "SeedPool":
        return self

    def __exit__(self, *_error: object) -> None:
        for worker in (*self._idle, *self._busy):
            worker.kill()
        self._folder.cleanup()

    def now(self) -> float:
        """Seconds of a clock that never jumps."""
        return time.monotonic()

    @property
    def has_room(self) -> bool:
        return len(self._busy) < self.size

    @property
    def is_busy(self) -> bool:
        return bool(self._busy)

    def start(self, job: Job) -> None:
        worker = self._idle.pop() if self._idle else _Worker.start(self._folder.name)
        worker.begin(job)
        self._busy.append(worker)

    def wait(self, timeout_s: float) -> list[JobResult]:
        """Return what has finished, failed or hung; nothing if that takes longer than the timeout."""
        first_deadline = min((each.deadline for each in self._busy), default=float("inf"))
        ready = wait(
            [each.connection for each in self._busy], max(0.0, min(timeout_s, first_deadline - time.monotonic()))
        )
        results = []
        for worker in list(self._busy):
            if worker.connection in ready:
                result = worker.receive()
            elif time.monotonic() >= worker.deadline:
                result = worker.fail(f"no end after {worker.job.deadline_s:.0f} s")
            else:
                continue
            results.append(result)
            self._busy.remove(worker)
            if worker.is_alive:
                self._idle.append(worker)
        return results


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Connection
    job: Job = field(init=False)
    started_at: float = 0.0
    is_alive: bool = True

    @classmethod
    def start(cls, folder: str) -> "_Worker":
        context = multiprocessing.get_context("spawn")  # Polars does not survive a fork
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, folder), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    @property
    def deadline(self) -> float:
        return self.started_at + self.job.deadline_s

    def begin(self, job: Job) -> None:
        self.job, self.started_at = job, time.monotonic()
        with suppress(BrokenPipeError):  # the process has ended, which `receive` reports
            self.connection.send((job.function, job.seed))

    def receive(self) -> JobResult:
        try:
            outcome, wall_s, cpu_s, memory_mb = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return self.fail(f"the process ended with status {self.process.exitcode}")
        if memory_mb > MEMORY_MB_MAX:
            self.kill()
        return JobResult(self.job, outcome, wall_s, cpu_s, memory_mb)

    def fail(self, problem: str) -> JobResult:
        self.kill()
        return JobResult(self.job, Outcome(f"seed {self.job.seed}: {problem}"), time.monotonic() - self.started_at)

    def kill(self) -> None:
        self.is_alive = False
        self.process.kill()
        self.process.join()
        self.connection.close()


def _peak_memory_mb() -> float:
    """Of this process alone: on Linux, `getrusage` begins with the peak of the process that started it."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _work(connection: Connection, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which still prints the results
    tempfile.tempdir = folder
    while True:
        try:
            function, seed = connection.recv()
        except EOFError:
            return
        started_at, cpu_started_at = time.perf_counter(), time.process_time()
        try:
            outcome = function(seed)
        except Exception:
            outcome = Outcome(f"seed {seed}: {traceback.format_exc()}")
        wall_s, cpu_s = time.perf_counter() - started_at, time.process_time() - cpu_started_at
        connection.send((outcome, wall_s, cpu_s, _peak_memory_mb()))
