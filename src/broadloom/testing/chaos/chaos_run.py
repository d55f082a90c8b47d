"""One chaos run, from the first process to the exit of the last: its traffic, its faults, and the audit at the end."""

import os
import secrets
import time
from collections import Counter

from broadloom.security import generate_key
from broadloom.testing.chaos.config import ChaosConfig
from broadloom.testing.chaos.final_audit import run_final_audit
from broadloom.testing.chaos.report import ChaosReport
from broadloom.testing.chaos.scenarios import SCENARIOS, ChaosScenario, spare_processes
from broadloom.testing.checks.audit import DeliveryAudit
from broadloom.testing.checks.guarantees import check_connected, report_adjacency
from broadloom.testing.errors import WorkerTimeoutError
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.coordinator import PeerRecord
from broadloom.testing.processes.forkserver import unsupported_reason
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces
from broadloom.testing.processes.pool import WorkerHandle
from broadloom.testing.processes.run import POLL_S, PhaseListener, ProcessRun


class ChaosRun(ProcessRun):
    """Processes, faults and waits for a scenario; `run_scenario` runs the built-in ones."""

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


async def run_scenario(name: str, config: ChaosConfig, listener: PhaseListener) -> ChaosReport:
    """Run a scenario of `SCENARIOS` with a validated configuration. Failures are in the report."""
    scenario = SCENARIOS[name]
    worker_count = config.processes + spare_processes(name, config)
    report = ChaosReport(name, config.peers, config.processes, "plain" if config.no_tls else "TLS")
    report.skipped = unsupported_reason() or ""
    if report.skipped:
        return report
    began = time.monotonic()
    try:
        namespaces = NetworkNamespaces() if scenario.needs_namespaces else None
    except NamespaceError as error:
        report.skipped = str(error)
        return report
    chaos_run = ChaosRun(config, _worker_config(config), listener)
    try:
        async with chaos_run:
            for number in range(worker_count):
                await chaos_run.pool.start_worker(namespaces.pids[number % 2] if namespaces is not None else 0)
            await _run_steps(scenario, chaos_run, namespaces, report)
    finally:
        if namespaces is not None:
            namespaces.close()
    report.problems, report.errors = chaos_run.problems, chaos_run.errors
    report.passed = not (report.problems or report.errors)
    report.wall_s = time.monotonic() - began
    report.cpu_s = sum(worker.cpu_s for worker in chaos_run.pool.workers)
    return report


def _worker_config(config: ChaosConfig) -> WorkerConfig:
    return WorkerConfig(
        f"chaos/{os.getpid()}-{secrets.token_hex(8)}",
        None if config.no_tls else generate_key(),
        tls=not config.no_tls,
        degree=config.degree,
        size_bytes=config.size_bytes,
        connect_timeout_s=config.repair_timeout_s,
        tape=config.tape,
    )


async def _run_steps(
    scenario: ChaosScenario, chaos_run: ChaosRun, namespaces: NetworkNamespaces | None, report: ChaosReport
) -> None:
    try:
        await scenario.run(chaos_run, *([namespaces] if namespaces is not None else []))
    except WorkerTimeoutError as timeout:
        if not chaos_run.errors:
            chaos_run.problems.append(f"guarantee {6 if 'components' in str(timeout) else 5}: {timeout}")
    try:
        report.fill(chaos_run, await run_final_audit(chaos_run))
    except WorkerTimeoutError as timeout:
        if not chaos_run.errors:
            chaos_run.problems.append(str(timeout))
    if not (chaos_run.problems or chaos_run.errors or report.deliveries):
        chaos_run.problems.append("no message was delivered, so nothing was verified")
