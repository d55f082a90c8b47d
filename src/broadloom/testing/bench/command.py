"""`broadloom bench`: run benchmarks and print their results."""

import json as json_module
import os
import secrets
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from broadloom.testing.bench.benchmarks import BENCHMARKS, run_benchmark, warm_up
from broadloom.testing.bench.config import JOINERS, BenchConfig, SecurityMode
from broadloom.testing.bench.results import NOISY_FRACTION, BenchReport, header, noise_note, result_table
from broadloom.testing.bench.runner import BenchRun
from broadloom.testing.errors import ConfigError, WorkerTimeoutError
from broadloom.testing.processes.forkserver import unsupported_reason
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
    """Run the whole command and return its exit status."""
    try:
        if benchmark not in (*BENCHMARKS, ALL):
            raise ConfigError(f"unknown benchmark {benchmark!r}; available: {', '.join(BENCHMARKS)}, {ALL}")
        security = _security_mode(no_tls=no_tls, shared_key=shared_key, signed=signed)
        config = BenchConfig(receivers, size, messages, rate, duration, security).validated()
        report = run_benchmarks([*BENCHMARKS] if benchmark == ALL else [benchmark], config, quiet=json)
    except ConfigError as error:
        err.print(f"broadloom bench: {error}", style="red", markup=False, highlight=False)
        return USAGE_ERROR
    except OSError as error:
        err.print(f"broadloom bench: not possible here: {error}", style="red", markup=False, highlight=False)
        return FAILED
    except KeyboardInterrupt:
        err.print("broadloom bench: interrupted; all processes were stopped", markup=False)
        return INTERRUPTED
    if json:
        print(json_module.dumps(report.as_dict()), flush=True)
    else:
        _print_report(report)
    return UNSUPPORTED if report.skipped else FAILED if report.problems else 0


def _security_mode(*, no_tls: bool, shared_key: bool, signed: bool) -> SecurityMode:
    chosen = [
        mode
        for mode, is_chosen in (
            (SecurityMode.PLAIN, no_tls),
            (SecurityMode.SHARED_KEY, shared_key),
            (SecurityMode.SIGNED, signed),
        )
        if is_chosen
    ]
    if len(chosen) > 1:
        raise ConfigError("--no-tls, --shared-key and --signed exclude each other")
    return chosen[0] if chosen else SecurityMode.NAME_DERIVED_KEY


def _print_report(report: BenchReport) -> None:
    if report.skipped:
        err.print(f"broadloom bench: {report.skipped}", style="yellow", markup=False, highlight=False)
        return
    for text in report.problems[:PROBLEMS_SHOWN_MAX]:
        err.print(f"broadloom bench: {text}", style="red", markup=False, highlight=False)
    if len(report.problems) > PROBLEMS_SHOWN_MAX:
        err.print(f"… and {len(report.problems) - PROBLEMS_SHOWN_MAX} more (--json lists all)", style="red")
    out.print(header(report), highlight=False)
    if report.results:
        out.print(result_table(report, {name: each.description for name, each in BENCHMARKS.items()}))
    if text := noise_note(report):
        out.print(text, style="yellow" if report.noise > NOISY_FRACTION else "", highlight=False)
    if report.problems:
        out.print("a guarantee was violated: do not trust these results", style="red")
    else:
        out.print("every message was delivered once and in order", style="green")


def run_benchmarks(names: list[str], config: BenchConfig, *, quiet: bool = False) -> BenchReport:
    """Run benchmarks one after another in one fabric."""
    return run(_run_benchmarks(names, config, quiet=quiet))


async def _run_benchmarks(names: list[str], config: BenchConfig, *, quiet: bool) -> BenchReport:
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
        with _ProgressBar(len(names), quiet=quiet) as progress:
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


class _ProgressBar:
    """Progress on a terminal, without a thread: it is drawn when something changes."""

    def __init__(self, count: int, *, quiet: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        shown = err.is_terminal and not quiet
        self._progress = Progress(*columns, console=err, auto_refresh=False, transient=True, disable=not shown)
        self._task = self._progress.add_task("starting", total=count)
        self._started = 0

    def __enter__(self) -> "_ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def phase(self, text: str) -> None:
        self._progress.update(self._task, description=text, refresh=True)

    def next_benchmark(self, name: str) -> None:
        self._started += 1
        self._progress.update(self._task, description=name, completed=self._started - 1, refresh=True)

    def set_fraction(self, done: float) -> None:
        self._progress.update(self._task, completed=self._started - 1 + done, refresh=True)
