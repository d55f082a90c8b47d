"""From measurements to the numbers of a table: medians over what was least disturbed, and ratios."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bench.result_row import Row

FOREIGN_SHARE_MAX = 0.1
ROWS_MIN = 3

BASES = {False: ("nats", "floor"), True: ("nats:tls", "floor")}
"""What systems are compared with: plain ones, encrypted ones."""

BETTER = {
    "throughput": ("deliveries_per_s", True),
    "all-to-all": ("deliveries_per_s", True),
    "scale": ("deliveries_per_s", True),
    "latency": ("p50_ms", False),
    "join": ("join_ms", False),
    "frozen": ("others_kept", True),
    "topics": ("deliveries_per_s", True),
    "request": ("p50_ms", False),
    "switch": ("p50_ms", False),
    "mailbox": ("p50_ms", False),
}
"""By workload: the number that counts most, and whether more of it is better."""


def median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of all is not above; `ordered` from small to large."""
    if not ordered:
        raise ValueError("no values")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def quantiles(ordered: Sequence[float], points: int) -> list[float]:
    """As many values, from the least to the greatest, with equal shares between them."""
    return [quantile(ordered, point / (points - 1)) for point in range(points)]


def undisturbed(rows: Sequence[Row]) -> list[Row]:
    """Those during which others left the machine alone; if these are too few, the least disturbed."""
    ordered = sorted(rows, key=lambda row: row.get("foreign_share", 0.0))
    return [row for place, row in enumerate(ordered) if place < ROWS_MIN or row["foreign_share"] < FOREIGN_SHARE_MAX]


def summarize(rows: Iterable[Row]) -> list[Row]:
    """One row for each system in each case, in the order of the plan."""
    groups: defaultdict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["workload"], row["receivers"], row["size_bytes"], row["system"]].append(row)
    summaries = [_summary(group) for group in groups.values()]
    for summary in summaries:
        summary |= _ratios(summary, summaries)
    return summaries


def _summary(rows: Sequence[Row]) -> Row:
    good = [row for row in rows if "error" not in row]
    if not good:
        return dict(rows[-1])
    selected = undisturbed(good)
    summary: Row = {}
    for name, value in selected[0].items():
        values = [row[name] for row in selected if row.get(name) is not None]
        if isinstance(value, bool | str) or name in ("receivers", "size_bytes"):
            summary[name] = value
        elif isinstance(value, list):
            if name == "curve_ms":
                summary[name] = [median(point) for point in zip(*values, strict=True)]
        else:
            summary[name] = median(values) if values else None
    if "lost" in summary:  # never to be hidden by a median
        summary["lost"] = max(row["lost"] for row in good)
        summary["duplicates"] = max(row["duplicates"] for row in good)
    main = BETTER[summary["workload"]][0]
    values = [row[main] for row in selected]
    summary["spread"] = (max(values) - min(values)) / summary[main] if summary[main] else 0.0
    summary["measurements"] = len(selected)
    summary["failed"] = len(rows) - len(good)
    return summary


def _ratios(summary: Row, summaries: Sequence[Row]) -> Row:
    """How this system's main number stands to that of each base, in the same case."""
    ratios: Row = {}
    main = BETTER[summary["workload"]][0]
    for base in BASES[summary["encrypted"]]:
        for other in summaries:
            if other["system"] == base and case_of(other) == case_of(summary):
                if other.get(main) and summary.get(main) is not None:
                    ratios[f"to_{base}"] = summary[main] / other[main]
    return ratios


def case_of(row: Row) -> tuple[str, int, int]:
    return row["workload"], row["receivers"], row["size_bytes"]


def best_first(rows: Iterable[Row]) -> list[Row]:
    """Those that failed come last."""

    def rank(row: Row) -> tuple[bool, float]:
        main, more_is_better = BETTER[row["workload"]]
        value = row.get(main)
        return value is None, 0.0 if value is None else -value if more_is_better else value

    return sorted(rows, key=rank)
