"""What one peer was given, checked at each delivery: whole, once, in order, no gap but those it was told of.

The counterpart of `sim/watch.py`, where one record sees everyone. Here each process has only its own peers' ledgers;
what must be compared between peers is in `audit.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.sim.watch import Heard
from weft.trial import payload
from weft.trial.histogram import Histogram

if TYPE_CHECKING:
    from weft.fabric.events import Message, Missed

Broken = Callable[[int, str], None]
"""Told the number of a promise, and how it was broken."""


@dataclass(slots=True)
class Entry(Heard):
    """One author."""

    last_ns: int = 0
    """When its last message that came was sent."""


@dataclass(frozen=True, slots=True)
class Head:
    """Up to where an author's messages are owed to all who were members when they were sent."""

    last: int
    last_ns: int


def name_of(author: int, sequence: int) -> str:
    return f"{author:016x}#{sequence}"


class Ledger:
    def __init__(self, me: int, connected_ns: int, broken: Broken) -> None:
        self._me = me
        self._connected_ns = connected_ns
        self._broken = broken
        self.heard: dict[int, Entry] = {}
        self.latency = Histogram()
        self.hops_max = 0
        self.missed_count = 0
        self.twice = 0

    def delivered(self, message: "Message", now_ns: int) -> None:
        author, sequence = message.author, message.sequence
        try:
            said = payload.read(message.data)
        except payload.Altered as problem:
            self._broken(1, f"was given {name_of(author, sequence)} altered: {problem}")
            return
        if said.author != author or said.sequence != sequence:
            was = name_of(said.author, said.sequence)
            self._broken(1, f"was given as {name_of(author, sequence)} what was sent as {was}")
            return
        if author == self._me:
            self._broken(1, f"was given its own message {name_of(author, sequence)}")
            return
        entry = self.heard.get(author)
        if entry is None:
            self.heard[author] = Entry(sequence, sequence, last_ns=said.sent_ns)
            if sequence > 1 and said.previous_ns >= self._connected_ns:
                self._broken(3, f"started with {name_of(author, sequence)}, but was a member before {sequence - 1}")
        elif sequence == entry.last + 1:
            entry.last, entry.last_ns = sequence, said.sent_ns
        elif sequence <= entry.last:
            self.twice += 1
            how = "after it was told that it missed it" if entry.was_missed(sequence) else "twice"
            self._broken(1, f"was given {name_of(author, sequence)} {how}")
            return
        else:
            self._broken(1, f"was given {name_of(author, sequence)} before {entry.last + 1}")
            entry.last, entry.last_ns = sequence, said.sent_ns  # said once; what follows is judged by itself
        self.latency.add(max(0, now_ns - said.sent_ns))
        if message.hops > self.hops_max:
            self.hops_max = message.hops

    def missed(self, missed: "Missed") -> None:
        author, first, last = missed
        entry = self.heard.get(author)
        if entry is None:
            entry = self.heard[author] = Entry(first, first - 1)
        if last < first:
            self._broken(2, f"was told of an empty range from {name_of(author, first)} on")
            return
        if first != entry.last + 1:
            self._broken(2, f"was told that it missed from {name_of(author, first)} on, but had {entry.last}")
        entry.missed.append((first, last))
        entry.last = max(entry.last, last)
        self.missed_count += last - first + 1

    # -- for the audit

    def lacking(self, roll: dict[int, Head]) -> list[str]:
        """What this peer should have had by now and has not."""
        lacks = []
        for author, head in roll.items():
            if author == self._me or head.last_ns < self._connected_ns or not head.last:
                continue
            entry = self.heard.get(author)
            if entry is None:
                lacks.append(f"has nothing of {author:016x}, not even {name_of(author, head.last)}")
            elif entry.last < head.last:
                lacks.append(f"has not got {name_of(author, entry.last + 1)} (up to {head.last} there is)")
        return lacks

    def beyond(self, roll: dict[int, Head]) -> list[str]:
        """What this peer was given or told of although its author says that it never sent it."""
        return [
            f"has {name_of(author, entry.last)}, but only {roll[author].last} were ever sent"
            for author, entry in self.heard.items()
            if author in roll and entry.last > roll[author].last
        ]

    def told(self) -> list[tuple[int, int, int]]:
        """Ranges that it was told it missed: author, first, last."""
        return [(author, *each) for author, entry in self.heard.items() for each in entry.missed]

    def has_any(self, author: int, first: int, last: int) -> int | None:
        """The first message of a range that this peer was given."""
        entry = self.heard.get(author)
        if entry is None:
            return None
        return next((sequence for sequence in range(first, last + 1) if entry.has(sequence)), None)


def furthest(heads: Iterable[tuple[int, int, int]]) -> dict[int, Head]:
    """Of several reports of author, last and time: the furthest of each author."""
    found: dict[int, Head] = {}
    for author, last, last_ns in heads:
        if author not in found or last > found[author].last:
            found[author] = Head(last, last_ns)
    return found
