"""Whether the fabric of a lab is one regular graph, by what its peers say of themselves.

As in a trial, but strangers may be among the neighbours: peers of the same channel that are not the lab's, such as the
one that a page takes part with. What they say of themselves nobody knows; that they are there, their neighbours say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broadloom.protocol.events import PeerState


@dataclass(frozen=True, slots=True)
class PeerView:
    """One living peer, as it last told of itself."""

    number: int
    peer_id: int
    state: str
    changed_ns: int
    neighbors: tuple[int, ...]
    free_slots: int
    diameter_estimate: int
    is_full_mesh: bool


def external_neighbors(views: Mapping[int, PeerView], departed: Iterable[int]) -> set[int]:
    """Neighbours that are not the lab's and never were. `views` has each peer by its id."""
    near = {other for view in views.values() for other in view.neighbors}
    return near - views.keys() - set(departed)


def find_convergence_problems(views: Mapping[int, PeerView], degree: int, departed: Iterable[int] = ()) -> str | None:
    """Why the fabric is not (yet) one regular graph, or None if it is."""
    departed = list(departed)
    external = external_neighbors(views, departed)
    for view in views.values():
        if view.state != PeerState.CONNECTED.value:
            return f"peer {view.number} is {view.state}, not connected"
        if len(view.neighbors) > degree:
            return f"peer {view.number} has {len(view.neighbors)} links; at most {degree} are allowed"
        for other in view.neighbors:
            if other in external:
                continue
            if other not in views:
                return f"peer {view.number} has a link to one that is gone ({other:016x})"
            if view.peer_id not in views[other].neighbors:
                return f"peer {view.number} has a link to peer {views[other].number}, which has none to it"
    if incomplete := free_slots(views, degree):
        labels = [f"peer {number}" for number in sorted(views[peer].number for peer in incomplete)]
        return f"{sum(incomplete.values())} holes: " + ", ".join(labels[:8])
    sizes = component_sizes(views)
    if len(sizes) > 1:
        return f"{len(sizes)} separate parts, of {', '.join(map(str, sizes[:8]))} peers"
    return None


def target_degree(count: int, degree: int) -> int:
    """The links that everyone should have in a fabric of so many: the degree, or everyone else if there are fewer."""
    return max(0, min(degree, count - 1))


def free_slots(views: Mapping[int, PeerView], degree: int) -> dict[int, int]:
    """Links that are lacking, by peer, in each part for itself. With an odd degree and an odd number of peers one place
    stays free, and is none."""
    missing: dict[int, int] = {}
    for part in _components(views):
        target = target_degree(len(part), degree)
        here = {peer: target - len(views[peer].neighbors) for peer in part if peer in views}
        here = {peer: count for peer, count in here.items() if count > 0}
        if sum(here.values()) > (1 if target == degree and degree * len(part) % 2 else 0):
            missing |= here
    return missing


def find_overfull(views: Mapping[int, PeerView], degree: int) -> list[PeerView]:
    """Those with more links than they may ever have."""
    return [view for view in views.values() if len(view.neighbors) > degree]


def component_sizes(views: Mapping[int, PeerView]) -> list[int]:
    """Sizes of the parts that are not linked to each other, largest first, counting the lab's own."""
    sizes = (sum(peer in views for peer in part) for part in _components(views))
    return sorted((size for size in sizes if size), reverse=True)


def _components(views: Mapping[int, PeerView]) -> list[list[int]]:
    """A stranger belongs to, and ties, those that name it."""
    near: dict[int, list[int]] = {peer: [] for peer in views}
    for peer, view in views.items():
        for other in view.neighbors:
            near[peer].append(other)
            near.setdefault(other, []).append(peer)
    remaining = dict.fromkeys(near)
    found = []
    while remaining:
        reached = [remaining.popitem()[0]]
        for peer in reached:
            for other in near[peer]:
                if other in remaining:
                    del remaining[other]
                    reached.append(other)
        found.append(reached)
    return found


def diameter(views: Mapping[int, PeerView]) -> int:
    """The true one, of the largest part: the longest of the shortest ways, in links."""
    longest = 0
    for start in views:
        seen = {start}
        edge = [start]
        steps = 0
        while edge:
            edge = [
                other
                for other in dict.fromkeys(near for peer in edge for near in views[peer].neighbors)
                if other in views and other not in seen
            ]
            seen.update(edge)
            steps += bool(edge)
        longest = max(longest, steps)
    return longest
