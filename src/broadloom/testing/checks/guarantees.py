"""The guarantees, as pure functions over what peers report and logs contain, once a fabric should have converged.

`testing/sim/step_checker.py` and `delivery_log.py` check at each delivery what a single peer can check.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from broadloom.protocol.events import PeerState
from broadloom.testing.checks.delivery_log import message_label
from broadloom.topology import Adjacency, connected_components, free_slots, symmetric_links

if TYPE_CHECKING:
    from broadloom.testing.checks.delivery_log import AuthorLog
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.step_checker import StepChecker

SHOWN_MAX = 8
"""Peers or components listed in a message."""


# -- the fabric: guarantees 4, 5 and 6


class PeerView(NamedTuple):
    """A running peer as it last reported itself. Goes over the control protocol of workers as a list."""

    number: int
    peer_id: int
    state: str
    changed_ns: int
    """Time of its last link or state change."""
    neighbors: Collection[int]
    free_slots: int = 0
    diameter_estimate: int = 0
    is_full_mesh: bool = False


def report_adjacency(views: Iterable[PeerView]) -> dict[int, Collection[int]]:
    return {view.peer_id: view.neighbors for view in views}


def find_convergence_problems(
    views: Collection[PeerView], degree: int, departed: Iterable[int] | None = None
) -> str | None:
    """Return why these peers are not (yet) connected in one regular graph, or None if they are.

    A neighbor without a view is an error. With `departed`, it may also be another program on the same channel, which
    counts as a neighbor; only those in `departed` are errors.
    """
    graph = report_adjacency(views)
    if len(graph) < len(views):
        return "two peers have the same id"
    for view in views:
        if problem := _find_peer_problem(view, degree):
            return f"peer {view.number} {problem}"
    external: set[int] = set()
    if departed is not None:
        external = {other for near in graph.values() for other in near} - graph.keys() - set(departed)
    return check_fabric(graph, degree, {view.peer_id: str(view.number) for view in views}, external)


def _find_peer_problem(view: PeerView, degree: int) -> str | None:
    if view.state != PeerState.CONNECTED.value:
        return f"is {view.state}, not connected"
    if view.peer_id in view.neighbors:
        return "is linked to itself"
    if len(set(view.neighbors)) < len(view.neighbors):
        return "is linked to a neighbor twice"
    if len(view.neighbors) > degree:
        return f"has {len(view.neighbors)} links; at most {degree} are allowed"
    return None


def find_overfull(views: Iterable[PeerView], degree: int) -> list[PeerView]:
    """Return the peers with more links than allowed."""
    return [view for view in views if len(view.neighbors) > degree]


def check_fabric(
    graph: Adjacency, degree: int, labels: Mapping[int, str] | None = None, external: Collection[int] = ()
) -> str | None:
    """Return why a graph of peer ids is not regular and connected, or None if it is."""
    return check_regular(graph, degree, labels, external) or check_connected(graph)


def check_regular(
    graph: Adjacency, degree: int, labels: Mapping[int, str] | None = None, external: Collection[int] = ()
) -> str | None:
    """Guarantee 4: every link is known to both ends, and each component is regular."""
    labels = labels or {peer: f"{peer:016x}" for peer in graph}
    for peer, neighbors in graph.items():
        for other in neighbors:
            if other not in graph:
                if other not in external:
                    return f"peer {labels[peer]} has a link to a departed peer ({other:016x})"
            elif peer not in graph[other]:
                return f"peer {labels[peer]} has a link to peer {labels[other]}, which has none to it"
    if missing := free_slots(graph, degree):
        peers = ", ".join(f"peer {label}" for label in [labels[peer] for peer in graph if peer in missing][:SHOWN_MAX])
        return f"{sum(missing.values())} free slots: {peers}"
    return None


def check_connected(graph: Adjacency) -> str | None:
    """Guarantees 5 and 6: there is one fabric."""
    sizes = component_sizes(graph)
    if len(sizes) > 1:
        return f"{len(sizes)} components, of {', '.join(map(str, sizes[:SHOWN_MAX]))} peers"
    return None


def component_sizes(graph: Adjacency) -> list[int]:
    """Return the sizes of the components, largest first; external neighbors connect peers but are not counted."""
    components = connected_components(symmetric_links(graph))
    sizes = (sum(peer in graph for peer in component) for component in components)
    return sorted((size for size in sizes if size), reverse=True)


# -- delivery in a simulation: guarantees 1 and 3


def adjacency(members: "list[SimNode]") -> dict[int, list[int]]:
    """Return each peer's id with the ids of its neighbors, as it sees them."""
    return {node.peer.me.peer_id: list(node.peer.links.neighbors) for node in members}


def connected_parts(members: "list[SimNode]") -> "list[list[SimNode]]":
    """Return the components of the links among these members. Hostile members between two components can withhold the
    messages of one from the other."""
    nodes = {node.peer.me.peer_id: node for node in members}
    links = {peer_id: [each for each in near if each in nodes] for peer_id, near in adjacency(members).items()}
    return [[nodes[each] for each in component] for component in connected_components(symmetric_links(links))]


def find_undelivered(
    checker: "StepChecker", members: "list[SimNode]", *, allow_missed: bool = False, is_part: bool = False
) -> tuple[int, str] | None:
    """Return the first missing delivery with the number of the guarantee it violates, or None.

    Every member must have what was sent since it connected: all messages of an author among the members, and of one
    that left gracefully, and those of any other author up to the last that a member has. With `allow_missed`, a
    reported miss counts as a delivery. `is_part`: there are other members, among which the one that left may have been.
    """
    present = {node.peer.me.peer_id for node in members}
    for author, times in checker.sent_at.items():
        if author in checker.unchecked_authors:
            continue
        logs = {node: log for node in members if (log := checker.author_logs.get(node, {}).get(author)) is not None}
        required_from = 1 if author in present else None if is_part else checker.first_shared_sequence(author)
        if required_from is not None:
            last = len(times)
        else:
            last = max((log.last_sequence for log in logs.values()), default=0)
        for node in members:
            if node.peer.me.peer_id == author:
                continue
            first = bisect_left(times, checker.connected_at[node]) + 1
            if first > last:
                continue
            log = logs.get(node)
            if log is None or log.last_sequence < last:
                missing_from = log.last_sequence + 1 if log is not None else first
                label = message_label(author, max(missing_from, first))
                return 1, f"{node} has not received {label} (last available: {last})"
            if log.first_sequence > first:
                label = message_label(author, log.first_sequence)
                return 3, f"{node} started with {label} instead of {first}"
            missed = [each for each in log.missed if (node, (author, *each)) not in checker.eclipsed]
            if missed and not allow_missed:
                available = _first_available(missed, first, required_from, logs.values())
                if available is not None:
                    label = message_label(author, available)
                    return 1, f"{node} missed {label}, which is available, although the fabric was connected again"
    return None


def _first_available(
    missed: "Iterable[tuple[int, int]]", first: int, required_from: int | None, others: "Collection[AuthorLog]"
) -> int | None:
    """Return the first message reported as missed that another log has. From `required_from` on, every one counts."""
    for low, high in missed:
        for sequence in range(max(low, first), high + 1):
            is_required = required_from is not None and sequence >= required_from
            if is_required or any(other.has(sequence) for other in others):
                return sequence
    return None
