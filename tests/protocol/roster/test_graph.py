"""Reachability over edges that both ends list, compared with a plain search."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol.roster.graph import MemberGraph

ROOT = 0


def plain_search(listed: dict[int, tuple[int, ...]]) -> set[int]:
    found, frontier = {ROOT}, [ROOT]
    for peer_id in frontier:
        for each in listed[peer_id]:
            if each in listed and peer_id in listed[each] and each not in found:
                found.add(each)
                frontier.append(each)
    return found


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(2, 14))
def test_reachable_members_are_those_of_a_plain_search(seed: int, size: int) -> None:
    random = Random(seed)
    graph = MemberGraph(ROOT)
    listed: dict[int, tuple[int, ...]] = {ROOT: ()}
    for _ in range(60):
        peer_id = random.randrange(size)
        before = set(graph.reachable)
        if random.random() < 0.15 and peer_id != ROOT:
            listed.pop(peer_id, None)
            change = graph.update(peer_id, None)
        else:
            # Neighbors listed by both ends are likely, or nothing would ever be connected.
            lists_it = [each for each in listed if peer_id in listed[each]]
            chosen = [*random.sample(lists_it, random.randint(0, len(lists_it))), random.randrange(size)]
            listed[peer_id] = tuple(each for each in dict.fromkeys(chosen) if each != peer_id)
            change = graph.update(peer_id, listed[peer_id])
        assert set(graph.reachable) == plain_search(listed)
        assert len(set(change.reached)) == len(change.reached)
        assert (before | set(change.reached)) - set(change.lost) == set(graph.reachable)


def test_edge_that_only_one_end_lists_leads_nowhere() -> None:
    graph = MemberGraph(ROOT)
    graph.update(ROOT, (1,))
    assert graph.update(1, (2,)).reached == []
    assert graph.update(2, (1,)).reached == []
    assert graph.update(1, (ROOT, 2)).reached == [1, 2]
    assert graph.update(2, ()).lost == [2]
    assert graph.update(ROOT, ()).lost == [1]
