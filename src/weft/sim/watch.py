"""What everyone saw: the record that the promises are checked against."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.fabric.events import Barred, LinkDown, LinkUp, Note, StateChanged, Why
from weft.fabric.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.fabric.events import Event, Message, Missed
    from weft.sim.clock import Clock
    from weft.sim.node import Node

PEACE_S = 10.0
"""No link was lost without a word for so long: nobody is dead or cut off, unless somebody has just noticed it."""


@dataclass(slots=True)
class Heard:
    """What one peer was given of one author: from `first` to `last` without a break, but for what it was told."""

    first: int
    last: int
    missed: list[tuple[int, int]] = field(default_factory=list)

    def has(self, sequence: int) -> bool:
        return self.first <= sequence <= self.last and not self.was_missed(sequence)

    def was_missed(self, sequence: int) -> bool:
        return any(low <= sequence <= high for low, high in self.missed)


class PromiseBroken(AssertionError):
    """One of the promises of the design did not hold; says which, who and when."""


class Watch:
    """Notes what happens and checks, at every step, what can be checked at every step."""

    def __init__(self, clock: "Clock", degree: int, trace: "Callable[[str], None] | None" = None) -> None:
        self._clock = clock
        self._degree = degree
        self._trace = trace
        self.sent_at: dict[int, list[float]] = {}
        """Author -> times of its messages; the n-th has sequence n+1."""
        self._said: dict[int, list[bytes]] = {}
        self.heard: dict[Node, dict[int, Heard]] = {}
        self.connected_at: dict[Node, float] = {}
        self.left_at: dict[Node, float] = {}
        self.deliveries = 0
        self.reported_missed = 0
        self.hops_max = 0
        self.late_s = 0.0
        """The longest that a message took to a peer."""
        self.links_changed_at = 0.0
        self._left: dict[int, None] = {}
        self._torn_at = -PEACE_S

    # -- told by nodes

    def sent(self, node: "Node", sequence: int, data: bytes) -> None:
        times = self.sent_at.setdefault(node.peer.me.peer, [])
        times.append(self._clock.now)
        self._said.setdefault(node.peer.me.peer, []).append(data)
        if len(times) != sequence:
            self.broken(1, node, f"numbered its message {sequence} where {len(times)} comes next")
        if self._trace is not None:
            self._say(node, f"sends {sequence}")

    def delivered(self, node: "Node", message: "Message") -> None:
        self.deliveries += 1
        if message.hops > self.hops_max:
            self.hops_max = message.hops
        heard = self.heard.setdefault(node, {})
        had = heard.get(message.author)
        if had is None:
            heard[message.author] = Heard(message.sequence, message.sequence)
        elif message.sequence == had.last + 1:
            had.last = message.sequence
        elif message.sequence <= had.last and not had.was_missed(message.sequence):
            self.broken(1, node, f"was given message {self.name(message.author, message.sequence)} twice")
        else:
            expected = self.name(message.author, had.last + 1)
            self.broken(1, node, f"was given {self.name(message.author, message.sequence)} before {expected}")
        if message.sequence > len(self.sent_at.get(message.author, ())):
            name = self.name(message.author, message.sequence)
            self.broken(1, node, f"was given {name}, which nobody sent")
        if message.data != self._said[message.author][message.sequence - 1]:
            self.broken(1, node, f"was given {self.name(message.author, message.sequence)} with other words")
        late_s = self._clock.now - self.sent_at[message.author][message.sequence - 1]
        if late_s > self.late_s:
            self.late_s = late_s
        if self._trace is not None:
            self._say(node, f"gets {self.name(message.author, message.sequence)} after {message.hops} hops")

    def missed(self, node: "Node", missed: "Missed") -> None:
        self.reported_missed += missed.last - missed.first + 1
        heard = self.heard.setdefault(node, {})
        had = heard.get(missed.author)
        if had is None:
            had = heard[missed.author] = Heard(missed.first, missed.first - 1)
        if missed.first != had.last + 1:
            name = self.name(missed.author, missed.first)
            self.broken(2, node, f"was told that it missed from {name} on, but had {had.last}")
        if missed.last < missed.first:
            name = self.name(missed.author, missed.first)
            self.broken(2, node, f"was told of an empty range from {name} on")
        times = self.sent_at.get(missed.author, [])
        name = self.name(missed.author, missed.last)
        if missed.last > len(times):
            self.broken(2, node, f"was told that it missed {name}, which nobody sent")
        age_s = self._clock.now - times[missed.last - 1]
        if age_s < node.peer.settings.retention_s and self._can_be_had(missed):
            self.broken(2, node, f"was told that it missed {name}, which is only {age_s:.3f} s old")
        had.missed.append((missed.first, missed.last))
        had.last = missed.last
        self._say(node, f"is told that it missed {missed.first}..{missed.last} of {missed.author:016x}")

    def _can_be_had(self, missed: "Missed") -> bool:
        """Whether anybody who lives has a part of it, given to its application or only kept. (What died with its author
        need not be waited for.)"""
        author, wanted = missed.author, range(missed.first, missed.last + 1)
        return any(
            node.peer.me.peer == author
            or ((had := self.heard.get(node, {}).get(author)) is not None and any(map(had.has, wanted)))
            or any(node.peer.stream.retention.of(author, missed.first, missed.last))
            for node in self.connected_at
            if node.alive
        )

    def observed(self, node: "Node", event: "Event") -> None:
        if isinstance(event, LinkUp | LinkDown):
            self.links_changed_at = self._clock.now
        if isinstance(event, LinkDown) and event.why in (Why.LOST, Why.SILENT):
            self._torn_at = self._clock.now
        if isinstance(event, LinkUp):
            if len(node.peer.links) > self._degree:
                self.broken(4, node, f"has {len(node.peer.links)} links; at most {self._degree} are allowed")
        elif isinstance(event, StateChanged):
            if event.state is State.CONNECTED:
                self.connected_at.setdefault(node, self._clock.now)
            elif event.state in (State.LEAVING, State.LEFT):
                self.left_at.setdefault(node, self._clock.now)
                if event.state is State.LEFT:
                    self._clock.at(self._clock.now, node.retire)
        if self._trace is not None:
            self._say(node, _described(event))

    def gone(self, node: "Node", how: str) -> None:
        """Killed, or left."""
        self.left_at.setdefault(node, self._clock.now)
        if how == "leaves" and len(node.peer.links):  # who is alone cannot leave anything with anybody
            self._left[node.peer.me.peer] = None
        self._say(node, how)

    def left_in_peace(self, author: int) -> bool:
        """Whether it went in good order while nobody died or was cut off: all that it said must have been heard."""
        return author in self._left and self._torn_at + PEACE_S < self.sent_at[author][-1]

    # -- saying it

    def name(self, author: int, sequence: int) -> str:
        return f"{author:016x}#{sequence}"

    def broken(self, promise: int, node: "Node | None", text: str) -> None:
        who = f"{node} ({node.peer.me}) " if node is not None else ""
        raise PromiseBroken(f"promise {promise}, at {self._clock.now:.3f} s: {who}{text}")

    def _say(self, node: "Node", text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self._clock.now:12.6f} {node}: {text}")


def _described(event: "Event") -> str:
    match event:
        case LinkUp(neighbour):
            return f"link to {neighbour}"
        case LinkDown(neighbour, why):
            return f"no link to {neighbour} any more: {why.value}"
        case StateChanged(state):
            return f"is {state.value}"
        case Barred(_, text) | Note(text):
            return text
