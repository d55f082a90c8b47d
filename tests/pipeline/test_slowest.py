"""Slow links and peers are found, in the right order, and to half a percent."""

import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.arrow.frames import to_polars
from broadloom.pipeline.arrow.link_latency import RANKS_MAX, latency_histogram, link_latency
from tests.pipeline.building import build_all
from tests.pipeline.flooded import CHANNEL, START_US, flood_tape, tape_rows
from tests.pipeline.test_latency import corrected, made
from tests.pipeline.test_links import ONE_CLOCK

LINKS_UP = tape_rows([]).select(["channel", "observer", "neighbour", "time"])


def test_links_are_ranked_by_their_true_time():
    one = flood_tape(runs=1, messages=400)
    told = (
        to_polars(link_latency(latency_histogram(one.rows, ONE_CLOCK, LINKS_UP)))
        .filter(pl.col("what") == "link")
        .sort("rank")
    )
    assert told["rank"].to_list() == list(range(1, min(len(one.crossings_us), RANKS_MAX) + 1))
    for row in told.iter_rows(named=True):
        truth = one.crossings_us[row["neighbour"], row["observer"]]
        assert row["crossings"] == len(truth)
        for name, share in (("p50", 50), ("p90", 90), ("p99", 99)):
            assert row[f"took_{name}_us"] == pytest.approx(
                np.percentile(truth, share, method="inverted_cdf"), rel=0.006
            )
        assert row["took_max_us"] == pytest.approx(max(truth), abs=1.5)
    middles = told["took_p50_us"].to_list()
    assert middles == sorted(middles, reverse=True)


def test_receivers_and_relays_add_up_their_links():
    one = flood_tape(runs=1, messages=100)
    told = to_polars(link_latency(latency_histogram(one.rows, ONE_CLOCK, LINKS_UP)))
    for what, end in (("receiver", 1), ("relay", 0)):
        name = ("neighbour", "observer")[end]
        for row in told.filter(pl.col("what") == what).iter_rows(named=True):
            truth = np.concatenate([took for ends, took in one.crossings_us.items() if ends[end] == row[name]])
            assert row["crossings"] == len(truth)
            assert row["took_p50_us"] == pytest.approx(np.percentile(truth, 50, method="inverted_cdf"), rel=0.006)


def test_what_made_up_for_the_past_is_not_timed():
    """b links to a at second 50 and gets what a has had since second 0; and then something new."""
    said = [
        {"kind": "sent", "observer": "a", "author": "a", "sequence": number, "time": START_US + at * 1_000_000}
        for number, at in ((1, 0), (2, 60))
    ]
    came = [
        {**row, "kind": "received", "observer": "b", "neighbour": "a", "time": START_US + at}
        for row, at in zip(said, (50_001_000, 60_002_000), strict=True)
    ]
    up = tape_rows([{"kind": "link_up", "observer": "b", "neighbour": "a", "time": START_US + 50_000_000}])
    told = to_polars(
        link_latency(latency_histogram(tape_rows([*said, *came]), ONE_CLOCK, up.select(LINKS_UP.schema.names)))
    )
    link = told.filter(pl.col("what") == "link").row(0, named=True)
    assert (link["crossings"], link["caught_up"], link["took_max_us"]) == (1, 1, 2_000)


def test_clocks_are_corrected():
    told = to_polars(link_latency(latency_histogram(made().rows, corrected(), LINKS_UP))).filter(
        pl.col("what") == "link"
    )
    wrong = [
        abs(
            row["took_p50_us"]
            - np.percentile(made().crossings_us[row["neighbour"], row["observer"]], 50, method="inverted_cdf")
        )
        for row in told.iter_rows(named=True)
    ]
    assert max(wrong) < 2_000


@pytest.mark.long
def test_spark_gives_the_same(spark):
    keys = ["what", "rank"]
    here = to_polars(link_latency(latency_histogram(made().rows, corrected(), LINKS_UP))).sort(keys)
    there = build_all(spark)["slowest"].filter(pl.col("channel") == CHANNEL).sort(keys)
    assert there.rows() == here.rows()
