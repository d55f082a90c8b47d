"""The results as charts. A system has the same color in all of them; encrypted ones are hatched."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.result_row import Row
from bench.store import Result
from bench.summary import case_of
from bench.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {
    "broadloom": "#d1495b",
    "floor": "#8d99ae",
    "nats": "#27567b",
    "redis": "#c46d1d",
    "mosquitto": "#6a4c93",
    "zenoh": "#2a9d8f",
    "zeromq": "#6a994e",
    "nng": "#a3b18a",
    "cyclonedds": "#b08968",
    "jgroups": "#7f5539",
    "iroh": "#e9a820",
    "libp2p": "#4c4c6d",
}
OTHER = "#666666"
STYLES = {"": "-", "uvloop": "--", "tcp": "--", "tls": ":"}


def draw(result: Result, directory: Path) -> list[Path]:
    """All pictures for which there are numbers."""
    rows = [row for row in result.summaries() if "error" not in row]
    drawn = []
    bars = {
        "throughput": ("deliveries_per_s", "deliveries/s, all receivers together", False),
        "cpu": ("cpu_us_per_delivery", "CPU µs for each delivery (less is better)", True),
        "wire": ("wire_per_payload", "bytes on loopback for each payload byte that must arrive (less is better)", True),
    }
    for name, (value, label, least_first) in bars.items():
        cases = _rows_of(rows, "throughput")
        if cases:
            drawn.append(_save(_bars(cases, value, label, least_first), directory / f"{name}.svg"))
    if latency := [row for row in rows if row.get("curve_ms")]:
        drawn.append(_save(_latency(latency), directory / "latency.svg"))
    scale = [row for row in rows if row["workload"] == "scale"]
    if len({row["receivers"] for row in scale}) > 1:
        drawn.append(_save(_scale(scale), directory / "scale.svg"))
    return drawn


def _rows_of(rows: Sequence[Row], workload: str) -> dict[tuple[str, int, int], list[Row]]:
    cases: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        if row["workload"] == workload:
            cases.setdefault(case_of(row), []).append(row)
    return cases


def _figure(panels: int, width: float, height: float) -> "tuple[Figure, list[Axes]]":
    """Without pyplot: nothing is kept open, and no display is looked for."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    columns = min(2, panels)
    lines = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    FigureCanvasSVG(figure)
    axes = [figure.add_subplot(lines, columns, place + 1) for place in range(panels)]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: "Figure", path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None})
    return path


def _color(row: Row) -> str:
    return COLORS.get(row["system"].partition(":")[0], OTHER)


def _bars(cases: dict[tuple[str, int, int], list[Row]], value: str, label: str, least_first: bool) -> "Figure":
    most = max(len(rows) for rows in cases.values())
    figure, axes = _figure(len(cases), 6.0, 1.0 + 0.27 * most)
    for panel, ((_, receivers, size_bytes), rows) in zip(axes, cases.items(), strict=True):
        rows = sorted(rows, key=_by(value), reverse=not least_first)
        names, values = [row["system"] for row in rows], [row[value] for row in rows]
        bars = panel.barh(names, values, color=[_color(row) for row in rows], height=0.75)
        for bar, row in zip(bars, rows, strict=True):
            if row["encrypted"]:
                bar.set_hatch("///")
                bar.set_edgecolor("white")
        panel.bar_label(bars, [number(each) + _loss(row) for each, row in zip(values, rows, strict=True)], padding=3)
        panel.invert_yaxis()
        panel.margins(x=0.25)
        panel.set_title(f"{receivers} receivers, {size_bytes:,} B", loc="left")
        panel.xaxis.set_visible(False)
        panel.spines["bottom"].set_visible(False)
        for tick in panel.get_yticklabels():
            if tick.get_text().startswith("broadloom"):
                tick.set_fontweight("bold")
    figure.suptitle(label)
    return figure


def _by(name: str) -> Callable[[Row], float]:
    return lambda row: float(row[name])


def _loss(row: Row) -> str:
    return f"  ({row['lost'] / row['wanted']:.0%} lost)" if row["lost"] else ""


def _latency(rows: Sequence[Row]) -> "Figure":
    figure, (panel,) = _figure(1, 9.0, 5.0)
    for row in sorted(rows, key=_by("p50_ms")):
        curve, option = row["curve_ms"], row["system"].partition(":")[2]
        shares = [point / (len(curve) - 1) for point in range(len(curve))]
        width = 2.6 if row["system"].startswith("broadloom") else 1.5
        label = f"{row['system']} ({row['rate_per_s']:,.0f}/s)"
        panel.plot(curve, shares, STYLES.get(option, "-"), color=_color(row), linewidth=width, label=label)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("")
    panel.set_xlabel("ms from sending to delivery")
    panel.set_ylabel("share of deliveries")
    panel.set_ylim(0, 1)
    panel.grid(alpha=0.3)
    panel.set_title(f"Latency, {rows[0]['receivers']} receivers, {rows[0]['size_bytes']:,} B", loc="left")
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _scale(rows: Sequence[Row]) -> "Figure":
    figure, (cpu, wire) = _figure(2, 5.0, 3.6)
    for system in dict.fromkeys(row["system"] for row in rows):
        points = sorted((row for row in rows if row["system"] == system), key=_by("receivers"))
        counts = [row["receivers"] for row in points]
        for panel, value in ((cpu, "cpu_us_per_delivery"), (wire, "wire_per_payload")):
            panel.plot(counts, [row[value] for row in points], "o-", color=_color(points[0]), label=system)
    cpu.set_title("CPU µs for each delivery", loc="left")
    wire.set_title("bytes on loopback for each payload byte", loc="left")
    for panel in (cpu, wire):
        panel.set_xscale("log", base=2)
        panel.xaxis.set_minor_formatter("")
        panel.set_xticks(sorted({row["receivers"] for row in rows}))
        panel.xaxis.set_major_formatter("{x:.0f}")
        panel.set_ylim(0, 1.15 * panel.get_ylim()[1])
        panel.set_xlabel("receivers")
        panel.grid(alpha=0.3)
    cpu.legend(frameon=False)
    return figure
