"""Slow links and peers are found in the right order, accurate to half a percent."""

import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.analysis.link_crossings import crossings
from broadloom.pipeline.engine.events import plain
from broadloom.pipeline.engine.scans import crossing_rows
from broadloom.pipeline.tables.link_latency import RANKS_MAX, latency_histogram, link_latency
from broadloom.record.arrow_import import pa
from tests.pipeline.building import build_all, events_of
from tests.pipeline.flooded import CHANNEL, START_US, flood_tape, tape_rows
from tests.pipeline.test_latency import corrected, tape
from tests.pipeline.test_links import ONE_CLOCK

LINKS_UP = pl.DataFrame(pl.from_arrow(tape_rows([]).select(["peer", "neighbor", "event_time"])))


def slowest(rows: pa.Table, correction: ClockCorrection, links_up: pl.DataFrame = LINKS_UP) -> pl.DataFrame:
    histogram = plain(latency_histogram(crossings(crossing_rows(events_of(rows))), correction, links_up))
    return in_us(link_latency(histogram.with_columns(channel=pl.lit(CHANNEL))))


def test_links_are_ranked_by_median_latency():
    one = flood_tape(runs=1, messages=400)
    found = slowest(one.rows, ONE_CLOCK).filter(pl.col("kind") == "link").sort("slowness_rank")
    assert found["slowness_rank"].to_list() == list(range(1, min(len(one.crossings_us), RANKS_MAX) + 1))
    for row in found.iter_rows(named=True):
        truth = one.crossings_us[row["neighbor"], row["receiver"]]
        assert row["sample_count"] == len(truth)
        for name, share in (("p50", 50), ("p90", 90), ("p99", 99)):
            assert 1000 * row[f"latency_{name}_ms"] == pytest.approx(
                np.percentile(truth, share, method="inverted_cdf"), rel=0.006
            )
        assert 1000 * row["latency_max_ms"] == pytest.approx(max(truth), abs=1.5)
    middles = found["latency_p50_ms"].to_list()
    assert middles == sorted(middles, reverse=True)


def test_receivers_and_relays_combine_their_links():
    one = flood_tape(runs=1, messages=100)
    found = slowest(one.rows, ONE_CLOCK)
    for kind, end in (("receiver", 1), ("relay", 0)):
        name = ("neighbor", "receiver")[end]
        for row in found.filter(pl.col("kind") == kind).iter_rows(named=True):
            truth = np.concatenate([took for ends, took in one.crossings_us.items() if ends[end] == row[name]])
            assert row["sample_count"] == len(truth)
            assert 1000 * row["latency_p50_ms"] == pytest.approx(
                np.percentile(truth, 50, method="inverted_cdf"), rel=0.006
            )


def test_backfill_is_not_timed():
    """b links to a at second 50, gets a message from second 0 as backfill, and then a new one."""
    sent = [
        {"kind": "sent", "peer": "a", "author": "a", "sequence": number, "event_time": START_US + at * 1_000_000}
        for number, at in ((1, 0), (2, 60))
    ]
    received = [
        {**row, "kind": "received", "peer": "b", "neighbor": "a", "event_time": START_US + at}
        for row, at in zip(sent, (50_001_000, 60_002_000), strict=True)
    ]
    up = tape_rows([{"kind": "link_up", "peer": "b", "neighbor": "a", "event_time": START_US + 50_000_000}])
    found = slowest(tape_rows([*sent, *received]), ONE_CLOCK, pl.DataFrame(pl.from_arrow(up)).select(LINKS_UP.columns))
    link = found.filter(pl.col("kind") == "link").row(0, named=True)
    assert (link["sample_count"], link["backfill_count"], link["latency_max_ms"]) == (1, 1, 2.0)


def test_link_latency_is_corrected_for_clocks():
    found = slowest(tape().rows, corrected()).filter(pl.col("kind") == "link")
    wrong = [
        abs(
            1000 * row["latency_p50_ms"]
            - np.percentile(tape().crossings_us[row["neighbor"], row["receiver"]], 50, method="inverted_cdf")
        )
        for row in found.iter_rows(named=True)
    ]
    assert max(wrong) < 2_000


@pytest.mark.long
def test_engine_matches_pure_functions():
    keys = ["kind", "slowness_rank"]
    here = slowest(tape().rows, corrected()).sort(keys)
    there = build_all()["link_latency"].filter(pl.col("channel") == CHANNEL).sort(keys)
    assert there.rows() == here.rows()
