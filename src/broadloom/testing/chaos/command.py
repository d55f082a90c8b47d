"""`broadloom trial`: from the words of the command line to real processes, and from their reports to a table."""

import json as json_module
import os
import secrets
import socket
import time
from collections.abc import Callable

from rich.console import Console
from rich.status import Status
from rich.table import Table

from broadloom.security import generate_key
from broadloom.testing.chaos.chaos_run import ChaosRun
from broadloom.testing.chaos.config import ChaosConfig, ConfigError
from broadloom.testing.chaos.pool import WorkerTimeoutError
from broadloom.testing.chaos.processes import fork, freeze_heap, unsupported_reason
from broadloom.testing.chaos.report import ChaosReport, fill_report, report_table
from broadloom.testing.chaos.scenarios import SCENARIOS, ChaosScenario, merge_config, spare_processes
from broadloom.testing.chaos.worker import Worker
from broadloom.testing.checks.final_audit import run_final_audit
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.network_namespaces import NamespaceError, NetworkNamespaces
from broadloom.transport.event_loop import run

FAILED = 1
USAGE_ERROR = 2
UNSUPPORTED = 3
INTERRUPTED = 130
PROBLEMS_SHOWN_MAX = 10

out = Console()
err = Console(stderr=True)


def chaos(
    scenario: str,
    *,
    peers: int = 0,
    processes: int = 0,
    kill: int = 0,
    pause: int = 0,
    joiners: int = 0,
    churn_per_min: float = 0.0,
    duration: float = 0.0,
    rate: float = 0.0,
    size: int = 0,
    degree: int = 0,
    repair_timeout: float = 0.0,
    no_tls: bool = False,
    json: bool = False,
    tape: str = "",
) -> int:
    """The whole command; returns the exit code. 0 means: as the scenario has it."""
    if scenario == "list":
        _print_scenarios()
        return 0
    try:
        if scenario not in SCENARIOS:
            raise ConfigError(f"no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
        if kill and scenario != "kill":
            raise ConfigError(f"{scenario}: nobody is killed by number; --kill is for the scenario kill")
        if pause and scenario != "pause":
            raise ConfigError(f"{scenario}: nobody is frozen; --freeze is for the scenario pause")
        given: dict[str, object] = {"peers": peers, "processes": processes, "affected_peers": kill or pause}
        given |= {"joiners": joiners, "churn_per_min": churn_per_min, "duration_s": duration}
        given |= {"rate_per_s": rate, "size_bytes": size}
        given |= {"degree": degree, "repair_timeout_s": repair_timeout, "no_tls": no_tls or None, "tape": tape}
        config = merge_config(SCENARIOS[scenario].defaults, given)
        report = run_scenario(scenario, config, quiet=json)
    except ConfigError as problem:
        err.print(f"broadloom trial: {problem}", style="red", markup=False, highlight=False)
        return USAGE_ERROR
    except KeyboardInterrupt:
        err.print("broadloom trial: interrupted; all processes have ended", markup=False)
        return INTERRUPTED
    _print_report(report, json=json)
    return UNSUPPORTED if report.skipped else 0 if report.passed else FAILED


def _print_scenarios() -> None:
    rows = Table("scenario", "peers", "what happens", box=None, pad_edge=False)
    for name, scenario in SCENARIOS.items():
        rows.add_row(name, str(scenario.defaults.peers), scenario.description)
    out.print(rows)


def _print_report(report: ChaosReport, *, json: bool) -> None:
    if json:
        print(json_module.dumps(report.as_dict()), flush=True)
        return
    if report.skipped:
        err.print(f"skipped: {report.skipped}", style="yellow", markup=False, highlight=False)
        return
    problems = report.errors + report.problems
    for text in problems[:PROBLEMS_SHOWN_MAX]:
        err.print(text, style="red", markup=False, highlight=False)
    if len(problems) > PROBLEMS_SHOWN_MAX:
        err.print(
            f"… and {len(problems) - PROBLEMS_SHOWN_MAX} more (--json tells all)",
            style="red",
            markup=False,
            highlight=False,
        )
    out.print(report_table(report))
    out.print("[green]all promises held[/]" if report.passed else "[red]broken[/]")


def run_scenario(name: str, config: ChaosConfig, *, quiet: bool = False) -> ChaosReport:
    """One trial, from the first process to the end of the last."""
    scenario = SCENARIOS[name]
    spare = spare_processes(name, config)
    security = "plain" if config.no_tls else "TLS"
    report = ChaosReport(name, config.peers, config.processes, security)
    report.skipped = unsupported_reason() or ""
    if report.skipped:
        return report
    namespaces: NetworkNamespaces | None = None
    began = time.monotonic()
    with _ProgressBar(quiet=quiet) as progress:
        chaos_run = ChaosRun(config, progress)
        try:
            try:
                namespaces = NetworkNamespaces() if scenario.needs_namespaces else None
            except NamespaceError as problem:
                report.skipped = str(problem)
                return report
            _fork_all(chaos_run, spare, namespaces)
            progress.begin()
            _run_steps(scenario, chaos_run, namespaces, report)
        finally:
            chaos_run.pool.kill_all()
            if namespaces is not None:
                namespaces.close()
    report.wall_s = time.monotonic() - began
    report.cpu_s = sum(process.cpu_s for process in chaos_run.pool.processes)
    return report


def _fork_all(chaos_run: ChaosRun, spare: int, namespaces: NetworkNamespaces | None) -> None:
    """Before there is any thread or event loop in this process."""
    config = chaos_run.config
    channel = f"trial/{os.getpid()}-{secrets.token_hex(8)}"
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
            chaos_run.problems.append(f"promise {6 if 'components' in str(timeout) else 5}: {timeout}")
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


class _ProgressBar:
    """How far it is, on a terminal. Starts its thread only when told to: nothing may be forked after that."""

    def __init__(self, *, quiet: bool) -> None:
        self._status = Status("…", console=err) if err.is_terminal and not quiet else None

    def __enter__(self) -> "_ProgressBar":
        return self

    def __exit__(self, *_problem: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self) -> None:
        if self._status is not None:
            self._status.start()

    def phase(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
