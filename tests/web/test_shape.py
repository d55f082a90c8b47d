"""Parts and diameter, beside networkx."""

from random import Random

import networkx as nx
import pytest

from weft.web.shape import diameter_of, parts_of


@pytest.mark.parametrize("seed", range(5))
def test_the_diameter_is_that_of_networkx(seed: int) -> None:
    graph = nx.random_regular_graph(4, 60, seed=seed)
    assert diameter_of(list(graph), list(graph.edges)) == nx.diameter(graph)


def test_parts_are_told_largest_first() -> None:
    random = Random(1)
    graph = nx.disjoint_union(nx.cycle_graph(5), nx.path_graph(9))
    edges = list(graph.edges)
    random.shuffle(edges)
    assert [len(part) for part in parts_of(list(graph), edges)] == [9, 5]
    assert diameter_of(list(graph), edges) is None


def test_nobody_and_one_alone() -> None:
    assert diameter_of([], []) is None
    assert diameter_of([7], []) == 0
    assert parts_of([7], []) == [{7}]
