"""Snapshots have the shape that the graph really has, and the last one is the fabric that the simulator ended with."""

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


def shape_by_networkx(graph: nx.Graph) -> tuple:
    whole = nx.number_connected_components(graph) == 1
    degrees: dict[int, int] = {}
    for _, degree in graph.degree:
        degrees[degree] = degrees.get(degree, 0) + 1
    diameter = nx.diameter(graph) if whole else None
    mean = nx.average_shortest_path_length(graph) if whole else None
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
def test_shape_is_that_of_networkx(graph):
    a, b = (np.array([edge[end] for edge in graph.edges], dtype=np.int64) for end in (0, 1))
    found = measure_topology(a, b, len(graph))
    degrees, components, diameter, mean = shape_by_networkx(graph)
    assert (found.degrees, found.components, found.diameter) == (degrees, components, diameter)
    assert found.distance_mean == (None if mean is None else pytest.approx(mean))


def test_sweeps_of_a_large_fabric_come_close(monkeypatch):
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


def test_what_counts_as_regular():
    assert is_regular({4: 10}, 10, 4)
    assert not is_regular({4: 9, 3: 1}, 10, 4)
    assert is_regular({3: 4}, 4, 4)  # the small regime
    assert is_regular({3: 8, 2: 1}, 9, 3)  # odd: one peer lacks one
    assert not is_regular({3: 7, 2: 2}, 9, 3)
    assert not is_regular({5: 1, 4: 9}, 10, 4)
    assert is_regular({0: 1}, 1, 4)


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
