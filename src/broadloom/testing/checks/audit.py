"""The promises, checked between peers: on plain data, so that each check can be seen to fire.

A living author's messages are owed to everyone who was a member when they were sent; those of one that left in good
order and in peace as well; a dead one's as far as any survivor has them. (What one peer can check by itself, at each
delivery, `ledger.py` checks.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broadloom.protocol.events import PeerState
from broadloom.testing.checks import guarantees
from broadloom.testing.checks.delivery_log import AuthorHead
from broadloom.testing.sim.step_checker import STABLE_PERIOD_S

STABLE_PERIOD_NS = int(STABLE_PERIOD_S * 1e9)


@dataclass(frozen=True, slots=True)
class PeerView:
    """One living peer, as it last told of itself."""

    peer_id: int
    state: str
    neighbors: tuple[int, ...]
    changed_ns: int = 0


def find_convergence_problems(views: Mapping[int, PeerView], degree: int) -> str | None:
    """Why the fabric is not (yet) one regular graph, or None if it is. `views` has each peer by its number."""
    for number, view in views.items():
        if view.state != PeerState.CONNECTED.value:
            return f"peer {number} is {view.state}, not connected"
        if view.peer_id in view.neighbors:
            return f"peer {number} is linked to itself"
        if len(set(view.neighbors)) < len(view.neighbors):
            return f"peer {number} is linked to one neighbour twice"
        if len(view.neighbors) > degree:
            return f"peer {number} has {len(view.neighbors)} links; at most {degree} are allowed"
    if len({view.peer_id for view in views.values()}) < len(views):
        return "two peers have the same id"
    graph = {view.peer_id: list(view.neighbors) for view in views.values()}
    return guarantees.check_fabric(graph, degree, {view.peer_id: str(number) for number, view in views.items()})


def check_connected(views: Mapping[int, PeerView]) -> str | None:
    """Whether there are several fabrics, regular or not."""
    known = {view.peer_id for view in views.values()}
    return guarantees.check_connected({view.peer_id: known & set(view.neighbors) for view in views.values()})


@dataclass(frozen=True, slots=True)
class DepartedPeer:
    """An author that is no more, how it went, and what it said it had sent (0 if it could not say any more)."""

    left_gracefully: bool
    at_ns: int
    sent_count: int = 0
    last_sent_ns: int = 0


def expected_deliveries(
    living: Mapping[int, AuthorHead],
    departed: Mapping[int, DepartedPeer],
    held_by_survivors: Mapping[int, AuthorHead],
    kills_ns: Iterable[int],
) -> dict[int, AuthorHead]:
    """Up to where each author's messages must be with everyone. All keys are peer ids."""
    expected = dict(living)
    kills = list(kills_ns)
    for author, end in departed.items():
        was_stable = not any(end.last_sent_ns - STABLE_PERIOD_NS < death_ns <= end.at_ns for death_ns in kills)
        if end.left_gracefully and end.sent_count and was_stable:
            expected[author] = AuthorHead(end.sent_count, end.last_sent_ns)
        elif author in held_by_survivors:
            expected[author] = held_by_survivors[author]
    return expected


def find_false_missed(
    missed: Iterable[tuple[int, int, int, int]],
    held: Mapping[tuple[int, int, int], int],
    expected: Mapping[int, AuthorHead],
) -> list[str]:
    """Messages that a peer was told it missed, although another has them or their author lives: peer number, author,
    first and last; and for such a range, the first message of it that anybody has."""
    problems = []
    for number, author, first, last in missed:
        available = held.get((author, first, last))
        if available is not None:
            problems.append(f"peer {number} was told that it missed {author:016x}#{available}, which can be had")
        elif author in expected and last > expected[author].last_sequence:
            problems.append(f"peer {number} was told that it missed {author:016x}#{last}, which nobody sent")
    return problems
