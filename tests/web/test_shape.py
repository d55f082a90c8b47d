"""Parts and diameter, beside networkx."""

from random import Random

import networkx as nx
import pytest

from broadloom.web.shape import exact_diameter, find_components


@pytest.mark.parametrize("seed", range(5))
def test_diameter_equals_networkx(seed: int) -> None:
    graph = nx.random_regular_graph(4, 60, seed=seed)
    assert exact_diameter(list(graph), list(graph.edges)) == nx.diameter(graph)


def test_components_are_listed_largest_first() -> None:
    random = Random(1)
    graph = nx.disjoint_union(nx.cycle_graph(5), nx.path_graph(9))
    edges = list(graph.edges)
    random.shuffle(edges)
    assert [len(part) for part in find_components(list(graph), edges)] == [9, 5]
    assert exact_diameter(list(graph), edges) is None


def test_empty_graph_and_single_peer() -> None:
    assert exact_diameter([], []) is None
    assert exact_diameter([7], []) == 0
    assert find_components([7], []) == [{7}]
