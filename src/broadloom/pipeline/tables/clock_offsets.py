"""Estimates the clock offsets of the runs from their tapes alone.

A message from run a to run b shows `latency + offset(b) - offset(a)`; in the other direction the offsets have the other
sign. No latency is negative. So the fastest crossing in each direction bounds the difference of the two clocks from
both sides; half their difference is the estimate, and half their sum the largest possible error. Over many runs:

- the bounds add up along paths, so shortest paths from and to the reference bound every run (`_bounds`), even one that
  is connected only by a cycle of one-way traffic;
- the estimates of all pairs and minutes are balanced by iteratively reweighted least squares, which reduces the weight
  of outliers (`_balanced`). Each run has an offset and a drift in each window of time.

The balanced estimate is kept within the bounds. What remains is the asymmetry of the network: if the fastest way there
always takes longer than the fastest way back, no tape can show it.

scipy is imported where it is used: most tasks do not estimate clocks, and the import takes a third of a second.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.arrow.clock_correction import WINDOW_US
from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.pipeline.table import COUNT, NUMBER, TEXT, TIME, Stage, Table, TableColumn, schema_of
from broadloom.record.arrow_import import pa

COLUMNS = (
    TableColumn("run_id", TEXT, "Recording process."),
    TableColumn("start_time", TIME, "Start of the hour this row covers, by the run's own clock."),
    TableColumn("reference_run_id", TEXT, "Run whose clock is the reference; the run itself if it is isolated."),
    TableColumn("offset_time", TIME, "Time at which `offset_ms` is exact; the drift adds up from there."),
    TableColumn("offset_ms", NUMBER, "How far the run's clock is ahead of the reference; null if unknown."),
    TableColumn("drift_ppm", NUMBER, "Microseconds gained per second of the reference clock."),
    TableColumn("error_ms", NUMBER, "Largest possible error: no message arrives before it is sent."),
    TableColumn("sample_count", COUNT, "Messages to or from other runs in that hour; 0: taken from a near hour."),
)
CLOCK_OFFSETS = schema_of(COLUMNS)

DRIFT = 50e-6
"""Expected drift as a ratio: the prior of the least squares, and the growth of the error in windows without traffic."""

ERROR_US_MIN = 10.0
"""Lower limit of a pair's error: tapes have microseconds, but the processes that write them are not that exact."""

ROUNDS = 6
"""Rounds of reweighting by residuals."""


