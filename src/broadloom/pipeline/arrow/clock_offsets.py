"""How far the clocks of the runs are apart, from nothing but their tapes.

A message that goes from run a to run b shows `delay + offset(b) - offset(a)`, and one that goes back shows the offsets
with the other sign. No delay is negative. So the fastest crossing in each direction bounds the difference of the two
clocks from both sides; half their difference is the estimate, and half their sum the largest possible error. Over many
runs:

- the bounds add up along paths, so shortest paths from and to the reference bound every run (`_bounds`), also one that
  is tied in only by a circle of one-way traffic;
- the estimates of all pairs and minutes are balanced by weighted least squares, with the doubtful ones weighing less
  the farther they are off (`_balanced`). Each run has an offset and a drift in each window of time.

The balanced estimate is kept within the bounds. What remains is the asymmetry of the network: if the fastest way there
always takes longer than the fastest way back, no tape can tell.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import coo_matrix, csr_matrix, diags
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve

from broadloom.pipeline.arrow.frames import to_arrow, to_polars
from broadloom.record.arrow_import import pa

WINDOW_US = 3_600_000_000
"""Within it a clock is taken to run evenly. Longer would miss what time servers do to clocks, shorter sees too few
crossings."""

DRIFT = 50e-6
"""What clocks are expected to gain or lose, as a share: the prior of the balance, and the growth of doubt in windows
in which nothing tied a run to the others."""

ERROR_US_MIN = 10.0
"""No pair weighs more than this error would: a tape's times have microseconds, not the processes that write it."""

ROUNDS = 6
"""Of weighing anew by residuals."""

