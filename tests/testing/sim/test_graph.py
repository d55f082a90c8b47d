"""The measurements of a fabric, against networkx, against brute force, and against the SWAN paper."""

from __future__ import annotations

import itertools
import random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom import topology
from broadloom.topology import analyze_topology, components, diameter_bounds, mutual_links, vertex_connectivity

# A slow machine is no fault of the fabric.
untimed = settings(deadline=None)


def adjacency_of(fabric: nx.Graph) -> dict[int, list[int]]:
    return {peer: list(fabric[peer]) for peer in fabric}


@st.composite
def fabrics(draw: st.DrawFn, peers_max: int = 30) -> nx.Graph:
    """Any simple graph, connected or not, whose peers have arbitrary numbers in arbitrary order."""
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
def test_agrees_with_networkx(fabric: nx.Graph) -> None:
    shape = analyze_topology(adjacency_of(fabric))
    assert shape.is_symmetric
    assert shape.peers == fabric.number_of_nodes()
    assert shape.links == fabric.number_of_edges()
    assert sum(degree * count for degree, count in shape.degrees.items()) == 2 * shape.links
    histogram = enumerate(nx.degree_histogram(fabric))
    assert shape.degrees == {degree: count for degree, count in histogram if count}
    assert shape.components == nx.number_connected_components(fabric)
    if shape.is_connected:
        assert shape.diameter == nx.diameter(fabric)
        assert shape.mean_distance == pytest.approx(nx.average_shortest_path_length(fabric))
    else:
        assert shape.diameter is None
        assert shape.mean_distance is None


