"""Runs benchmarks in real processes, from the first fork to the report."""

import os
import secrets
import socket
import time
from collections.abc import Callable

from broadloom.security import generate_key
from broadloom.testing.bench.benchmarks import run_benchmark, warm_up
from broadloom.testing.bench.config import JOINERS, BenchConfig, BenchWorkerConfig, SecurityMode
from broadloom.testing.bench.results import BenchReport
from broadloom.testing.bench.runner import BenchRun, ProgressBar
from broadloom.testing.bench.worker import BenchWorker
from broadloom.testing.chaos.pool import WorkerTimeoutError
from broadloom.testing.chaos.processes import fork, freeze_heap, unsupported_reason
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces
from broadloom.transport.event_loop import run


def run_benchmarks(names: list[str], config: BenchConfig, progress: ProgressBar) -> BenchReport:
    """Run these benchmarks one after the other in one fabric; all processes have ended when it returns."""
    report = BenchReport(config, skipped=unsupported_reason() or "")
    if report.skipped:
        return report
    began = time.monotonic()
    namespaces: NetworkNamespaces | None = None
    bench_run = BenchRun(config.chaos_config(), progress)
    try:
        namespaces = _own_network()
        report.own_network = namespaces is not None
        _fork_all(bench_run, config, namespaces)
        network_pid = namespaces.holders[0].pid if namespaces is not None else os.getpid()
        _run_benchmarks(names, bench_run, config, network_pid, report)
        bench_run.pool.close()
    finally:
        bench_run.pool.kill_all()
        if namespaces is not None:
            namespaces.close()
    report.problems = bench_run.errors + bench_run.problems
    report.wall_s = time.monotonic() - began
    return report


def _own_network() -> NetworkNamespaces | None:
    """A network namespace, where permitted, so that every byte on its loopback interface belongs to the benchmark."""
    try:
        return NetworkNamespaces()
    except (NamespaceError, OSError):
        return None


def _fork_all(bench_run: BenchRun, config: BenchConfig, namespaces: NetworkNamespaces | None) -> None:
    channel = f"bench/{os.getpid()}-{secrets.token_hex(8)}"
    key = generate_key() if config.security is SecurityMode.SHARED_KEY else None
    worker_config = BenchWorkerConfig(
        channel, key, bench_run.config.degree, config.size_bytes, security=config.security
    )
    freeze_heap()
    for number in range(config.peers + JOINERS):
        main = _worker_main(worker_config)
        bench_run.pool.add(
            fork(number, namespaces.run_inside(0, main) if namespaces is not None else main, bench_run.pool.processes)
        )


def _worker_main(config: BenchWorkerConfig) -> Callable[[socket.socket], None]:
    return lambda end: run(BenchWorker(config, end).main())


def _run_benchmarks(
    names: list[str], bench_run: BenchRun, config: BenchConfig, network_pid: int, report: BenchReport
) -> None:
    """Stops at the first problem: later results would mean nothing."""
    name = "starting"
    try:
        bench_run.grow()
        warm_up(bench_run, config)
        for name in names:
            if bench_run.problems:
                break
            bench_run.progress.next_benchmark(name)
            report.results[name] = run_benchmark(name, bench_run, config, network_pid)
    except WorkerTimeoutError as timeout:
        if not bench_run.errors:
            bench_run.problems.append(f"{name}: {timeout}")
