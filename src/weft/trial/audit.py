"""The promises, checked between peers: on plain data, so that each check can be seen to fire.

A living author's messages are owed to everyone who was a member when they were sent; those of one that left in good
order and in peace as well; a dead one's as far as any survivor has them. (What one peer can check by itself, at each
delivery, `ledger.py` checks.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.fabric.state import State
from weft.sim.promises import regular
from weft.sim.watch import PEACE_S
from weft.trial.ledger import Head

PEACE_NS = int(PEACE_S * 1e9)


@dataclass(frozen=True, slots=True)
class View:
    """One living peer, as it last told of itself."""

    peer: int
    state: str
    neighbours: tuple[int, ...]
    changed_ns: int = 0


def unrest(views: Mapping[int, View], degree: int) -> str | None:
    """Why the fabric is not (yet) one regular graph, or None if it is. `views` has each peer by its number."""
    for number, view in views.items():
        if view.state != State.CONNECTED.value:
            return f"peer {number} is {view.state}, not connected"
        if view.peer in view.neighbours:
            return f"peer {number} is linked to itself"
        if len(set(view.neighbours)) < len(view.neighbours):
            return f"peer {number} is linked to one neighbour twice"
        if len(view.neighbours) > degree:
            return f"peer {number} has {len(view.neighbours)} links; at most {degree} are allowed"
    if len({view.peer for view in views.values()}) < len(views):
        return "two peers have the same id"
    graph = {view.peer: list(view.neighbours) for view in views.values()}
    return regular(graph, degree, {view.peer: str(number) for number, view in views.items()})


def apart(views: Mapping[int, View]) -> str | None:
    """Whether there are several fabrics, regular or not."""
    graph = {view.peer: view.neighbours for view in views.values()}
    left = dict.fromkeys(graph)
    reached = [left.popitem()[0]] if left else []
    for peer in reached:
        for other in graph[peer]:
            if other in left:
                del left[other]
                reached.append(other)
    return f"two separate parts: {len(left)} of {len(graph)} peers cannot be reached from the others" if left else None


@dataclass(frozen=True, slots=True)
class Gone:
    """An author that is no more, how it went, and what it said it had sent (0 if it could not say any more)."""

    in_good_order: bool
    at_ns: int
    sent: int = 0
    sent_ns: int = 0


def owed(
    living: Mapping[int, Head], gone: Mapping[int, Gone], survivors_have: Mapping[int, Head], deaths_ns: Iterable[int]
) -> dict[int, Head]:
    """Up to where each author's messages must be with everyone. All keys are peer ids."""
    roll = dict(living)
    deaths = list(deaths_ns)
    for author, end in gone.items():
        in_peace = not any(end.sent_ns - PEACE_NS < death_ns <= end.at_ns for death_ns in deaths)
        if end.in_good_order and end.sent and in_peace:
            roll[author] = Head(end.sent, end.sent_ns)
        elif author in survivors_have:
            roll[author] = survivors_have[author]
    return roll


def regretted(
    told: Iterable[tuple[int, int, int, int]], held: Mapping[tuple[int, int, int], int], roll: Mapping[int, Head]
) -> list[str]:
    """Messages that a peer was told it missed, although another has them or their author lives: peer number, author,
    first and last; and for such a range, the first message of it that anybody has."""
    problems = []
    for number, author, first, last in told:
        had = held.get((author, first, last))
        if had is not None:
            problems.append(f"peer {number} was told that it missed {author:016x}#{had}, which can be had")
        elif author in roll and last > roll[author].last:
            problems.append(f"peer {number} was told that it missed {author:016x}#{last}, which nobody sent")
    return problems
