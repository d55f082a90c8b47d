"""Each check of a fabric's regularity and connectivity reports its violation."""

from collections.abc import Iterable

from broadloom.testing.checks.guarantees import (
    PeerView,
    component_sizes,
    find_convergence_problems,
    find_overfull,
    report_adjacency,
)
from broadloom.topology import diameter, free_slots


def ring(peers: Iterable[int], reach: int = 2) -> dict[int, list[int]]:
    """Link each peer to the next `reach` on both sides."""
    peers = list(peers)
    count = len(peers)
    steps = [*range(-reach, 0), *range(1, reach + 1)]
    return {peer: [peers[(place + step) % count] for step in steps] for place, peer in enumerate(peers)}


def views(graph: dict[int, list[int]], state: str = "connected") -> dict[int, PeerView]:
    return {peer: PeerView(peer, peer, state, 0, tuple(near), 0, 3, False) for peer, near in graph.items()}


def unlink(graph: dict[int, list[int]], one: int, other: int) -> None:
    graph[one].remove(other)
    graph[other].remove(one)


def test_regular_fabric_has_no_convergence_problems() -> None:
    graph = views(ring(range(1, 13)))
    assert find_convergence_problems(graph, 4) is None
    assert component_sizes(report_adjacency(graph)) == [12]
    assert diameter(report_adjacency(graph)) == 3


def test_each_irregularity_is_reported() -> None:
    assert find_convergence_problems(views(ring(range(1, 9)), "joining"), 4) == "peer 1 is joining, not connected"
    graph = ring(range(1, 9))
    unlink(graph, 1, 2)
    assert find_convergence_problems(views(graph), 4) == "2 free slots: peer 1, peer 2"
    assert free_slots(graph, 4) == {1: 1, 2: 1}
    graph = ring(range(1, 9))
    graph[1].remove(2)
    assert find_convergence_problems(views(graph), 4) == "peer 2 has a link to peer 1, which has none to it"
    graph = ring(range(1, 9))
    graph[1].append(5)
    assert [view.number for view in find_overfull(views(graph), 4)] == [1]
    assert find_convergence_problems(views(graph), 4) == "peer 1 has 5 links; at most 4 are allowed"


def test_link_to_departed_peer_is_reported() -> None:
    graph = ring(range(1, 9))
    del graph[3]
    problem = find_convergence_problems(views(graph), 4, departed=[3])
    assert problem is not None
    assert "a link to a departed peer" in problem


def test_components_are_judged_separately() -> None:
    graph = ring(range(1, 7)) | ring(range(11, 15), reach=1)
    assert component_sizes(graph) == [6, 4]
    assert free_slots(graph, 4) == {11: 1, 12: 1, 13: 1, 14: 1}  # each of the four should have three
    assert find_convergence_problems(views(ring(range(1, 7)) | ring(range(11, 17))), 4) == "2 components, of 6, 6 peers"


def test_full_mesh_is_regular() -> None:
    assert find_convergence_problems(views({1: [2, 3], 2: [1, 3], 3: [1, 2]}), 4) is None
    assert find_convergence_problems(views({1: []}), 4) is None
    assert find_convergence_problems(views({1: [2], 2: [1, 3], 3: [2]}), 4) == "2 free slots: peer 1, peer 3"


def test_external_neighbor_counts_as_neighbor_and_is_not_judged() -> None:
    """Such as the peer of a web page, which the cluster did not start."""
    graph = ring([*range(1, 9), 99])
    del graph[99]
    assert find_convergence_problems(views(graph), 4) is None
    assert find_convergence_problems(views(graph), 4, departed=[99]) is not None


def test_slot_stays_free_when_degree_and_peer_count_are_odd() -> None:
    graph = {1: [2, 3, 4], 2: [1, 3, 5], 3: [1, 2, 4], 4: [1, 3, 5], 5: [2, 4]}
    assert find_convergence_problems(views(graph), 3) is None
    unlink(graph, 2, 5)
    assert find_convergence_problems(views(graph), 3) == "3 free slots: peer 2, peer 5"
