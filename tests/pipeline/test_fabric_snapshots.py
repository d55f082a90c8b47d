"""Snapshots match networkx, and the last one is the fabric at the end of the simulation."""

import networkx as nx
import numpy as np
import polars as pl
import pytest

from broadloom.pipeline.arrow import graph as arrow_graph
from broadloom.pipeline.arrow.fabric_snapshots import fabric_snapshots, snapshot_times
from broadloom.pipeline.arrow.fabric_timeline import FabricTimeline
from broadloom.pipeline.arrow.frames import to_polars
from broadloom.pipeline.arrow.graph import is_regular, measure_topology
from tests.pipeline.building import build_all, rows_of_kill
from tests.pipeline.simulated import simulated_history
from tests.pipeline.test_links import intervals_and_links, rows_from_script, seconds_of


def topology_by_networkx(graph: nx.Graph) -> tuple:
    connected = nx.number_connected_components(graph) == 1
    degrees: dict[int, int] = {}
    for _, degree in graph.degree:
        degrees[degree] = degrees.get(degree, 0) + 1
    diameter = nx.diameter(graph) if connected else None
    mean = nx.average_shortest_path_length(graph) if connected else None
    return degrees, nx.number_connected_components(graph), diameter, mean


@pytest.mark.parametrize(
    "graph",
    [
        nx.random_regular_graph(4, 700, seed=1),
        nx.random_regular_graph(3, 50, seed=2),
        nx.path_graph(70),
        nx.star_graph(20),
        nx.complete_graph(5),
        nx.disjoint_union(nx.cycle_graph(5), nx.complete_graph(4)),
        nx.gnp_random_graph(200, 0.03, seed=3),
        nx.empty_graph(1),
    ],
    ids=str,
)
def test_topology_matches_networkx(graph):
    a, b = (np.array([edge[end] for edge in graph.edges], dtype=np.int64) for end in (0, 1))
    found = measure_topology(a, b, len(graph))
    degrees, components, diameter, mean = topology_by_networkx(graph)
    assert (found.degrees, found.components, found.diameter) == (degrees, components, diameter)
    assert found.distance_mean == (None if mean is None else pytest.approx(mean))


def test_sampled_topology_is_close_to_exact(monkeypatch):
    graph = nx.random_regular_graph(4, 2000, seed=5)
    a, b = (np.array([edge[end] for edge in graph.edges], dtype=np.int64) for end in (0, 1))
    exact = measure_topology(a, b, 2000)
    monkeypatch.setattr(arrow_graph, "EXACT_PEERS_MAX", 100)
    swept = measure_topology(a, b, 2000)
    assert exact.is_exact
    assert not swept.is_exact
    assert exact.diameter is not None
    assert swept.diameter in (exact.diameter - 1, exact.diameter)
    assert swept.distance_mean == pytest.approx(exact.distance_mean, rel=0.02)


def test_is_regular_allows_one_free_slot_only_if_odd():
    assert is_regular({4: 10}, 10, 4)
    assert not is_regular({4: 9, 3: 1}, 10, 4)
    assert is_regular({3: 4}, 4, 4)  # full mesh
    assert is_regular({3: 8, 2: 1}, 9, 3)  # odd: one peer has a free slot
    assert not is_regular({3: 7, 2: 2}, 9, 3)
    assert not is_regular({5: 1, 4: 9}, 10, 4)
    assert is_regular({0: 1}, 1, 4)


def test_snapshots_follow_scripted_history():
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
    last = to_polars(fabric_snapshots(found, intervals)).sort("snapshot_time").row(-1, named=True)
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
def test_spark_matches_pure_functions(spark):
    intervals, found = intervals_and_links(simulated_history("kill", 30).rows)
    by_spark = build_all(spark)["fabric_snapshots"]
    here = pl.DataFrame(pl.from_arrow(fabric_snapshots(found, intervals)))
    assert rows_of_kill(by_spark.drop("degree_histogram"), "snapshot_time") == here.drop("degree_histogram").rows()
    assert dict(rows_of_kill(by_spark, "snapshot_time")[-1][7]) == {4: 24}