@pytest.mark.parametrize("sources_per_block", [1, 63, 64, 65, 128, 200, 1000])
def test_blocks_of_sources_do_not_show(sources_per_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = nx.random_regular_graph(4, 200, seed=7)
    monkeypatch.setattr(topology, "SOURCES_PER_BLOCK", sources_per_block)
    shape = analyze_topology(adjacency_of(fabric))
    assert shape.diameter == nx.diameter(fabric)
    assert shape.mean_distance == pytest.approx(nx.average_shortest_path_length(fabric))


@pytest.mark.parametrize("degree", [3, 4, 6])
def test_fabric_with_holes(degree: int) -> None:
    fabric = nx.random_regular_graph(degree, 300, seed=degree)
    fabric.remove_nodes_from(random.Random(degree).sample(sorted(fabric), 20))
    fabric = fabric.subgraph(max(nx.connected_components(fabric), key=len))
    shape = analyze_topology(adjacency_of(fabric))
    assert not shape.is_regular(degree)
    assert len(shape.degrees) > 1
    assert shape.diameter == nx.diameter(fabric)
    assert shape.mean_distance == pytest.approx(nx.average_shortest_path_length(fabric))


def test_one_peer_with_all_the_links() -> None:
    shape = analyze_topology(adjacency_of(nx.star_graph(999)))
    assert shape.degrees == {1: 999, 999: 1}
    assert shape.diameter == 2
    assert shape.mean_distance == pytest.approx((999 + 999 * 998) / (500 * 999))


def test_two_thousand_peers() -> None:
    fabric = nx.random_regular_graph(4, 2000, seed=1)
    shape = analyze_topology(adjacency_of(fabric))
    assert shape.is_regular(4)
    assert shape.diameter == nx.diameter(fabric)
    lower, upper = diameter_bounds(2000, 4)
    assert shape.diameter in range(lower, upper + 1)


def test_no_peers() -> None:
    shape = analyze_topology({}, with_connectivity=True)
    assert (shape.peers, shape.links, shape.components, shape.degrees) == (0, 0, 0, {})
    assert not shape.is_connected
    assert shape.diameter is None
    assert shape.mean_distance is None
    assert shape.vertex_connectivity == 0


def test_single_peer() -> None:
    shape = analyze_topology({7: []}, with_connectivity=True)
    assert (shape.peers, shape.links, shape.components, shape.degrees) == (1, 0, 1, {0: 1})
    assert shape.diameter == 0
    assert shape.mean_distance == 0.0
    assert shape.vertex_connectivity == 0
    assert shape.is_regular(4)


def test_torn_fabric() -> None:
    left, right = nx.random_regular_graph(4, 30, seed=1), nx.random_regular_graph(4, 40, seed=2)
    fabric = nx.disjoint_union(left, right)
    shape = analyze_topology(adjacency_of(fabric), with_connectivity=True)
    assert shape.is_regular(4)
    assert shape.components == 2
    assert shape.diameter is None
    assert shape.mean_distance is None
    assert shape.vertex_connectivity == 0
    assert components(adjacency_of(fabric)) == [list(range(30, 70)), list(range(30))]


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
def test_half_links_are_no_links(adjacency: dict[int, list[int]], half_links: int) -> None:
    shape = analyze_topology(adjacency)
    assert not shape.is_symmetric
    assert shape.half_links == half_links
    assert shape.links == 0
    assert shape.components == len(adjacency)


def test_a_half_link_spoils_regularity_but_not_the_rest() -> None:
    whole: dict[int, list[int]] = adjacency_of(nx.complete_graph(5))
    assert analyze_topology(whole).is_regular(4)
    dangling = whole | {0: [*whole[0], 99]}
    shape = analyze_topology(dangling)
    assert shape.half_links == 1
    assert not shape.is_regular(4)
    assert (shape.degrees, shape.diameter) == ({4: 5}, 1)


def test_a_neighbour_named_twice_is_one_neighbour() -> None:
    shape = analyze_topology({1: [2, 2], 2: [1]})
    assert shape.is_symmetric
    assert shape.links == 1


@untimed
@given(fabrics(), st.randoms(use_true_random=False))
def test_order_of_input_does_not_show(fabric: nx.Graph, chance: random.Random) -> None:
    adjacency = adjacency_of(fabric)
    shuffled = {peer: chance.sample(adjacency[peer], len(adjacency[peer])) for peer in reversed(adjacency)}
    assert list(mutual_links(shuffled).items()) == list(mutual_links(adjacency).items())
    assert analyze_topology(shuffled) == analyze_topology(adjacency)


@pytest.mark.parametrize("peers", range(1, 6))
def test_small_regime_is_regular_only_if_complete(peers: int) -> None:
    fabric = nx.complete_graph(peers)
    shape = analyze_topology(adjacency_of(fabric), with_connectivity=True)
    assert shape.is_regular(4)
    assert shape.vertex_connectivity == peers - 1
    if peers > 1:
        fabric.remove_edge(0, 1)
        assert not analyze_topology(adjacency_of(fabric)).is_regular(4)


def test_one_hole_is_allowed_where_parity_demands_it() -> None:
    # Degree 3 on 7 peers: a ring of 7 with three chords leaves exactly one peer with two links.
    fabric = nx.cycle_graph(7)
    fabric.add_edges_from([(0, 3), (1, 4), (2, 5)])
    assert analyze_topology(adjacency_of(fabric)).is_regular(3)
    fabric.remove_edge(2, 5)
    assert not analyze_topology(adjacency_of(fabric)).is_regular(3)


def test_a_missing_link_is_not_excused_by_even_parity() -> None:
    fabric = nx.random_regular_graph(4, 21, seed=1)
    fabric.remove_edge(*next(iter(fabric.edges)))
    assert not analyze_topology(adjacency_of(fabric)).is_regular(4)


@untimed
@given(fabrics(peers_max=7))
def test_vertex_connectivity_is_the_smallest_cut(fabric: nx.Graph) -> None:
    assert vertex_connectivity(adjacency_of(fabric)) == smallest_cut(fabric)


def smallest_cut(fabric: nx.Graph) -> int:
    """Try every set of peers, smallest first, until what remains is torn or a single peer."""
    for size in range(len(fabric)):
        for gone in itertools.combinations(fabric, size):
            rest = fabric.subgraph(set(fabric).difference(gone))
            if len(rest) == 1 or not nx.is_connected(rest):
                return size
    raise AssertionError("removing all but one always ends the search")


def test_vertex_connectivity_sees_a_bottleneck() -> None:
    # Two regular halves that hang together by two links only.
    fabric = nx.disjoint_union(nx.random_regular_graph(4, 30, seed=3), nx.random_regular_graph(4, 30, seed=4))
    assert analyze_topology(adjacency_of(fabric), with_connectivity=True).vertex_connectivity == 0
    (a, b), (x, y) = next(iter(fabric.edges(0))), next(iter(fabric.edges(30)))
    fabric.remove_edges_from([(a, b), (x, y)])
    fabric.add_edges_from([(a, x), (b, y)])
    shape = analyze_topology(adjacency_of(fabric), with_connectivity=True)
    assert shape.is_regular(4)
    assert shape.vertex_connectivity == 2


def test_random_fabric_of_degree_four_is_four_connected() -> None:
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
def test_bounds_are_those_of_the_paper(peers: int, bounds: tuple[int, int]) -> None:
    assert diameter_bounds(peers, 4) == bounds


def test_bounds_in_the_small_regime_are_exact() -> None:
    assert diameter_bounds(1, 4) == (0, 0)
    assert [diameter_bounds(peers, 4) for peers in range(2, 6)] == [(1, 1)] * 4
    assert diameter_bounds(6, 4)[0] == 2


@untimed
@given(st.integers(1, 10**9), st.integers(3, 32))
def test_bounds_make_sense_at_any_size(peers: int, degree: int) -> None:
    lower, upper = diameter_bounds(peers, degree)
    assert min(peers - 1, 1) <= lower <= upper <= max(peers - 1, 0)


@untimed
@given(st.integers(2, 18), st.integers(4, 8))
def test_lower_bound_does_not_sink_at_a_power(power: int, degree: int) -> None:
    peers = (degree - 1) ** power
    assert diameter_bounds(peers, degree)[0] >= diameter_bounds(peers - 1, degree)[0]


@pytest.mark.parametrize(("peers", "degree"), [(0, 4), (10, 2)])
def test_bounds_refuse_what_is_no_fabric(peers: int, degree: int) -> None:
    with pytest.raises(ValueError, match="random regular graph"):
        diameter_bounds(peers, degree)
