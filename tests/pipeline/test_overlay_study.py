"""Grown fabrics and compiled searches, compared with networkx and the protocol."""

import networkx as nx
import numpy as np
import pytest

from broadloom.pipeline.overlay_study.bfs import LANES, UNREACHED, bfs_from, bfs_sample, distances_from
from broadloom.pipeline.overlay_study.components import component_stats, vertex_connectivity
from broadloom.pipeline.overlay_study.grow import grow
from broadloom.pipeline.overlay_study.join_strategies import (
    CLUSTER_AVOIDANCE_DIAMETER,
    WALK_EXTRA_STEPS,
    JoinStrategy,
    is_clustered,
)
from broadloom.pipeline.overlay_study.kernels import NO_PEER, Fabric
from broadloom.pipeline.overlay_study.peripheral_peers import peripheral_peers
from broadloom.pipeline.overlay_study.random_source import new_rng, random_below
from broadloom.pipeline.overlay_study.theory import expected_distances, surviving_stats
from broadloom.protocol import Tuning
from broadloom.protocol.membership.control_flood import SMALL_DIAMETER_MAX
from broadloom.topology import diameter_bounds

PAPER_BOUNDS = {
    100: (4, 9),
    1_000: (6, 11),
    10_000: (8, 14),
    100_000: (10, 16),
    1_000_000: (13, 18),
    10_000_000: (15, 21),
}
"""As printed in the SWAN paper (III-A), for degree 4: peers -> lower and upper bound of the diameter."""


def graph_of(fabric: Fabric) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(fabric)))
    graph.add_edges_from((peer, int(other)) for peer, row in enumerate(fabric) for other in row if other != NO_PEER)
    return graph


def all_peers(peers: int) -> np.ndarray:
    return np.arange(peers, dtype=np.int32)


# -- growing


@pytest.mark.parametrize("strategy", JoinStrategy)
@pytest.mark.parametrize("degree", [3, 4, 5, 8])
def test_grown_fabrics_are_regular_and_connected(strategy: JoinStrategy, degree: int) -> None:
    for peers in (1, 2, degree, degree + 1, degree + 2, degree + 3, 30, 61):
        fabric = grow(peers, degree, 7, strategy, 3)
        graph = graph_of(fabric)
        wanted = min(degree, peers - 1)
        lacking = wanted * peers % 2
        assert sorted(dict(graph.degree).values()) == sorted([wanted - 1] * lacking + [wanted] * (peers - lacking))
        # No link twice: as many ports are taken as there are link ends.
        assert int((fabric != NO_PEER).sum()) == 2 * graph.number_of_edges()
        assert nx.is_connected(graph)


def test_seed_determines_the_fabric() -> None:
    assert (grow(500, seed=3) == grow(500, seed=3)).all()
    assert (grow(500, seed=3) != grow(500, seed=4)).any()


def test_random_numbers_are_uniform() -> None:
    rng = new_rng(1, 2)
    drawn = [random_below(rng, 10) for _ in range(20_000)]
    counts = np.bincount(drawn, minlength=10)
    assert len(counts) == 10
    assert abs(counts - 2_000).max() < 250  # six standard deviations


def test_broadloom_strategy_avoids_clusters() -> None:
    """With cluster avoidance hardly any neighbors of a peer are neighbors of each other."""
    triangles = {
        strategy: sum(sum(nx.triangles(graph_of(grow(300, 4, seed, strategy))).values()) for seed in range(5))
        for strategy in (JoinStrategy.RANDOM_WALK, JoinStrategy.BROADLOOM)
    }
    assert triangles[JoinStrategy.BROADLOOM] < triangles[JoinStrategy.RANDOM_WALK] / 3


def test_cluster_definition_matches_protocol() -> None:
    #  0-1-2-3-4-5-0 is a ring; 6 is linked to 0 and 1.
    fabric = np.full((7, 4), NO_PEER, dtype=np.int32)
    for peer in range(6):
        fabric[peer, :2] = (peer - 1) % 6, (peer + 1) % 6
    fabric[6, :2] = 0, 1
    assert is_clustered(fabric, 6, 2, 1)  # 2-3: 2 has the neighbor 1, which is 6's too
    assert not is_clustered(fabric, 6, 3, 1)  # 3-4


def test_study_constants_match_protocol() -> None:
    assert Tuning().walk_extra_steps == WALK_EXTRA_STEPS
    assert SMALL_DIAMETER_MAX == CLUSTER_AVOIDANCE_DIAMETER


# -- searching


