"""What came out: the same tables for a terminal and as Markdown, all figures as JSON, and a plot of the growth."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.machine import CORES
from bench.pipeline.measure import Cost, Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIB = 1 << 20
COLORS = {"spark": "#d1495b", "duckdb": "#27567b"}
NAMES = {"spark": "Spark, all tables", "same": "Spark, messages to verdict", "duckdb": "DuckDB, the tables it has"}


def least_disturbed(measured: Sequence[Measurement]) -> list[Measurement]:
    """Of each engine and size the measurement during which others took least of the machine.

    Not the one with the least CPU time: the choice must not depend on what is measured, and a run on a busy machine
    was seen to use less of it than one on a calmer machine.
    """
    chosen: dict[tuple[str, int], Measurement] = {}
    for each in sorted(measured, key=lambda one: one.foreign, reverse=True):
        chosen[each.engine, each.events] = each
    return sorted(chosen.values(), key=lambda one: (one.engine != "spark", one.events))


def totals(measured: Sequence[Measurement]) -> list[list[str]]:
    """A line a measurement, under a line of titles."""
    lines = [
        [
            *("engine", "events", "start s", "work s", "CPU s", "events / CPU s", "events / s and core"),
            *(
                "audit s",
                "audit CPU s",
                "all tables s",
                "all tables CPU s",
                "peak MiB",
                "of Java",
                "of workers",
                "others",
            ),
        ]
    ]
    for each in measured:
        lines.append(
            [each.engine, f"{each.events:,}", f"{each.start.seconds:.1f}", f"{each.work.seconds:.1f}"]
            + [f"{each.work.cpu_s:.1f}", f"{each.events_per_cpu_s:,.0f}", f"{each.events_per_s_and_core:,.0f}"]
            + [f"{cost:.1f}" for part in (each.audit, each.all_tables) for cost in (part.seconds, part.cpu_s)]
            + [f"{each.peak_bytes / MIB:,.0f}"]
            + [f"{each.peaks_bytes.get(role, 0) / MIB:,.0f}" for role in ("java", "workers")]
            + [f"{each.foreign:.0%}"]
        )
    return lines


def growth(measured: Sequence[Measurement]) -> list[list[str]]:
    """From the smallest to each larger size: how many times as much."""
    lines = [["engine", "from", "to", "events", "CPU s", "seconds", "peak memory"]]
    for engine in COLORS:
        rows = [each for each in measured if each.engine == engine]
        for first, each in ((rows[0], each) for each in rows[1:]):
            ratios = (
                each.events / first.events,
                each.work.cpu_s / first.work.cpu_s,
                each.work.seconds / first.work.seconds,
                each.peak_bytes / first.peak_bytes,
            )
            lines.append([engine, f"{first.events:,}", f"{each.events:,}", *(f"{ratio:.2f}" for ratio in ratios)])
    return lines


def steps(measured: Sequence[Measurement]) -> list[list[str]]:
    """CPU seconds of each table, by size."""
    names = list(dict.fromkeys(name for each in measured for name in each.steps))
    lines = [["table, CPU s", *(f"{each.engine} {each.events:,}" for each in measured)]]
    for name in names:
        cells = [f"{each.steps[name].cpu_s:.1f}" if name in each.steps else "–" for each in measured]
        lines.append([name, *cells])
    return lines


def markdown(measured: Sequence[Measurement], machine: str) -> str:
    grids = [totals(measured), growth(measured), steps(measured)]
    return "\n\n".join([f"{machine}; seconds and CPU seconds without starting up", *map(_grid, grids)]) + "\n"


def _grid(lines: list[list[str]]) -> str:
    head, *rest = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest])


def save(measured: Sequence[Measurement], machine: str, place: Path) -> None:
    data = {"machine": machine, "cores": CORES, "measured": [asdict(each) for each in measured]}
    place.write_text(json.dumps(data, indent=1) + "\n")


def load(place: Path) -> tuple[list[Measurement], str]:
    """What `save` wrote, and the machine that it was measured on."""
    data = json.loads(place.read_text())
    return [_read(each) for each in data["measured"]], data["machine"]


def _read(data: dict[str, Any]) -> Measurement:
    parts = {name: Cost(**data[name]) for name in ("start", "work")}
    return Measurement(**{**data, **parts, "steps": {name: Cost(**each) for name, each in data["steps"].items()}})


def draw(measured: Sequence[Measurement], place: Path) -> None:
    """CPU time and memory by events."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasSVG(figure)
    cpu, memory = figure.subplots(1, 2)
    for engine in COLORS:
        rows = [each for each in measured if each.engine == engine]
        if not rows:
            continue
        events = [each.events / 1e6 for each in rows]
        _line(cpu, events, [each.all_tables.cpu_s for each in rows], engine, engine)
        if engine == "spark":
            _line(cpu, events, [each.audit.cpu_s for each in rows], engine, "same")
            first = rows[0].all_tables.cpu_s / events[0]
            cpu.plot(events, [first * each for each in events], ":", color="#888888", label="proportional")
        _line(memory, events, [each.peak_bytes / MIB for each in rows], engine, engine)
    cpu.set_title("CPU seconds, starting up left out", loc="left")
    memory.set_title("peak memory, MiB", loc="left")
    cpu.set_yscale("log")
    for panel in (cpu, memory):
        panel.set_xscale("log")
        panel.set_xlabel("million events")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
        ticks = sorted({round(each.events / 1e6, 2) for each in measured})
        panel.set_xticks(ticks, [f"{each:g}" for each in ticks])
        panel.set_xticks([], minor=True)
    cpu.yaxis.set_major_formatter("{x:g}")
    cpu.yaxis.set_minor_formatter("")
    memory.set_ylim(bottom=0)
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place, metadata={"Date": None})


def _line(panel: "Axes", xs: list[float], ys: list[float], engine: str, name: str) -> None:
    panel.plot(xs, ys, "o--" if name == "same" else "o-", color=COLORS[engine], label=NAMES[name])
