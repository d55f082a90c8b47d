"""Snapshots match networkx, and the last one is the fabric at the end of the simulation."""

import numpy as np
import pytest

from broadloom.pipeline.analysis.fabric_timeline import FabricTimeline
from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.tables.fabric_snapshots import fabric_snapshots, snapshot_times
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
    intervals, found = intervals_and_links(rows)
    seen = fabric_snapshots(found, intervals)
    columns = "snapshot_time", "reason", "peer_count", "link_count", "component_count", "is_regular"
    assert seconds_of(seen, *columns) == [
        (0.0, "changed", 3, 0, 3, False),
        (1.0, "changed", 3, 1, 2, False),
        (2.0, "changed", 3, 2, 1, False),
        (3.0, "changed", 3, 3, 1, True),
        (9.0, "peer_lost", 2, 1, 1, True),
    ]


def test_number_of_snapshots_is_limited():
    times = np.arange(0, 10_000_000_000, 1_000_000)
    found = snapshot_times(times, 1_000_000, snapshots_max=1000)
    assert 500 <= len(found) <= 1000
    assert found[-1] == times[-1]
    assert len(snapshot_times(times[:0], 1)) == 0


@pytest.mark.parametrize("scenario", ["kill", "churn", "partition"])
def test_last_snapshot_matches_fabric_of_simulation(scenario):
    history = simulated_history(scenario, 30)
    intervals, found = intervals_and_links(history.rows)
    timeline = FabricTimeline(found, intervals)
    peers, a, b = timeline.graph(int(timeline.times[-1]))
    names = [timeline.names[peer] for peer in peers]
    links = {frozenset((names[x], names[y])) for x, y in zip(a.tolist(), b.tolist(), strict=True)}
    assert links == history.links
    last = in_us(fabric_snapshots(found, intervals)).sort("snapshot_time").row(-1, named=True)
    assert (last["degree"], last["is_regular"], last["component_count"]) == (4, True, 1)


def test_timeline_regularity_matches_graph_at_each_time():
    """Two computations: counted along the timeline, and from the graph at each time."""
    intervals, found = intervals_and_links(simulated_history("churn", 30).rows)
    timeline = FabricTimeline(found, intervals)
    chosen = np.unique(np.linspace(0, len(timeline.times) - 1, 300).astype(int))
    for index in chosen.tolist():
        time = int(timeline.times[index])
        peers = int(timeline.is_present(time).sum())
        assert timeline.is_regular[index] == is_regular(timeline.recorded_degrees(time), peers, timeline.degree)


@pytest.mark.long
def test_engine_matches_pure_functions():
    intervals, found = intervals_and_links(simulated_history("kill", 30).rows)
    by_spark = build_all()["fabric_snapshots"]
    here = fabric_snapshots(found, intervals)
    assert rows_of_kill(by_spark.drop("degree_histogram"), "snapshot_time") == here.drop("degree_histogram").rows()
    assert dict(rows_of_kill(by_spark, "snapshot_time")[-1][7]) == {4: 24}
