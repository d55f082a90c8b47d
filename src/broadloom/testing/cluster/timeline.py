"""What can be watched: peers as they are now, and a numbered log of what changed.

A lab is a story; so is a tape that is played again, and a channel of which only one peer is ours. Pages are drawn from
stories alone and need not know which of them they show.

Ids are the peers' own, of 64 bits, so that they are those of the tape and of the tables too: they are wider than
the numbers of JavaScript, so send them to a browser as text (`f"{id:016x}"`). People are told `name` ("17"), which is
short.

The rules of a story:

- `now()` is the truth at this moment; the changes say how it came about. Who has not looked for so long that
  changes were dropped (fewer come than `next - since`) looks at `now()` again.
- A link has two ends, and each tells for itself. `PeerView.links` is what that peer says; a link is drawn when either
  end says so. `LinkUp` and `LinkDown` are told once a link, with `a < b`.
- `links` may name a peer that is not in `now()`: somebody else's (the page's own member, for example).
- Not every message is told. `Said` with its `Hop`s is a sample of a few a second, chosen at the author: all hops of a
  chosen message are told, none of the others. Counts of all are in `Lab.figures()`.
- Hops come in the order in which the story heard of them, up to a second late; draw them by their `at_s`. A ripple
  may lack its `Said`, if its author is a stranger or has just died; then the source of the first hop is the author.

A lab (`lab.py`) is more than a story. For whoever shows one:

- `Rates` and `LabPlan` are in `plan.py`, `Sample` in `figures.py`, `Promise` (with `is_pending`: it holds so far, and
  something is under way) in `promises.py`, `Repair` in `repairs.py`. A plan without rates talks as is usual for its
  size; `LabPlan(peers=24, rates=SILENCE)` says nothing.
- `async with Lab.start(plan) as lab` is entered when the first process is there, after a second or two; the peers come
  by themselves. `await lab.grown()` waits for all of them.
- To take part in its conversations: `broadloom.connect(lab.channel, bootstrap=lab.bootstrap())`, then
  `broadloom.groups.groups`. The groups of the lab's peers are those of `broadloom.testing.workloads.chat.titles()`: id
  and title; `here.create(title, well_known_name=title)` finds them.
- `freeze(peer)` returns the ids of all that were frozen with it: a lab stops processes, and many peers may share one.
- What a person can do wrong (a peer that is gone, a split of what is split) raises a `BroadloomError` whose text is for
  people: `LabFailed`, `NoSuchPeer`.
- `lab.totals` has the counts since the beginning, `lab.repairs.done` the repairs, `lab.diameter()` the true diameter,
  `lab.verdict` all that was found wrong in words.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

CHANGES_MAX = 20_000
"""Older changes are dropped: at the most that a lab tells, this is the last half minute or more."""


@dataclass(frozen=True, slots=True)
class PeerSnapshot:
    """One peer at this moment."""

    peer_id: int
    name: str
    """Short, for people: a number in a lab, hex digits of the id elsewhere."""
    state: str
    """`connected`, or another of `broadloom.protocol.events.State`; `unknown` for a peer that is only heard of."""
    links: tuple[int, ...]
    """Ids of its neighbours, as it says itself."""
    free_slots: int
    """Links that it lacks: degree less links; in the small regime 0."""
    diameter_estimate: int
    """Its own estimate of the fabric's diameter, in hops."""
    is_full_mesh: bool
    """In the small regime, where all are linked to all."""
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class PeerAdded:
    """A peer is connected; from now on it is in `now()`."""

    at_s: float
    peer_id: int
    name: str


@dataclass(frozen=True, slots=True)
class PeerRemoved:
    """A peer is no longer in `now()`."""

    at_s: float
    peer_id: int
    reason: str
    """`left` in good order; `killed` by the lab; `died` otherwise."""


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
    """A message that is followed on its way: a ripple begins at its author."""

    at_s: float
    author: int
    sequence: int
    size_bytes: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class MessageHop:
    """The first copy of a followed message arrived at a peer: one step of a ripple."""

    at_s: float
    author: int
    sequence: int
    source: int
    """The neighbour that it came from."""
    peer_id: int
    hops: int
    """Steps from the author, 1 for its neighbours."""


@dataclass(frozen=True, slots=True)
class MessagesMissed:
    """A peer was told that it will never get these messages."""

    at_s: float
    peer_id: int
    author: int
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """A sentence for people: "peer 17 was killed", "the fabric is whole again after 0.8 s"."""

    at_s: float
    text: str


Change = PeerAdded | PeerRemoved | LinkAdded | LinkRemoved | MessageSent | MessageHop | MessagesMissed | Annotation


class Timeline(Protocol):
    """All times are Unix seconds."""

    def now(self) -> dict[int, PeerSnapshot]:
        """The fabric at this moment, by id."""
        ...

    def changes(self, since: int) -> tuple[int, list[Change]]:
        """What happened from number `since` on (0 for all that is kept), and the number to ask with next time."""
        ...


class ChangeLog:
    """The numbered log of a story: the last `CHANGES_KEPT_MAX`, older ones are dropped."""

    def __init__(self, changes_max: int = CHANGES_MAX) -> None:
        self._changes: deque[Change] = deque(maxlen=changes_max)
        self.next_number = 0
        """The number of the change that comes next."""

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
