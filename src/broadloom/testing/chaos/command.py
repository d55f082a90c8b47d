"""`broadloom chaos`: run a scenario and print its report."""

import json as json_module
from contextlib import nullcontext

from rich.console import Console
from rich.status import Status
from rich.table import Table

from broadloom.testing.chaos.report import ChaosReport, report_table
from broadloom.testing.chaos.runner import run_scenario
from broadloom.testing.chaos.scenarios import SCENARIOS, merge_config
from broadloom.testing.errors import ConfigError
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
    """Run the whole command and return its exit status."""
    if scenario == "list":
        _print_scenarios()
        return 0
    try:
        if scenario not in SCENARIOS:
            raise ConfigError(f"unknown scenario {scenario!r}; available: {', '.join(SCENARIOS)}")
        if kill and scenario != "kill":
            raise ConfigError(f"{scenario}: --kill is only for the scenario kill")
        if pause and scenario != "pause":
            raise ConfigError(f"{scenario}: --pause is only for the scenario pause")
        given: dict[str, object] = {"peers": peers, "processes": processes, "affected_peers": kill or pause}
        given |= {"joiners": joiners, "churn_per_min": churn_per_min, "duration_s": duration}
        given |= {"rate_per_s": rate, "size_bytes": size}
        given |= {"degree": degree, "repair_timeout_s": repair_timeout, "no_tls": no_tls or None, "tape": tape}
        config = merge_config(SCENARIOS[scenario].defaults, given)
        with _Progress(quiet=json) as progress:
            report = run(run_scenario(scenario, config, progress))
    except ConfigError as error:
        err.print(f"broadloom chaos: {error}", style="red", markup=False, highlight=False)
        return USAGE_ERROR
    except KeyboardInterrupt:
        err.print("broadloom chaos: interrupted; all processes were stopped", markup=False)
        return INTERRUPTED
    _print_report(report, json=json)
    return UNSUPPORTED if report.skipped else 0 if report.passed else FAILED


def _print_scenarios() -> None:
    rows = Table("scenario", "peers", "description", box=None, pad_edge=False)
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
        err.print(f"… and {len(problems) - PROBLEMS_SHOWN_MAX} more (--json lists all)", style="red", highlight=False)
    out.print(report_table(report))
    out.print("[green]all guarantees held[/]" if report.passed else "[red]failed[/]")


class _Progress:
    """The current phase, on a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._status = Status("…", console=err) if err.is_terminal and not quiet else None

    def __enter__(self) -> "_Progress":
        (self._status or nullcontext()).__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def phase(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
