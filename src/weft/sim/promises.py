"""The promises of the design, checked on a fabric that has come to rest.

(What can be checked at every step, `watch.py` checks at every step.)
"""

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.sim.node import Node
    from weft.sim.watch import Heard, Watch


def adjacency(members: "list[Node]") -> dict[int, list[int]]:
    """Peer id -> ids of those it thinks it is linked to."""
    return {node.peer.me.peer: list(node.peer.links.neighbours) for node in members}


def unrest(members: "list[Node]", degree: int) -> str | None:
    """Why the fabric is not (yet) one regular graph, or None if it is."""
    return regular(adjacency(members), degree, {node.peer.me.peer: str(node.number) for node in members})


def regular(graph: dict[int, list[int]], degree: int, numbers: dict[int, str] | None = None) -> str | None:
    """The same for any graph of peer ids; `numbers` are what people call the peers."""
    numbers = numbers or {peer: f"{peer:016x}" for peer in graph}
    count = len(graph)
    wanted = min(degree, count - 1)
    holes_allowed = 1 if wanted == degree and degree * count % 2 else 0
    holes = 0
    for peer, neighbours in graph.items():
        for other in neighbours:
            if other not in graph:
                return f"peer {numbers[peer]} has a link to one that is gone ({other:016x})"
            if peer not in graph[other]:
                return f"peer {numbers[peer]} has a link to peer {numbers[other]}, which has none to it"
        holes += wanted - len(neighbours)
    if holes > holes_allowed:
        lacking = [numbers[peer] for peer, near in graph.items() if len(near) < wanted]
        return f"{holes} holes: " + ", ".join(f"peer {number}" for number in lacking[:8])
    parts = _parts(graph)
    if len(parts) > 1:
        sizes = ", ".join(str(size) for size in parts[:8])
        return f"{len(parts)} separate parts, of {sizes} peers"
    return None


def _parts(graph: dict[int, list[int]]) -> list[int]:
    """Sizes of the connected parts, largest first."""
    left = dict.fromkeys(graph)
    sizes = []
    while left:
        reached = [left.popitem()[0]]
        for peer in reached:
            for other in graph[peer]:
                if other in left:
                    del left[other]
                    reached.append(other)
        sizes.append(len(reached))
    return sorted(sizes, reverse=True)


def undelivered(watch: "Watch", members: "list[Node]", *, may_be_told: bool = False) -> tuple[int, str] | None:
    """The first message that a member should have had and has not, with the promise that this breaks.

    A living author's messages must all have arrived, as must those of one that left in peace; a dead one's as far as
    any survivor has them. A member must have what was sent since it became one. `may_be_told`: having been told that
    it was missed is as good.
    """
    ids = {node.peer.me.peer: node for node in members}
    for author, times in watch.sent_at.items():
        if author in ids or watch.left_in_peace(author):
            last = len(times)
        else:
            last = max((watch.heard.get(node, {}).get(author, _NOTHING).last for node in members), default=0)
        for node in members:
            if node.peer.me.peer == author:
                continue
            first = bisect_left(times, watch.connected_at[node]) + 1
            if first > last:
                continue
            heard = watch.heard.get(node, {}).get(author)
            if heard is None or heard.last < last:
                lacks = heard.last + 1 if heard is not None else first
                return 1, f"{node} has not got {watch.name(author, max(lacks, first))} (up to {last} there is)"
            if heard.first > first:
                return 3, f"{node} started with {watch.name(author, heard.first)}, should have with {first}"
            if heard.missed and not may_be_told:
                had = _first_had(watch, members, author, heard, first)
                if had is not None:
                    name = watch.name(author, had)
                    return 1, f"{node} missed {name}, which can be had, although the fabric was whole again"
    return None


def _first_had(watch: "Watch", members: "list[Node]", author: int, missed_by: "Heard", first: int) -> int | None:
    """The first message that one was told it missed, since it is a member, although it could be had: another has it,
    the author lives, or it left in good order and had to see that somebody had it."""
    others = [watch.heard.get(node, {}).get(author) for node in members]
    answerable = watch.left_in_peace(author) or any(node.peer.me.peer == author for node in members)
    for low, high in missed_by.missed:
        for sequence in range(max(low, first), high + 1):
            if answerable or any(each is not None and each.has(sequence) for each in others):
                return sequence
    return None


class _Nothing:
    last = 0


_NOTHING = _Nothing()