@pytest.mark.parametrize(
    ("peers", "degree", "strategy"), [(1, 4, 0), (2, 4, 0), (6, 4, 0), (60, 3, 1), (LANES + 88, 4, 2)]
)
def test_distances_match_networkx(peers: int, degree: int, strategy: int) -> None:
    fabric = grow(peers, degree, 1, JoinStrategy(strategy))
    graph = graph_of(fabric)
    reach = bfs_from(fabric, all_peers(peers))
    assert reach.eccentricity_max == nx.diameter(graph)
    assert reach.unreached == 0
    lengths = nx.single_source_shortest_path_length(graph, peers // 2)
    assert distances_from(fabric, peers // 2).tolist() == [lengths[peer] for peer in range(peers)]
    if peers > 1:
        assert reach.distance_sum / (peers * (peers - 1)) == pytest.approx(nx.average_shortest_path_length(graph))


def test_batched_search_matches_single_searches() -> None:
    """Large enough that the first steps go source by source."""
    fabric = grow(20_000, seed=2)
    sources = np.array([0, 17, 19_999], dtype=np.int32)
    each = [distances_from(fabric, int(source)) for source in sources]
    reach = bfs_from(fabric, sources)
    assert reach.eccentricity_max == max(int(distances.max()) for distances in each)
    assert reach.distance_sum == sum(int(distances.sum(dtype=np.int64)) for distances in each)


def test_unreached_pairs_are_counted() -> None:
    fabric = grow(400)
    torn = np.concatenate([fabric, np.where(fabric == NO_PEER, NO_PEER, fabric + 400)]).astype(np.int32)
    reach = bfs_from(torn, all_peers(800))
    assert reach.unreached == 2 * 400 * 400
    assert reach.eccentricity_max == bfs_from(fabric, all_peers(400)).eccentricity_max
    assert (distances_from(torn, 0)[400:] == UNREACHED).all()


def test_peripheral_peers_are_farther_than_random_ones() -> None:
    """They are distinct, and farther from the rest than average."""
    fabric = grow(20_000, seed=5)
    chosen = peripheral_peers(fabric, 64)
    assert len(set(chosen.tolist())) == 64
    far, usual = bfs_from(fabric, chosen), bfs_sample(fabric, 64, 1)
    assert far.distance_sum > usual.distance_sum
    assert peripheral_peers(grow(10), 64).tolist() == list(range(10))


def test_diameters_match_random_regular_graphs() -> None:
    """Grown fabrics, shuffled fabrics and graphs of networkx agree within random variation."""
    grown = [bfs_from(grow(200, 4, seed), all_peers(200)) for seed in range(60)]
    shuffled = [bfs_from(grow(200, 4, seed, JoinStrategy.RANDOM_REGULAR), all_peers(200)) for seed in range(60)]
    drawn = [nx.random_regular_graph(4, 200, seed=seed) for seed in range(12)]
    reference = float(np.mean([nx.average_shortest_path_length(graph) for graph in drawn]))
    for some, tolerance in ((shuffled, 0.02), (grown, 0.06)):
        mean = np.mean([each.distance_sum for each in some]) / (200 * 199)
        assert mean == pytest.approx(reference, abs=tolerance)
        assert np.median([each.eccentricity_max for each in some]) == np.median([nx.diameter(graph) for graph in drawn])


# -- bounds and theory


def test_bounds_match_paper() -> None:
    assert {peers: diameter_bounds(peers, 4) for peers in PAPER_BOUNDS} == PAPER_BOUNDS


@pytest.mark.parametrize(("peers", "degree"), [(500, 4), (3_000, 4), (1_000, 6)])
def test_expected_distances_match_measurements(peers: int, degree: int) -> None:
    found = [bfs_from(grow(peers, degree, seed, JoinStrategy.RANDOM_REGULAR), all_peers(peers)) for seed in range(5)]
    diameter, mean = expected_distances(peers, degree)
    assert abs(np.median([each.eccentricity_max for each in found]) - diameter) <= 1
    assert np.mean([each.distance_sum for each in found]) / (peers * (peers - 1)) == pytest.approx(mean, abs=0.03)


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
def test_percolation_theory_matches_measurements(fraction: float) -> None:
    fabric = grow(200_000)
    alive = np.ones(200_000, dtype=np.bool_)
    alive[np.random.default_rng(3).permutation(200_000)[: round(fraction * 200_000)]] = False
    parts = component_stats(fabric, alive)
    theory = surviving_stats(fraction, 4)
    assert parts.peers == round((1 - fraction) * 200_000)
    assert parts.largest / parts.peers == pytest.approx(theory.largest, abs=0.01)
    assert parts.isolated / parts.peers == pytest.approx(theory.isolated, abs=0.01)
    assert parts.components / parts.peers == pytest.approx(theory.components, abs=0.01)


def test_components_match_networkx() -> None:
    fabric = grow(300, 4, 2)
    alive = np.random.default_rng(2).random(300) > 0.6
    parts = component_stats(fabric, alive)
    graph = graph_of(fabric).subgraph(np.flatnonzero(alive).tolist())
    sizes = sorted(map(len, nx.connected_components(graph)))
    assert (parts.peers, parts.components, parts.largest) == (len(graph), len(sizes), sizes[-1])
    assert (parts.isolated, parts.links) == (sizes.count(1), graph.number_of_edges())


def test_giant_component_vanishes_at_threshold() -> None:
    assert surviving_stats(2 / 3 - 0.02, 4).largest > 0.05
    assert surviving_stats(2 / 3 + 0.02, 4).largest < 1e-6


@pytest.mark.parametrize("damage", [0, 5, 20, 45])
@pytest.mark.parametrize(("peers", "degree"), [(6, 4), (30, 3), (40, 4)])
def test_vertex_connectivity_matches_networkx(peers: int, degree: int, damage: int) -> None:
    for seed in range(4):
        fabric = grow(peers, degree, seed)
        rng = np.random.default_rng(seed)
        for _ in range(damage):
            peer, port = rng.integers(peers), rng.integers(degree)
            other = fabric[peer, port]
            if other != NO_PEER:
                fabric[other, fabric[other].tolist().index(peer)] = fabric[peer, port] = NO_PEER
        assert vertex_connectivity(fabric) == nx.node_connectivity(graph_of(fabric))
