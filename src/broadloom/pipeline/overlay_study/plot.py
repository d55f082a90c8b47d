"""Answers as pictures, SVG or PNG by the suffix of the file; the same answers give the same bytes."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from broadloom.pipeline.overlay_study.bounds import expected_distances
from broadloom.pipeline.overlay_study.summary import Row
from broadloom.pipeline.overlay_study.theory import surviving_stats
from broadloom.topology import diameter_bounds

WIDTH_INCHES, HEIGHT_INCHES = 7.0, 4.5
PNG_DOTS_PER_INCH = 150
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
    # matplotlib names the parts of an SVG at random unless it is given a salt, and signs and dates the file.
    metadata = dict.fromkeys(("Date", "Creator") if path.suffix.lower() == ".svg" else ("Software",))
    with matplotlib.rc_context({"svg.hashsalt": "broadloom"}):
        figure.savefig(path, dpi=PNG_DOTS_PER_INCH, metadata=metadata)


def diameters(rows: Sequence[Row], degree: int, path: Path) -> None:
    figure, axes = _figure(f"Diameter of fabrics, degree {degree}")
    low, high = min(row["peers"] for row in rows), max(row["peers"] for row in rows)
    ratio = max(high / max(low, 1), 1.0)
    sizes = sorted({round(low * ratio ** (step / STEPS_BETWEEN)) for step in range(STEPS_BETWEEN + 1)})
    limits = [diameter_bounds(size, degree) for size in sizes]
    axes.fill_between(
        sizes, [each[0] for each in limits], [each[1] for each in limits], color="#d5e3ec", label="the paper's bounds"
    )
    axes.plot(
        sizes, [expected_distances(size, degree)[0] for size in sizes], color="#5b6b7b", linewidth=1, label="expected"
    )
    for is_exact, marker, label in ((True, "o", "found"), (False, "^", "found, at least")):
        some = [row for row in rows if row["exact"] is is_exact]
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
        [row["mean_distance"] for row in rows],
        "s",
        color="#1f77a4",
        markersize=4,
        label="mean distance",
    )
    axes.set_xscale("log")
    # Plain numbers: powers of ten as formulas ask for fonts that may be missing.
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(lambda _value, _place: "")
    axes.set_xlabel("peers")
    axes.set_ylabel("steps")
    axes.legend(frameon=False)
    _save(figure, path)


def failures(rows: Sequence[Row], degree: int, path: Path) -> None:
    figure, axes = _figure(f"After a share of the peers died at once, before repair, degree {degree}")
    shares = [step / 100 for step in range(100)]
    theory = [surviving_stats(share, degree) for share in shares]
    axes.plot(shares, [each.largest for each in theory], color="#1f77a4", linewidth=1, label="largest part, theory")
    axes.plot(shares, [each.isolated for each in theory], color="#d1342f", linewidth=1, label="isolated, theory")
    for peers in dict.fromkeys(row["peers"] for row in rows):
        some = [row for row in rows if row["peers"] == peers]
        x = [row["share"] for row in some]
        axes.plot(x, [row["largest"] for row in some], "o", color="#1f77a4", label=f"largest part, {peers:,} peers")
        isolated = [row["isolated"] / max(row["survivors"], 1) for row in some]
        axes.plot(x, isolated, "s", color="#d1342f", markersize=4, label=f"isolated, {peers:,} peers")
    axes.set_xlabel("share that died")
    axes.set_ylabel("share of the survivors")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def join_strategies(rows: Sequence[Row], degree: int, path: Path) -> None:
    figure, axes = _figure(f"Ways of pinning, degree {degree}")
    for peers in dict.fromkeys(row["peers"] for row in rows):
        some = [row for row in rows if row["peers"] == peers]
        names = [row["strategy"] for row in some]
        axes.plot(names, [row["diameter"] for row in some], "o", label=f"diameter, {peers:,} peers")
        axes.plot(names, [row["mean_distance"] for row in some], "s", label=f"mean distance, {peers:,} peers")
    axes.set_ylabel("steps")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)
