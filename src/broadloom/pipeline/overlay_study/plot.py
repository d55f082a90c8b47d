"""Charts of results, SVG or PNG by the suffix of the file; equal results give equal bytes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from broadloom.pipeline.overlay_study.summary import Row
from broadloom.pipeline.overlay_study.theory import expected_distances, surviving_stats
from broadloom.pipeline.plot import render
from broadloom.topology import diameter_bounds

WIDTH_INCHES, HEIGHT_INCHES = 7.0, 4.5
STEPS_BETWEEN = 60
"""Points of a curve."""


def _figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    path.write_bytes(render(figure, path.suffix.lower().removeprefix(".")))


def diameters(rows: Sequence[Row], degree: int, path: Path) -> None:
    figure, axes = _figure(f"Diameter of fabrics, degree {degree}")
    low, high = min(row["peers"] for row in rows), max(row["peers"] for row in rows)
    ratio = max(high / max(low, 1), 1.0)
    sizes = sorted({round(low * ratio ** (step / STEPS_BETWEEN)) for step in range(STEPS_BETWEEN + 1)})
    limits = [diameter_bounds(size, degree) for size in sizes]
    axes.fill_between(
        sizes, [each[0] for each in limits], [each[1] for each in limits], color="#d5e3ec", label="bounds of the paper"
    )
    axes.plot(
        sizes, [expected_distances(size, degree)[0] for size in sizes], color="#5b6b7b", linewidth=1, label="expected"
    )
    for is_exact, marker, label in ((True, "o", "found"), (False, "^", "found, lower bound")):
        some = [row for row in rows if row["is_exact"] is is_exact]
        if some:
            middle = [row["diameter_median"] for row in some]
            spans = [
                [row["diameter_median"] - row["diameter_min"] for row in some],
                [row["diameter_max"] - row["diameter_median"] for row in some],
            ]
            axes.errorbar(
                [row["peers"] for row in some], middle, yerr=spans, fmt=marker, color="#d1342f", capsize=3, label=label
            )
    axes.plot(
        [row["peers"] for row in rows],
        [row["distance_mean"] for row in rows],
        "s",
        color="#1f77a4",
        markersize=4,
        label="mean distance",
    )
    axes.set_xscale("log")
    # Plain numbers: formulas for powers of ten need fonts that may be missing.
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(lambda _value, _place: "")
    axes.set_xlabel("peers")
    axes.set_ylabel("steps")
    axes.legend(frameon=False)
    _save(figure, path)


def failures(rows: Sequence[Row], degree: int, path: Path) -> None:
    figure, axes = _figure(f"After a fraction of the peers failed, before repair, degree {degree}")
    fractions = [step / 100 for step in range(100)]
    theory = [surviving_stats(fraction, degree) for fraction in fractions]
    axes.plot(
        fractions, [each.largest for each in theory], color="#1f77a4", linewidth=1, label="largest component, theory"
    )
    axes.plot(fractions, [each.isolated for each in theory], color="#d1342f", linewidth=1, label="isolated, theory")
    for peers in dict.fromkeys(row["peers"] for row in rows):
        some = [row for row in rows if row["peers"] == peers]
        x = [row["fraction"] for row in some]
        axes.plot(
            x, [row["largest"] for row in some], "o", color="#1f77a4", label=f"largest component, {peers:,} peers"
        )
        isolated = [row["isolated"] / max(row["survivors"], 1) for row in some]
        axes.plot(x, isolated, "s", color="#d1342f", markersize=4, label=f"isolated, {peers:,} peers")
    axes.set_xlabel("fraction that failed")
    axes.set_ylabel("fraction of the survivors")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def join_strategies(rows: Sequence[Row], degree: int, path: Path) -> None:
    figure, axes = _figure(f"Join strategies, degree {degree}")
    for peers in dict.fromkeys(row["peers"] for row in rows):
        some = [row for row in rows if row["peers"] == peers]
        names = [row["strategy"] for row in some]
        axes.plot(names, [row["diameter"] for row in some], "o", label=f"diameter, {peers:,} peers")
        axes.plot(names, [row["distance_mean"] for row in some], "s", label=f"mean distance, {peers:,} peers")
    axes.set_ylabel("steps")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


PLOTS = {"diameter": diameters, "failures": failures, "join-strategies": join_strategies}
