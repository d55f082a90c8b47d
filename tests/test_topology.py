"""Topology measurements, compared with networkx, with brute force and with the SWAN paper."""

from __future__ import annotations

import itertools
import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom import topology
from broadloom.topology import (
    analyze_topology,
    component_labels,
    connected_components,
    diameter,
    diameter_bounds,
    free_slots,
    is_regular,
    link_adjacency,
    mutual_links,
    symmetric_links,
    vertex_connectivity,
)

# The machine may be slow.
untimed = settings(deadline=None)


def adjacency_of(fabric: nx.Graph) -> dict[int, list[int]]:
    return {peer: list(fabric[peer]) for peer in fabric}


@st.composite
def fabrics(draw: st.DrawFn, peers_max: int = 30) -> nx.Graph:
    """Any simple graph, connected or not, with arbitrary peer numbers in arbitrary order."""
    number = st.integers(-(2**70), 2**70)
    numbers = draw(st.lists(number, min_size=1, max_size=peers_max, unique=True), label="peers")
    fabric = nx.Graph()
    fabric.add_nodes_from(numbers)
    if len(numbers) > 1:
        pairs = st.tuples(st.sampled_from(numbers), st.sampled_from(numbers))
        pairs = pairs.filter(lambda pair: pair[0] != pair[1])
        fabric.add_edges_from(draw(st.lists(pairs, max_size=4 * len(numbers)), label="links"))
    return fabric


@untimed
@given(fabrics())
def test_topology_agrees_with_networkx(fabric: nx.Graph) -> None:
    found = analyze_topology(adjacency_of(fabric))
    assert found.is_symmetric
    assert found.peers == fabric.number_of_nodes()
    assert found.links == fabric.number_of_edges()
    assert sum(degree * count for degree, count in found.degrees.items()) == 2 * found.links
    histogram = enumerate(nx.degree_histogram(fabric))
    assert found.degrees == {degree: count for degree, count in histogram if count}
    assert found.components == nx.number_connected_components(fabric)
    if found.is_connected:
        assert found.diameter == nx.diameter(fabric)
        assert found.mean_distance == pytest.approx(nx.average_shortest_path_length(fabric))
    else:
        assert found.diameter is None
        assert found.mean_distance is None


@untimed
@given(fabrics())
def test_components_of_links_agree_with_networkx(fabric: nx.Graph) -> None:
    expected = sorted((sorted(each) for each in nx.connected_components(fabric)), key=lambda each: (-len(each), each))
    links = link_adjacency(fabric, fabric.edges)
    assert sorted(connected_components(links), key=lambda each: (-len(each), each)) == expected
    assert [len(each) for each in connected_components(links)] == [len(each) for each in expected]
    assert diameter(links) == max(nx.diameter(fabric.subgraph(each)) for each in expected)
    index_of = {peer: index for index, peer in enumerate(fabric)}
    ends = np.array([[index_of[a], index_of[b]] for a, b in fabric.edges], dtype=np.int64).reshape(-1, 2)
    labels = component_labels(len(fabric), ends[:, 0], ends[:, 1])
    for peer, other in itertools.combinations(fabric, 2):
        assert (labels[index_of[peer]] == labels[index_of[other]]) == nx.has_path(fabric, peer, other)


