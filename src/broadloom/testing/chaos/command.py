"""Runs one chaos scenario in real processes, from the first fork to the report."""

import os
import secrets
import socket
import time
from collections.abc import Callable

from broadloom.security import generate_key
from broadloom.testing.chaos.chaos_run import ChaosRun, PhaseListener
from broadloom.testing.chaos.config import ChaosConfig
from broadloom.testing.chaos.pool import WorkerTimeoutError
from broadloom.testing.chaos.processes import fork, freeze_heap, unsupported_reason
from broadloom.testing.chaos.report import ChaosReport, fill_report
from broadloom.testing.chaos.scenarios import SCENARIOS, ChaosScenario, spare_processes
from broadloom.testing.chaos.worker import Worker
from broadloom.testing.checks.final_audit import run_final_audit
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces
from broadloom.transport.event_loop import run


def run_scenario(name: str, config: ChaosConfig, progress: PhaseListener) -> ChaosReport:
    """Run a scenario; all processes have ended when it returns."""
    scenario = SCENARIOS[name]
    spare = spare_processes(name, config)
    security = "plain" if config.no_tls else "TLS"
    report = ChaosReport(name, config.peers, config.processes, security)
    report.skipped = unsupported_reason() or ""
    if report.skipped:
        return report
    namespaces: NetworkNamespaces | None = None
    began = time.monotonic()
    chaos_run = ChaosRun(config, progress)
    try:
        try:
            namespaces = NetworkNamespaces() if scenario.needs_namespaces else None
        except NamespaceError as problem:
            report.skipped = str(problem)
            return report
        _fork_all(chaos_run, spare, namespaces)
        _run_steps(scenario, chaos_run, namespaces, report)
    finally:
        chaos_run.pool.kill_all()
        if namespaces is not None:
            namespaces.close()
    report.wall_s = time.monotonic() - began
    report.cpu_s = sum(process.cpu_s for process in chaos_run.pool.processes)
    return report


def _fork_all(chaos_run: ChaosRun, spare: int, namespaces: NetworkNamespaces | None) -> None:
    """Must run before this process has any thread or event loop."""
    config = chaos_run.config
    channel = f"chaos/{os.getpid()}-{secrets.token_hex(8)}"
    key = None if config.no_tls else generate_key()
    worker_config = WorkerConfig(channel, key, config.degree, config.size_bytes, config.repair_timeout_s, config.tape)
    if config.tape:
        import broadloom.record  # noqa: F401  (loaded once, for all)
    freeze_heap()
    for number in range(config.processes + spare):
        main = (
            _worker_main(worker_config)
            if namespaces is None
            else namespaces.run_inside(number % 2, _worker_main(worker_config))
        )
        chaos_run.pool.add(fork(number, main, chaos_run.pool.processes))


def _worker_main(config: WorkerConfig) -> Callable[[socket.socket], None]:
    return lambda end: run(Worker(config, end).main())


def _run_steps(
    scenario: ChaosScenario, chaos_run: ChaosRun, namespaces: NetworkNamespaces | None, report: ChaosReport
) -> None:
    try:
        if namespaces is None:
            scenario.run(chaos_run)
        else:
            scenario.run(chaos_run, namespaces)
    except WorkerTimeoutError as timeout:
        if not chaos_run.errors:
            chaos_run.problems.append(f"promise {6 if 'parts' in str(timeout) else 5}: {timeout}")
    try:
        audit = run_final_audit(chaos_run)
        fill_report(report, chaos_run, audit)
    except WorkerTimeoutError as timeout:
        if not chaos_run.errors:
            chaos_run.problems.append(str(timeout))
    chaos_run.pool.close()
    if not (chaos_run.problems or chaos_run.errors or report.deliveries):
        chaos_run.problems.append("nothing was delivered, so nothing is proved")
    report.problems, report.errors = chaos_run.problems, chaos_run.errors
    report.passed = not (report.problems or report.errors)
