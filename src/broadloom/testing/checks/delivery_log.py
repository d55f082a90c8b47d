"""What one peer was given, checked at each delivery: once, in order, without a gap that was not reported as missed.

Each process logs only its own peers. `audit.py` compares the logs of different peers; the simulator's counterpart,
which sees all peers at once, is `sim/step_checker.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broadloom.testing.histogram import LatencyHistogram
from broadloom.testing.sim.step_checker import AuthorLog
from broadloom.testing.workloads import checked_payload
from broadloom.testing.workloads.checked_payload import CheckedPayload

if TYPE_CHECKING:
    from broadloom.protocol.events import Message, Missed

ViolationCallback = Callable[[int, str], None]
"""Called with the number of the violated guarantee and a description."""


@dataclass(slots=True)
class TimedAuthorLog(AuthorLog):
    last_sent_ns: int = 0
    """When the last delivered message was sent; if payloads are not checked, when it was delivered."""


class AuthorHead(NamedTuple):
    """The last message of an author that is due to all peers that were members when it was sent."""

    last_sequence: int
    last_sent_ns: int


def message_label(author: int, sequence: int) -> str:
    return f"{author:016x}#{sequence}"


class DeliveryLog:
    """The deliveries to one peer. Call `on_delivered` and `on_missed` in the order in which the application sees them.

    Times are `time.monotonic_ns()`. `connected_ns` is when `connect` returned: from then on all messages are due.
    With `checks_payloads`, messages have to be `CheckedPayload`s; their content and latency are checked too.
    """

    def __init__(
        self, peer_id: int, connected_ns: int, on_violation: ViolationCallback, *, checks_payloads: bool = False
    ) -> None:
        self._peer_id = peer_id
        self._connected_ns = connected_ns
        self._on_violation = on_violation
        self._checks_payloads = checks_payloads
        self.author_logs: dict[int, TimedAuthorLog] = {}
        self.latency = LatencyHistogram()
        self.hops_max = 0
        self.missed_count = 0
        self.delivered_twice = 0

    def on_delivered(self, message: "Message", now_ns: int) -> None:
        author, sequence = message.author, message.sequence
        label = message_label(author, sequence)
        content: CheckedPayload | None = CheckedPayload(author, sequence, now_ns, 0)
        if self._checks_payloads:
            content = self._checked_payload(message, label)
        if content is None:
            return
        if author == self._peer_id:
            self._on_violation(1, f"received its own message {label}")
            return
        log = self.author_logs.get(author)
        if log is None:
            self.author_logs[author] = TimedAuthorLog(sequence, sequence, last_sent_ns=content.sent_ns)
            if sequence > 1 and content.previous_sent_ns >= self._connected_ns:
                self._on_violation(3, f"started with {label}, but was a member before {sequence - 1} was sent")
        elif sequence <= log.last_sequence:
            self.delivered_twice += 1
            how = "after it was reported as missed" if log.was_missed(sequence) else "twice"
            self._on_violation(1, f"received {label} {how}")
            return
        else:
            if sequence > log.last_sequence + 1:
                self._on_violation(1, f"received {label} before {log.last_sequence + 1}")
            # Continuing from here reports each gap once.
            log.last_sequence, log.last_sent_ns = sequence, content.sent_ns
        if self._checks_payloads:
            self.latency.add(max(0, now_ns - content.sent_ns))
        if message.hops > self.hops_max:
            self.hops_max = message.hops

    def _checked_payload(self, message: "Message", label: str) -> CheckedPayload | None:
        try:
            content = checked_payload.decode(message.data)
        except checked_payload.PayloadCorruptedError as error:
            self._on_violation(1, f"received {label} corrupted: {error}")
            return None
        if (content.author, content.sequence) != (message.author, message.sequence):
            sent_as = message_label(content.author, content.sequence)
            self._on_violation(1, f"received as {label} what was sent as {sent_as}")
            return None
        return content

    def on_missed(self, missed: "Missed") -> None:
        author, first, last = missed
        log = self.author_logs.get(author)
        if log is None:
            log = self.author_logs[author] = TimedAuthorLog(first, first - 1)
        if last < first:
            self._on_violation(2, f"got a Missed event with an empty range from {message_label(author, first)}")
            return
        if first != log.last_sequence + 1:
            self._on_violation(
                2, f"got a Missed event from {message_label(author, first)} on, but had {log.last_sequence}"
            )
        log.missed.append((first, last))
        log.last_sequence = max(log.last_sequence, last)
        self.missed_count += last - first + 1

    # -- for the audit

    def find_missing(self, expected: Mapping[int, AuthorHead]) -> list[str]:
        """Describe what is due to this peer and was neither delivered nor reported as missed."""
        missing = []
        for author, head in expected.items():
            if author == self._peer_id or head.last_sent_ns < self._connected_ns or not head.last_sequence:
                continue
            log = self.author_logs.get(author)
            if log is None:
                missing.append(f"has nothing from {author:016x}, not even {message_label(author, head.last_sequence)}")
            elif log.last_sequence < head.last_sequence:
                first = message_label(author, log.last_sequence + 1)
                missing.append(f"is missing {first} (of {head.last_sequence} sent)")
        return missing

    def find_unsent(self, expected: Mapping[int, AuthorHead]) -> list[str]:
        """Describe what was delivered or reported as missed although its author never sent it."""
        return [
            f"has {message_label(author, log.last_sequence)}, but only {expected[author].last_sequence} were sent"
            for author, log in self.author_logs.items()
            if author in expected and log.last_sequence > expected[author].last_sequence
        ]

    def missed_ranges(self) -> list[tuple[int, int, int]]:
        """Ranges reported as missed: author, first and last sequence."""
        return [(author, *missed) for author, log in self.author_logs.items() for missed in log.missed]

    def first_held(self, author: int, first: int, last: int) -> int | None:
        """Return the first sequence of a range that was delivered to this peer."""
        log = self.author_logs.get(author)
        if log is None:
            return None
        return next((sequence for sequence in range(first, last + 1) if log.has(sequence)), None)
