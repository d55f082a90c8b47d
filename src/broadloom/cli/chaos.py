"""`broadloom chaos`: faults in real processes, with an audit of every delivery."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

from broadloom.cli.exit_codes import FAILURE, NOT_SUPPORTED, SUCCESS, UsageError, require_extra
from broadloom.cli.options import DegreeOption, JsonOption, NoTlsOption, TapeOption, argument, option
from broadloom.cli.output import ProgressBar, console, print_json, print_rows
from broadloom.cli.runner import command, print_error

if TYPE_CHECKING:
    from rich.console import Console

    from broadloom.testing.bench.results import BenchReport
    from broadloom.testing.chaos.report import ChaosReport

PROBLEMS_SHOWN_MAX = 10

R = TypeVar("R", "ChaosReport", "BenchReport")


@command("chaos")
def chaos(
    scenario: Annotated[str, argument("Name of a chaos scenario, or `list` to list them.", "SCENARIO")],
    peers: Annotated[int, option("Number of peers.", "N")] = 0,
    processes: Annotated[int, option("Number of processes. Default: one per peer.", "N")] = 0,
    kill: Annotated[int, option("Peers to kill (kill).", "N")] = 0,
    pause: Annotated[int, option("Peers to stop with SIGSTOP (pause).", "N")] = 0,
    joiners: Annotated[int, option("Peers that join one after another (join).", "N")] = 0,
    churn_per_min: Annotated[float, option("Joins per minute; as many leave or crash (churn).", "N")] = 0.0,
    duration: Annotated[float, option("Duration of the fault.", "SECONDS")] = 0.0,
    rate: Annotated[float, option("Messages per second, all peers together.", "N")] = 0.0,
    size: Annotated[int, option("Message size in bytes.", "BYTES")] = 0,
    degree: DegreeOption = 0,
    repair_timeout: Annotated[float, option("Maximum repair time.", "SECONDS")] = 0.0,
    no_tls: NoTlsOption = False,
    tape: TapeOption = None,
    json: JsonOption = False,
) -> int:
    """Inject faults into real processes on this machine and audit every delivery.

    Starts peers that send messages, kills, pauses or disconnects some of them, waits until the fabric is repaired,
    and checks that every peer received every message, exactly once and in order. Exit status 1 if a guarantee was
    violated, 3 if this machine does not support it (Linux only; `partition` needs root).

    Examples:

    - `broadloom chaos list`
    - `broadloom chaos kill --peers 200 --kill 40`
    - `broadloom chaos join --peers 200`
    """
    from broadloom.testing.chaos.chaos_run import run_scenario
    from broadloom.testing.chaos.scenarios import SCENARIOS, merge_config
    from broadloom.transport.event_loop import run as run_event_loop

    if scenario == "list":
        found = SCENARIOS.items()
        rows = (
            {"scenario": name, "peers": each.defaults.peers, "description": each.description} for name, each in found
        )
        print_rows(rows, json=json)
        return SUCCESS
    if tape is not None:
        require_extra("record")
    given: dict[str, object] = {
        "peers": peers,
        "processes": processes,
        "affected_peers": kill or pause,
        "joiners": joiners,
        "churn_per_min": churn_per_min,
        "duration_s": duration,
        "rate_per_s": rate,
        "size_bytes": size,
        "degree": degree,
        "repair_timeout_s": repair_timeout,
        "no_tls": no_tls or None,
        "tape": str(tape or ""),
    }
    if scenario not in SCENARIOS:
        raise UsageError(f"unknown scenario {scenario!r}; choose one of {', '.join(SCENARIOS)}")
    for option_name, value in (("kill", kill), ("pause", pause)):
        if value and scenario != option_name:
            raise UsageError(f"--{option_name} applies only to the scenario {option_name}")
    config = merge_config(SCENARIOS[scenario].defaults, given)
    # Drawn by no thread, because the processes are forked while it is shown.
    with reporting_interrupt("chaos"), ProgressBar("starting", quiet=json) as progress:
        report = run_event_loop(run_scenario(scenario, config, progress))
    return finish("chaos", report, _show, json=json)


@contextmanager
def reporting_interrupt(command: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print_error(command, "interrupted; all processes have ended")
        raise


def finish(command: str, report: R, show: "Callable[[R, Console], None]", *, json: bool) -> int:
    """Print the report of a run, and return the exit code."""
    if json:
        print_json(report.as_dict())
    elif report.skipped:
        print_error(command, f"skipped: {report.skipped}")
    else:
        problems = report.errors + report.problems
        for text in problems[:PROBLEMS_SHOWN_MAX]:
            print_error(command, text)
        if len(problems) > PROBLEMS_SHOWN_MAX:
            print_error(command, f"… and {len(problems) - PROBLEMS_SHOWN_MAX} more (see --json)")
        show(report, console())
    return NOT_SUPPORTED if report.skipped else SUCCESS if report.passed else FAILURE


def _show(report: "ChaosReport", out: "Console") -> None:
    from broadloom.testing.chaos.report import report_table

    out.print(report_table(report))
    if report.problems:
        out.print("[red]a guarantee was violated[/]")
    elif report.errors:
        out.print("[red]not judged: the run itself failed[/]")
    else:
        out.print("[green]all guarantees held[/]")
