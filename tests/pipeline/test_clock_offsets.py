"""Clock offsets of seconds are estimated from the tapes alone, within the reported error."""

import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.analysis.clock_correction import WINDOW_US, ClockCorrection
from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.analysis.link_crossings import FASTEST, crossings, fastest
from broadloom.pipeline.engine.scans import crossing_rows
from broadloom.pipeline.tables.clock_offsets import COLUMNS, estimate_clock_offsets
from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_all, events_of
from tests.pipeline.flooded import START_US, FloodTape, flood_tape
from tests.pipeline.simulated import simulated_history


def spans_of(rows: pa.Table) -> pl.DataFrame:
    by_run = pl.DataFrame(rows).group_by("run_id")
    return by_run.agg(start_time=pl.col("event_time").min(), end_time=pl.col("event_time").max())


def fastest_of(rows: pa.Table) -> pl.DataFrame:
    return fastest(crossings(crossing_rows(events_of(rows))))


def estimated(rows: pa.Table) -> pl.DataFrame:
    return in_us(estimate_clock_offsets(fastest_of(rows), spans_of(rows)))


def errors_ms(tape: FloodTape, found: pl.DataFrame) -> np.ndarray:
    """Error of each estimated offset, at the start of the tape."""
    reference = tape.offset_s[found["reference_run_id"][0]]
    truth = np.array([(tape.offset_s[run] - reference) * 1e3 for run in found["run_id"]])
    return np.asarray(found["offset_ms"].to_numpy() - truth)


@pytest.mark.parametrize("seed", range(5))
def test_clock_offsets_of_seconds_are_estimated_within_a_millisecond(seed):
    tape = flood_tape(seed=seed)
    found = estimated(tape.rows)
    wrong = np.abs(errors_ms(tape, found))
    assert found["reference_run_id"].n_unique() == 1
    # Latencies are 1 to 20 ms plus jitter; the clocks are up to 10 s apart.
    assert wrong.max() < 1
    assert np.all(wrong <= found["error_ms"].to_numpy() + 0.001)
    assert found["error_ms"].to_numpy().max() < 25


def test_reported_clock_error_holds_with_and_without_jitter():
    for jitter_ms in (0.0, 50.0):
        tape = flood_tape(jitter_ms=jitter_ms, seed=7)
        found = estimated(tape.rows)
        assert np.all(np.abs(errors_ms(tape, found)) <= found["error_ms"].to_numpy() + 0.001)


def test_clock_drift_is_corrected():
    tape = flood_tape(drift_ppm_max=40.0, seconds=1800, messages=900, seed=3)
    found = estimated(tape.rows)
    correction = ClockCorrection(estimate_clock_offsets(fastest_of(tape.rows), spans_of(tape.rows)))
    rows = in_us(pl.DataFrame(tape.rows))
    corrected = correction.apply(rows, "run_id", "event_time")
    sent = corrected.filter(pl.col("kind") == "sent").select("author", "sequence", sent="event_time")
    got = corrected.filter(pl.col("kind") == "delivered").join(sent, on=["author", "sequence"], how="left")
    # The rows are ordered by true time, the true latencies by message: compare both sorted.
    latencies = np.sort((got["event_time"] - got["sent"]).to_numpy())
    assert np.max(np.abs(latencies - np.sort(tape.latencies_us))) < 3_000
    assert found["drift_ppm"].abs().to_numpy().max() > 5


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("jitter_ms", [1.0, 40.0])
def test_stated_error_holds_for_clocks_hours_apart_that_drift(seed, jitter_ms):
    """Clocks up to an hour off, 30 ppm fast or slow, for two hours: a correction that takes the time of one clock for
    that of another would be wrong by 108 ms."""
    tape = flood_tape(
        peers=20,
        runs=5,
        messages=250,
        seconds=7200,
        offset_s_max=3600.0,
        drift_ppm_max=30.0,
        jitter_ms=jitter_ms,
        seed=seed,
    )
    offsets = estimate_clock_offsets(fastest_of(tape.rows), spans_of(tape.rows))
    (reference,) = set(in_us(offsets)["reference_run_id"])
    rows = in_us(pl.DataFrame(tape.rows)).with_columns(
        offset_us=pl.col("run_id").replace_strict({run: each * 1e6 for run, each in tape.offset_s.items()}),
        drift=pl.col("run_id").replace_strict(tape.drift),
        shown=pl.col("event_time"),
    )
    true_us = (pl.col("shown") - START_US - pl.col("offset_us")) / (1 + pl.col("drift"))
    by_reference = START_US + true_us * (1 + tape.drift[reference]) + tape.offset_s[reference] * 1e6
    corrected = ClockCorrection(offsets).apply(rows, "run_id", "event_time").with_columns(truth=by_reference)
    wrong = (corrected["event_time"] - corrected["truth"]).abs()
    assert (wrong <= corrected["event_time_error_us"] + 2).all()
    assert wrong.to_numpy().max() < 10_000
    assert corrected["event_time_error_us"].to_numpy().max() < 150_000


