"""Runs one scenario, from the first process to the exit of the last, with the final audit."""

import os
import secrets
import time
from typing import TYPE_CHECKING

from broadloom.security import generate_key
from broadloom.testing.chaos.chaos_run import ChaosRun
from broadloom.testing.chaos.final_audit import run_final_audit
from broadloom.testing.chaos.report import ChaosReport
from broadloom.testing.chaos.scenarios import SCENARIOS, ChaosScenario, spare_processes
from broadloom.testing.errors import WorkerTimeoutError
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.forkserver import unsupported_reason
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces

if TYPE_CHECKING:
    from broadloom.testing.chaos.config import ChaosConfig
    from broadloom.testing.processes.run import PhaseListener


async def run_scenario(name: str, config: "ChaosConfig", listener: "PhaseListener") -> ChaosReport:
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


def _worker_config(config: "ChaosConfig") -> WorkerConfig:
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