_NEAR: tuple[tuple[int, Literal["backward", "forward"]], ...] = ((0, "backward"), (-1, "backward"), (1, "forward"))
"""The window itself, the last one before it, the first one after it."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def estimate_clock_offsets(fastest: pl.DataFrame, spans: pa.Table) -> pa.Table:
    """Offset, drift and error of each run in each window of time.

    `fastest` has the fastest crossings (`link_crossings.FASTEST`), `spans` each run with `start_time` and `end_time`.
    """
    seen = to_polars(spans).sort("run_id")
    if seen.is_empty():
        return CLOCK_OFFSETS.empty_table()
    runs = seen["run_id"].to_list()
    number = {run: index for index, run in enumerate(runs)}
    edges = fastest.with_columns(
        a=pl.col("run_from").replace_strict(number, return_dtype=pl.Int64),
        b=pl.col("run_to").replace_strict(number, return_dtype=pl.Int64),
        window=pl.col("at_us").floordiv(WINDOW_US) * WINDOW_US,
    ).sort("window", "a", "b", "minute_us")
    reference = _references(edges, len(runs))
    found = [
        _in_window(part, int(part["window"][0]), reference)
        for part in edges.partition_by("window", maintain_order=True)
    ]
    schema = {"a": pl.Int64, "window": pl.Int64, "at": pl.Int64, "offset_us": pl.Float64}
    schema |= {"drift_ppm": pl.Float64, "error_us": pl.Float64, "sample_count": pl.Int64}
    estimates = pl.concat(found) if found else pl.DataFrame(schema=schema)
    references = [runs[index] for index in reference]
    names = pl.DataFrame({"a": range(len(runs)), "run_id": runs, "reference_run_id": references})
    grid = _grid(seen, number)
    full = _carried(grid, estimates.cast(pl.Schema(schema)), reference).join(names, on="a")
    full = full.rename({"window": "start_time", "at": "offset_time"}).with_columns(
        offset_ms=pl.col("offset_us") / 1000, error_ms=pl.col("error_us") / 1000
    )
    return to_arrow(full.sort("run_id", "start_time"), CLOCK_OFFSETS)


def _references(edges: pl.DataFrame, runs: int) -> Ints:
    """The reference of each run: of the runs that reach each other, the one with most traffic."""
    if edges.is_empty():
        return np.arange(runs, dtype=np.int64)
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    totals = edges.group_by("a", "b").agg(pl.col("sample_count").sum())
    a, b, weight = (totals[name].to_numpy() for name in ("a", "b", "sample_count"))
    _, part = connected_components(csr_matrix((weight, (a, b)), shape=(runs, runs)), connection="strong")
    traffic = np.bincount(a, weight, runs) + np.bincount(b, weight, runs)
    order = np.lexsort((np.arange(runs), -traffic))  # ties: the first
    first = np.full(runs, -1, dtype=np.int64)
    for run in order:
        if first[part[run]] < 0:
            first[part[run]] = run
    return np.asarray(first[part])


def _in_window(edges: pl.DataFrame, window: int, reference: Ints) -> pl.DataFrame:
    """Estimates for the runs that had traffic in a window."""
    middle = int(np.average(edges["at_us"].to_numpy(), weights=edges["sample_count"].to_numpy()))
    present = np.unique(np.concatenate([edges["a"].to_numpy(), edges["b"].to_numpy()]))
    offset, drift, tied = _balanced(_pairs(edges, middle), present, reference)
    lower, upper = _bounds(edges, middle, drift, present, reference)
    bounded = np.isfinite(lower) & np.isfinite(upper) & (lower <= upper)
    lower, upper = np.where(bounded, lower, 0.0), np.where(bounded, upper, 0.0)
    offset = np.where(tied, offset, (lower + upper) / 2)
    # Contradictory bounds mean that a clock was set in this window: nothing is certain then.
    offset = np.where(bounded, np.clip(offset, lower, upper), offset)
    error = np.where(bounded, np.maximum(upper - offset, offset - lower), DRIFT * WINDOW_US)
    known = tied | bounded
    traffic = np.bincount(edges["a"].to_numpy(), edges["sample_count"].to_numpy(), len(reference))
    traffic += np.bincount(edges["b"].to_numpy(), edges["sample_count"].to_numpy(), len(reference))
    return pl.DataFrame(
        {
            "a": present[known],
            "window": np.full(int(known.sum()), window),
            "at": np.full(int(known.sum()), middle),
            "offset_us": offset[known],
            "drift_ppm": drift[present][known] * 1e6,
            "error_us": error[known],
            "sample_count": traffic[present][known].astype(np.int64),
        }
    )


def _pairs(edges: pl.DataFrame, middle: int) -> pl.DataFrame:
    """Estimate of each pair of runs per minute with traffic both ways; over the whole window if there is no such
    minute."""
    by_minute = _both_ways(edges, ["a", "b", "minute_us"])
    best = edges.sort("fastest_us").group_by("a", "b", maintain_order=True).first()
    by_window = _both_ways(best, ["a", "b"]).join(by_minute, on=["a", "b"], how="anti")
    return pl.concat([by_minute, by_window]).with_columns(since_middle=pl.col("at_us") - middle)


def _both_ways(edges: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    back = edges.select(
        pl.col("b").alias("a"), pl.col("a").alias("b"), *keys[2:], back_us="fastest_us", back_at_us="at_us"
    )
    both = edges.filter(pl.col("a") < pl.col("b")).join(back, on=keys)
    return both.select(
        "a",
        "b",
        estimate=(pl.col("fastest_us") - pl.col("back_us")) / 2,
        # If a clock drifts between the two crossings, the estimate is valid half way between them.
        at_us=(pl.col("at_us") + pl.col("back_at_us")) / 2,
        error=((pl.col("fastest_us") + pl.col("back_us")) / 2).clip(lower_bound=ERROR_US_MIN),
    )


def _balanced(pairs: pl.DataFrame, present: Ints, reference: Ints) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Offset of each present run, drift of every run, and which runs are tied to their reference by two-way traffic."""
    from scipy.sparse import coo_matrix, csr_matrix, diags
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import spsolve

    runs = len(reference)
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    estimate, since_middle, error = (
        pairs[name].to_numpy().astype(np.float64) for name in ("estimate", "since_middle", "error")
    )
    _, part = connected_components(csr_matrix((np.ones(len(a)), (a, b)), shape=(runs, runs)), directed=False)
    tied = part[present] == part[reference[present]]
    # Unknowns: an offset and a drift per run. A heavy prior fixes the references at zero, a light one keeps drift near
    # zero, so that a minute of traffic does not produce a wild guess.
    row = np.arange(len(a))
    columns = np.concatenate([b, a, b + runs, a + runs])
    values = np.concatenate([np.ones(len(a)), -np.ones(len(a)), since_middle, -since_middle])
    system = coo_matrix((values, (np.tile(row, 4), columns)), shape=(len(a), 2 * runs)).tocsr()
    prior = np.full(2 * runs, 1e-18)
    prior[runs:] = 1 / DRIFT**2
    fixed = np.unique(reference)
    prior[fixed] = 1e6
    prior[fixed + runs] = 1e6 / DRIFT**2
    weight = 1 / error**2
    solution = np.zeros(2 * runs)
    for _ in range(ROUNDS if len(a) else 0):
        normal = (system.T @ diags(weight) @ system + diags(prior)).tocsc()
        solution = spsolve(normal, system.T @ (weight * estimate))
        residual = np.abs(system @ solution - estimate)
        scale = max(1.4826 * float(np.median(residual)), ERROR_US_MIN)
        weight = 1 / error**2 * np.minimum(1.0, 1.5 * scale / np.maximum(residual, 1e-9))
    return solution[:runs][present], solution[runs:], tied


