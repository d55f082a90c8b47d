"""Estimates the clock offsets of the runs from their tapes alone.

A message from run a to run b shows `latency + offset(b) - offset(a)`; in the other direction the offsets have the other
sign. No latency is negative. So the fastest crossing in each direction bounds the difference of the two clocks from
both sides; half their difference is the estimate, and half their sum the largest possible error.

Each run has an offset and a drift in each hour of its own clock: a *node*. All times of a node are by its own clock,
and a crossing joins a node of one run with a node of another, whatever the two clocks show. The reference is one node,
with offset zero. Over many nodes:

- the bounds add up along paths, so shortest paths from and to the reference bound every node (`_bounds`), even one that
  is connected only by a cycle of one-way traffic. How fast two clocks drift apart is bounded in the same way, by early
  and late crossings (`_drift_bounds`), so the error that is stated holds in the whole hour;
- the estimates of all pairs and minutes are balanced by iteratively reweighted least squares, which reduces the weight
  of outliers (`_balanced`).

The balanced estimate is kept within the bounds. What remains is the asymmetry of the network: if the fastest way there
always takes longer than the fastest way back, no tape can show it.

scipy is imported for many runs only: the import takes a third of a second.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from broadloom.pipeline.analysis.clock_correction import WINDOW_US
from broadloom.pipeline.analysis.frames import conform, from_rows, in_us
from broadloom.pipeline.table import Stage, Table, column
from broadloom.topology import component_labels

COLUMNS = (
    column("run_id", "Recording process."),
    column("start_time", "Start of the hour this row covers, by the run's own clock."),
    column("reference_run_id", "Run whose clock is the reference; the run itself if it is isolated."),
    column("offset_time", "Time of `offset_ms`, by the run's own clock; the drift adds up from there."),
    column("offset_ms", "How far the run's clock is ahead of the reference; null if unknown."),
    column("drift_ppm", "Microseconds gained per second."),
    column("error_ms", "Largest possible error in that hour: no message arrives before it is sent."),
    column("sample_count", "Messages to or from other runs in that hour; 0: taken from a near hour."),
)

DRIFT = 50e-6
"""Expected drift as a ratio: the prior of the least squares."""

DRIFT_MAX = 100e-6
"""Two clocks drift apart by at most this ratio, unless the tapes show less."""

ERROR_US_MIN = 10.0
"""Lower limit of a pair's error: tapes have microseconds, but the processes that write them are not that exact."""

CONTINUITY_US = 500.0
"""By how much the estimates of two hours of a run may differ where they meet. If a clock is set, it is an outlier."""

ROUNDS = 6
"""Rounds of reweighting by residuals."""

DENSE_MAX = 1_000
"""Unknowns up to which the least squares are solved without scipy's sparse solver, whose import takes longer."""

_NEAR: tuple[tuple[int, Literal["backward", "forward"]], ...] = ((0, "backward"), (-1, "backward"), (1, "forward"))
"""The window itself, the last one before it, the first one after it."""

_RUN_BITS = 32
_SCALE_US = WINDOW_US / 2
"""Drift is solved for as microseconds per half window, so that all unknowns have the same size."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The runs that had traffic, per hour of their own clock; a reference run is one node."""

    run: Ints
    window: Ints
    at: Ints
    """Origin of the node's times: the mean of its crossings."""
    is_reference: Flags
    reference: Ints
    """The reference node of each node."""
    sample_count: Ints


