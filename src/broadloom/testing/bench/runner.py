"""One benchmark run, from the first process to the report: peers send on command until every peer has every message."""

import os
import secrets
import time
from dataclasses import dataclass
from typing import Any, Protocol

from broadloom.testing.bench.benchmarks import run_benchmark, warm_up
from broadloom.testing.bench.config import CONVERGENCE_TIMEOUT_S, JOINERS, BenchConfig
from broadloom.testing.bench.results import BenchReport
from broadloom.testing.errors import WorkerTimeoutError
from broadloom.testing.processes import process_stats
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.forkserver import unsupported_reason
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces
from broadloom.testing.processes.pool import WorkerHandle
from broadloom.testing.processes.run import POLL_S, PhaseListener, ProcessRun
from broadloom.transport.event_loop import run

START_DELAY_NS = 50_000_000
"""All senders start at the same moment, this long after the command."""
STALL_S = 20.0
"""Without a delivery for this long, the missing ones are lost."""
DRAIN_TIMEOUT_S = 180.0


class ProgressBar(PhaseListener, Protocol):
    def next_benchmark(self, name: str) -> None: ...

    def set_fraction(self, done: float) -> None:
        """Completed fraction of the current benchmark."""


@dataclass(frozen=True, slots=True)
class SendPhase:
    """What one peer sent in the current benchmark."""

    count: int
    total: int
    """Since the peer was started."""
    first_ns: int


class BenchRun(ProcessRun):
    worker = "broadloom.testing.bench.worker:BenchWorker"

    def __init__(self, peers: int, worker_config: WorkerConfig, progress: ProgressBar) -> None:
        super().__init__(worker_config, progress, peers, per_process=1, timeout_s=CONVERGENCE_TIMEOUT_S)
        self.progress = progress
        self.send_phases: dict[int, SendPhase] = {}
        """Senders that have finished, by peer id."""
        self._sending: dict[int, int] = {}
        """Numbers of the sending peers, and their messages so far."""
        self._messages_max, self._duration_s, self._ends_at_s = 1, 1.0, 0.0

    def start_sending(self, numbers: list[int], messages_max: int, duration_s: float, per_s: float = 0.0) -> None:
        """Send at most `messages_max` messages per peer, at full speed if `per_s` is 0."""
        self.send_phases.clear()
        self._sending = dict.fromkeys(numbers, 0)
        self._messages_max, self._duration_s = messages_max * len(numbers), duration_s
        self._ends_at_s = time.monotonic() + duration_s
        limits = {"messages_max": messages_max, "duration_s": duration_s, "per_s": per_s}
        at_ns = time.monotonic_ns() + START_DELAY_NS
        for number in numbers:
            self.worker_of(number).send("send", number=number, at_ns=at_ns, **limits)

    async def wait_until_sent(self, timeout_s: float) -> None:
        await self.wait_until(self._find_sending, timeout_s, poll_s=POLL_S / 10)

    def _find_sending(self) -> str | None:
        if not self._sending:
            return None
        number = min(self._sending)
        return f"peer {number} is still waiting in `broadcast`, after {self._sending[number]:,} messages or more"

    def on_report(self, worker: WorkerHandle, report: dict[str, Any]) -> None:
        match report["report"]:
            case "sending" if report["number"] in self._sending:
                self._sending[report["number"]] = report["count"]
                by_count = sum(self._sending.values()) / self._messages_max
                by_time = 1 - (self._ends_at_s - time.monotonic()) / self._duration_s
                self.progress.set_fraction(min(1.0, max(by_count, by_time)))
            case "sent":
                self._sending.pop(report["number"], None)
                self.send_phases[report["peer"]] = SendPhase(report["count"], report["total"], report["first_ns"])
            case _:
                super().on_report(worker, report)

    async def drain(self) -> None:
        """Wait until every peer has every message; record a problem if deliveries stall."""
        began = progressed_at = time.monotonic()
        deliveries_max = -1
        while True:
            peers = [peer for reply in await self.request("progress") for peer in reply["peers"]]
            missing = self._missing_deliveries(peers)
            if not missing:
                return
            now, deliveries = time.monotonic(), sum(peer["deliveries"] for peer in peers)
            if deliveries > deliveries_max:
                deliveries_max, progressed_at = deliveries, now
            if now - progressed_at > STALL_S or now - began > DRAIN_TIMEOUT_S:
                text = f"{missing:,} deliveries are missing {now - began:.0f} s after the last message"
                self.problems.append(f"guarantee 1: {text}")
                return
            await self.sleep(POLL_S)

    def _missing_deliveries(self, peers: list[dict[str, Any]]) -> int:
        count = 0
        for peer in peers:
            last_numbers = dict(peer["received"])
            for author, phase in self.send_phases.items():
                if author != peer["peer"]:
                    count += max(0, phase.total - last_numbers.get(author, 0))
        return count


def run_benchmarks(names: list[str], config: BenchConfig, progress: ProgressBar) -> BenchReport:
    """Run benchmarks one after another in one fabric; all processes have ended when it returns."""
    return run(_run_benchmarks(names, config, progress))


async def _run_benchmarks(names: list[str], config: BenchConfig, progress: ProgressBar) -> BenchReport:
    report = BenchReport(config, skipped=unsupported_reason() or "")
    if report.skipped:
        return report
    began = time.monotonic()
    namespaces = _own_network()
    report.own_network = namespaces is not None
    network_pid = namespaces.pids[0] if namespaces is not None else 0
    worker_config = config.worker_config(f"bench/{os.getpid()}-{secrets.token_hex(8)}")
    process_stats.raise_file_limit(config.peers + JOINERS)  # one socket per process
    try:
        bench_run = BenchRun(config.peers, worker_config, progress)
        async with bench_run:
            for _ in range(config.peers + JOINERS):
                await bench_run.pool.start_worker(network_pid)
            await _run_each(names, bench_run, config, network_pid or os.getpid(), report)
    finally:
        if namespaces is not None:
            namespaces.close()
    report.problems, report.errors = bench_run.problems, bench_run.errors
    report.wall_s = time.monotonic() - began
    return report


def _own_network() -> NetworkNamespaces | None:
    """Where permitted, a network that no other program uses: every byte on its loopback interface is ours."""
    try:
        return NetworkNamespaces()
    except (NamespaceError, OSError):
        return None


async def _run_each(
    names: list[str], bench_run: BenchRun, config: BenchConfig, network_pid: int, report: BenchReport
) -> None:
    """Stop at the first problem: later results would be meaningless."""
    name = "starting"
    try:
        await bench_run.grow()
        await warm_up(bench_run, config)
        for name in names:
            if bench_run.problems:
                break
            bench_run.progress.next_benchmark(name)
            report.results[name] = await run_benchmark(name, bench_run, config, network_pid)
    except WorkerTimeoutError as timeout:
        if not bench_run.errors:
            bench_run.problems.append(f"{name}: {timeout}")
