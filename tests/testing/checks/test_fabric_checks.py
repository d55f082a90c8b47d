"""The guarantees of the fabric: each check fires on bad data and is silent on good data."""

from collections.abc import Iterable

import pytest

from broadloom.testing.checks.guarantees import (
    PeerView,
    component_sizes,
    find_convergence_problems,
    find_overfull,
    report_adjacency,
)
from broadloom.topology import diameter, free_slots

Graph = dict[int, list[int]]


def ring(peers: Iterable[int], reach: int = 2) -> Graph:
    """Every peer linked to the next `reach` on both sides: regular, of degree twice the reach."""
    peers = list(peers)
    steps = [*range(-reach, 0), *range(1, reach + 1)]
    return {peer: [peers[(place + step) % len(peers)] for step in steps] for place, peer in enumerate(peers)}


def views(graph: Graph, state: str = "connected") -> list[PeerView]:
    return [PeerView(peer, peer, state, 0, tuple(neighbors)) for peer, neighbors in graph.items()]


def unlink(graph: Graph, one: int, other: int) -> None:
    graph[one].remove(other)
    graph[other].remove(one)


def test_regular_fabric_has_no_problem() -> None:
    fabric = views(ring(range(1, 13)))
    assert find_convergence_problems(fabric, 4) is None
    assert component_sizes(report_adjacency(fabric)) == [12]
    assert diameter(report_adjacency(fabric)) == 3


@pytest.mark.parametrize(
    ("neighbors", "state", "problem"),
    [
        ([106, 107, 101, 102], "joining", "peer 100 is joining, not connected"),
        ([106, 107, 101, 100], "connected", "linked to itself"),
        ([106, 107, 101, 101], "connected", "neighbor twice"),
        ([106, 107, 101, 102, 104], "connected", "peer 100 has 5 links; at most 4 are allowed"),
        ([106, 107, 101, 999], "connected", "a departed peer"),
        ([106, 107, 101, 104], "connected", "has none to it"),
        ([106, 107, 101], "connected", "peer 102 has a link to peer 100, which has none to it"),
    ],
)
def test_wrong_links_of_one_peer_are_reported(neighbors: list[int], state: str, problem: str) -> None:
    others = ring(range(100, 108))
    del others[100]
    fabric = [PeerView(100, 100, state, 0, tuple(neighbors)), *views(others)]
    assert problem in str(find_convergence_problems(fabric, 4))


def test_free_slots_of_both_ends_are_reported() -> None:
    graph = ring(range(1, 9))
    unlink(graph, 1, 2)
    assert find_convergence_problems(views(graph), 4) == "2 free slots: peer 1, peer 2"
    assert free_slots(graph, 4) == {1: 1, 2: 1}


def test_overfull_peer_is_found() -> None:
    graph = ring(range(1, 9))
    graph[1].append(5)
    assert [view.number for view in find_overfull(views(graph), 4)] == [1]


def test_duplicate_peer_id_is_reported() -> None:
    fabric = views(ring(range(1, 9)))
    assert "same id" in str(find_convergence_problems([*fabric, fabric[0]._replace(number=99)], 4))


def test_link_to_departed_peer_is_reported() -> None:
    graph = ring(range(1, 9))
    del graph[3]
    for departed in (None, [3]):
        assert "a link to a departed peer" in str(find_convergence_problems(views(graph), 4, departed))


def test_separate_fabrics_are_judged_individually() -> None:
    fabric = views(ring(range(1, 7)) | ring(range(11, 15), reach=1))
    assert component_sizes(report_adjacency(fabric)) == [6, 4]
    assert free_slots(report_adjacency(fabric), 4) == {
        11: 1,
        12: 1,
        13: 1,
        14: 1,
    }
    two_regular = views(ring(range(1, 7)) | ring(range(11, 17)))
    assert find_convergence_problems(two_regular, 4) == "2 components, of 6, 6 peers"


def test_few_peers_form_a_full_mesh() -> None:
    assert find_convergence_problems(views({1: [2, 3], 2: [1, 3], 3: [1, 2]}), 4) is None
    assert find_convergence_problems(views({1: []}), 4) is None
    assert find_convergence_problems(views({1: [2], 2: [1, 3], 3: [2]}), 4) == "2 free slots: peer 1, peer 3"


def test_external_peer_counts_as_neighbor() -> None:
    """Such as the peer of a web page, which does not report its links to the cluster."""
    graph = ring([*range(1, 9), 99])
    del graph[99]
    assert find_convergence_problems(views(graph), 4, departed=[]) is None
    assert find_convergence_problems(views(graph), 4, departed=[99]) is not None


def test_one_free_slot_remains_when_degree_and_peer_count_are_odd() -> None:
    graph = {1: [2, 3, 4], 2: [1, 3, 5], 3: [1, 2, 4], 4: [1, 3, 5], 5: [2, 4]}
    assert find_convergence_problems(views(graph), 3) is None
    unlink(graph, 2, 5)
    assert find_convergence_problems(views(graph), 3) == "3 free slots: peer 2, peer 5"