def test_clock_that_is_set_in_between_is_within_the_stated_error():
    """Half way, the clock of a run is set back by ten minutes."""
    tape = flood_tape(peers=20, runs=4, messages=300, seconds=3000, offset_s_max=2.0, seed=5)
    rows = in_us(pl.DataFrame(tape.rows))
    is_set = (pl.col("run_id") == "run-02") & (pl.col("event_time") > START_US + 1_500_000_000)
    moved = rows.with_columns(pl.col("event_time") - pl.when(is_set).then(600_000_000).otherwise(0))
    table = moved.with_columns(pl.from_epoch("event_time", "us").dt.replace_time_zone("UTC")).to_arrow()
    offsets = estimate_clock_offsets(fastest_of(table), spans_of(table))
    (reference,) = set(in_us(offsets)["reference_run_id"])
    assert reference != "run-02"
    corrected = ClockCorrection(offsets).apply(moved, "run_id", "event_time")
    offset_us = pl.col("run_id").replace_strict(
        {run: (each - tape.offset_s[reference]) * 1e6 for run, each in tape.offset_s.items()}
    )
    wrong = (corrected["event_time"] - rows.select(pl.col("event_time") - offset_us).to_series()).abs()
    assert (wrong <= corrected["event_time_error_us"] + 2).all()


def test_clock_offsets_of_simulated_tape_are_estimated():
    """A simulated tape, distributed over six machines with wrong clocks."""
    rows = pl.DataFrame(pl.from_arrow(simulated_history("kill", 30).rows))
    machine = pl.col("peer").rank("dense") % 6
    offset_us = {number: (number * 7919 % 11 - 5) * 1_234_567 for number in range(6)}
    moved = rows.with_columns(
        run_id=pl.concat_str(pl.lit("run-"), machine.cast(pl.Int64)),
        event_time=pl.col("event_time") + pl.duration(microseconds=machine.cast(pl.Int64).replace_strict(offset_us)),
    )
    found = estimated(moved.to_arrow())
    assert found["reference_run_id"].n_unique() == 1
    reference = offset_us[int(found["reference_run_id"][0][-1])]
    for run, offset, error in found.select("run_id", "offset_ms", "error_ms").iter_rows():
        wrong = abs(offset - (offset_us[int(run[-1])] - reference) / 1000)
        assert wrong <= error + 0.001
        assert wrong < 5  # simulated connections take some 10 to 50 ms


def test_single_run_is_its_own_reference():
    tape = flood_tape(runs=1, messages=5)
    found = estimated(tape.rows)
    assert found.select("run_id", "reference_run_id", "offset_ms", "error_ms").rows() == [
        ("run-00", "run-00", 0.0, 0.0)
    ]


def test_one_way_traffic_relates_no_clocks():
    rows = flood_tape(runs=2, messages=50).rows
    fast = fastest_of(rows).filter(pl.col("run_from") == "run-00")
    found = in_us(estimate_clock_offsets(fast, spans_of(rows)))
    assert found["reference_run_id"].to_list() == found["run_id"].to_list()
    assert ClockCorrection(found).is_one_clock is False


def test_cycle_of_one_way_traffic_bounds_clock_offsets():
    delay, offset = 2_000, {"a": 0, "b": 3_000_000, "c": -1_000_000}
    at = 10 * WINDOW_US
    around = [("a", "b"), ("b", "c"), ("c", "a")]
    fast = pl.DataFrame(
        [
            {"run_from": x, "run_to": y, "minute_us": at, "at_us": at, "sample_count": 5}
            | {"fastest_us": delay + offset[y] - offset[x]}
            for x, y in around
        ],
        schema=FASTEST,
    )
    spans = pl.DataFrame({"run_id": ["a", "b", "c"], "start_time": [at] * 3, "end_time": [at] * 3})
    found = in_us(estimate_clock_offsets(fast, spans))
    reference = offset[found["reference_run_id"][0]]
    for run, estimate, error in found.select("run_id", "offset_ms", "error_ms").iter_rows():
        assert abs(1000 * estimate - (offset[run] - reference)) <= 1000 * error <= 3 * delay


def test_window_without_traffic_uses_nearest_estimate_with_larger_error():
    tape = flood_tape(messages=60)
    begins = START_US // WINDOW_US * WINDOW_US
    spans = in_us(spans_of(tape.rows)).with_columns(start_time=begins, end_time=pl.col("end_time") + 2 * WINDOW_US)
    found = (
        in_us(estimate_clock_offsets(fastest_of(tape.rows), spans))
        .filter(pl.col("run_id") != pl.col("reference_run_id"))
        .sort("run_id", "start_time")
    )
    by_run = found.group_by("run_id", maintain_order=True).agg("error_ms", "sample_count")
    for errors, counts in by_run.select("error_ms", "sample_count").iter_rows():
        assert errors == sorted(errors)
        assert errors[0] < errors[1]
        assert counts[0] > 0 == counts[-1]


def test_estimate_returns_empty_table_without_runs():
    none = pl.DataFrame(schema={"run_id": pl.String, "start_time": pl.Int64, "end_time": pl.Int64})
    assert estimate_clock_offsets(FASTEST.to_frame(), none).columns == [each.name for each in COLUMNS]


@pytest.mark.long
def test_engine_matches_pure_functions():
    tape = flood_tape()
    here = estimate_clock_offsets(fastest_of(tape.rows), spans_of(tape.rows)).sort("run_id", "start_time")
    there = build_all()["clock_offsets"].filter(pl.col("run_id").str.starts_with("run-")).sort("run_id", "start_time")
    exact = ["run_id", "start_time", "reference_run_id", "sample_count"]
    assert there.select(exact).rows() == here.select(exact).rows()
    # Runs of other channels do not matter, but sums are taken in another order.
    assert np.allclose(there["offset_ms"], here["offset_ms"], atol=0.0005)
