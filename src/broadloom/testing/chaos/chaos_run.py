"""One chaos run: the traffic of its peers, and every fault that a scenario can inject."""

import time
from collections import Counter

from broadloom.testing.chaos.config import ChaosConfig
from broadloom.testing.checks.audit import DeliveryAudit
from broadloom.testing.checks.guarantees import check_connected, report_adjacency
from broadloom.testing.errors import WorkerTimeoutError
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.coordinator import PeerRecord
from broadloom.testing.processes.pool import WorkerHandle
from broadloom.testing.processes.run import POLL_S, PhaseListener, ProcessRun


class ChaosRun(ProcessRun):
    """Processes, faults and waits for a scenario; `runner.run_scenario` runs the built-in ones."""

    worker = "broadloom.testing.chaos.worker:ChaosWorker"

    def __init__(self, config: ChaosConfig, worker_config: WorkerConfig, listener: PhaseListener) -> None:
        super().__init__(
            worker_config,
            listener,
            config.peers,
            per_process=config.peers_per_process,
            timeout_s=config.repair_timeout_s,
        )
        self.config = config
        self.audit = DeliveryAudit(payloads_are_checked=True)
        self.killed = 0
        self.left = 0

    def on_departed(self, record: PeerRecord, reason: str, departed: dict[str, int]) -> None:
        left_gracefully = reason == "left"
        self.left += left_gracefully
        self.killed += not left_gracefully
        self.audit.on_departed(record.peer_id, left_gracefully=left_gracefully, **departed)

    def find_convergence_problems(self) -> str | None:
        leaving = [record.number for record in self.peers.values() if record.is_leaving]
        return f"peer {leaving[0]} has not left yet" if leaving else super().find_convergence_problems()

    async def wait_until_merged(self, since_ns: int) -> float:
        """Wait for one fabric, regular or not."""
        return await self.wait_until_converged(
            since_ns, lambda: check_connected(report_adjacency(self.members.values()))
        )

    # -- traffic

    def set_traffic(self, per_s: float) -> None:
        """Set the rate of all peers together."""
        counts = Counter(record.worker for record in self.active)
        for worker, count in counts.items():
            worker.send("set_traffic", per_s=per_s * count / counts.total())

    def send_at_full_speed(self) -> None:
        for worker in self.pool.responsive:
            worker.send("send_at_full_speed")

    async def stop_traffic(self) -> None:
        """Stop sending and wait until no `broadcast` is under way."""
        self.set_traffic(0)
        deadline = time.monotonic() + self.timeout_s
        while any(reply["is_sending"] for reply in await self.request("usage")):
            if time.monotonic() > deadline:
                raise WorkerTimeoutError(f"a `broadcast` did not return within {self.timeout_s:g} s")
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
        for record in [record for record in self.peers.values() if record.worker in workers]:
            self.remove(record, "killed")
        return at_ns

    def pause(self, workers: list[WorkerHandle]) -> None:
        for worker in workers:
            self.pool.pause(worker)

    def resume(self, workers: list[WorkerHandle]) -> None:
        for worker in workers:
            self.pool.resume(worker)
