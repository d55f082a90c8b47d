"""Whether a fabric is one regular graph: the check, seen to fire."""

from collections.abc import Iterable

from weft.lab.shape import View, diameter, holes, overfull, parts, unrest


def ring(peers: Iterable[int], reach: int = 2) -> dict[int, list[int]]:
    """Everyone linked to the next `reach` on both sides."""
    peers = list(peers)
    count = len(peers)
    steps = [*range(-reach, 0), *range(1, reach + 1)]
    return {peer: [peers[(place + step) % count] for step in steps] for place, peer in enumerate(peers)}


def views(graph: dict[int, list[int]], state: str = "connected") -> dict[int, View]:
    return {peer: View(peer, peer, state, 0, tuple(near), 0, 3, False) for peer, near in graph.items()}


def cut(graph: dict[int, list[int]], one: int, other: int) -> None:
    graph[one].remove(other)
    graph[other].remove(one)


def test_a_regular_fabric_is_at_rest() -> None:
    graph = views(ring(range(1, 13)))
    assert unrest(graph, 4) is None
    assert parts(graph) == [12]
    assert diameter(graph) == 3


def test_whatever_is_wrong_is_told() -> None:
    assert unrest(views(ring(range(1, 9)), "joining"), 4) == "peer 1 is joining, not connected"
    graph = ring(range(1, 9))
    cut(graph, 1, 2)
    assert unrest(views(graph), 4) == "2 holes: peer 1, peer 2"
    assert holes(views(graph), 4) == {1: 1, 2: 1}
    graph = ring(range(1, 9))
    graph[1].remove(2)
    assert unrest(views(graph), 4) == "peer 2 has a link to peer 1, which has none to it"
    graph = ring(range(1, 9))
    graph[1].append(5)
    assert [view.number for view in overfull(views(graph), 4)] == [1]
    assert unrest(views(graph), 4) == "peer 1 has 5 links; at most 4 are allowed"


def test_the_dead_are_no_neighbours() -> None:
    graph = ring(range(1, 9))
    del graph[3]
    told = unrest(views(graph), 4, gone=[3])
    assert told is not None
    assert "a link to one that is gone" in told


def test_two_halves_are_two_parts_each_judged_by_itself() -> None:
    graph = views(ring(range(1, 7)) | ring(range(11, 15), reach=1))
    assert parts(graph) == [6, 4]
    assert holes(graph, 4) == {11: 1, 12: 1, 13: 1, 14: 1}  # of four, each should have three
    assert unrest(views(ring(range(1, 7)) | ring(range(11, 17))), 4) == "2 separate parts, of 6, 6 peers"


def test_few_are_linked_to_all() -> None:
    assert unrest(views({1: [2, 3], 2: [1, 3], 3: [1, 2]}), 4) is None
    assert unrest(views({1: []}), 4) is None
    assert unrest(views({1: [2], 2: [1, 3], 3: [2]}), 4) == "2 holes: peer 1, peer 3"


def test_a_stranger_counts_as_a_neighbour_and_nobody_asks_it_for_more() -> None:
    """Such as the peer of a page, which is not the lab's."""
    graph = ring([*range(1, 9), 99])
    del graph[99]
    assert unrest(views(graph), 4) is None
    assert unrest(views(graph), 4, gone=[99]) is not None


def test_with_an_odd_degree_and_number_one_place_stays_free() -> None:
    graph = {1: [2, 3, 4], 2: [1, 3, 5], 3: [1, 2, 4], 4: [1, 3, 5], 5: [2, 4]}
    assert unrest(views(graph), 3) is None
    cut(graph, 2, 5)
    assert unrest(views(graph), 3) == "3 holes: peer 2, peer 5"