@pytest.mark.parametrize(
    "fabric",
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
def test_topology_of_links_agrees_with_networkx(fabric: nx.Graph) -> None:
    assert analyze_topology(link_adjacency(fabric, fabric.edges)) == analyze_topology(adjacency_of(fabric))
    test_topology_agrees_with_networkx.hypothesis.inner_test(fabric)  # type: ignore[attr-defined]


def test_sampled_distances_are_close_to_exact_ones() -> None:
    links = adjacency_of(nx.random_regular_graph(4, 2000, seed=5))
    exact, sampled = analyze_topology(links, exact_peers_max=2000), analyze_topology(links, exact_peers_max=100)
    assert exact.is_exact
    assert not sampled.is_exact
    assert exact.diameter is not None
    assert sampled.diameter in (exact.diameter - 1, exact.diameter)
    assert sampled.mean_distance == pytest.approx(exact.mean_distance, rel=0.02)


@pytest.mark.parametrize("sources_per_block", [1, 63, 64, 65, 128, 200, 1000])
def test_block_size_does_not_change_distances(sources_per_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = nx.random_regular_graph(4, 200, seed=7)
    monkeypatch.setattr(topology, "SOURCES_PER_BLOCK", sources_per_block)
    found = analyze_topology(adjacency_of(fabric))
    assert found.diameter == nx.diameter(fabric)
    assert found.mean_distance == pytest.approx(nx.average_shortest_path_length(fabric))


@pytest.mark.parametrize("degree", [3, 4, 6])
def test_distances_are_exact_in_fabric_with_free_slots(degree: int) -> None:
    fabric = nx.random_regular_graph(degree, 300, seed=degree)
    fabric.remove_nodes_from(random.Random(degree).sample(sorted(fabric), 20))
    fabric = fabric.subgraph(max(nx.connected_components(fabric), key=len))
    found = analyze_topology(adjacency_of(fabric))
    assert not found.is_regular(degree)
    assert len(found.degrees) > 1
    assert found.diameter == nx.diameter(fabric)
    assert found.mean_distance == pytest.approx(nx.average_shortest_path_length(fabric))


def test_star_has_diameter_two() -> None:
    found = analyze_topology(adjacency_of(nx.star_graph(999)))
    assert found.degrees == {1: 999, 999: 1}
    assert found.diameter == 2
    assert found.mean_distance == pytest.approx((999 + 999 * 998) / (500 * 999))


def test_diameter_of_two_thousand_peers_agrees_with_networkx() -> None:
    fabric = nx.random_regular_graph(4, 2000, seed=1)
    found = analyze_topology(adjacency_of(fabric))
    assert found.is_regular(4)
    assert found.diameter == nx.diameter(fabric)
    lower, upper = diameter_bounds(2000, 4)
    assert found.diameter in range(lower, upper + 1)


def test_empty_fabric_has_no_distances() -> None:
    found = analyze_topology({}, with_connectivity=True)
    assert (found.peers, found.links, found.components, found.degrees) == (0, 0, 0, {})
    assert not found.is_connected
    assert found.diameter is None
    assert found.mean_distance is None
    assert found.vertex_connectivity == 0


def test_single_peer_is_connected_and_regular() -> None:
    found = analyze_topology({7: []}, with_connectivity=True)
    assert (found.peers, found.links, found.components, found.degrees) == (1, 0, 1, {0: 1})
    assert found.diameter == 0
    assert found.mean_distance == 0.0
    assert found.vertex_connectivity == 0
    assert found.is_regular(4)


def test_partitioned_fabric_has_no_diameter() -> None:
    left, right = nx.random_regular_graph(4, 30, seed=1), nx.random_regular_graph(4, 40, seed=2)
    fabric = nx.disjoint_union(left, right)
    found = analyze_topology(adjacency_of(fabric), with_connectivity=True)
    assert found.is_regular(4)
    assert found.components == 2
    assert found.diameter is None
    assert found.mean_distance is None
    assert found.vertex_connectivity == 0
    assert connected_components(adjacency_of(fabric)) == [list(range(30, 70)), list(range(30))]


@pytest.mark.parametrize(
    ("adjacency", "half_links"),
    [
        ({1: [2], 2: []}, 1),
        ({1: [2], 2: [3], 3: [1]}, 3),
        ({1: [1]}, 1),
        ({1: [99]}, 1),
    ],
    ids=["one end", "one way round", "itself", "gone"],
)
def test_half_links_are_counted_separately(adjacency: dict[int, list[int]], half_links: int) -> None:
    found = analyze_topology(adjacency)
    assert not found.is_symmetric
    assert found.half_links == half_links
    assert found.links == 0
    assert found.components == len(adjacency)


def test_half_link_only_affects_regularity() -> None:
    whole: dict[int, list[int]] = adjacency_of(nx.complete_graph(5))
    assert analyze_topology(whole).is_regular(4)
    dangling = whole | {0: [*whole[0], 99]}
    found = analyze_topology(dangling)
    assert found.half_links == 1
    assert not found.is_regular(4)
    assert (found.degrees, found.diameter) == ({4: 5}, 1)


def test_duplicate_neighbor_counts_once() -> None:
    found = analyze_topology({1: [2, 2], 2: [1]})
    assert found.is_symmetric
    assert found.links == 1


@untimed
@given(fabrics(), st.randoms(use_true_random=False))
def test_input_order_does_not_change_result(fabric: nx.Graph, rng: random.Random) -> None:
    adjacency = adjacency_of(fabric)
    shuffled = {peer: rng.sample(adjacency[peer], len(adjacency[peer])) for peer in reversed(adjacency)}
    assert list(mutual_links(shuffled).items()) == list(mutual_links(adjacency).items())
    assert analyze_topology(shuffled) == analyze_topology(adjacency)


@pytest.mark.parametrize("peers", range(1, 6))
def test_full_mesh_is_regular_only_when_complete(peers: int) -> None:
    fabric = nx.complete_graph(peers)
    found = analyze_topology(adjacency_of(fabric), with_connectivity=True)
    assert found.is_regular(4)
    assert found.vertex_connectivity == peers - 1
    if peers > 1:
        fabric.remove_edge(0, 1)
        assert not analyze_topology(adjacency_of(fabric)).is_regular(4)


def test_one_free_slot_is_allowed_when_parity_demands_it() -> None:
    # Degree 3 on 7 peers: a ring of 7 with three chords leaves exactly one peer with two links.
    fabric = nx.cycle_graph(7)
    fabric.add_edges_from([(0, 3), (1, 4), (2, 5)])
    assert analyze_topology(adjacency_of(fabric)).is_regular(3)
    fabric.remove_edge(2, 5)
    assert not analyze_topology(adjacency_of(fabric)).is_regular(3)


def test_missing_link_is_not_excused_by_even_parity() -> None:
    fabric = nx.random_regular_graph(4, 21, seed=1)
    fabric.remove_edge(*next(iter(fabric.edges)))
    assert not analyze_topology(adjacency_of(fabric)).is_regular(4)


def test_regularity_of_degree_counts() -> None:
    assert is_regular({4: 10}, 10, 4)
    assert not is_regular({4: 9, 3: 1}, 10, 4)
    assert is_regular({3: 4}, 4, 4)  # full mesh
    assert is_regular({3: 8, 2: 1}, 9, 3)  # odd: one slot stays free
    assert not is_regular({3: 7, 2: 2}, 9, 3)
    assert not is_regular({5: 1, 4: 9}, 10, 4)
    assert is_regular({0: 1}, 1, 4)
    assert is_regular({}, 0, 4)


def test_external_neighbor_connects_peers_and_has_no_free_slots() -> None:
    adjacency = {1: [2, 99], 2: [1], 3: [99]}
    assert connected_components(symmetric_links(adjacency)) == [[1, 2, 3, 99]]
    assert free_slots(adjacency, 3) == {1: 1, 2: 2, 3: 2}


@untimed
@given(fabrics(peers_max=7))
def test_vertex_connectivity_equals_smallest_cut(fabric: nx.Graph) -> None:
    assert vertex_connectivity(adjacency_of(fabric)) == smallest_cut(fabric)


def smallest_cut(fabric: nx.Graph) -> int:
    """Remove every set of peers, smallest first, until the rest is disconnected or a single peer."""
    for size in range(len(fabric)):
        for removed in itertools.combinations(fabric, size):
            rest = fabric.subgraph(set(fabric).difference(removed))
            if len(rest) == 1 or not nx.is_connected(rest):
                return size
    raise AssertionError("removing all but one always ends the search")


def test_vertex_connectivity_detects_bottleneck() -> None:
    # Two regular halves, connected by two links only.
    fabric = nx.disjoint_union(nx.random_regular_graph(4, 30, seed=3), nx.random_regular_graph(4, 30, seed=4))
    assert analyze_topology(adjacency_of(fabric), with_connectivity=True).vertex_connectivity == 0
    (a, b), (x, y) = next(iter(fabric.edges(0))), next(iter(fabric.edges(30)))
    fabric.remove_edges_from([(a, b), (x, y)])
    fabric.add_edges_from([(a, x), (b, y)])
    found = analyze_topology(adjacency_of(fabric), with_connectivity=True)
    assert found.is_regular(4)
    assert found.vertex_connectivity == 2


def test_random_4_regular_fabric_is_4_connected() -> None:
    fabric = nx.random_regular_graph(4, 200, seed=1)
    assert vertex_connectivity(adjacency_of(fabric)) == 4
    assert analyze_topology(adjacency_of(fabric)).vertex_connectivity is None


@pytest.mark.parametrize(
    ("peers", "bounds"),
    [
        (100, (4, 9)),
        (1_000, (6, 11)),
        (10_000, (8, 14)),
        (100_000, (10, 16)),
        (1_000_000, (13, 18)),
        (10_000_000, (15, 21)),
    ],
)
def test_diameter_bounds_match_paper(peers: int, bounds: tuple[int, int]) -> None:
    assert diameter_bounds(peers, 4) == bounds


def test_diameter_bounds_of_full_mesh_are_exact() -> None:
    assert diameter_bounds(1, 4) == (0, 0)
    assert [diameter_bounds(peers, 4) for peers in range(2, 6)] == [(1, 1)] * 4
    assert diameter_bounds(6, 4)[0] == 2


@untimed
@given(st.integers(1, 10**9), st.integers(3, 32))
def test_diameter_bounds_are_ordered_at_any_size(peers: int, degree: int) -> None:
    lower, upper = diameter_bounds(peers, degree)
    assert min(peers - 1, 1) <= lower <= upper <= max(peers - 1, 0)


@untimed
@given(st.integers(2, 18), st.integers(4, 8))
def test_lower_bound_does_not_drop_at_power_of_base(power: int, degree: int) -> None:
    peers = (degree - 1) ** power
    assert diameter_bounds(peers, degree)[0] >= diameter_bounds(peers - 1, degree)[0]


@pytest.mark.parametrize(("peers", "degree"), [(0, 4), (10, 2)])
def test_diameter_bounds_reject_impossible_fabric(peers: int, degree: int) -> None:
    with pytest.raises(ValueError, match="random regular graph"):
        diameter_bounds(peers, degree)
