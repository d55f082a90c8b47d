"""Terminal output of `broadloom study`: a table with notes below it."""

from collections.abc import Iterator, Sequence
from typing import Any

from broadloom.cli.output import console, table

Row = dict[str, Any]
Columns = tuple[tuple[str, str], ...]
"""Heading and format of each column."""

_DIAMETER: Columns = (
    ("peers", "{peers:,}"),
    ("fabrics", "{fabrics}"),
    ("paper's bounds", "{bound_low} to {bound_high}"),
    ("diameter", "{found}"),
    ("expected", "{expected}"),
    ("mean distance", "{distance_mean:.2f}"),
    ("expected", "{expected_distance_mean:.2f}"),
    ("grow core s", "{grow_s:.3g}"),
    ("search core s", "{search_s:.3g}"),
    ("task MB", "{memory_mb:,.0f}"),
)

_FAILURES: Columns = (
    ("peers", "{peers:,}"),
    ("failed", "{fraction:.0%}"),
    ("fabrics", "{fabrics}"),
    ("left", "{survivors:,}"),
    ("connected", "{connected_ratio:.0%}"),
    ("components", "{components:,.1f}"),
    ("theory", "{components_theory:,.1f}"),
    ("in the largest", "{largest:.2%}"),
    ("least", "{largest_min:.2%}"),
    ("theory", "{largest_theory:.2%}"),
    ("isolated", "{isolated:,.1f}"),
    ("theory", "{isolated_theory:,.1f}"),
)

_JOIN_STRATEGIES: Columns = (
    ("peers", "{peers:,}"),
    ("strategy", "{strategy}"),
    ("fabrics", "{fabrics}"),
    ("diameter", "{diameter:.2f}"),
    ("largest", "{diameter_max}"),
    ("mean distance", "{distance_mean:.3f}"),
    ("clustered links", "{clustered_links:.1f}"),
    ("connected", "{connected_ratio:.0%}"),
    ("connectivity", "{connectivity}"),
    ("full", "{full}"),
    ("grow core s", "{grow_s:.3g}"),
)

_STUDIES = {
    "diameter": ("Diameter, with the bounds of the paper", _DIAMETER),
    "failures": ("After failures, before repair, compared with theory", _FAILURES),
    "join-strategies": ("Ways of pinning", _JOIN_STRATEGIES),
}


def print_study(about: Row, rows: Sequence[Row]) -> None:
    title, columns = _STUDIES[about["study"]]
    headings = [heading for heading, _ in columns]
    shown = [[form.format(**_completed(row)) for _, form in columns] for row in rows]
    made = table(headings, shown, right=headings)
    made.title, made.title_justify, made.title_style = title, "left", "bold"
    out = console()
    out.print(made)
    for note in _notes(about, rows):
        out.print(note, highlight=False, markup=False, soft_wrap=True)


def _completed(row: Row) -> Row:
    """With what a format cannot express."""
    if "diameter_median" in row:
        low, middle, high = (row[f"diameter_{each}"] for each in ("min", "median", "max"))
        span = f"{middle:g}" if low == high else f"{middle:g} ({low} to {high})"
        return {**row, "found": span if row["is_exact"] else f"at least {span}"}
    if "connectivity_min" in row:
        smallest, full = row["connectivity_min"], row["fully_connected"]
        return {
            **row,
            "connectivity": "-" if smallest is None else f"{smallest} or more",
            "full": "-" if full is None else f"{full:.1%}",
        }
    return row


def _notes(about: Row, rows: Sequence[Row]) -> Iterator[str]:
    if about["study"] == "join-strategies":
        yield (
            f"Degree {about['degree']}; {about['seconds']} s in all. Clustered links: their ends share a neighbor. "
            "Full: fabrics with a vertex connectivity equal to the degree."
        )
        return
    yield f"{about['strategy']} pinning, degree {about['degree']}; {about['seconds']} s in all."
    if about["study"] != "diameter":
        return
    for row in rows:
        peers = f"{row['peers']:,} peers"
        if row["paper_observed"]:
            yield f"The paper observed {row['paper_observed']} at {row['peers']}."
        if not row["is_connected"]:
            yield f"{peers}: a fabric was not connected."
        if row["is_regular"] is False:
            yield f"{peers}: a peer had an avoidable free slot."
        if not row["is_within_bounds"]:
            yield f"{peers}: outside the paper's bounds."
    if not all(row["is_exact"] for row in rows):
        yield "At least: a lower bound, searched from some peripheral peers only."
