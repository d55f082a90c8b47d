"""Answers for people, as tables, and for programs, as one JSON object."""

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
    # A table that is piped into a file is not cut to the width of a terminal that is not there.
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
                found if row["exact"] else f"at least {found}",
                row["expected"],
                f"{row['mean_distance']:.2f}",
                f"{row['expected_mean_distance']:.2f}",
                f"{row['grow_s']:.3g}",
                f"{row['search_s']:.3g}",
                f"{row['memory_mb']:,.0f}",
            )
        )
    notes = [f"{about['strategy']} pinning, degree {about['degree']}; {about['seconds']} s in all."]
    notes += [f"The paper saw {row['paper_saw']} at {row['peers']}." for row in rows if row["paper_saw"]]
    notes += [f"{row['peers']:,} peers: a fabric was torn." for row in rows if not row["whole"]]
    notes += [f"{row['peers']:,} peers: somebody lacked a link." for row in rows if row["regular"] is False]
    notes += [f"{row['peers']:,} peers: outside the paper's bounds." for row in rows if not row["within_bounds"]]
    if not all(row["exact"] for row in rows):
        notes.append("At least: found by searching from some outlying peers only; others may be farther apart.")
    _table(
        "Diameter, beside the paper's bounds",
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
        "What is left before repair, beside theory",
        (
            "peers",
            "killed",
            "fabrics",
            "left",
            "still whole",
            "parts",
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
                f"{row['share']:.0%}",
                row["fabrics"],
                f"{row['survivors']:,}",
                f"{row['whole']:.0%}",
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
            "dense links",
            "whole",
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
                f"{row['mean_distance']:.3f}",
                f"{row['dense_links']:.1f}",
                f"{row['whole']:.0%}",
                "-" if row["connectivity_min"] is None else f"{row['connectivity_min']} or more",
                "-" if row["fully_connected"] is None else f"{row['fully_connected']:.1%}",
                f"{row['grow_s']:.3g}",
            )
            for row in rows
        ],
        [
            f"Degree {about['degree']}; {about['seconds']} s in all. Dense links: their ends share a neighbour. "
            "Full: fabrics that only the death of as many peers as the degree can tear."
        ],
    )
