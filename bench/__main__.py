"""`python -m bench`: run the comparison, or report an earlier run again."""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import machine, plots, store, tables
from bench.network_namespace import enter_network_namespace
from bench.plan import FULL, QUICK, WORKLOADS, Plan, chosen
from bench.result_row import Row
from bench.run import run
from bench.systems import SYSTEMS

RESULTS = Path(__file__).parent / "results"
INTERRUPTED = 130
BEFORE = {"broadloom": "broadloom:before", "broadloom:tls": "broadloom:before+tls"}


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(text_part) for text_part in text.split(","))


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Compare Broadloom with other systems on this machine."
    )
    parser.add_argument("--quick", action="store_true", help="fewer systems and messages, one round: some minutes")
    parser.add_argument("--systems", type=_names, help=f"of {','.join(SYSTEMS)} (scale and frozen: only some of them)")
    parser.add_argument(
        "--before", type=Path, metavar="DIR", help="checkout of another version, measured next to each `broadloom`"
    )
    parser.add_argument("--workloads", type=_names, help=f"of {','.join(WORKLOADS)}")
    parser.add_argument("--sizes", type=_numbers, metavar="BYTES", help="message sizes of throughput")
    parser.add_argument("--receivers", type=_numbers, metavar="N", help="receivers of throughput")
    parser.add_argument("--scale", type=_numbers, metavar="N", help="receivers of scale")
    parser.add_argument("--small-messages", type=int, metavar="N", help="messages up to 1 KiB in one measurement")
    parser.add_argument("--large-messages", type=int, metavar="N", help="larger messages in one measurement")
    parser.add_argument("--rounds", type=int, help="number of rounds over all cases")
    parser.add_argument("--repeats", type=int, help="measurements with the same processes")
    parser.add_argument("--frozen-seconds", type=float, metavar="S", help="how long a receiver is paused")
    parser.add_argument("--calm", type=float, metavar="S", help="maximum time to wait for an idle machine")
    parser.add_argument("--shared-network", action="store_true", help="do not use a network namespace, even as root")
    parser.add_argument("--out", type=Path, help="directory of the results; default: bench/results/<date>")
    parser.add_argument("--report", type=Path, metavar="JSON", help="measure nothing: tables and plots of this file")
    parser.add_argument("--list", action="store_true", help="show the systems and what is missing")
    return parser


def plan_of(given: argparse.Namespace) -> Plan:
    plan = QUICK if given.quick else FULL
    changes = {
        "systems": given.systems and chosen(given.systems, list(SYSTEMS), "system"),
        "workloads": given.workloads and chosen(given.workloads, WORKLOADS, "workload"),
        "sizes_bytes": given.sizes,
        "receivers": given.receivers,
        "scale_receivers": given.scale,
        "small_messages": given.small_messages,
        "large_messages": given.large_messages,
        "rounds": given.rounds,
        "repeats": given.repeats,
        "frozen_s": given.frozen_seconds,
        "calm_s": given.calm,
    }
    plan = replace(plan, **{name: value for name, value in changes.items() if value is not None})
    return with_before(plan, given.before)


def with_before(plan: Plan, before: Path | None) -> Plan:
    """The other version next to this one, plain and with TLS."""
    if before is None:
        if any(name in BEFORE.values() for name in plan.systems):
            raise ValueError("another version is measured with --before DIR")
        return plan
    if not (before / "src" / "broadloom").is_dir():
        raise ValueError(f"--before {before}: there is no src/broadloom")
    systems = [each for name in plan.systems for each in (name, BEFORE.get(name)) if each is not None]
    return replace(plan, systems=tuple(dict.fromkeys(systems)), before=before.resolve())


def show(result: store.Result, directory: Path, console: Console) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tables.md").write_text(tables.markdown(result))
    drawn = plots.draw(result, directory)
    tables.show(result, console)
    console.print(f"{directory}: results.json, tables.md, {', '.join(path.name for path in drawn)}", soft_wrap=True)


async def run_measurements(plan: Plan, directory: Path, console: Console, is_isolated: bool) -> store.Result:
    """On Ctrl-C or SIGTERM, what was measured until then is shown, and every process ended."""
    where = machine.description() + (", own loopback" if is_isolated else ", shared loopback")
    result = store.Result(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), where, plan.rounds, [])

    def keep(rows: list[Row]) -> None:
        result.rows[:] = rows
        store.save(result, directory / "results.json")

    task = asyncio.create_task(run(plan, console, keep))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        console.print("interrupted; this is what was measured until now", style="yellow")
        result.interrupted = True
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser, console = argument_parser(), Console()
    if not console.is_terminal:
        console.width = tables.WIDE
    given = parser.parse_args(arguments)
    if given.list:
        tables.show_systems(console)
        return 0
    if given.report:
        show(store.load(given.report), given.out or given.report.parent, console)
        return 0
    try:
        plan = plan_of(given)
    except ValueError as problem:
        parser.error(str(problem))
    directory = given.out or RESULTS / time.strftime("%Y-%m-%d-%H%M", time.gmtime())
    directory.mkdir(parents=True, exist_ok=True)
    for name in plan.systems:
        if missing := SYSTEMS[name].missing():
            console.print(f"without {name}: {missing}", style="yellow", markup=False)
    is_isolated = not given.shared_network and enter_network_namespace()
    if not is_isolated:
        console.print("not in a network of its own: other traffic on loopback counts as well", style="yellow")
    result = asyncio.run(run_measurements(plan, directory, console, is_isolated))
    if result.rows:
        show(result, directory, console)
    else:
        console.print("nothing was measured: scale and frozen support only some systems")
    return INTERRUPTED if result.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
