"""Percentiles of delay and hops are exact where clocks are, and close to the truth where they are not."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.clock_offsets import estimate_clock_offsets
from broadloom.pipeline.arrow.frames import MINUTE_US, to_polars
from broadloom.pipeline.arrow.latency import latencies, percentiles
from broadloom.pipeline.arrow.link_crossings import fastest
from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_all
from tests.pipeline.flooded import CHANNEL, START_US, FloodTape, flood_tape, tape_rows
from tests.pipeline.test_clocks import spans_of
from tests.pipeline.test_links import ONE_CLOCK


@cache
def made() -> FloodTape:
    return flood_tape()


def corrected() -> ClockCorrection:
    rows = made().rows
    return ClockCorrection(estimate_clock_offsets(fastest(rows), spans_of(rows)))


def test_percentiles_are_nearest_ranks():
    rows = [{"kind": "sent", "observer": "a", "author": "a", "sequence": 1, "time": START_US}]
    for took in range(1, 201):
        got = {"kind": "delivered", "observer": "b", "author": "a", "sequence": 1, "hops": took % 7}
        rows.append({**got, "time": START_US + took})
    (only,) = to_polars(percentiles(latencies(tape_rows(rows), ONE_CLOCK))).rows(named=True)
    values, hops = np.arange(1, 201), np.arange(1, 201) % 7
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        assert only[f"delay_{name}_us"] == np.percentile(values, share, method="inverted_cdf")
        assert only[f"hops_{name}"] == np.percentile(hops, share, method="inverted_cdf")
    assert (only["deliveries"], only["unknown"], only["clock_error_us"]) == (200, 0, 0.0)


def test_a_delivery_whose_sending_nobody_recorded_is_counted_as_unknown():
    rows = tape_rows(
        [{"kind": "delivered", "observer": "b", "author": "a", "sequence": 1, "hops": 2, "time": START_US}]
    )
    (only,) = to_polars(percentiles(latencies(rows, ONE_CLOCK))).rows(named=True)
    assert (only["deliveries"], only["unknown"], only["delay_max_us"], only["hops_max"]) == (1, 1, None, 2)
    assert only["minute"] == START_US // MINUTE_US * MINUTE_US


def test_clocks_that_nothing_ties_are_not_compared():
    rows = flood_tape(runs=2, messages=3).rows
    alone = ClockCorrection(estimate_clock_offsets(fastest(rows.slice(0, 0)), spans_of(rows)))
    found = to_polars(latencies(rows, alone))
    same_run = found.filter(pl.col("delay_us").is_not_null())
    assert 0 < same_run.height < found.height
    assert same_run["delay_us"].max() < 1_000_000  # type: ignore[operator]


def test_a_sending_told_twice_does_not_double_the_deliveries():
    twice = tape_rows([{"kind": "sent", "run": "run-00", "author": "a", "sequence": 1, "time": START_US}] * 2)
    got = tape_rows([{"kind": "delivered", "run": "run-00", "author": "a", "sequence": 1, "time": START_US + 5}])
    assert latencies(pa.concat_tables([twice, got]), ONE_CLOCK)["delay_us"].to_pylist() == [5]


def test_delays_by_clocks_of_seconds_apart_are_right_to_a_millisecond():
    told = np.sort(to_polars(latencies(made().rows, corrected()))["delay_us"].to_numpy())
    truth = np.sort(made().delays_us)
    assert np.abs(told - truth).max() < 2_000
    for share in (50, 90, 99):
        assert np.percentile(told, share) == pytest.approx(np.percentile(truth, share), abs=1_000)
    uncorrected = to_polars(latencies(made().rows, ONE_CLOCK))["delay_us"]
    assert uncorrected.min() < -1_000_000  # type: ignore[operator]


def test_spark_gives_the_same(spark):
    here = to_polars(percentiles(latencies(made().rows, corrected()))).sort("minute")
    there = build_all(spark)["latency"].filter(pl.col("channel") == CHANNEL).sort("minute")
    assert there.with_columns(pl.col("minute").dt.timestamp("us")).rows() == here.rows()
