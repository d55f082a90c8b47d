"""`broadloom bench`: from the words of the command line to real processes, and from their reports to a table."""

import json as json_module
import os
import secrets
import socket
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from broadloom.security import generate_key
from broadloom.testing.bench.benchmarks import BENCHMARKS, run_benchmark, warm_up
from broadloom.testing.bench.config import JOINERS, BenchConfig, BenchWorkerConfig, SecurityMode
from broadloom.testing.bench.results import NOISY_FRACTION, BenchReport
from broadloom.testing.bench.results_table import header, noise_note, result_table
from broadloom.testing.bench.runner import BenchRun
from broadloom.testing.bench.worker import BenchWorker
from broadloom.testing.chaos.config import ConfigError
from broadloom.testing.chaos.pool import WorkerTimeoutError
from broadloom.testing.chaos.processes import fork, freeze_heap, unsupported_reason
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces
from broadloom.transport.event_loop import run

ALL = "all"
FAILED = 1
USAGE_ERROR = 2
UNSUPPORTED = 3
INTERRUPTED = 130
PROBLEMS_SHOWN_MAX = 10

out = Console()
err = Console(stderr=True)


def bench(
    benchmark: str,
    *,
    receivers: int,
    size: int,
    messages: int,
    rate: float,
    duration: float,
    no_tls: bool = False,
    shared_key: bool = False,
    signed: bool = False,
    json: bool = False,
) -> int:
    """The whole command; returns the exit code. 0 means: everything arrived, once and in order."""
    try:
        if benchmark not in (*BENCHMARKS, ALL):
            raise ConfigError(f"no measurement {benchmark!r}; there are {', '.join(BENCHMARKS)}, and {ALL}")
        security = _security(no_tls=no_tls, shared_key=shared_key, signed=signed)
        config = BenchConfig(receivers, size, messages, rate, duration, security).validated()
        report = run_benchmarks([*BENCHMARKS] if benchmark == ALL else [benchmark], config, quiet=json)
    except ConfigError as problem:
        err.print(f"broadloom bench: {problem}", style="red", markup=False, highlight=False)
        return USAGE_ERROR
    except OSError as problem:
        err.print(f"broadloom bench: not possible here: {problem}", style="red", markup=False, highlight=False)
        return FAILED
    except KeyboardInterrupt:
        err.print("broadloom bench: interrupted; all processes have ended", markup=False)
        return INTERRUPTED
    if json:
        print(json_module.dumps(report.as_dict()), flush=True)
    else:
        _print_report(report)
    return UNSUPPORTED if report.skipped else FAILED if report.problems else 0


def _security(*, no_tls: bool, shared_key: bool, signed: bool) -> SecurityMode:
    if no_tls + shared_key + signed > 1:
        raise ConfigError("--plain, --key, --signed: one of them at a time")
    return (
        SecurityMode.PLAIN
        if no_tls
        else SecurityMode.SHARED_KEY
        if shared_key
        else SecurityMode.SIGNED
        if signed
        else SecurityMode.NAME_DERIVED_KEY
    )


def _print_report(report: BenchReport) -> None:
    if report.skipped:
        err.print(f"broadloom bench: {report.skipped}", style="yellow", markup=False, highlight=False)
        return
    for text in report.problems[:PROBLEMS_SHOWN_MAX]:
        err.print(f"broadloom bench: {text}", style="red", markup=False, highlight=False)
    if len(report.problems) > PROBLEMS_SHOWN_MAX:
        err.print(
            f"broadloom bench: … and {len(report.problems) - PROBLEMS_SHOWN_MAX} more (--json tells all)", style="red"
        )
    out.print(header(report), highlight=False)
    if report.results:
        out.print(result_table(report))
    if text := noise_note(report):
        out.print(text, style="yellow" if report.noise > NOISY_FRACTION else "", highlight=False)
    if report.problems:
        out.print("something went wrong: do not trust these figures", style="red")
    else:
        out.print("everything arrived, once and in order", style="green")


def run_benchmarks(names: list[str], config: BenchConfig, *, quiet: bool = False) -> BenchReport:
    """All of these, one after the other, in one fabric; from the first process to the end of the last."""
    report = BenchReport(config, skipped=unsupported_reason() or "")
    if report.skipped:
        return report
    began = time.monotonic()
    namespaces: NetworkNamespaces | None = None
    with _ProgressBar(len(names), quiet=quiet) as progress:
        bench_run = BenchRun(config.chaos_config(), progress)
        try:
            namespaces = _own_network()
            report.own_network = namespaces is not None
            _fork_all(bench_run, config, namespaces)
            _run_benchmarks(
                names, bench_run, config, namespaces.holders[0].pid if namespaces is not None else os.getpid(), report
            )
            bench_run.pool.close()
        finally:
            bench_run.pool.kill_all()
            if namespaces is not None:
                namespaces.close()
    report.problems = bench_run.errors + bench_run.problems
    report.wall_s = time.monotonic() - began
    return report


def _own_network() -> NetworkNamespaces | None:
    """Where that is permitted, a network that nobody else uses: then every byte on its loopback interface is ours."""
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
    """Until something goes wrong: what comes after that would mean nothing."""
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


class _ProgressBar:
    """How far it is, on a terminal. It has no thread: it is drawn anew when something is told."""

    def __init__(self, count: int, *, quiet: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        shown = err.is_terminal and not quiet
        self._progress = Progress(*columns, console=err, auto_refresh=False, transient=True, disable=not shown)
        self._task = self._progress.add_task("starting", total=count)
        self._begun = 0

    def __enter__(self) -> "_ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_problem: object) -> None:
        self._progress.stop()

    def phase(self, text: str) -> None:
        self._progress.update(self._task, description=text, refresh=True)

    def next_benchmark(self, name: str) -> None:
        self._begun += 1
        self._progress.update(self._task, description=name, completed=self._begun - 1, refresh=True)

    def set_fraction(self, done: float) -> None:
        self._progress.update(self._task, completed=self._begun - 1 + done, refresh=True)
