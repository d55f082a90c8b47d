"""One chaos run: the state of its peers, and every fault that a scenario can inject."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, Protocol

from broadloom.testing.chaos.config import ChaosConfig
from broadloom.testing.checks.audit import DeliveryAudit
from broadloom.testing.checks.guarantees import (
    PeerView,
    check_connected,
    find_convergence_problems,
    report_adjacency,
)
from broadloom.testing.errors import WorkerTimeoutError
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.pool import PeerRecord, WorkerHandle, WorkerPool, joins_allowed

POLL_S = 0.1
REPLY_TIMEOUT_S = 60.0
LOOPBACK = ("127.0.0.1",)


class PhaseListener(Protocol):
    """Displays the progress of a run."""

    def phase(self, text: str) -> None: ...


class ChaosRun:
    """Processes, faults and waits for a scenario; `runner.run_scenario` runs the built-in ones.

    Use it with `async with`. Conditions are functions that describe what is still wrong, or return None."""

    worker = "broadloom.testing.chaos.worker:ChaosWorker"

    def __init__(self, config: ChaosConfig, worker_config: WorkerConfig, listener: PhaseListener) -> None:
        self.config = config
        self.listener = listener
        self.random = Random()
        self.pool = WorkerPool(self.worker, worker_config, self._on_report, self._on_worker_death)
        self.peers: dict[int, PeerRecord] = {}
        self.views: dict[int, PeerView] = {}
        self.audit = DeliveryAudit(payloads_are_checked=True)
        self.problems: list[str] = []
        """Violated guarantees."""
        self.errors: list[str] = []
        """Uncaught exceptions and unexpected exits of workers."""
        self.metrics: dict[str, float] = {}
        self.killed = 0
        self.left = 0

    async def __aenter__(self) -> "ChaosRun":
        await self.pool.start()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.pool.__aexit__(*error)

    # -- reports of workers

    def _on_report(self, worker: WorkerHandle, report: dict[str, Any]) -> None:
        match report["report"]:
            case "connected":
                view = PeerView(*report["view"])
                peer = self.peers[view.number]
                peer.peer_id, peer.connect_time_s, peer.phases = view.peer_id, report["took_s"], report["phases"]
                self._on_view(worker, view)
            case "views":
                for row in report["views"]:
                    self._on_view(worker, PeerView(*row))
            case "left":
                peer = self.peers[report["number"]]
                peer.is_gone = True
                self.audit.on_departed(peer.peer_id, left_gracefully=True, **report["departed"])
                self.left += 1
            case "violation":
                self.problems.append(f"guarantee {report['guarantee']}: {report['text']}")
            case "failed":
                self.problems.append(f"guarantee 5: peer {report['number']} could not connect: {report['text']}")
                del self.peers[report["number"]]
            case "error":
                self.errors.append(f"process {worker.number}: {report['text']}")

    def _on_view(self, worker: WorkerHandle, view: PeerView) -> None:
        if not worker.is_expected_to_exit and not self.peers[view.number].is_leaving:
            self.views[view.number] = view

    def _on_worker_death(self, worker: WorkerHandle) -> None:
        numbers = [record.number for record in self.peers.values() if record.worker is worker]
        peers_text = f" with peers {numbers[0]} to {numbers[-1]}" if numbers else ""
        self.errors.append(f"process {worker.number}{peers_text} exited unexpectedly: {worker.exit_status}")
        self._on_killed([worker])

    def _on_killed(self, workers: Iterable[WorkerHandle]) -> None:
        for worker in workers:
            for record in self.peers.values():
                if record.worker is worker and not record.is_gone:
                    record.is_gone = True
                    self.killed += 1
                    self.views.pop(record.number, None)
                    self.audit.on_departed(record.peer_id, left_gracefully=False)

    # -- peers

    @property
    def members(self) -> dict[int, PeerView]:
        """Views of the peers that are running and neither paused nor leaving."""
        return {number: view for number, view in self.views.items() if not self.peers[number].worker.is_paused}

    def connecting(self) -> list[int]:
        return [record.number for record in self.peers.values() if not (record.peer_id or record.is_gone)]

    def leaving(self) -> list[int]:
        return [record.number for record in self.peers.values() if record.is_leaving and not record.is_gone]

    def worker_of(self, number: int) -> WorkerHandle:
        return self.pool.workers[number // self.config.peers_per_process]

    def _peer_count(self, worker: WorkerHandle) -> int:
        return sum(self.peers[number].worker is worker for number in self.views)

    def start(
        self, worker: WorkerHandle, numbers: list[int], bootstrap: Iterable[str] = LOOPBACK, **options: Any
    ) -> None:
        for number in numbers:
            self.peers[number] = PeerRecord(number, worker)
        worker.send("start", numbers=numbers, bootstrap=list(bootstrap), **options)

    async def grow(self, bootstrap: Iterable[str] = LOOPBACK) -> None:
        """Start all peers, at most a quarter of the connected ones at a time."""
        waiting = list(range(self.config.peers))
        began = time.monotonic()
        while waiting or self.connecting():
            connected = sum(record.peer_id != 0 for record in self.peers.values())
            room = joins_allowed(connected, len(self.connecting()))
            for number in waiting[:room]:
                self.start(self.worker_of(number), [number], bootstrap)
            del waiting[:room]
            self.listener.phase(f"starting: {connected} of {self.config.peers} peers")
            await self._wait_for_connect(len(self.connecting()))
        self.metrics["started_s"] = time.monotonic() - began
        self.listener.phase("waiting for one regular fabric")
        self.metrics["grown_s"] = await self.wait_until_converged(time.monotonic_ns())

    async def _wait_for_connect(self, before: int) -> None:
        def find_problem() -> str | None:
            connecting = self.connecting()
            return f"peer {connecting[0]} is not connected yet" if len(connecting) >= before else None

        await self.wait_until(find_problem, self.config.repair_timeout_s, poll_s=POLL_S / 10)

    # -- traffic

    def set_traffic(self, per_s: float) -> None:
        """Set the rate of all peers together."""
        workers = [worker for worker in self.pool.responsive if self._peer_count(worker)]
        count = sum(map(self._peer_count, workers))
        for worker in workers:
            worker.send("set_traffic", per_s=per_s * self._peer_count(worker) / count)

    def send_at_full_speed(self) -> None:
        for worker in self.pool.responsive:
            worker.send("send_at_full_speed")

    async def stop_traffic(self) -> None:
        """Stop sending and wait until no `broadcast` is under way."""
        self.set_traffic(0)
        deadline = time.monotonic() + self.config.repair_timeout_s
        while any(reply["is_sending"] for reply in await self.request("usage")):
            if time.monotonic() > deadline:
                raise WorkerTimeoutError(f"a `broadcast` did not return within {self.config.repair_timeout_s:g} s")
            await self.sleep(POLL_S)

    async def memory_mb(self) -> float:
        """Memory of the largest process, without shared pages."""
        return max(float(reply["own_memory_mb"]) for reply in await self.request("usage"))

    # -- faults

    def kill(self, workers: list[WorkerHandle]) -> int:
        """SIGKILL; returns the time."""
        at_ns = time.monotonic_ns()
        for worker in workers:
            self.pool.kill(worker)
        self._on_killed(workers)
        return at_ns

    def pause(self, workers: list[WorkerHandle]) -> None:
        for worker in workers:
            self.pool.pause(worker)

    def resume(self, workers: list[WorkerHandle]) -> None:
        for worker in workers:
            self.pool.resume(worker)

    def leave(self, number: int) -> None:
        self.peers[number].is_leaving = True
        self.views.pop(number, None)
        self.peers[number].worker.send("leave", numbers=[number])

    # -- waiting

    async def request(self, do: str, **arguments: Any) -> list[dict[str, Any]]:
        """Return the replies of all responsive workers; raises `WorkerTimeoutError` if one does not reply."""
        workers = self.pool.responsive
        replies = await self.pool.request(do, workers=workers, timeout_s=REPLY_TIMEOUT_S, **arguments)
        if silent := [str(worker.number) for worker in workers if worker.is_responsive and worker not in replies]:
            raise WorkerTimeoutError(f"no reply to {do!r} from processes {', '.join(silent[:8])}")
        return list(replies.values())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._raise_on_errors()

    async def wait_until(
        self, find_problem: Callable[[], str | None], timeout_s: float, *, poll_s: float = POLL_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while (problem := find_problem()) is not None:
            if time.monotonic() > deadline:
                raise WorkerTimeoutError(f"after {timeout_s:g} s: {problem}")
            await self.sleep(poll_s)

    def _raise_on_errors(self) -> None:
        """After an unexpected exit or an uncaught exception the run proves nothing any more."""
        if self.errors:
            raise WorkerTimeoutError("a process failed")

    def wait_until_converged(self, since_ns: int) -> Awaitable[float]:
        """Wait for one regular fabric; returns the seconds from `since_ns` to the change that completed it."""
        return self._wait_and_measure(self._find_convergence_problems, since_ns)

    def wait_until_merged(self, since_ns: int) -> Awaitable[float]:
        """Wait for one fabric, regular or not."""
        return self._wait_and_measure(self._find_partition, since_ns)

    async def _wait_and_measure(self, find_problem: Callable[[], str | None], since_ns: int) -> float:
        await self.wait_until(find_problem, self.config.repair_timeout_s)
        return max(0.0, (max(view.changed_ns for view in self.members.values()) - since_ns) / 1e9)

    def _find_convergence_problems(self) -> str | None:
        if joining := self.connecting():
            return f"peer {joining[0]} is not connected yet"
        if leaving := self.leaving():
            return f"peer {leaving[0]} has not left yet"
        return find_convergence_problems(self.members.values(), self.config.degree)

    def _find_partition(self) -> str | None:
        return check_connected(report_adjacency(self.members.values()))
