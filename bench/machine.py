"""Statistics of the kernel about processes and the machine (Linux: /proc)."""

import asyncio
import contextlib
import os
import platform
import random
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from bench.process_config import HOST

CORES = os.cpu_count() or 1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to outgoing connections, so that none is taken while its owner starts."""

IDLE_FRACTION = 0.2
POLL_S = 0.5


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    return found


def loopback_bytes() -> int:
    """Sent over the loopback interface so far, by anybody, with all headers."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    return 0


def busy_s() -> float:
    """CPU time that the whole machine has spent, with what its host took away from it."""
    user, nice, system, _idle, _iowait, irq, softirq, stolen = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + stolen) / TICKS_PER_S


def cpu_ns_by_thread(pids: Iterable[int]) -> dict[str, int]:
    """CPU time of every thread of these processes. By thread, because the times of whole processes have a
    resolution of 10 ms, too coarse for many processes that each do little."""
    times: dict[str, int] = {}
    for pid in pids:
        try:
            threads = list(Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            continue
        for thread in threads:
            with contextlib.suppress(OSError, IndexError):
                times[thread.name] = _cpu_ns(thread)
    return times


def _cpu_ns(thread: Path) -> int:
    try:
        return int((thread / "schedstat").read_text().split()[0])
    except FileNotFoundError:  # a kernel that does not count so finely
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // TICKS_PER_S


def memory_bytes(pid: int) -> int:
    """Resident memory of a process, 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


async def wait_until_idle(seconds: float) -> None:
    """Wait, at most that long, until others leave most of the machine free."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = busy_s()
        await asyncio.sleep(POLL_S)
        if busy_s() - before < IDLE_FRACTION * POLL_S * CORES:
            return


def description() -> str:
    memory_gib = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES / (1 << 30)
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{CORES} cores, {memory_gib:.0f} GiB, {system}"


class ResourceMeter:
    """What a measurement cost: CPU time of its processes, bytes on loopback, and the share of others."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._threads = cpu_ns_by_thread(self._pids)
        self._before = self._now()

    def _now(self) -> tuple[int, float, float, float]:
        return loopback_bytes(), busy_s(), time.process_time(), time.monotonic()

    def read(self) -> tuple[float, int, float]:
        """CPU seconds, bytes on loopback, and the share of the machine that foreign processes took."""
        wire, busy, driver, wall = (now - then for now, then in zip(self._now(), self._before, strict=True))
        threads = cpu_ns_by_thread(self._pids)
        cpu = sum(now - self._threads.get(thread, 0) for thread, now in threads.items()) / 1e9
        foreign = max(0.0, busy - cpu - driver) / (CORES * wall) if wall else 0.0
        return cpu, int(wire), foreign
