"""Flooding brings (r-1)N+1 copies of each message, Plumtree far fewer; counted on simulated tapes."""

import polars as pl
import pytest

from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.tables.redundancy import redundancy
from broadloom.record.arrow_import import pa
from broadloom.testing.sim.dissemination import DisseminationMode
from tests.pipeline.building import build_all, rows_of_kill
from tests.pipeline.flooded import CHANNEL, START_US
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_links import ONE_CLOCK, intervals_and_links


def seconds_of(rows: pa.Table, degree: int = 4) -> pl.DataFrame:
    frame = pl.DataFrame(rows).filter(pl.col("peer").is_not_null())
    kind = pl.col("kind")
    by_second = frame.group_by("channel", "run_id", pl.col("event_time").dt.truncate("1s")).agg(
        message_count=(kind == "sent").sum().cast(pl.Int64),
        first_copy_count=(kind == "received").sum().cast(pl.Int64),
        duplicate_count=pl.col("event_count").filter(kind == "duplicates").sum(),
    )
    return by_second.with_columns(degree=pl.lit(degree, dtype=pl.Int64))


def total(rows: pa.Table) -> dict:
    intervals, _ = intervals_and_links(rows)
    found = in_us(redundancy(seconds_of(rows), intervals, ONE_CLOCK))
    return found.select("message_count", "copy_count", "flood_copy_count").sum().row(0, named=True)


@pytest.mark.parametrize("peers", [5, 40])
def test_flood_copies_match_formula(peers):
    """5 peers are a full mesh."""
    found = total(simulated_history("dissemination-cost", peers).rows)
    assert found["message_count"] > 100
    assert found["flood_copy_count"] == found["message_count"] * (3 * peers + 1)
    # Now and then gap repair requests a message in flight, which then arrives twice.
    assert 1 <= found["copy_count"] / found["flood_copy_count"] < 1.001


def test_stable_fabric_sends_exact_number_of_flood_copies():
    found = total(simulated_history("grow", 40).rows)
    assert found == {"message_count": 3, "copy_count": 3 * 121, "flood_copy_count": 3 * 121.0}


def test_plumtree_sends_far_fewer_copies_than_flooding():
    found = total(simulated_history("dissemination-cost", 40, DisseminationMode.TREE).rows)
    assert found["message_count"] * 39 <= found["copy_count"] < 0.6 * found["flood_copy_count"]


def test_flood_copies_use_peer_count_at_sending_time():
    """Two peers, then three, in a full mesh: 1 and 4 copies."""
    names = [f"{number:016x}" for number in range(3)]
    at = [0, 0, 100_000_000]
    intervals = pl.DataFrame(
        [
            {
                "channel": CHANNEL,
                "peer": name,
                "is_recorded": True,
                "start_time": START_US + when,
                "end_time": None,
            }
            for name, when in zip(names, at, strict=True)
        ],
        schema_overrides={"end_time": pl.Int64},
    )
    base = {"channel": CHANNEL, "run_id": "run_id", "degree": 4, "first_copy_count": 0, "duplicate_count": 0}
    seconds = pl.DataFrame(
        [
            {**base, "event_time": START_US + 10_000_000, "message_count": 5},
            {**base, "event_time": START_US + 110_000_000, "message_count": 2},
        ]
    )
    found = in_us(redundancy(seconds, intervals, ONE_CLOCK))
    assert found.select("peer_count_mean", "message_count", "flood_copy_count").rows() == [(2.0, 5, 5.0), (3.0, 2, 8.0)]


def test_engine_matches_pure_functions():
    rows = simulated_history("kill", 30).rows
    intervals, _ = intervals_and_links(rows)
    here = redundancy(seconds_of(rows), intervals, ONE_CLOCK)
    assert rows_of_kill(build_all()["redundancy"], "start_time") == here.rows()
