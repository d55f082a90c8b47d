"""One measurement: a child is started and watched, step by step."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bench.machine import CORES, busy_s
from bench.pipeline.child_process import ALL, AUDIT, ENDED, ROWS, STARTED, STEP
from bench.pipeline.questions import AUDIT_QUERIES, QUERIES
from bench.pipeline.watch import ProcessMonitor

ROOT = Path(__file__).parents[2]
LOG_LINES_SHOWN = 20


class MeasurementError(Exception):
    """A measurement did not come to its end; the text says why."""


@dataclass(slots=True)
class Cost:
    seconds: float
    cpu_s: float
    rows: int = 0


@dataclass(slots=True)
class Measurement:
    engine: str
    events: int
    start: Cost
    """Until the engine was ready."""
    work: Cost
    """From then on."""
    steps: dict[str, Cost]
    peak_bytes: int
    peaks_bytes: dict[str, int] = field(default_factory=dict)
    foreign: float = 0.0
    """Share of the machine's CPU that others took meanwhile."""

    @property
    def events_per_cpu_s(self) -> float:
        return self.events / self.work.cpu_s

    @property
    def events_per_s_and_core(self) -> float:
        return self.events / self.work.seconds / CORES

    @property
    def audit(self) -> Cost:
        """Messages to verdict."""
        return self.total_of([AUDIT] if AUDIT in self.steps else list(AUDIT_QUERIES))

    @property
    def all_tables(self) -> Cost:
        return self.total_of([ALL] if ALL in self.steps else list(QUERIES))

    def total_of(self, names: list[str]) -> Cost:
        """Some steps together."""
        chosen = [self.steps[name] for name in names if name in self.steps]
        return Cost(sum(each.seconds for each in chosen), sum(each.cpu_s for each in chosen))


def measure(engine: str, events: int, arguments: list[str], log: Path, show: Callable[[str], None]) -> Measurement:
    """`words` are the arguments of the child after the engine; `show` is called at each step."""
    began, busy = time.monotonic(), busy_s()
    command = [sys.executable, "-m", "bench.pipeline.child_process", engine, *arguments]
    marks: list[tuple[str, float, float]] = []
    rows: dict[str, int] = {}
    with log.open("w") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
        watch = ProcessMonitor(child.pid)
        try:
            assert child.stdout is not None
            for line in child.stdout:
                report = json.loads(line)
                marks.append((report[STEP], time.monotonic() - began, watch.cpu_s()))
                rows |= report.get(ROWS, {})
                show(report[STEP])
            foreign = _foreign_load(busy, watch.cpu_s(), time.monotonic() - began)
            code = child.wait()
        finally:
            child.kill()
            watch.stop()
    if code or not marks or marks[-1][0] != ENDED:
        last = log.read_text().splitlines()[-LOG_LINES_SHOWN:]
        raise MeasurementError(f"{engine} with {events:,} events ended with {code}:\n" + "\n".join(last))
    steps = {
        name: Cost(round(later - at, 3), round(later_cpu - cpu, 2), rows.get(name, 0))
        for (name, at, cpu), (_, later, later_cpu) in pairwise(marks)
        if name != STARTED
    }
    (_, ready, ready_cpu), (_, end, end_cpu) = next(mark for mark in marks if mark[0] == STARTED), marks[-1]
    return Measurement(
        engine,
        events,
        Cost(round(ready, 3), round(ready_cpu, 2)),
        Cost(round(end - ready, 3), round(end_cpu - ready_cpu, 2)),
        steps,
        watch.peak_bytes,
        dict(watch.peaks_bytes),
        round(foreign, 3),
    )


def _foreign_load(busy_before: float, own_cpu_s: float, seconds: float) -> float:
    return max(0.0, busy_s() - busy_before - own_cpu_s) / (CORES * seconds)
