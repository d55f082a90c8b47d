"""Whether the fabric of a lab is one regular graph, by what its peers say of themselves.

As in a trial, but strangers may be among the neighbours: peers of the same channel that are not the lab's, such as the
one that a page takes part with. What they say of themselves nobody knows; that they are there, their neighbours say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.fabric.state import State


@dataclass(frozen=True, slots=True)
class View:
    """One living peer, as it last told of itself."""

    number: int
    peer: int
    state: str
    changed_ns: int
    neighbours: tuple[int, ...]
    holes: int
    diameter: int
    is_small: bool


def strangers(views: Mapping[int, View], gone: Iterable[int]) -> set[int]:
    """Neighbours that are not the lab's and never were. `views` has each peer by its id."""
    near = {other for view in views.values() for other in view.neighbours}
    return near - views.keys() - set(gone)


def unrest(views: Mapping[int, View], degree: int, gone: Iterable[int] = ()) -> str | None:
    """Why the fabric is not (yet) one regular graph, or None if it is."""
    gone = list(gone)
    others = strangers(views, gone)
    for view in views.values():
        if view.state != State.CONNECTED.value:
            return f"peer {view.number} is {view.state}, not connected"
        if len(view.neighbours) > degree:
            return f"peer {view.number} has {len(view.neighbours)} links; at most {degree} are allowed"
        for other in view.neighbours:
            if other in others:
                continue
            if other not in views:
                return f"peer {view.number} has a link to one that is gone ({other:016x})"
            if view.peer not in views[other].neighbours:
                return f"peer {view.number} has a link to peer {views[other].number}, which has none to it"
    if lacking := holes(views, degree):
        those = [f"peer {number}" for number in sorted(views[peer].number for peer in lacking)]
        return f"{sum(lacking.values())} holes: " + ", ".join(those[:8])
    sizes = parts(views)
    if len(sizes) > 1:
        return f"{len(sizes)} separate parts, of {', '.join(map(str, sizes[:8]))} peers"
    return None


def wanted(count: int, degree: int) -> int:
    """The links that everyone should have in a fabric of so many: the degree, or everyone else if there are fewer."""
    return max(0, min(degree, count - 1))


def holes(views: Mapping[int, View], degree: int) -> dict[int, int]:
    """Links that are lacking, by peer, in each part for itself. With an odd degree and an odd number of peers one place
    stays free, and is none."""
    lacking: dict[int, int] = {}
    for part in _parts(views):
        least = wanted(len(part), degree)
        here = {peer: least - len(views[peer].neighbours) for peer in part if peer in views}
        here = {peer: count for peer, count in here.items() if count > 0}
        if sum(here.values()) > (1 if least == degree and degree * len(part) % 2 else 0):
            lacking |= here
    return lacking


def overfull(views: Mapping[int, View], degree: int) -> list[View]:
    """Those with more links than they may ever have."""
    return [view for view in views.values() if len(view.neighbours) > degree]


def parts(views: Mapping[int, View]) -> list[int]:
    """Sizes of the parts that are not linked to each other, largest first, counting the lab's own."""
    sizes = (sum(peer in views for peer in part) for part in _parts(views))
    return sorted((size for size in sizes if size), reverse=True)


def _parts(views: Mapping[int, View]) -> list[list[int]]:
    """A stranger belongs to, and ties, those that name it."""
    near: dict[int, list[int]] = {peer: [] for peer in views}
    for peer, view in views.items():
        for other in view.neighbours:
            near[peer].append(other)
            near.setdefault(other, []).append(peer)
    left = dict.fromkeys(near)
    found = []
    while left:
        reached = [left.popitem()[0]]
        for peer in reached:
            for other in near[peer]:
                if other in left:
                    del left[other]
                    reached.append(other)
        found.append(reached)
    return found


def diameter(views: Mapping[int, View]) -> int:
    """The true one, of the largest part: the longest of the shortest ways, in links."""
    longest = 0
    for start in views:
        seen = {start}
        edge = [start]
        steps = 0
        while edge:
            edge = [
                other
                for other in dict.fromkeys(near for peer in edge for near in views[peer].neighbours)
                if other in views and other not in seen
            ]
            seen.update(edge)
            steps += bool(edge)
        longest = max(longest, steps)
    return longest
