"""Prints results as tables or as one JSON object."""

import json as json_module
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from broadloom.pipeline.overlay_study.summary import Row


def _json(about: Row, rows: Sequence[Row]) -> None:
    json_module.dump({**about, "rows": list(rows)}, sys.stdout)
    sys.stdout.write("\n")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str]) -> None:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*(str(each) for each in row))
    # Output to a file or pipe is not cut to the width of a terminal.
    out = Console() if sys.stdout.isatty() else Console(width=200)
    out.print(table)
    for note in notes:
        out.print(note, highlight=False, markup=False, soft_wrap=True)


def _span(low: int, middle: float, high: int) -> str:
    return f"{middle:g}" if low == high else f"{middle:g} ({low} to {high})"


def diameters(about: Row, rows: Sequence[Row], *, json: bool) -> None:
    if json:
        _json(about, rows)
        return
    shown = []
    for row in rows:
        found = _span(row["diameter_min"], row["diameter_median"], row["diameter_max"])
        shown.append(
            (
                f"{row['peers']:,}",
                row["fabrics"],
                f"{row['bound_low']} to {row['bound_high']}",
                found if row["is_exact"] else f"at least {found}",
                row["expected"],
                f"{row['distance_mean']:.2f}",
                f"{row['expected_distance_mean']:.2f}",
                f"{row['grow_s']:.3g}",
                f"{row['search_s']:.3g}",
                f"{row['memory_mb']:,.0f}",
            )
        )
    notes = [f"{about['strategy']} pinning, degree {about['degree']}; {about['seconds']} s in all."]
    notes += [f"The paper observed {row['paper_observed']} at {row['peers']}." for row in rows if row["paper_observed"]]
    notes += [f"{row['peers']:,} peers: a fabric was not connected." for row in rows if not row["is_connected"]]
    notes += [
        f"{row['peers']:,} peers: a peer had an avoidable free slot." for row in rows if row["is_regular"] is False
    ]
    notes += [f"{row['peers']:,} peers: outside the paper's bounds." for row in rows if not row["is_within_bounds"]]
    if not all(row["is_exact"] for row in rows):
        notes.append("At least: a lower bound, searched from some peripheral peers only.")
    _table(
        "Diameter, with the bounds of the paper",
        (
            "peers",
            "fabrics",
            "paper's bounds",
            "diameter",
            "expected",
            "mean distance",
            "expected",
            "grow core s",
            "search core s",
            "task MB",
        ),
        shown,
        notes,
    )


def failures(about: Row, rows: Sequence[Row], *, json: bool) -> None:
    if json:
        _json(about, rows)
        return
    _table(
        "After failures, before repair, compared with theory",
        (
            "peers",
            "failed",
            "fabrics",
            "left",
            "connected",
            "components",
            "theory",
            "in the largest",
            "least",
            "theory",
            "isolated",
            "theory",
        ),
        [
            (
                f"{row['peers']:,}",
                f"{row['fraction']:.0%}",
                row["fabrics"],
                f"{row['survivors']:,}",
                f"{row['connected_ratio']:.0%}",
                f"{row['components']:,.1f}",
                f"{row['components_theory']:,.1f}",
                f"{row['largest']:.2%}",
                f"{row['largest_min']:.2%}",
                f"{row['largest_theory']:.2%}",
                f"{row['isolated']:,.1f}",
                f"{row['isolated_theory']:,.1f}",
            )
            for row in rows
        ],
        [f"{about['strategy']} pinning, degree {about['degree']}; {about['seconds']} s in all."],
    )


def join_strategies(about: Row, rows: Sequence[Row], *, json: bool) -> None:
    if json:
        _json(about, rows)
        return
    _table(
        "Ways of pinning",
        (
            "peers",
            "strategy",
            "fabrics",
            "diameter",
            "largest",
            "mean distance",
            "clustered links",
            "connected",
            "connectivity",
            "full",
            "grow core s",
        ),
        [
            (
                f"{row['peers']:,}",
                row["strategy"],
                row["fabrics"],
                f"{row['diameter']:.2f}",
                row["diameter_max"],
                f"{row['distance_mean']:.3f}",
                f"{row['clustered_links']:.1f}",
                f"{row['connected_ratio']:.0%}",
                "-" if row["connectivity_min"] is None else f"{row['connectivity_min']} or more",
                "-" if row["fully_connected"] is None else f"{row['fully_connected']:.1%}",
                f"{row['grow_s']:.3g}",
            )
            for row in rows
        ],
        [
            f"Degree {about['degree']}; {about['seconds']} s in all. Clustered links: their ends share a neighbor. "
            "Full: fabrics with a vertex connectivity equal to the degree."
        ],
    )
