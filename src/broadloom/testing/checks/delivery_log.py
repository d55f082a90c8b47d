"""What one peer was given, checked at each delivery: once, in order, without a gap that was not reported as missed.

`AuthorLog` has these checks; the simulator (`sim/step_checker.py`) and real runs (`DeliveryLog`) share it. A process
logs only its own peers; `audit.py` compares the logs of different peers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from broadloom.testing.histogram import LatencyHistogram
from broadloom.testing.workloads import checked_payload
from broadloom.testing.workloads.checked_payload import CheckedPayload

if TYPE_CHECKING:
    from broadloom.protocol.events import Message, Missed

ViolationCallback = Callable[[int, str], None]
"""Called with the number of the violated guarantee and a description."""


class AuthorHead(NamedTuple):
    """The last message of an author that is due to all peers that were members when it was sent."""

    last_sequence: int
    last_sent_ns: int


def message_label(author: int, sequence: int) -> str:
    return f"{author:016x}#{sequence}"


@dataclass(slots=True)
class AuthorLog:
    """What one peer received from one author: everything from first to last, except the ranges reported as missed.

    `deliver` and `miss` return what is wrong, or None. After an error the log continues with what was received, so
    that each error is reported once.
    """

    first_sequence: int
    last_sequence: int
    missed: list[tuple[int, int]] = field(default_factory=list)
    last_sent_ns: int = 0
    """For `DeliveryLog`: when the last message was sent; if payloads are not checked, when it was delivered."""

    def has(self, sequence: int) -> bool:
        return self.first_sequence <= sequence <= self.last_sequence and not self.was_missed(sequence)

    def was_missed(self, sequence: int) -> bool:
        return any(low <= sequence <= high for low, high in self.missed)

    def deliver(self, sequence: int) -> str | None:
        expected = self.last_sequence + 1
        if sequence < expected:
            return "after it was reported as missed" if self.was_missed(sequence) else "twice"
        self.last_sequence = sequence
        return None if sequence == expected else f"before {expected}"

    def miss(self, author: int, first: int, last: int) -> str | None:
        label, received = message_label(author, first), self.last_sequence
        if last >= first:
            self.missed.append((first, last))
            self.last_sequence = max(received, last)
        if first != received + 1:
            return f"reported a gap from {label} on, but had received up to {received}"
        return f"reported an empty gap at {label}" if last < first else None


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
        self.author_logs: dict[int, AuthorLog] = {}
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
            log = self.author_logs[author] = AuthorLog(sequence, sequence)
            if sequence > 1 and content.previous_sent_ns >= self._connected_ns:
                self._on_violation(3, f"started with {label}, but was a member before {sequence - 1} was sent")
        else:
            is_new = sequence > log.last_sequence
            if (problem := log.deliver(sequence)) is not None:
                self._on_violation(1, f"received {label} {problem}")
            if not is_new:
                self.delivered_twice += 1
                return
        log.last_sent_ns = content.sent_ns
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
        log = self.author_logs.setdefault(author, AuthorLog(first, first - 1))
        if (problem := log.miss(author, first, last)) is not None:
            self._on_violation(2, problem)
        self.missed_count += max(0, last - first + 1)

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
