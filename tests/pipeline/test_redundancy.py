"""A flood brings (r-1)N+1 copies of each message, and a tree far fewer; counted on tapes of the simulator."""

import polars as pl
import pytest

from broadloom.pipeline.arrow.frames import to_polars
from broadloom.pipeline.arrow.membership_intervals import MEMBERSHIP_INTERVALS
from broadloom.pipeline.arrow.redundancy import redundancy
from broadloom.record.arrow_import import pa
from broadloom.testing.sim.dissemination import DisseminationMode
from tests.pipeline.building import build_all, rows_of_kill
from tests.pipeline.flooded import CHANNEL, START_US
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_links import ONE_CLOCK, intervals_and_links


def seconds_of(rows: pa.Table, degree: int = 4) -> pa.Table:
    frame = pl.DataFrame(pl.from_arrow(rows)).filter(pl.col("observer").is_not_null())
    kind = pl.col("kind")
    by_second = frame.group_by("channel", "run", pl.col("time").dt.truncate("1s")).agg(
        sent=(kind == "sent").sum().cast(pl.Int64),
        received=(kind == "received").sum().cast(pl.Int64),
        duplicates=pl.col("count").filter(kind == "duplicates").sum(),
    )
    return by_second.with_columns(degree=pl.lit(degree, dtype=pl.Int64)).to_arrow()


def total(rows: pa.Table) -> dict:
    living, _ = intervals_and_links(rows)
    found = to_polars(redundancy(seconds_of(rows), living, ONE_CLOCK))
    return found.select("messages", "copies", "copies_of_flood").sum().row(0, named=True)


@pytest.mark.parametrize("peers", [5, 40])
def test_a_flood_brings_what_the_formula_says(peers):
    """5 peers are the small regime: everyone is linked to everyone."""
    told = total(simulated_history("dissemination-cost", peers).rows)
    assert told["messages"] > 100
    assert told["copies_of_flood"] == told["messages"] * (3 * peers + 1)
    # Now and then somebody asks for what was on its way, and gets it twice.
    assert 1 <= told["copies"] / told["copies_of_flood"] < 1.001


def test_at_rest_each_message_makes_exactly_so_many_copies():
    told = total(simulated_history("grow", 40).rows)
    assert told == {"messages": 3, "copies": 3 * 121, "copies_of_flood": 3 * 121.0}


def test_a_tree_brings_little_more_than_one_copy():
    told = total(simulated_history("dissemination-cost", 40, DisseminationMode.TREE).rows)
    assert told["messages"] * 39 <= told["copies"] < 0.6 * told["copies_of_flood"]


def test_the_number_of_peers_is_that_of_the_moment():
    """Two peers, then three: everyone linked to everyone, so 1 and 4 copies."""
    names = [f"{number:016x}" for number in range(3)]
    at = [0, 0, 100_000_000]
    living = pa.Table.from_pylist(
        [
            {"channel": CHANNEL, "peer": name, "is_recorded": True, "since": START_US + when, "how": "there"}
            for name, when in zip(names, at, strict=True)
        ],
        schema=MEMBERSHIP_INTERVALS,
    )
    base = {"channel": CHANNEL, "run": "run", "degree": 4, "received": 0, "duplicates": 0}
    seconds = pa.Table.from_pylist(
        [{**base, "time": START_US + 10_000_000, "sent": 5}, {**base, "time": START_US + 110_000_000, "sent": 2}]
    )
    found = to_polars(redundancy(seconds, living, ONE_CLOCK))
    assert found.select("peers", "messages", "copies_of_flood").rows() == [(2.0, 5, 5.0), (3.0, 2, 8.0)]


def test_spark_gives_the_same(spark):
    rows = simulated_history("kill", 30).rows
    living, _ = intervals_and_links(rows)
    here = pl.DataFrame(pl.from_arrow(redundancy(seconds_of(rows), living, ONE_CLOCK)))
    assert rows_of_kill(build_all(spark)["redundancy"], "minute") == here.rows()