CLOCK_OFFSETS = pa.schema(
    [
        pa.field("run", pa.string()),
        pa.field("window", pa.timestamp("us", tz="UTC")),
        pa.field("reference", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("offset_us", pa.float64()),
        pa.field("drift_ppm", pa.float64()),
        pa.field("error_us", pa.float64()),
        pa.field("crossings", pa.int64()),
    ]
)

_NEAR: tuple[tuple[int, Literal["backward", "forward"]], ...] = ((0, "backward"), (-1, "backward"), (1, "forward"))
"""A window itself, the last one before it, the first one after it."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def estimate_clock_offsets(fastest: pa.Table, spans: pa.Table) -> pa.Table:
    """Offset, drift and error of each run in each window of time.

    `fastest` has the fastest crossings (see `crossings.FASTEST`), `spans` each run with its `first` and `last` time.
    """
    seen = to_polars(spans).sort("run")
    if seen.is_empty():
        return CLOCK_OFFSETS.empty_table()
    runs = seen["run"].to_list()
    number = {run: index for index, run in enumerate(runs)}
    edges = (
        to_polars(fastest)
        .with_columns(
            a=pl.col("run_from").replace_strict(number, return_dtype=pl.Int64),
            b=pl.col("run_to").replace_strict(number, return_dtype=pl.Int64),
            window=pl.col("at_us").floordiv(WINDOW_US) * WINDOW_US,
        )
        .sort("window", "a", "b", "minute")
    )
    reference = _references(edges, len(runs))
    found = [
        _in_window(part, int(part["window"][0]), reference)
        for part in edges.partition_by("window", maintain_order=True)
    ]
    schema = {"a": pl.Int64, "window": pl.Int64, "at": pl.Int64, "offset_us": pl.Float64}
    schema |= {"drift_ppm": pl.Float64, "error_us": pl.Float64, "crossings": pl.Int64}
    estimates = pl.concat(found) if found else pl.DataFrame(schema=schema)
    names = pl.DataFrame({"a": range(len(runs)), "run": runs, "reference": [runs[index] for index in reference]})
    grid = _grid(seen, number)
    full = _carried(grid, estimates.cast(pl.Schema(schema)), reference).join(names, on="a")
    return to_arrow(full.sort("run", "window"), CLOCK_OFFSETS)


def _references(edges: pl.DataFrame, runs: int) -> Ints:
    """For each run the one whose clock its part goes by: of those that reach each other, the one with most traffic."""
    if edges.is_empty():
        return np.arange(runs, dtype=np.int64)
    totals = edges.group_by("a", "b").agg(pl.col("crossings").sum())
    a, b, weight = (totals[name].to_numpy() for name in ("a", "b", "crossings"))
    _, part = connected_components(csr_matrix((weight, (a, b)), shape=(runs, runs)), connection="strong")
    traffic = np.bincount(a, weight, runs) + np.bincount(b, weight, runs)
    order = np.lexsort((np.arange(runs), -traffic))  # of equal ones the first
    first = np.full(runs, -1, dtype=np.int64)
    for run in order:
        if first[part[run]] < 0:
            first[part[run]] = run
    return np.asarray(first[part])


def _in_window(edges: pl.DataFrame, window: int, reference: Ints) -> pl.DataFrame:
    """Estimates for the runs that had traffic in a window."""
    middle = int(np.average(edges["at_us"].to_numpy(), weights=edges["crossings"].to_numpy()))
    present = np.unique(np.concatenate([edges["a"].to_numpy(), edges["b"].to_numpy()]))
    offset, drift, tied = _balanced(_pairs(edges, middle), present, reference)
    lower, upper = _bounds(edges, middle, drift, present, reference)
    bounded = np.isfinite(lower) & np.isfinite(upper) & (lower <= upper)
    lower, upper = np.where(bounded, lower, 0.0), np.where(bounded, upper, 0.0)
    offset = np.where(tied, offset, (lower + upper) / 2)
    # Bounds that contradict each other come from a clock that was set in this window: nothing is certain then.
    offset = np.where(bounded, np.clip(offset, lower, upper), offset)
    error = np.where(bounded, np.maximum(upper - offset, offset - lower), DRIFT * WINDOW_US)
    known = tied | bounded
    traffic = np.bincount(edges["a"].to_numpy(), edges["crossings"].to_numpy(), len(reference))
    traffic += np.bincount(edges["b"].to_numpy(), edges["crossings"].to_numpy(), len(reference))
    return pl.DataFrame(
        {
            "a": present[known],
            "window": np.full(int(known.sum()), window),
            "at": np.full(int(known.sum()), middle),
            "offset_us": offset[known],
            "drift_ppm": drift[present][known] * 1e6,
            "error_us": error[known],
            "crossings": traffic[present][known].astype(np.int64),
        }
    )


def _pairs(edges: pl.DataFrame, middle: int) -> pl.DataFrame:
    """What each pair of runs says in each minute with traffic both ways; or over the window, if it has no such."""
    by_minute = _both_ways(edges, ["a", "b", "minute"])
    best = edges.sort("fastest_us").group_by("a", "b", maintain_order=True).first()
    by_window = _both_ways(best, ["a", "b"]).join(by_minute, on=["a", "b"], how="anti")
    return pl.concat([by_minute, by_window]).with_columns(late=pl.col("at_us") - middle)


def _both_ways(edges: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    back = edges.select(
        pl.col("b").alias("a"), pl.col("a").alias("b"), *keys[2:], back_us="fastest_us", back_at_us="at_us"
    )
    both = edges.filter(pl.col("a") < pl.col("b")).join(back, on=keys)
    return both.select(
        "a",
        "b",
        says=(pl.col("fastest_us") - pl.col("back_us")) / 2,
        # A clock that drifts between the two crossings is seen where it was half way between them.
        at_us=(pl.col("at_us") + pl.col("back_at_us")) / 2,
        error=((pl.col("fastest_us") + pl.col("back_us")) / 2).clip(lower_bound=ERROR_US_MIN),
    )


def _balanced(pairs: pl.DataFrame, present: Ints, reference: Ints) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Offset of each present run, drift of every run, and who is tied to its reference by pairs of both directions."""
    runs = len(reference)
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    says, late, error = (pairs[name].to_numpy().astype(np.float64) for name in ("says", "late", "error"))
    _, part = connected_components(csr_matrix((np.ones(len(a)), (a, b)), shape=(runs, runs)), directed=False)
    tied = part[present] == part[reference[present]]
    # Unknowns: an offset and a drift for each run. The references are fixed at zero by a heavy prior, and drift is
    # held near zero by a light one, so that a minute of traffic does not make a wild guess of it.
    row = np.arange(len(a))
    columns = np.concatenate([b, a, b + runs, a + runs])
    values = np.concatenate([np.ones(len(a)), -np.ones(len(a)), late, -late])
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
        solution = spsolve(normal, system.T @ (weight * says))
        residual = np.abs(system @ solution - says)
        scale = max(1.4826 * float(np.median(residual)), ERROR_US_MIN)
        weight = 1 / error**2 * np.minimum(1.0, 1.5 * scale / np.maximum(residual, 1e-9))
    return solution[:runs][present], solution[runs:], tied


def _bounds(edges: pl.DataFrame, middle: int, drift: Floats, present: Ints, reference: Ints) -> tuple[Floats, Floats]:
    """Between which offsets each present run must lie, because no message arrives before it is sent."""
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
    """Lengths of the shortest paths from the nearest source; lengths may be negative. Parts have one source each."""
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
    """Each run in each window in which it wrote."""
    first, last = (pl.col(name).floordiv(WINDOW_US) for name in ("first", "last"))
    return (
        seen.with_columns(
            a=pl.col("run").replace_strict(number, return_dtype=pl.Int64), window=pl.int_ranges(first, last + 1)
        )
        .explode("window")
        .select("a", window=pl.col("window") * WINDOW_US)
    )


def _carried(grid: pl.DataFrame, estimates: pl.DataFrame, reference: Ints) -> pl.DataFrame:
    """The best for each run and window: its own estimate, or the one before or after, with more doubt for being far.

    A window at the edge of a tape may have little traffic, and one in between none. The references are right by
    definition. Who is tied to nobody is its own reference.
    """
    there = estimates.sort("window")
    grid = grid.sort("window")
    choices = [
        grid.with_columns(pl.col("window") + shift)
        .join_asof(there, on="window", by="a", strategy=strategy, check_sortedness=False)
        .with_columns(pl.col("window") - shift)
        for shift, strategy in _NEAR
    ]
    away = pl.max_horizontal(pl.col("at") - pl.col("window") - WINDOW_US, pl.col("window") - pl.col("at"), 0)
    doubt = (pl.col("error_us") + away * DRIFT).alias("doubt")
    every = pl.concat(choices).with_columns(doubt).sort("doubt", nulls_last=True, maintain_order=True)
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
            error_us=pl.when(exact).then(0.0).otherwise("doubt"),
        )
        .join(estimates.select("a", "window", "crossings"), on=["a", "window"], how="left")
        .with_columns(pl.col("crossings").fill_null(0))
    )
