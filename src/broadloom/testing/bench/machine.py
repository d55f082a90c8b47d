"""What the kernel tells of a measurement: CPU time of its processes and of others, bytes on loopback (Linux: /proc)."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MACHINE_CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class ResourceCost:
    cpu_s: float
    wire_bytes: int | None
    other_cpu_fraction: float | None
    """Of the machine's CPU time, what went to anybody else; None where it cannot be known."""


class ResourceMeter:
    """From its making on. `network_of`: a process whose loopback interface is looked at."""

    def __init__(self, pids: Iterable[int], network_pid: int) -> None:
        self._pids = list(pids)
        self._network_pid = network_pid
        self._cpu_s = _cpu_s(self._pids)
        self._wire = loopback_bytes(network_pid)
        self._busy_s = _busy_s()
        self._own_s = time.process_time()
        self._wall_s = time.monotonic()

    def read(self) -> ResourceCost:
        cpu_s = _cpu_s(self._pids) - self._cpu_s
        wire = loopback_bytes(self._network_pid)
        wire_bytes = wire - self._wire if wire is not None and self._wire is not None else None
        return ResourceCost(cpu_s, wire_bytes, self._other_cpu_fraction(cpu_s))

    def _other_cpu_fraction(self, cpu_s: float) -> float | None:
        busy_s, wall_s = _busy_s(), time.monotonic() - self._wall_s
        if busy_s is None or self._busy_s is None or not wall_s:
            return None
        foreign_s = busy_s - self._busy_s - cpu_s - (time.process_time() - self._own_s)
        return min(1.0, max(0.0, foreign_s / (MACHINE_CORES * wall_s)))


def loopback_bytes(pid: int) -> int | None:
    """Sent over the loopback interface that this process sees, by anybody, with all headers."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
            name, _, counts = line.partition(":")
            if name.strip() == "lo":
                return int(counts.split()[0])
    return None


def _busy_s() -> float | None:
    """CPU time that the whole machine has spent, with what its host took away from it."""
    with suppress(OSError, ValueError):
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, fields[1:9])
        return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")
    return None


def _cpu_s(pids: list[int]) -> float:
    """Of all threads of these processes, in nanoseconds where the kernel counts so finely."""
    used_s = 0.0
    for pid in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError, IndexError, ValueError):
                    used_s += _thread_s(thread)
    return used_s


def _thread_s(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
