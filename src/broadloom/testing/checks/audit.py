"""What peers have to receive, as functions over plain data.

`delivery_log.py` has the checks of a single peer, `guarantees.py` those of the fabric.

Messages of a running author are due to every peer that was a member when they were sent; so are those of an author that
left gracefully while the fabric was stable. Messages of a crashed author are due as far as any survivor has them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broadloom.testing.checks.delivery_log import AuthorHead, message_label
from broadloom.testing.sim.step_checker import STABLE_PERIOD_S

STABLE_PERIOD_NS = int(STABLE_PERIOD_S * 1e9)
DESCRIPTIONS_MAX = 20


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
