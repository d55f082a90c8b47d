"""Snapshots have the shape that the graph really has, and the last one is the fabric that the simulator ended with."""

import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.arrow.fabric_snapshots import fabric_snapshots, snapshot_times
from broadloom.pipeline.arrow.fabric_timeline import FabricTimeline
from broadloom.pipeline.arrow.frames import to_polars
from broadloom.topology import is_regular
from tests.pipeline.building import build_all, rows_of_kill
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_links import intervals_and_links, rows_from_script, seconds_of


def test_snapshots_of_a_small_history():
    both = [("a", "b"), ("b", "c"), ("a", "c")]
    ups = [f"{1 + second} {x} up {y}" for second, pair in enumerate(both) for x, y in (pair, pair[::-1])]
    rows = rows_from_script(
        "0 a joined",
        "0 b joined",
        "0 c joined",
        *ups,
        "9 c says",
        "10 a down c connection_lost",
        "10 b down c connection_lost",
        "12 a says",
    )
    living, found = intervals_and_links(rows)
    seen = fabric_snapshots(found, living)
    columns = "time", "reason", "peers", "links", "components", "is_regular"
    assert seconds_of(seen, *columns) == [
        (0.0, "change", 3, 0, 3, False),
        (1.0, "change", 3, 1, 2, False),
        (2.0, "change", 3, 2, 1, False),
        (3.0, "change", 3, 3, 1, True),
        (9.0, "loss", 2, 1, 1, True),
    ]


def test_long_histories_have_no_more_snapshots_than_the_limit():
    times = np.arange(0, 10_000_000_000, 1_000_000)
    found = snapshot_times(times, 1_000_000, snapshots_max=1000)
    assert 500 <= len(found) <= 1000
    assert found[-1] == times[-1]
    assert len(snapshot_times(times[:0], 1)) == 0


@pytest.mark.parametrize("scenario", ["kill", "churn", "partition"])
def test_the_last_snapshot_is_the_fabric_of_the_simulator(scenario):
    history = simulated_history(scenario, 30)
    living, found = intervals_and_links(history.rows)
    line = FabricTimeline(found, living)
    peers, a, b = line.graph(int(line.times[-1]))
    names = [line.names[peer] for peer in peers]
    links = {frozenset((names[x], names[y])) for x, y in zip(a.tolist(), b.tolist(), strict=True)}
    assert links == history.links
    last = to_polars(fabric_snapshots(found, living)).sort("time").row(-1, named=True)
    assert (last["degree"], last["is_regular"], last["components"]) == (4, True, 1)


def test_regular_moments_are_those_of_the_snapshots():
    """Two ways to the same answer: counted along the time line, and from the graph at each moment."""
    living, found = intervals_and_links(simulated_history("churn", 30).rows)
    line = FabricTimeline(found, living)
    chosen = np.unique(np.linspace(0, len(line.times) - 1, 300).astype(int))
    for index in chosen.tolist():
        time = int(line.times[index])
        peers = int(line.is_present(time).sum())
        assert line.is_regular[index] == is_regular(line.recorded_degrees(time), peers, line.degree)


@pytest.mark.long
def test_spark_gives_the_same(spark):
    living, found = intervals_and_links(simulated_history("kill", 30).rows)
    by_spark = build_all(spark)["fabric"]
    here = pl.DataFrame(pl.from_arrow(fabric_snapshots(found, living)))
    assert rows_of_kill(by_spark.drop("degrees"), "time") == here.drop("degrees").rows()
    assert dict(rows_of_kill(by_spark, "time")[-1][7]) == {4: 24}
