"""CPU time, memory and network traffic of processes (Linux: /proc), and the log of a worker."""

import logging
import os
import resource
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broadloom.testing.errors import ConfigError

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MACHINE_CORES = os.cpu_count() or 1
SPARE_FILES = 200


def usage() -> dict[str, float]:
    """CPU seconds of this process, its resident memory, and the part of it that no other process shares."""
    sizes: dict[str, int] = {}
    with suppress(OSError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
            name, _, rest = line.partition(":")
            sizes[name] = int(rest.split()[0])
    own_kb = sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "memory_mb": sizes.get("Rss", 0) / 1024,
        "own_memory_mb": own_kb / 1024,
    }


def raise_file_limit(files: int) -> None:
    """Let this process and its children open this many files, and some more. Raises `ConfigError`."""
    needed = files + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ConfigError(f"a process may open {hard} files, {needed} are needed: change --processes")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class LogCollector(logging.Handler):
    """Hands warnings and errors of Broadloom and asyncio to callbacks."""

    def __init__(self, on_warning: Callable[[str], None], on_error: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_warning = on_warning
        self._on_error = on_error

    def attach(self) -> None:
        for name in ("broadloom", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [self]
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._on_error(self.format(record))
        else:
            self._on_warning(str(record.msg))


@dataclass(frozen=True, slots=True)
class ResourceCost:
    cpu_s: float
    wire_bytes: int | None
    other_cpu_fraction: float | None
    """Share of the machine's CPU time that went to other programs; None if unknown."""


class ResourceMeter:
    """Measures what these processes use from now on, and the traffic on the loopback interface of `network_pid`."""

    def __init__(self, pids: Iterable[int], network_pid: int) -> None:
        self._pids = list(pids)
        self._network_pid = network_pid
        self._cpu_s = _cpu_s(self._pids)
        self._wire = loopback_bytes(network_pid)
        self._busy_s = _busy_s()
        self._own_s = time.process_time()
        self._began_s = time.monotonic()

    def read(self) -> ResourceCost:
        cpu_s = _cpu_s(self._pids) - self._cpu_s
        wire = loopback_bytes(self._network_pid)
        wire_bytes = wire - self._wire if wire is not None and self._wire is not None else None
        return ResourceCost(cpu_s, wire_bytes, self._other_cpu_fraction(cpu_s))

    def _other_cpu_fraction(self, cpu_s: float) -> float | None:
        busy_s, elapsed_s = _busy_s(), time.monotonic() - self._began_s
        if busy_s is None or self._busy_s is None or not elapsed_s:
            return None
        other_s = busy_s - self._busy_s - cpu_s - (time.process_time() - self._own_s)
        return min(1.0, max(0.0, other_s / (MACHINE_CORES * elapsed_s)))


def loopback_bytes(pid: int) -> int | None:
    """Bytes sent over the loopback interface that this process sees, by any process, headers included."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
            name, _, counts = line.partition(":")
            if name.strip() == "lo":
                return int(counts.split()[0])
    return None


def _busy_s() -> float | None:
    """CPU time used on the whole machine, including time stolen by its hypervisor."""
    with suppress(OSError, ValueError):
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, fields[1:9])
        return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")
    return None


def _cpu_s(pids: list[int]) -> float:
    used_s = 0.0
    for pid in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError, IndexError, ValueError):
                    used_s += _thread_cpu_s(thread)
    return used_s


def _thread_cpu_s(thread: Path) -> float:
    """In nanoseconds where the kernel has schedstat, else in clock ticks."""
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
