"""A timeline: the fabric as it is now, and a numbered log of changes.

A local cluster is a timeline; so are a replayed tape and a channel seen through a single peer. Pages draw any of them.

Peer ids have 64 bits, more than a JavaScript number holds: send them to a browser as text (`f"{id:016x}"`). `name` is
short, for display.

- `now()` is the truth; the changes explain it. A reader that fell too far back (fewer changes than `next - since`)
  starts again from `now()`.
- Each end of a link reports for itself. `PeerSnapshot.links` is one peer's report. `LinkAdded` and `LinkRemoved` occur
  once per link, with `a < b`.
- `links` may name an external peer that is not in `now()`, such as the page's own member.
- `MessageSent` and `MessageHop` cover a sample of a few messages per second: all hops of these, none of the others.
  `LocalCluster.samples()` counts all messages.
- Hops arrive up to a second late and in any order; draw them by `at_s`. `MessageSent` is missing if the author is
  external or was just killed; then the source of the first hop is the author.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

CHANGES_MAX = 20_000
"""Older changes are dropped. At the highest rate of a cluster this covers half a minute."""


@dataclass(frozen=True, slots=True)
class PeerSnapshot:
    peer_id: int
    name: str
    """Short, for display: a number in a cluster, hex digits of the id elsewhere."""
    state: str
    """A value of `PeerState`, such as `connected`; `unknown` for a peer known only from others."""
    links: tuple[int, ...]
    """Ids of its neighbors, as it reported."""
    free_slots: int
    """Degree minus links; 0 in a full mesh."""
    diameter_estimate: int
    """The peer's estimate of the diameter, in hops."""
    is_full_mesh: bool
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class PeerAdded:
    """A peer is connected and in `now()` from here on."""

    at_s: float
    peer_id: int
    name: str


@dataclass(frozen=True, slots=True)
class PeerRemoved:
    """A peer is no longer in `now()`."""

    at_s: float
    peer_id: int
    reason: str
    """`left` gracefully, `killed` by the cluster, or `crashed`."""


@dataclass(frozen=True, slots=True)
class LinkAdded:
    at_s: float
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class LinkRemoved:
    at_s: float
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class MessageSent:
    """A sampled message leaves its author."""

    at_s: float
    author: int
    sequence: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MessageHop:
    """The first copy of a sampled message arrived at a peer."""

    at_s: float
    author: int
    sequence: int
    source: int
    """The neighbor that sent it."""
    peer_id: int
    hops: int
    """Distance from the author, 1 for its neighbors."""


@dataclass(frozen=True, slots=True)
class MessagesMissed:
    """A peer got a `Missed` event for these messages."""

    at_s: float
    peer_id: int
    author: int
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """A sentence for display: "peer 17 was killed"."""

    at_s: float
    text: str


Change = PeerAdded | PeerRemoved | LinkAdded | LinkRemoved | MessageSent | MessageHop | MessagesMissed | Annotation


class Timeline(Protocol):
    """All times are Unix seconds."""

    def now(self) -> dict[int, PeerSnapshot]:
        """Return the connected peers, by id."""
        ...

    def changes(self, since: int) -> tuple[int, list[Change]]:
        """Return the changes from number `since` on (0: all that are kept), and the number for the next call."""
        ...


class ChangeLog:
    """A numbered log of the most recent changes."""

    def __init__(self, changes_max: int = CHANGES_MAX) -> None:
        self._changes: deque[Change] = deque(maxlen=changes_max)
        self.next_number = 0

    def add(self, change: Change) -> None:
        self._changes.append(change)
        self.next_number += 1

    def since(self, since: int) -> tuple[int, list[Change]]:
        count = min(self.next_number - since, len(self._changes))
        if count <= 0:
            return self.next_number, []
        if count == len(self._changes):
            return self.next_number, list(self._changes)
        newest_first = reversed(self._changes)
        return self.next_number, [next(newest_first) for _ in range(count)][::-1]
