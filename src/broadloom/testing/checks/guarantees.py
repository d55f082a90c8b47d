"""The promises of the design, checked on a fabric that has come to rest.

(What can be checked at every step, `watch.py` checks at every step.)
"""

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.step_checker import AuthorLog, StepChecker


def adjacency(members: "list[SimNode]") -> dict[int, list[int]]:
    """Peer id -> ids of those it thinks it is linked to."""
    return {node.peer.me.peer_id: list(node.peer.links.neighbors) for node in members}


def find_convergence_problems(members: "list[SimNode]", degree: int) -> str | None:
    """Why the fabric is not (yet) one regular graph, or None if it is."""
    return check_regular(adjacency(members), degree, {node.peer.me.peer_id: str(node.number) for node in members})


def check_regular(graph: dict[int, list[int]], degree: int, labels: dict[int, str] | None = None) -> str | None:
    """The same for any graph of peer ids; `numbers` are what people call the peers."""
    labels = labels or {peer: f"{peer:016x}" for peer in graph}
    count = len(graph)
    wanted = min(degree, count - 1)
    free_slots_allowed = 1 if wanted == degree and degree * count % 2 else 0
    free_slots = 0
    for peer, neighbors in graph.items():
        for other in neighbors:
            if other not in graph:
                return f"peer {labels[peer]} has a link to one that is gone ({other:016x})"
            if peer not in graph[other]:
                return f"peer {labels[peer]} has a link to peer {labels[other]}, which has none to it"
        free_slots += wanted - len(neighbors)
    if free_slots > free_slots_allowed:
        incomplete = [labels[peer] for peer, near in graph.items() if len(near) < wanted]
        return f"{free_slots} holes: " + ", ".join(f"peer {number}" for number in incomplete[:8])
    parts = _component_sizes(graph)
    if len(parts) > 1:
        sizes = ", ".join(str(size) for size in parts[:8])
        return f"{len(parts)} separate parts, of {sizes} peers"
    return None


def _component_sizes(graph: dict[int, list[int]]) -> list[int]:
    """Sizes of the connected parts, largest first."""
    remaining = dict.fromkeys(graph)
    sizes = []
    while remaining:
        reached = [remaining.popitem()[0]]
        for peer in reached:
            for other in graph[peer]:
                if other in remaining:
                    del remaining[other]
                    reached.append(other)
        sizes.append(len(reached))
    return sorted(sizes, reverse=True)


def find_undelivered(
    checker: "StepChecker", members: "list[SimNode]", *, allow_missed: bool = False
) -> tuple[int, str] | None:
    """The first message that a member should have had and has not, with the promise that this breaks.

    A living author's messages must all have arrived, as must those of one that left in peace; a dead one's as far as
    any survivor has them. A member must have what was sent since it became one. `may_be_told`: having been told that
    it was missed is as good.
    """
    ids = {node.peer.me.peer_id: node for node in members}
    for author, times in checker.sent_at.items():
        if author in ids or checker.left_cleanly(author):
            last = len(times)
        else:
            last = max(
                (checker.author_logs.get(node, {}).get(author, _EMPTY_LOG).last_sequence for node in members), default=0
            )
        for node in members:
            if node.peer.me.peer_id == author:
                continue
            first = bisect_left(times, checker.connected_at[node]) + 1
            if first > last:
                continue
            log = checker.author_logs.get(node, {}).get(author)
            if log is None or log.last_sequence < last:
                missing_from = log.last_sequence + 1 if log is not None else first
                label = checker.message_label(author, max(missing_from, first))
                return 1, f"{node} has not got {label} (up to {last} there is)"
            if log.first_sequence > first:
                label = checker.message_label(author, log.first_sequence)
                return 3, f"{node} started with {label}, should have with {first}"
            if log.missed and not allow_missed:
                available = _first_available(checker, members, author, log, first)
                if available is not None:
                    name = checker.message_label(author, available)
                    return 1, f"{node} missed {name}, which can be had, although the fabric was whole again"
    return None


def _first_available(
    checker: "StepChecker", members: "list[SimNode]", author: int, log: "AuthorLog", first: int
) -> int | None:
    """The first message that one was told it missed, since it is a member, although it could be had: another has it,
    the author lives, or it left in good order and had to see that somebody had it."""
    logs = [checker.author_logs.get(node, {}).get(author) for node in members]
    must_be_available = checker.left_cleanly(author) or any(node.peer.me.peer_id == author for node in members)
    for low, high in log.missed:
        for sequence in range(max(low, first), high + 1):
            if must_be_available or any(each is not None and each.has(sequence) for each in logs):
                return sequence
    return None


class _EmptyLog:
    last_sequence = 0


_EMPTY_LOG = _EmptyLog()
