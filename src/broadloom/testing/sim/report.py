"""Results of simulations as tables and JSON, and the command that replays one."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING

from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.scenario import Scenario, load
from broadloom.testing.sim.seed_runner import SeedResult

if TYPE_CHECKING:
    from rich.table import Table


def as_json(result: SeedResult) -> str:
    content = asdict(result)
    del content["adjacency"]
    return json.dumps(content)


def replay_command(scenario: Scenario, result: SeedResult) -> str:
    settings = scenario.settings.peer
    options = f"--peers {result.peers} --seeds {result.seed} --degree {settings.degree}"
    if settings.flood_bytes_max != load(scenario.source).settings.peer.flood_bytes_max:
        options += f" --dissemination {DisseminationMode.from_settings(settings).value}"
    if scenario.settings.hostile_count:
        options += f" --hostile {scenario.settings.hostile_count}"
    return f"broadloom sim run {scenario.source} {options} --trace"


def summary_table(results: Iterable[SeedResult]) -> "Table":
    """One row per scenario and size: how many seeds passed, and their metrics."""
    from rich.table import Table

    table = Table("scenario", "peers", "passed", "metrics: median (max)", "virtual s", "wall s", "MB")
    groups: dict[tuple[str, int], list[SeedResult]] = {}
    for result in results:
        groups.setdefault((result.scenario, result.peers), []).append(result)
    for (name, peers), group in groups.items():
        passed = sum(result.problem is None for result in group)
        color = "green" if passed == len(group) else "red"
        table.add_row(
            name,
            f"{peers:,}",
            f"[{color}]{passed} of {len(group)}[/]",
            format_metrics(group),
            f"{median(result.virtual_s for result in group):.1f}",
            f"{median(result.wall_s for result in group):.1f}",
            f"{max(result.memory_mb for result in group):.0f}",
        )
    return table


def format_metrics(group: list[SeedResult]) -> str:
    parts = []
    for name in dict.fromkeys(name for result in group for name in result.metrics):
        values = [result.metrics[name] for result in group if name in result.metrics]
        middle, largest = median(values), max(values)
        parts.append(f"{name} {middle:g}" + (f" ({largest:g})" if largest != middle else ""))
    return ", ".join(parts)
