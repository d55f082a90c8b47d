"""The audit of real processes: what peers have to receive, compared with what they have.

`delivery_log.py` has the checks of a single peer, `guarantees.py` those of the fabric. `DeliveryAudit` is the
coordinator's side, for chaos runs and local clusters; the functions at the end are a worker's, about its own peers.

Messages of a running author are due to every peer that was a member when they were sent; so are those of an author that
left gracefully while the fabric was stable. Messages of a crashed author are due as far as any survivor has them.
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broadloom.testing.checks.delivery_log import AuthorHead, message_label

if TYPE_CHECKING:
    from broadloom.testing.processes.managed_peer import ManagedPeer

STABLE_PERIOD_S = 10.0
"""Time without a lost link that counts as stable: no peer has crashed or is cut off, unless just now."""
STABLE_PERIOD_NS = int(STABLE_PERIOD_S * 1e9)
DESCRIPTIONS_MAX = 20
WORKER_DESCRIPTIONS_MAX = 5
DEPARTED_MAX = 5000
KILLS_MAX = 1000

Replies = Iterable[Mapping[str, Any]]


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


class DeliveryAudit:
    """What authors have sent and which of them are gone.

    `payloads_are_checked`: receivers know from a payload when it was sent. Otherwise, of messages that a crashed author
    sent after its last report it is unknown when they were sent, and so to whom they are due.
    """

    def __init__(self, *, payloads_are_checked: bool = False) -> None:
        self._payloads_are_checked = payloads_are_checked
        self._heads: dict[int, AuthorHead] = {}
        self._departed: dict[int, DepartedPeer] = {}
        self._kills_ns: deque[int] = deque(maxlen=KILLS_MAX)

    def on_departed(
        self, peer_id: int, *, left_gracefully: bool, sent_count: int = 0, last_sent_ns: int = 0, at_ns: int = 0
    ) -> None:
        """`at_ns` is now unless given; a `peer_id` of 0 was not connected yet."""
        at_ns = at_ns or time.monotonic_ns()
        if not left_gracefully:
            self._kills_ns.append(at_ns)
        elif sent_count:
            self._heads[peer_id] = AuthorHead(sent_count, last_sent_ns)
        if peer_id:
            self._departed[peer_id] = DepartedPeer(left_gracefully, at_ns, sent_count, last_sent_ns)
        if len(self._departed) > DEPARTED_MAX:
            oldest = next(iter(self._departed))
            del self._departed[oldest]
            self._heads.pop(oldest, None)

    @property
    def departed(self) -> list[int]:
        return list(self._departed)

    def on_heads(self, rows: Iterable[Iterable[int]]) -> None:
        """Take in what running authors have sent."""
        self._heads |= latest_heads(rows)

    def expected(self, replies: Replies) -> dict[int, AuthorHead]:
        """Return everything sent up to now that is due. `replies` are those to `author_heads`."""
        replies = list(replies)
        self.on_heads(row for reply in replies for row in reply["running"])
        running = {peer: head for peer, head in self._heads.items() if peer not in self._departed}
        held = latest_heads(row for reply in replies for row in reply["departed"])
        if not self._payloads_are_checked:
            held = {
                author: reported
                for author, survivors in held.items()
                if (reported := self._heads.get(author)) is not None
                and survivors.last_sequence >= reported.last_sequence
            }
        return expected_deliveries(running, self._departed, held, self._kills_ns)


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


# -- in a worker, about its own peers


def author_heads(peers: "Iterable[ManagedPeer]", departed: list[int]) -> dict[str, Any]:
    """What these peers have sent, and the last message they have of each departed author."""
    peers, wanted = list(peers), set(departed)
    heads = latest_heads(
        (author, log.last_sequence, log.last_sent_ns)
        for peer in peers
        for author, log in peer.delivery_log.author_logs.items()
        if author in wanted
    )
    running = [[peer.peer_id, peer.sent_count, peer.last_sent_ns] for peer in peers]
    return {"running": running, "departed": encode_heads(heads)}


def find_missing(peers: "Iterable[ManagedPeer]", rows: list[list[int]]) -> dict[str, Any]:
    peers, expected = list(peers), latest_heads(rows)
    missing = [_label(peer, text) for peer in peers for text in peer.delivery_log.find_missing(expected)]
    pairs = len(expected) * len(peers)
    return {"missing": missing[:WORKER_DESCRIPTIONS_MAX], "missing_count": len(missing), "pairs": pairs}


def find_unsent(peers: "Iterable[ManagedPeer]", rows: list[list[int]]) -> list[str]:
    expected = latest_heads(rows)
    unsent = [_label(peer, text) for peer in peers for text in peer.delivery_log.find_unsent(expected)]
    return unsent[:WORKER_DESCRIPTIONS_MAX]


def find_held(peers: "Iterable[ManagedPeer]", ranges: list[list[int]]) -> list[list[int]]:
    """Return the ranges of which one of these peers has or sent a message, each with the first such message."""
    peers, found = list(peers), []
    for author, first, last in ranges:
        for peer in peers:
            first_held = peer.delivery_log.first_held(author, first, last)
            if peer.peer_id == author and first <= peer.sent_count:
                first_held = first
            if first_held is not None:
                found.append([author, first, last, first_held])
                break
    return found


def _label(peer: "ManagedPeer", text: str) -> str:
    return f"peer {peer.number} ({peer.peer_id:016x}) {text}"
