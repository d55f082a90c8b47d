"""Percentiles of latency and hops: exact with one clock, close to the truth with several."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import MINUTE_US, in_us
from broadloom.pipeline.tables.clock_offsets import estimate_clock_offsets
from broadloom.pipeline.tables.latency import count_latencies, latencies, percentiles
from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_all, events_of, messages_of
from tests.pipeline.flooded import CHANNEL, START_US, FloodTape, flood_tape, tape_rows
from tests.pipeline.test_clock_offsets import fastest_of, spans_of
from tests.pipeline.test_links import ONE_CLOCK


@cache
def tape() -> FloodTape:
    return flood_tape()


def corrected() -> ClockCorrection:
    rows = tape().rows
    return ClockCorrection(estimate_clock_offsets(fastest_of(rows), spans_of(rows)))


def timed(rows: pa.Table, correction: ClockCorrection) -> pl.DataFrame:
    events = events_of(rows)
    return latencies(events, messages_of(events).filter("is_recorded"), correction)


def by_minute(rows: pa.Table, correction: ClockCorrection) -> pl.DataFrame:
    counts = count_latencies(timed(rows, correction)).with_columns(channel=pl.lit(CHANNEL))
    return in_us(percentiles(counts)).sort("start_time")


def test_latency_percentiles_are_nearest_rank():
    rows = [{"kind": "sent", "peer": "a", "author": "a", "sequence": 1, "event_time": START_US}]
    for took in range(1, 201):
        got = {"kind": "delivered", "peer": "b", "author": "a", "sequence": 1, "hops": took % 7}
        rows.append({**got, "event_time": START_US + took})
    (only,) = by_minute(tape_rows(rows), ONE_CLOCK).rows(named=True)
    values, hops = np.arange(1, 201), np.arange(1, 201) % 7
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        assert only[f"latency_{name}_ms"] == np.percentile(values, share, method="inverted_cdf") / 1000
        assert only[f"hops_{name}"] == np.percentile(hops, share, method="inverted_cdf")
    assert (only["delivery_count"], only["untimed_count"], only["clock_error_ms"]) == (200, 0, 0.0)


def test_delivery_without_recorded_sending_is_untimed():
    rows = tape_rows(
        [{"kind": "delivered", "peer": "b", "author": "a", "sequence": 1, "hops": 2, "event_time": START_US}]
    )
    (only,) = by_minute(rows, ONE_CLOCK).rows(named=True)
    assert (only["delivery_count"], only["untimed_count"], only["latency_max_ms"], only["hops_max"]) == (1, 1, None, 2)
    assert only["start_time"] == START_US // MINUTE_US * MINUTE_US


def test_unrelated_clocks_are_not_compared():
    rows = flood_tape(runs=2, messages=3).rows
    alone = ClockCorrection(estimate_clock_offsets(fastest_of(rows.slice(0, 0)), spans_of(rows)))
    found = timed(rows, alone)
    same_run = found.filter(pl.col("latency_us").is_not_null())
    assert 0 < same_run.height < found.height
    assert same_run["latency_us"].max() < 1_000_000  # type: ignore[operator]


def test_duplicate_sent_event_does_not_duplicate_deliveries():
    sent = {"kind": "sent", "run_id": "run-00", "peer": "a", "author": "a", "sequence": 1, "event_time": START_US}
    twice = tape_rows([sent] * 2)
    got = tape_rows(
        [{"kind": "delivered", "run_id": "run-00", "author": "a", "sequence": 1, "event_time": START_US + 5}]
    )
    assert timed(pa.concat_tables([twice, got]), ONE_CLOCK)["latency_us"].to_list() == [5]


def test_latency_with_skewed_clocks_is_accurate_to_a_millisecond():
    found = np.sort(timed(tape().rows, corrected())["latency_us"].to_numpy()) / 1000
    truth = np.sort(tape().latencies_us) / 1000
    assert np.abs(found - truth).max() < 2
    for share in (50, 90, 99):
        assert np.percentile(found, share) == pytest.approx(np.percentile(truth, share), abs=1)
    uncorrected = timed(tape().rows, ONE_CLOCK)["latency_us"]
    assert uncorrected.min() < -1_000_000  # type: ignore[operator]


def test_engine_matches_pure_functions():
    here = by_minute(tape().rows, corrected())
    there = build_all()["latency"].filter(pl.col("channel") == CHANNEL).sort("start_time")
    assert there.with_columns(pl.col("start_time").dt.timestamp("us")).rows() == here.rows()
