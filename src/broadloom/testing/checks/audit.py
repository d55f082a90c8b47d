"""The guarantees between peers, as functions over plain data. `delivery_log.py` has the checks of a single peer.

Messages of a running author are due to every peer that was a member when they were sent; so are those of an author that
left gracefully while the fabric was stable. Messages of a crashed author are due as far as any survivor has them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from broadloom.protocol.events import PeerState
from broadloom.testing.checks.delivery_log import AuthorHead, message_label
from broadloom.testing.sim.step_checker import STABLE_PERIOD_S
from broadloom.topology import components

STABLE_PERIOD_NS = int(STABLE_PERIOD_S * 1e9)
DESCRIPTIONS_MAX = 20


class PeerView(NamedTuple):
    """A running peer as it last reported itself. Goes over the control protocol as a list."""

    number: int
    peer_id: int
    state: str
    changed_ns: int
    """Time of its last link or state change."""
    neighbors: Collection[int]
    free_slots: int = 0
    diameter_estimate: int = 0
    is_full_mesh: bool = False


# -- the fabric


def find_convergence_problems(
    views: Collection[PeerView], degree: int, departed: Iterable[int] | None = None
) -> str | None:
    """Describe why the fabric is not (yet) one regular graph; None if it is.

    A neighbor without a view is an error, unless `departed` is given: then it may be an external peer (of a web page,
    for example), and only those in `departed` are errors.
    """
    by_id = {view.peer_id: view for view in views}
    if len(by_id) < len(views):
        return "two peers have the same id"
    gone = set(departed) if departed is not None else None
    for view in views:
        if problem := _find_link_problem(view, by_id, degree, gone):
            return f"peer {view.number} {problem}"
    if incomplete := free_slots(views, degree):
        numbers = sorted(by_id[peer].number for peer in incomplete)
        return f"{sum(incomplete.values())} free slots: " + ", ".join(f"peer {number}" for number in numbers[:8])
    sizes = component_sizes(views)
    if len(sizes) > 1:
        return f"{len(sizes)} separate parts, of {', '.join(map(str, sizes[:8]))} peers"
    return None


def _find_link_problem(
    view: PeerView, by_id: Mapping[int, PeerView], degree: int, departed: Collection[int] | None
) -> str | None:
    if view.state != PeerState.CONNECTED.value:
        return f"is {view.state}, not connected"
    if view.peer_id in view.neighbors:
        return "is linked to itself"
    if len(set(view.neighbors)) < len(view.neighbors):
        return "is linked to a neighbor twice"
    if len(view.neighbors) > degree:
        return f"has {len(view.neighbors)} links; at most {degree} are allowed"
    for other in view.neighbors:
        if other in by_id:
            if view.peer_id not in by_id[other].neighbors:
                return f"has a link to peer {by_id[other].number}, which has none to it"
        elif departed is None or other in departed:
            return f"has a link to a departed peer ({other:016x})"
    return None


def free_slots(views: Collection[PeerView], degree: int) -> dict[int, int]:
    """Missing links by peer id, each component on its own.

    In a component with an odd number of peers and an odd degree, one slot stays free and is not counted.
    """
    neighbors = {view.peer_id: view.neighbors for view in views}
    missing: dict[int, int] = {}
    for component in _components(views):
        target = max(0, min(degree, len(component) - 1))
        here = {peer: target - len(neighbors[peer]) for peer in component if peer in neighbors}
        here = {peer: count for peer, count in here.items() if count > 0}
        if sum(here.values()) > (1 if target == degree and degree * len(component) % 2 else 0):
            missing |= here
    return missing


def find_overfull(views: Iterable[PeerView], degree: int) -> list[PeerView]:
    return [view for view in views if len(view.neighbors) > degree]


def component_sizes(views: Collection[PeerView]) -> list[int]:
    """Sizes of the connected components, largest first, without external peers."""
    known = {view.peer_id for view in views}
    sizes = (sum(peer in known for peer in component) for component in _components(views))
    return sorted((size for size in sizes if size), reverse=True)


def _components(views: Collection[PeerView]) -> list[list[int]]:
    """Connected components. A link that one end reports counts, so external peers connect their neighbors."""
    graph: dict[int, set[int]] = {view.peer_id: set(view.neighbors) for view in views}
    for view in views:
        for other in view.neighbors:
            graph.setdefault(other, set()).add(view.peer_id)
    return components(graph)


# -- deliveries


@dataclass(frozen=True, slots=True)
class DepartedPeer:
    """An author that is gone, and what it reported as sent when it left (nothing if it crashed)."""

    left_gracefully: bool
    at_ns: int
    sent_count: int = 0
    last_sent_ns: int = 0


def expected_deliveries(
    running: Mapping[int, AuthorHead],
    departed: Mapping[int, DepartedPeer],
    held_by_survivors: Mapping[int, AuthorHead],
    kills_ns: Iterable[int],
) -> dict[int, AuthorHead]:
    """Return the last message of each author that is due to all peers. All keys are peer ids."""
    expected = dict(running)
    kills = list(kills_ns)
    for author, peer in departed.items():
        was_stable = not any(peer.last_sent_ns - STABLE_PERIOD_NS < kill_ns <= peer.at_ns for kill_ns in kills)
        if peer.left_gracefully and peer.sent_count and was_stable:
            expected[author] = AuthorHead(peer.sent_count, peer.last_sent_ns)
        elif author in held_by_survivors:
            expected[author] = held_by_survivors[author]
    return expected


def encode_heads(heads: Mapping[int, AuthorHead]) -> list[list[int]]:
    """For the control protocol: author, last sequence, time of sending."""
    return [[author, *head] for author, head in heads.items()]


def latest_heads(rows: Iterable[Iterable[int]]) -> dict[int, AuthorHead]:
    """Decode the rows of several workers; the highest sequence of each author counts."""
    latest: dict[int, AuthorHead] = {}
    for author, last_sequence, last_sent_ns in rows:
        if author not in latest or last_sequence > latest[author].last_sequence:
            latest[author] = AuthorHead(last_sequence, last_sent_ns)
    return latest


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the peers of all workers are missing of the expected deliveries."""

    missing_count: int
    descriptions: list[str]
    pairs: int
    """Pairs of author and receiver that were compared."""

    @classmethod
    def from_replies(cls, replies: Iterable[Mapping[str, Any]]) -> "Comparison":
        """From the replies to `find_missing`."""
        replies = list(replies)
        return cls(
            sum(reply["missing_count"] for reply in replies),
            [text for reply in replies for text in reply["missing"]][:DESCRIPTIONS_MAX],
            sum(reply["pairs"] for reply in replies),
        )


def find_false_missed(
    missed: Iterable[tuple[int, int, int, int]],
    held: Mapping[tuple[int, int, int], int],
    expected: Mapping[int, AuthorHead],
) -> list[str]:
    """Describe messages reported as missed that another peer has, or that were never sent.

    `missed` has peer number, author, first and last sequence; `held` the first message of such a range that any peer
    has.
    """
    problems = []
    for number, author, first, last in missed:
        available = held.get((author, first, last))
        if available is not None:
            problems.append(f"peer {number} missed {message_label(author, available)}, which is available")
        elif author in expected and last > expected[author].last_sequence:
            problems.append(f"peer {number} missed {message_label(author, last)}, which was never sent")
    return problems