def _bounds(edges: pl.DataFrame, middle: int, drift: Floats, present: Ints, reference: Ints) -> tuple[Floats, Floats]:
    """Lower and upper bound of each present run: no message arrives before it is sent."""
    runs = len(reference)
    moved = edges.with_columns(
        bound=pl.col("fastest_us")
        - pl.Series(drift[edges["b"].to_numpy()] - drift[edges["a"].to_numpy()]) * (pl.col("at_us") - middle)
    )
    best = moved.group_by("a", "b").agg(pl.col("bound").min())
    a, b, bound = (best[name].to_numpy() for name in ("a", "b", "bound"))
    upper = _shortest(a, b, bound, np.unique(reference), runs)
    lower = -_shortest(b, a, bound, np.unique(reference), runs)
    return lower[present], upper[present]


def _shortest(a: Ints, b: Ints, length: Floats, sources: Ints, runs: int) -> Floats:
    """Shortest paths from the nearest source (Bellman-Ford: lengths may be negative). One source per component."""
    distance = np.full(runs, np.inf)
    distance[sources] = 0.0
    for _ in range(runs):
        before = distance.copy()
        np.minimum.at(distance, b, before[a] + length)
        distance[sources] = 0.0
        if np.array_equal(before, distance):
            break
    return distance


def _grid(seen: pl.DataFrame, number: dict[str, int]) -> pl.DataFrame:
    """Each run in each window in which it recorded."""
    first, last = (pl.col(name).floordiv(WINDOW_US) for name in ("start_time", "end_time"))
    return (
        seen.with_columns(
            a=pl.col("run_id").replace_strict(number, return_dtype=pl.Int64), window=pl.int_ranges(first, last + 1)
        )
        .explode("window")
        .select("a", window=pl.col("window") * WINDOW_US)
    )


def _carried(grid: pl.DataFrame, estimates: pl.DataFrame, reference: Ints) -> pl.DataFrame:
    """The best estimate for each run and window: its own, or the one before or after, with an error that grows with
    the distance.

    A window at the edge of a tape may have little traffic, and one in between none. References are exact by definition.
    An isolated run is its own reference.
    """
    known = estimates.sort("window")
    grid = grid.sort("window")
    choices = [
        grid.with_columns(pl.col("window") + shift)
        .join_asof(known, on="window", by="a", strategy=strategy, check_sortedness=False)
        .with_columns(pl.col("window") - shift)
        for shift, strategy in _NEAR
    ]
    away = pl.max_horizontal(pl.col("at") - pl.col("window") - WINDOW_US, pl.col("window") - pl.col("at"), 0)
    error = (pl.col("error_us") + away * DRIFT).alias("carried_error_us")
    every = pl.concat(choices).with_columns(error).sort("carried_error_us", nulls_last=True, maintain_order=True)
    best = every.unique(["a", "window"], keep="first", maintain_order=True)
    is_reference = pl.Series("a", np.flatnonzero(reference == np.arange(len(reference))))
    exact = pl.col("a").is_in(is_reference.implode())
    return (
        best.select(
            "a",
            "window",
            at=pl.coalesce("at", "window"),
            offset_us=pl.when(exact).then(0.0).otherwise("offset_us"),
            drift_ppm=pl.when(exact).then(0.0).otherwise("drift_ppm"),
            error_us=pl.when(exact).then(0.0).otherwise("carried_error_us"),
        )
        .join(estimates.select("a", "window", "sample_count"), on=["a", "window"], how="left")
        .with_columns(pl.col("sample_count").fill_null(0))
    )


TABLE = Table(
    "clock_offsets",
    "How far apart are the clocks of the recording processes?",
    COLUMNS,
    Stage.ALL,
)
