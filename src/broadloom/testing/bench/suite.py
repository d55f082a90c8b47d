"""Run benchmarks in real processes, from the first process to the report."""

import os
import secrets
import time

from broadloom.testing.bench.benchmarks import run_benchmark, warm_up
from broadloom.testing.bench.config import JOINERS, BenchConfig
from broadloom.testing.bench.results import BenchReport
from broadloom.testing.bench.runner import BenchRun, ProgressBar
from broadloom.testing.errors import WorkerTimeoutError
from broadloom.testing.processes.forkserver import unsupported_reason
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces
from broadloom.transport.event_loop import run


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
    chaos_config = config.chaos_config()
    worker_config = config.worker_config(f"bench/{os.getpid()}-{secrets.token_hex(8)}", chaos_config.degree)
    try:
        bench_run = BenchRun(chaos_config, worker_config, progress)
        async with bench_run:
            for _ in range(config.peers + JOINERS):
                await bench_run.pool.start_worker(network_pid)
            await _run_each(names, bench_run, config, network_pid or os.getpid(), report)
    finally:
        if namespaces is not None:
            namespaces.close()
    report.problems = bench_run.errors + bench_run.problems
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