def estimate_clock_offsets(fastest: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Offset, drift and error of each run in each window of time.

    `fastest` has the fastest crossings (`link_crossings.FASTEST`), `spans` each run with `start_time` and `end_time`.
    """
    seen = in_us(spans).sort("run_id")
    if seen.is_empty():
        return from_rows([], COLUMNS)
    runs = seen["run_id"].to_list()
    number = {run: index for index, run in enumerate(runs)}
    from_us = (
        pl.when(pl.col("run_from") < pl.col("run_to")).then("at_us").otherwise(pl.col("at_us") - pl.col("fastest_us"))
    )
    crossed = fastest.with_columns(
        run_from=pl.col("run_from").replace_strict(number, return_dtype=pl.Int64),
        run_to=pl.col("run_to").replace_strict(number, return_dtype=pl.Int64),
        from_us=from_us,
        to_us=from_us + pl.col("fastest_us"),
    ).sort("run_from", "run_to", "minute_us")
    reference = _references(crossed, len(runs))
    estimates = _estimates(crossed, reference)
    references = [runs[index] for index in reference]
    names = pl.DataFrame({"run": range(len(runs)), "run_id": runs, "reference_run_id": references})
    full = _carried(_grid(seen, number), estimates, reference).join(names, on="run")
    full = full.rename({"window": "start_time", "at": "offset_time"}).with_columns(
        offset_ms=pl.col("offset_us") / 1000, error_ms=pl.col("error_us") / 1000
    )
    return conform(full.sort("run_id", "start_time"), COLUMNS)


def _references(crossed: pl.DataFrame, runs: int) -> Ints:
    """The reference of each run: of the runs that reach each other, the one with most traffic."""
    totals = crossed.group_by("run_from", "run_to").agg(pl.col("sample_count").sum())
    a, b, weight = (totals[name].to_numpy() for name in ("run_from", "run_to", "sample_count"))
    traffic = np.bincount(a, weight, runs) + np.bincount(b, weight, runs)
    reference = np.arange(runs, dtype=np.int64)
    is_open = np.ones(runs, dtype=bool)
    for run in np.lexsort((np.arange(runs), -traffic)):  # ties: the first
        if is_open[run]:
            mutual = _reached(run, a, b, runs) & _reached(run, b, a, runs)
            reference[mutual] = run
            is_open &= ~mutual
    return reference


def _reached(start: int, a: Ints, b: Ints, runs: int) -> Flags:
    reached = np.zeros(runs, dtype=bool)
    reached[start] = True
    while True:
        more = b[reached[a] & ~reached[b]]
        if not len(more):
            return reached
        reached[more] = True


_ESTIMATES = {"run": pl.Int64, "window": pl.Int64, "at": pl.Int64, "offset_us": pl.Float64, "drift_ppm": pl.Float64}
_ESTIMATES |= {"error_us": pl.Float64, "drift_error_ppm": pl.Float64, "sample_count": pl.Int64}


def _estimates(crossed: pl.DataFrame, reference: Ints) -> pl.DataFrame:
    """For the nodes that had traffic. `error_us` is the error at `at`; away from there, `drift_error_ppm` adds up."""
    if crossed.is_empty():
        return pl.DataFrame(schema=_ESTIMATES)
    nodes, edges = _nodes(crossed, reference)
    offset, drift, tied = _balanced(_pairs(edges), nodes)
    moved = edges.with_columns(
        bound=pl.col("fastest_us")
        - pl.Series(drift[edges["b"].to_numpy()]) * pl.col("b_us")
        + pl.Series(drift[edges["a"].to_numpy()]) * pl.col("a_us")
    )
    drift_error = _drift_bounds(moved, drift, nodes)
    lower, upper = _bounds(moved, drift_error, nodes)
    bounded = np.isfinite(lower) & np.isfinite(upper)
    lower, upper = np.where(bounded, lower, 0.0), np.where(bounded, upper, 0.0)
    offset = np.where(tied, offset, (lower + upper) / 2)
    is_consistent = lower <= upper
    offset = np.where(bounded & is_consistent, np.clip(offset, lower, upper), offset)
    error = np.maximum(np.abs(upper - offset), np.abs(offset - lower))
    # Contradictory bounds mean that a clock was set in this window. Both the time before and after it are covered.
    error = np.where(bounded & is_consistent, error, error + DRIFT_MAX * WINDOW_US)
    known = (tied | bounded) & ~nodes.is_reference
    return pl.DataFrame(
        {
            "run": nodes.run[known],
            "window": nodes.window[known],
            "at": nodes.at[known],
            "offset_us": offset[known],
            "drift_ppm": drift[known] * 1e6,
            "error_us": error[known],
            "drift_error_ppm": drift_error[known] * 1e6,
            "sample_count": nodes.sample_count[known],
        },
        schema=_ESTIMATES,
    )


def _nodes(crossed: pl.DataFrame, reference: Ints) -> tuple[_Nodes, pl.DataFrame]:
    """The nodes, and the crossings between them: `a_us` and `b_us` are the times at both ends since the node's `at`."""
    runs = [crossed[name].to_numpy() for name in ("run_from", "run_to")]
    times = [crossed[name].to_numpy() for name in ("from_us", "to_us")]
    count = crossed["sample_count"].to_numpy()
    is_fixed = reference == np.arange(len(reference))
    keys = [
        (run << _RUN_BITS) + np.where(is_fixed[run], 0, time // WINDOW_US)
        for run, time in zip(runs, times, strict=True)
    ]
    known, ends = np.unique(np.concatenate(keys), return_inverse=True)
    run, window = known >> _RUN_BITS, (known & ((1 << _RUN_BITS) - 1)) * WINDOW_US
    weight = np.concatenate([count, count]).astype(np.float64)
    start = np.full(len(known), np.iinfo(np.int64).max)
    every = np.concatenate(times)
    np.minimum.at(start, ends, every)
    mean = np.bincount(ends, (every - start[ends]) * weight) / np.bincount(ends, weight)
    at = start + mean.astype(np.int64)
    a, b = ends[: len(count)], ends[len(count) :]
    samples = np.bincount(ends, weight).astype(np.int64)
    # A run of which nothing crossed is its own reference and no node.
    of_reference = np.searchsorted(known, reference[run] << _RUN_BITS)
    nodes = _Nodes(run, window, at, is_fixed[run], of_reference, samples)
    edges = crossed.select("minute_us", pl.col("fastest_us").cast(pl.Float64)).with_columns(
        a=pl.Series(a), b=pl.Series(b), a_us=pl.Series(times[0] - at[a]), b_us=pl.Series(times[1] - at[b])
    )
    return nodes, edges.with_columns(pl.col("a_us", "b_us").cast(pl.Float64))


def _pairs(edges: pl.DataFrame) -> pl.DataFrame:
    """Estimate of each pair of nodes per minute with traffic both ways; over the whole window if there is no such
    minute."""
    by_minute = _both_ways(edges, ["a", "b", "minute_us"])
    best = edges.sort("fastest_us").group_by("a", "b", maintain_order=True).first()
    by_window = _both_ways(best, ["a", "b"]).join(by_minute, on=["a", "b"], how="anti")
    return pl.concat([by_minute, by_window])


def _both_ways(edges: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    edges = edges.group_by(keys, maintain_order=True).agg(pl.all().sort_by("fastest_us").first())
    back = edges.select(
        pl.col("b").alias("a"),
        pl.col("a").alias("b"),
        *keys[2:],
        back_us="fastest_us",
        back_a_us="b_us",
        back_b_us="a_us",
    )
    both = edges.filter(pl.col("a") < pl.col("b")).join(back, on=keys)
    return both.select(
        "a",
        "b",
        estimate=(pl.col("fastest_us") - pl.col("back_us")) / 2,
        # If a clock drifts between the two crossings, the estimate is valid half way between them.
        a_us=(pl.col("a_us") + pl.col("back_a_us")) / 2,
        b_us=(pl.col("b_us") + pl.col("back_b_us")) / 2,
        error=((pl.col("fastest_us") + pl.col("back_us")) / 2).clip(lower_bound=ERROR_US_MIN),
    )


def _balanced(pairs: pl.DataFrame, nodes: _Nodes) -> tuple[Floats, Floats, Flags]:
    """Offset and drift of each node, and which nodes are tied to their reference by two-way traffic."""
    count = len(nodes.run)
    part = component_labels(count, pairs["a"].to_numpy(), pairs["b"].to_numpy())
    tied = part == part[nodes.reference]
    pairs = pl.concat([pairs, _consecutive(nodes)])
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    estimate, a_us, b_us, error = (pairs[name].to_numpy() for name in ("estimate", "a_us", "b_us", "error"))
    # Unknowns: an offset and a drift per node. A heavy prior fixes the references at zero, a light one keeps drift near
    # zero, so that a minute of traffic does not produce a wild guess.
    columns = np.stack([b, a, b + count, a + count])
    a_drift, b_drift = (
        np.where(nodes.is_reference[end], 0.0, time / _SCALE_US) for end, time in ((a, a_us), (b, b_us))
    )
    values = np.stack([np.ones(len(a)), -np.ones(len(a)), b_drift, -a_drift])
    prior = np.full(2 * count, 1e-18)
    prior[count:] = 1 / (DRIFT * _SCALE_US) ** 2
    prior[np.flatnonzero(nodes.is_reference)] = 1e6
    weight = 1 / error**2
    solution = np.zeros(2 * count)
    for _ in range(ROUNDS if len(a) else 0):
        right: Floats = np.zeros(2 * count)
        np.add.at(right, columns, values * (weight * estimate))
        solution = _solved(columns, values, weight, prior, right)
        residual = np.abs((values * solution[columns]).sum(axis=0) - estimate)
        scale = max(1.4826 * float(np.median(residual)), ERROR_US_MIN)
        weight = 1 / error**2 * np.minimum(1.0, 1.5 * scale / np.maximum(residual, 1e-9))
    return solution[:count], solution[count:] / _SCALE_US, tied


def _solved(columns: Ints, values: Floats, weight: Floats, prior: Floats, right: Floats) -> Floats:
    """Solution of the normal equations; the system has `values` at `columns`, four in each row."""
    size, places = len(prior), range(4)
    # All rows of a pair of nodes are in the same columns, so they are added up first.
    _, first, pair = np.unique(columns[1] * size + columns[0], return_index=True, return_inverse=True)
    blocks = [np.bincount(pair, values[i] * values[j] * weight) for i in places for j in places]
    entries = np.concatenate([*blocks, prior])
    row = np.concatenate([*(columns[i][first] for i in places for _ in places), np.arange(size)])
    column = np.concatenate([*(columns[j][first] for _ in places for j in places), np.arange(size)])
    if size <= DENSE_MAX:
        normal = np.bincount(row * size + column, entries, size * size).reshape(size, size)
        return np.asarray(np.linalg.solve(normal, right))
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import spsolve

    return np.asarray(spsolve(coo_matrix((entries, (row, column)), shape=(size, size)).tocsc(), right))


def _consecutive(nodes: _Nodes) -> pl.DataFrame:
    """Pairs of consecutive hours of a run: where they meet, the clock shows the same."""
    a = np.flatnonzero((nodes.run[1:] == nodes.run[:-1]) & (np.diff(nodes.window) == WINDOW_US))
    meet = nodes.window[a + 1]
    return pl.DataFrame(
        {
            "a": a,
            "b": a + 1,
            "estimate": np.zeros(len(a)),
            "a_us": (meet - nodes.at[a]).astype(np.float64),
            "b_us": (meet - nodes.at[a + 1]).astype(np.float64),
            "error": np.full(len(a), CONTINUITY_US),
        }
    )


def _drift_bounds(moved: pl.DataFrame, drift: Floats, nodes: _Nodes) -> Floats:
    """How wrong the drift of each node can be.

    Of a pair of nodes, the clock of the second cannot have gained more on the first than an early message one way and a
    late message the other way leave room for. These limits add up along paths too.
    """
    first, late = pl.min_horizontal("a", "b"), pl.col("pair_us") > pl.col("high_us") - pl.col("span_us") / 3
    early = pl.col("pair_us") < pl.col("low_us") + pl.col("span_us") / 3
    there, back = pl.col("a") < pl.col("b"), pl.col("a") > pl.col("b")
    by_pair = ["first", "second"]
    rows = moved.with_columns(
        first=first, second=pl.max_horizontal("a", "b"), pair_us=pl.when(there).then("b_us").otherwise("a_us")
    ).with_columns(low_us=pl.col("pair_us").min().over(by_pair), high_us=pl.col("pair_us").max().over(by_pair))
    rows = rows.with_columns(span_us=pl.col("high_us") - pl.col("low_us")).filter(pl.col("span_us") > 0)

    def best(way: pl.Expr, when: pl.Expr, name: str) -> list[pl.Expr]:
        chosen = pl.col("bound").filter(way & when)
        at = pl.col("pair_us").filter(way & when).sort_by(chosen).first()
        return [chosen.min().alias(name), at.alias(f"{name}_us")]

    corners = rows.group_by(by_pair).agg(
        *best(there, late, "there_late"),
        *best(back, early, "back_early"),
        *best(there, early, "there_early"),
        *best(back, late, "back_late"),
    )
    gains = corners.select(
        *by_pair,
        most=(pl.col("there_late") + pl.col("back_early")) / (pl.col("there_late_us") - pl.col("back_early_us")),
        least=(pl.col("there_early") + pl.col("back_late")) / (pl.col("back_late_us") - pl.col("there_early_us")),
    )
    most, least = gains.drop_nulls("most"), gains.drop_nulls("least")
    a = np.concatenate([most["first"].to_numpy(), least["second"].to_numpy()])
    b = np.concatenate([most["second"].to_numpy(), least["first"].to_numpy()])
    length = np.concatenate([most["most"].to_numpy(), least["least"].to_numpy()])
    widest = np.where(nodes.is_reference, 0.0, np.maximum(DRIFT_MAX, 2 * np.abs(drift)))
    upper = _shortest(a, b, length, widest - drift, nodes)
    lower = -_shortest(b, a, length, widest + drift, nodes)
    found = np.maximum(np.abs(upper), np.abs(lower))
    return np.where(nodes.is_reference, 0.0, np.where(lower <= upper, found, widest + np.abs(drift)))


def _bounds(moved: pl.DataFrame, drift_error: Floats, nodes: _Nodes) -> tuple[Floats, Floats]:
    """Lower and upper bound of each node: no message arrives before it is sent."""
    away = pl.Series(drift_error[moved["a"].to_numpy()]) * pl.col("a_us").abs()
    away += pl.Series(drift_error[moved["b"].to_numpy()]) * pl.col("b_us").abs()
    best = moved.with_columns(pl.col("bound") + away).group_by("a", "b").agg(pl.col("bound").min())
    a, b, bound = (best[name].to_numpy() for name in ("a", "b", "bound"))
    unbounded = np.full(len(nodes.run), np.inf)
    return -_shortest(b, a, bound, unbounded, nodes), _shortest(a, b, bound, unbounded, nodes)


def _shortest(a: Ints, b: Ints, length: Floats, most: Floats, nodes: _Nodes) -> Floats:
    """Shortest paths from the reference (Bellman-Ford: lengths may be negative), but at most `most`."""
    distance = np.where(nodes.is_reference, 0.0, most)
    for _ in range(len(nodes.run)):
        before = distance.copy()
        np.minimum.at(distance, b, before[a] + length)
        distance[nodes.is_reference] = 0.0
        if np.array_equal(before, distance):
            break
    return distance


def _grid(seen: pl.DataFrame, number: dict[str, int]) -> pl.DataFrame:
    """Each run in each window in which it recorded, and which part of the window that is."""
    first, last = (pl.col(name).floordiv(WINDOW_US) for name in ("start_time", "end_time"))
    return (
        seen.with_columns(
            run=pl.col("run_id").replace_strict(number, return_dtype=pl.Int64), window=pl.int_ranges(first, last + 1)
        )
        .explode("window")
        .with_columns(pl.col("window") * WINDOW_US)
        .select(
            "run",
            "window",
            low=pl.max_horizontal("window", "start_time"),
            high=pl.min_horizontal(pl.col("window") + WINDOW_US, "end_time"),
        )
    )


def _carried(grid: pl.DataFrame, estimates: pl.DataFrame, reference: Ints) -> pl.DataFrame:
    """The best estimate for each run and window: its own, or the one before or after, with an error that grows with
    the distance.

    A window at the edge of a tape may have little traffic, and one in between none. References are exact by definition.
    An isolated run is its own reference.
    """
    known = estimates.sort("window").with_columns(known_window="window")
    grid = grid.sort("window")
    choices = [
        grid.with_columns(pl.col("window") + shift)
        .join_asof(known, on="window", by="run", strategy=strategy, check_sortedness=False)
        .with_columns(pl.col("window") - shift)
        for shift, strategy in _NEAR
    ]
    is_own = pl.col("known_window") == pl.col("window")
    # In another window, a clock may drift in another way.
    drift_error = (
        pl.when(is_own).then("drift_error_ppm").otherwise(pl.max_horizontal("drift_error_ppm", DRIFT_MAX * 1e6))
    )
    away_us = pl.max_horizontal((pl.col("low") - pl.col("at")).abs(), (pl.col("high") - pl.col("at")).abs())
    error = (pl.col("error_us") + away_us * drift_error / 1e6).alias("carried_error_us")
    every = pl.concat(choices).with_columns(error).sort("carried_error_us", nulls_last=True, maintain_order=True)
    best = every.unique(["run", "window"], keep="first", maintain_order=True)
    is_reference = pl.Series("run", np.flatnonzero(reference == np.arange(len(reference))))
    exact = pl.col("run").is_in(is_reference.implode())
    return best.select(
        "run",
        "window",
        at=pl.coalesce("at", "window"),
        offset_us=pl.when(exact).then(0.0).otherwise("offset_us"),
        drift_ppm=pl.when(exact).then(0.0).otherwise("drift_ppm"),
        error_us=pl.when(exact).then(0.0).otherwise("carried_error_us"),
        sample_count=pl.when(is_own).then("sample_count").otherwise(0).fill_null(0),
    )


TABLE = Table(
    "clock_offsets",
    "How far apart are the clocks of the recording processes?",
    COLUMNS,
    Stage.ALL,
)
