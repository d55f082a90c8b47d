"""A run: a coordinator that starts its peers, collects what goes wrong, and waits, always with a deadline."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self

from broadloom.testing.errors import WorkerTimeoutError
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.coordinator import Coordinator, PeerRecord, joins_allowed
from broadloom.testing.processes.pool import WorkerHandle
from broadloom.transport.addresses import LOOPBACK

POLL_S = 0.1
REPLY_TIMEOUT_S = 60.0


class PhaseListener(Protocol):
    """Displays the progress of a run."""

    def phase(self, text: str) -> None: ...


class ProcessRun(Coordinator):
    """Use it with `async with`. Conditions are functions that describe what is still wrong, or return None."""

    worker: str
    """Path of the worker class."""

    def __init__(
        self, worker_config: WorkerConfig, listener: PhaseListener, peers: int, *, per_process: int, timeout_s: float
    ) -> None:
        super().__init__(self.worker, worker_config)
        self.listener = listener
        self.peer_count = peers
        self.timeout_s = timeout_s
        """Maximum time until the fabric is one regular graph."""
        self.problems: list[str] = []
        """Violated guarantees."""
        self.errors: list[str] = []
        """Uncaught exceptions and unexpected exits of workers."""
        self.metrics: dict[str, float] = {}
        self.joined: list[PeerRecord] = []
        """Every peer that was connected at some time."""
        self._per_process = per_process

    async def __aenter__(self) -> Self:
        await self.pool.start()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.pool.__aexit__(*error)

    # -- reports of workers

    def on_connected(self, record: PeerRecord) -> None:
        self.joined.append(record)

    def on_failed(self, number: int, text: str) -> None:
        self.problems.append(f"guarantee 5: peer {number} could not connect: {text}")

    def on_violation(self, text: str) -> None:
        self.problems.append(text)

    def on_error(self, text: str) -> None:
        self.errors.append(text)

    # -- peers

    def worker_of(self, number: int) -> WorkerHandle:
        return self.pool.workers[number // self._per_process]

    async def grow(self, bootstrap: Iterable[str] = (LOOPBACK,)) -> None:
        """Start all peers, at most a quarter of the connected ones at a time."""
        waiting = list(range(self.peer_count))
        began = time.monotonic()
        while waiting or self.starting:
            room = joins_allowed(len(self.connected), len(self.starting))
            for number in waiting[:room]:
                self.start_peers(self.worker_of(number), [number], bootstrap)
            del waiting[:room]
            self.listener.phase(f"starting: {len(self.connected)} of {self.peer_count} peers")
            await self._wait_for_connect(len(self.starting))
        self.metrics["started_s"] = time.monotonic() - began
        self.listener.phase("waiting for one regular fabric")
        self.metrics["grown_s"] = await self.wait_until_converged(time.monotonic_ns())

    async def _wait_for_connect(self, before: int) -> None:
        def find_problem() -> str | None:
            starting = self.starting
            return f"peer {starting[0]} is not connected yet" if len(starting) >= before else None

        await self.wait_until(find_problem, self.timeout_s, poll_s=POLL_S / 10)

    # -- waiting

    async def request(self, do: str, **arguments: Any) -> list[dict[str, Any]]:
        """Return the replies of all responsive workers; raises `WorkerTimeoutError` if one does not reply."""
        workers = self.pool.responsive
        replies = await self.pool.request(do, workers=workers, timeout_s=REPLY_TIMEOUT_S, **arguments)
        if silent := [str(worker.number) for worker in workers if worker.is_responsive and worker not in replies]:
            raise WorkerTimeoutError(f"no reply to {do!r} from processes {', '.join(silent[:8])}")
        return list(replies.values())

    async def sleep(self, seconds: float) -> None:
        """After an unexpected exit or an uncaught exception the run proves nothing any more: `WorkerTimeoutError`."""
        await asyncio.sleep(seconds)
        if self.errors:
            raise WorkerTimeoutError("a process failed")

    async def wait_until(
        self, find_problem: Callable[[], str | None], timeout_s: float, *, poll_s: float = POLL_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while (problem := find_problem()) is not None:
            if time.monotonic() > deadline:
                raise WorkerTimeoutError(f"after {timeout_s:g} s: {problem}")
            await self.sleep(poll_s)

    async def wait_until_converged(self, since_ns: int, find_problem: Callable[[], str | None] | None = None) -> float:
        """Wait for one regular fabric, or another condition; returns the seconds from `since_ns` to the change that
        completed it."""
        await self.wait_until(find_problem or self.find_convergence_problems, self.timeout_s)
        return max(0.0, (max(view.changed_ns for view in self.members.values()) - since_ns) / 1e9)
