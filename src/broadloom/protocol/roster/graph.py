"""`MemberGraph`: the fabric as the records of its members describe it, and what can be reached in it from here.

An edge counts if both ends list it. Reachability is kept up to date edge by edge: when one goes, two searches run
toward each other, which in a random regular graph meet after about the square root of its size.
"""

from collections.abc import Iterable
from typing import NamedTuple

from broadloom.wire import PeerId


class ReachabilityChange(NamedTuple):
    reached: list[PeerId]
    lost: list[PeerId]


class MemberGraph:
    def __init__(self, root: PeerId) -> None:
        self._root = root
        self._listed: dict[PeerId, tuple[PeerId, ...]] = {root: ()}
        self.reachable: dict[PeerId, None] = {root: None}

    def lists(self, peer_id: PeerId, neighbor: PeerId) -> bool:
        return neighbor in self._listed.get(peer_id, ())

    def edges(self, peer_id: PeerId) -> list[PeerId]:
        """The other ends of the member's edges that both ends list."""
        return [each for each in self._listed.get(peer_id, ()) if peer_id in self._listed.get(each, ())]

    def update(self, peer_id: PeerId, neighbors: Iterable[PeerId] | None) -> ReachabilityChange:
        """Replace what a member lists; None removes it from the graph."""
        before = self.edges(peer_id)
        if neighbors is None:
            self._listed.pop(peer_id, None)
        else:
            self._listed[peer_id] = tuple(dict.fromkeys(each for each in neighbors if each != peer_id))
        after = self.edges(peer_id)
        reached: list[PeerId] = []
        for each in after:
            if (each in self.reachable) != (peer_id in self.reachable):
                reached += self._extend(each if peer_id in self.reachable else peer_id)
        lost: list[PeerId] = []
        if gone := [each for each in before if each not in after]:
            for each in (peer_id, *gone):
                lost += self._cut_off(each)
        return ReachabilityChange(reached, lost)

    def _extend(self, start: PeerId) -> list[PeerId]:
        """Everything connected to `start` can be reached now."""
        found = {start: None}
        frontier = [start]
        while frontier:
            frontier = [each for each in self._step(frontier, found) if each not in self.reachable]
        reached = [each for each in found if each not in self.reachable]
        self.reachable |= dict.fromkeys(reached)
        return reached

    def _cut_off(self, start: PeerId) -> list[PeerId]:
        """What was connected to the root through `start`, if that is no longer the case."""
        if start not in self.reachable or start == self._root:
            return []
        near: dict[PeerId, None] = {start: None}
        far: dict[PeerId, None] = {self._root: None}
        near_frontier, far_frontier = [start], [self._root]
        while near_frontier:
            if far_frontier and len(far_frontier) < len(near_frontier):
                far_frontier = self._step(far_frontier, far)
                meets = any(each in near for each in far_frontier)
            else:
                near_frontier = self._step(near_frontier, near)
                meets = any(each in far for each in near_frontier)
            if meets:
                return []
        for each in near:
            del self.reachable[each]
        return list(near)

    def _step(self, frontier: list[PeerId], seen: dict[PeerId, None]) -> list[PeerId]:
        following: list[PeerId] = []
        for peer_id in frontier:
            for each in self.edges(peer_id):
                if each not in seen:
                    seen[each] = None
                    following.append(each)
        return following
