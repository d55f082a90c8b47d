"""Clocks that are seconds apart are found from the tapes alone, and the error that is told holds."""

import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.clock_offsets import CLOCK_OFFSETS, WINDOW_US, estimate_clock_offsets
from broadloom.pipeline.arrow.frames import to_polars
from broadloom.pipeline.arrow.link_crossings import FASTEST, fastest
from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_all
from tests.pipeline.flooded import START_US, FloodTape, flood_tape
from tests.pipeline.simulated import simulated_history


def spans_of(rows: pa.Table) -> pa.Table:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame.group_by("run").agg(first=pl.col("time").min(), last=pl.col("time").max()).to_arrow()


def estimated(rows: pa.Table) -> pl.DataFrame:
    return to_polars(estimate_clock_offsets(fastest(rows), spans_of(rows)))


def errors_us(made: FloodTape, found: pl.DataFrame) -> np.ndarray:
    """What is wrong with each row's offset, at the beginning of the tape."""
    reference = made.offset_s[found["reference"][0]]
    truth = np.array([(made.offset_s[run] - reference) * 1e6 for run in found["run"]])
    return np.asarray(found["offset_us"].to_numpy() - truth)


@pytest.mark.parametrize("seed", range(5))
def test_offsets_of_seconds_are_found_to_a_fraction_of_the_delay(seed):
    made = flood_tape(seed=seed)
    found = estimated(made.rows)
    wrong = np.abs(errors_us(made, found))
    assert found["reference"].n_unique() == 1
    # Delays are 1 to 20 ms and as much again of jitter; the clocks are up to 10 s apart.
    assert wrong.max() < 1_000
    assert np.all(wrong <= found["error_us"].to_numpy() + 1)
    assert found["error_us"].to_numpy().max() < 25_000


def test_the_error_that_is_told_holds_without_jitter_and_with_much():
    for jitter_ms in (0.0, 50.0):
        made = flood_tape(jitter_ms=jitter_ms, seed=7)
        found = estimated(made.rows)
        assert np.all(np.abs(errors_us(made, found)) <= found["error_us"].to_numpy() + 1)


def test_clocks_that_drift():
    made = flood_tape(drift_ppm_max=40.0, seconds=1800, messages=900, seed=3)
    found = estimated(made.rows)
    correction = ClockCorrection(estimate_clock_offsets(fastest(made.rows), spans_of(made.rows)))
    rows = to_polars(made.rows)
    corrected = correction.apply(rows, "run", "time")
    sent = corrected.filter(pl.col("kind") == "sent").select("author", "sequence", said="time")
    got = corrected.filter(pl.col("kind") == "delivered").join(sent, on=["author", "sequence"], how="left")
    # Rows come by true time, so those of a message by its true delay; the order in the made delays is by message.
    told = np.sort((got["time"] - got["said"]).to_numpy())
    assert np.max(np.abs(told - np.sort(made.delays_us))) < 3_000
    assert found["drift_ppm"].abs().to_numpy().max() > 5


def test_clocks_put_wrong_on_a_tape_of_the_simulator_are_found():
    """Real peers, their links changing under kills; their tape dealt out to six machines whose clocks are set wrong."""
    rows = pl.DataFrame(pl.from_arrow(simulated_history("kill", 30).rows))
    machine = pl.col("observer").rank("dense") % 6
    offset_us = {number: (number * 7919 % 11 - 5) * 1_234_567 for number in range(6)}
    moved = rows.with_columns(
        run=pl.concat_str(pl.lit("run-"), machine.cast(pl.Int64)),
        time=pl.col("time") + pl.duration(microseconds=machine.cast(pl.Int64).replace_strict(offset_us)),
    )
    found = estimated(moved.to_arrow())
    assert found["reference"].n_unique() == 1
    reference = offset_us[int(found["reference"][0][-1])]
    for run, offset, error in found.select("run", "offset_us", "error_us").iter_rows():
        wrong = abs(offset - (offset_us[int(run[-1])] - reference))
        assert wrong <= error + 1
        assert wrong < 5_000  # lines of the simulator take some 10 to 50 ms


def test_one_run_is_its_own_reference():
    made = flood_tape(runs=1, messages=5)
    found = estimated(made.rows)
    assert found.select("run", "reference", "offset_us", "error_us").rows() == [("run-00", "run-00", 0.0, 0.0)]


def test_one_way_traffic_ties_nobody():
    rows = flood_tape(runs=2, messages=50).rows
    fast = to_polars(fastest(rows)).filter(pl.col("run_from") == "run-00")
    found = to_polars(estimate_clock_offsets(fast.to_arrow().cast(FASTEST), spans_of(rows)))
    assert found["reference"].to_list() == found["run"].to_list()
    assert ClockCorrection(found.with_columns(pl.from_epoch("window", "us")).to_arrow()).is_one_clock is False


def test_a_circle_of_one_way_traffic_ties_with_bounds():
    delay, offset = 2_000, {"a": 0, "b": 3_000_000, "c": -1_000_000}
    at = 10 * WINDOW_US
    around = [("a", "b"), ("b", "c"), ("c", "a")]
    fast = pa.Table.from_pylist(
        [
            {"run_from": x, "run_to": y, "minute": at, "at_us": at, "crossings": 5}
            | {"fastest_us": delay + offset[y] - offset[x]}
            for x, y in around
        ],
        schema=FASTEST,
    )
    spans = pa.table({"run": ["a", "b", "c"], "first": [at] * 3, "last": [at] * 3})
    found = to_polars(estimate_clock_offsets(fast, spans))
    reference = offset[found["reference"][0]]
    for run, told, error in found.select("run", "offset_us", "error_us").iter_rows():
        assert abs(told - (offset[run] - reference)) <= error <= 3 * delay


def test_a_window_without_traffic_takes_the_nearest_with_more_doubt():
    made = flood_tape(messages=60)
    begins = START_US // WINDOW_US * WINDOW_US
    spans = to_polars(spans_of(made.rows)).with_columns(first=begins, last=pl.col("last") + 2 * WINDOW_US).to_arrow()
    found = (
        to_polars(estimate_clock_offsets(fastest(made.rows), spans))
        .filter(pl.col("run") != pl.col("reference"))
        .sort("run", "window")
    )
    by_run = found.group_by("run", maintain_order=True).agg("error_us", "crossings")
    for errors, crossings in by_run.select("error_us", "crossings").iter_rows():
        assert errors == sorted(errors)
        assert errors[0] < errors[1]
        assert crossings[0] > 0 == crossings[-1]


def test_no_tape_at_all():
    empty = pa.table(
        {"run": pa.array([], pa.string()), "first": pa.array([], pa.int64()), "last": pa.array([], pa.int64())}
    )
    assert estimate_clock_offsets(FASTEST.empty_table(), empty).schema.names == CLOCK_OFFSETS.names


@pytest.mark.long
def test_spark_gives_the_same(spark):
    made = flood_tape()
    here = pl.DataFrame(pl.from_arrow(estimate_clock_offsets(fastest(made.rows), spans_of(made.rows)))).sort(
        "run", "window"
    )
    there = build_all(spark)["clocks"].filter(pl.col("run").str.starts_with("run-")).sort("run", "window")
    exact = ["run", "window", "reference", "crossings"]
    assert there.select(exact).rows() == here.select(exact).rows()
    # Runs of another channel do not disturb, but the sums are taken in another order.
    assert np.allclose(there["offset_us"], here["offset_us"], atol=0.5)
