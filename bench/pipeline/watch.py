"""What a process and all that it starts cost: CPU time and memory, as the kernel tells them (Linux: /proc).

Memory is resident memory, summed: pages that two processes share count twice. CPU time of a process that lives shorter
than the pause between two looks may be missed; Spark starts none such.
"""

import contextlib
import threading
from collections import defaultdict
from pathlib import Path

from bench.machine import TICKS_PER_S, memory_bytes

SAMPLE_INTERVAL_S = 0.25

DRIVER, JAVA, WORKERS = "driver", "java", "workers"


class ProcessMonitor:
    """Looks again and again until it is stopped."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self.peaks_bytes: dict[str, int] = {}
        """Of the driver, its Java, and all workers together; each at its own worst moment."""
        self._pid = pid
        self._cpu_s: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cpu_s(self) -> float:
        """So far, with that of processes that have ended."""
        self._sample()
        with self._lock:
            return sum(self._cpu_s.values())

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        now: dict[str, int] = defaultdict(int)
        with self._lock:
            for pid, (name, began, cpu_s) in _process_tree(self._pid).items():
                self._cpu_s[pid, began] = cpu_s
                role = DRIVER if pid == self._pid else JAVA if name == "java" else WORKERS
                now[role] += memory_bytes(pid)
            for role, size in now.items():
                self.peaks_bytes[role] = max(size, self.peaks_bytes.get(role, 0))
            self.peak_bytes = max(self.peak_bytes, sum(now.values()))


def _process_tree(root: int) -> dict[int, tuple[str, str, float]]:
    """Name, time of start and CPU seconds of a process and all below it."""
    parents: dict[int, int] = {}
    processes: dict[int, tuple[str, str, float]] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            before, _, after = (place / "stat").read_text().rpartition(")")
            fields = after.split()
            pid = int(place.name)
            parents[pid] = int(fields[1])
            processes[pid] = before.partition("(")[2], fields[19], (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return {pid: each for pid, each in processes.items() if _is_descendant(pid, root, parents)}


def _is_descendant(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in (0, root):
        pid = parents.get(pid, 0)
    return pid == root
