"""What one peer was given, checked at each delivery: whole, once, in order, no gap but those it was told of.

The counterpart of `sim/watch.py`, where one record sees everyone. Here each process has only its own peers' ledgers;
what must be compared between peers is in `audit.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.testing.bench.histogram import LatencyHistogram
from broadloom.testing.sim.step_checker import AuthorLog
from broadloom.testing.workloads import checked_payload

if TYPE_CHECKING:
    from broadloom.protocol.events import Message, Missed

ViolationCallback = Callable[[int, str], None]
"""Told the number of a promise, and how it was broken."""


@dataclass(slots=True)
class TimedAuthorLog(AuthorLog):
    """One author."""

    last_sent_ns: int = 0
    """When its last message that came was sent."""


@dataclass(frozen=True, slots=True)
class AuthorHead:
    """Up to where an author's messages are owed to all who were members when they were sent."""

    last_sequence: int
    last_sent_ns: int


def message_label(author: int, sequence: int) -> str:
    return f"{author:016x}#{sequence}"


class DeliveryLog:
    def __init__(self, peer_id: int, connected_ns: int, on_violation: ViolationCallback) -> None:
        self._peer_id = peer_id
        self._connected_ns = connected_ns
        self._on_violation = on_violation
        self.author_logs: dict[int, TimedAuthorLog] = {}
        self.latency = LatencyHistogram()
        self.hops_max = 0
        self.missed_count = 0
        self.delivered_twice = 0

    def on_delivered(self, message: "Message", now_ns: int) -> None:
        author, sequence = message.author, message.sequence
        try:
            content = checked_payload.decode(message.data)
        except checked_payload.PayloadCorruptedError as problem:
            self._on_violation(1, f"was given {message_label(author, sequence)} altered: {problem}")
            return
        if content.author != author or content.sequence != sequence:
            was = message_label(content.author, content.sequence)
            self._on_violation(1, f"was given as {message_label(author, sequence)} what was sent as {was}")
            return
        if author == self._peer_id:
            self._on_violation(1, f"was given its own message {message_label(author, sequence)}")
            return
        log = self.author_logs.get(author)
        if log is None:
            self.author_logs[author] = TimedAuthorLog(sequence, sequence, last_sent_ns=content.sent_ns)
            if sequence > 1 and content.previous_sent_ns >= self._connected_ns:
                self._on_violation(
                    3, f"started with {message_label(author, sequence)}, but was a member before {sequence - 1}"
                )
        elif sequence == log.last_sequence + 1:
            log.last_sequence, log.last_sent_ns = sequence, content.sent_ns
        elif sequence <= log.last_sequence:
            self.delivered_twice += 1
            how = "after it was told that it missed it" if log.was_missed(sequence) else "twice"
            self._on_violation(1, f"was given {message_label(author, sequence)} {how}")
            return
        else:
            self._on_violation(1, f"was given {message_label(author, sequence)} before {log.last_sequence + 1}")
            log.last_sequence, log.last_sent_ns = (
                sequence,
                content.sent_ns,
            )  # said once; what follows is judged by itself
        self.latency.add(max(0, now_ns - content.sent_ns))
        if message.hops > self.hops_max:
            self.hops_max = message.hops

    def on_missed(self, missed: "Missed") -> None:
        author, first, last = missed
        log = self.author_logs.get(author)
        if log is None:
            log = self.author_logs[author] = TimedAuthorLog(first, first - 1)
        if last < first:
            self._on_violation(2, f"was told of an empty range from {message_label(author, first)} on")
            return
        if first != log.last_sequence + 1:
            self._on_violation(
                2, f"was told that it missed from {message_label(author, first)} on, but had {log.last_sequence}"
            )
        log.missed.append((first, last))
        log.last_sequence = max(log.last_sequence, last)
        self.missed_count += last - first + 1

    # -- for the audit

    def find_missing(self, expected: dict[int, AuthorHead]) -> list[str]:
        """What this peer should have had by now and has not."""
        missing = []
        for author, head in expected.items():
            if author == self._peer_id or head.last_sent_ns < self._connected_ns or not head.last_sequence:
                continue
            log = self.author_logs.get(author)
            if log is None:
                missing.append(f"has nothing of {author:016x}, not even {message_label(author, head.last_sequence)}")
            elif log.last_sequence < head.last_sequence:
                missing.append(
                    f"has not got {message_label(author, log.last_sequence + 1)} (up to {head.last_sequence} there is)"
                )
        return missing

    def find_unsent(self, expected: dict[int, AuthorHead]) -> list[str]:
        """What this peer was given or told of although its author says that it never sent it."""
        return [
            f"has {message_label(author, entry.last_sequence)}, "
            f"but only {expected[author].last_sequence} were ever sent"
            for author, entry in self.author_logs.items()
            if author in expected and entry.last_sequence > expected[author].last_sequence
        ]

    def missed_ranges(self) -> list[tuple[int, int, int]]:
        """Ranges that it was told it missed: author, first, last."""
        return [(author, *each) for author, entry in self.author_logs.items() for each in entry.missed]

    def first_held(self, author: int, first: int, last: int) -> int | None:
        """The first message of a range that this peer was given."""
        log = self.author_logs.get(author)
        if log is None:
            return None
        return next((sequence for sequence in range(first, last + 1) if log.has(sequence)), None)


def latest_heads(heads: Iterable[tuple[int, int, int]]) -> dict[int, AuthorHead]:
    """Of several reports of author, last and time: the furthest of each author."""
    latest: dict[int, AuthorHead] = {}
    for author, last, last_ns in heads:
        if author not in latest or last > latest[author].last_sequence:
            latest[author] = AuthorHead(last, last_ns)
    return latest
