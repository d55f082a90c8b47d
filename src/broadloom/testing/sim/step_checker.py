"""What everyone saw: the record that the promises are checked against."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broadloom.protocol.events import LinkDown, LinkDownReason, LinkUp, PeerState, Rejected, StateChanged, TraceEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from broadloom.protocol.events import Event, Message, Missed
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.virtual_clock import VirtualClock

STABLE_PERIOD_S = 10.0
"""No link was lost without a word for so long: nobody is dead or cut off, unless somebody has just noticed it."""


@dataclass(slots=True)
class AuthorLog:
    """What one peer was given of one author: from `first` to `last` without a break, but for what it was told."""

    first_sequence: int
    last_sequence: int
    missed: list[tuple[int, int]] = field(default_factory=list)

    def has(self, sequence: int) -> bool:
        return self.first_sequence <= sequence <= self.last_sequence and not self.was_missed(sequence)

    def was_missed(self, sequence: int) -> bool:
        return any(low <= sequence <= high for low, high in self.missed)


class GuaranteeViolation(AssertionError):  # noqa: N818 (the word of the guarantees, and an assertion)
    """One of the promises of the design did not hold; says which, who and when."""


class StepChecker:
    """Notes what happens and checks, at every step, what can be checked at every step."""

    def __init__(self, clock: "VirtualClock", degree: int, trace: "Callable[[str], None] | None" = None) -> None:
        self._clock = clock
        self._degree = degree
        self._trace = trace
        self.sent_at: dict[int, list[float]] = {}
        """Author -> times of its messages; the n-th has sequence n+1."""
        self._sent_data: dict[int, list[bytes]] = {}
        self.author_logs: dict[SimNode, dict[int, AuthorLog]] = {}
        self.connected_at: dict[SimNode, float] = {}
        self.left_at: dict[SimNode, float] = {}
        self.delivery_count = 0
        self.missed_count = 0
        self.hops_max = 0
        self.latency_max_s = 0.0
        """The longest that a message took to a peer."""
        self.links_changed_at = 0.0
        self._left_gracefully: dict[int, None] = {}
        self._link_lost_at = -STABLE_PERIOD_S

    # -- told by nodes

    def on_sent(self, node: "SimNode", sequence: int, data: bytes) -> None:
        times = self.sent_at.setdefault(node.peer.me.peer_id, [])
        times.append(self._clock.now)
        self._sent_data.setdefault(node.peer.me.peer_id, []).append(data)
        if len(times) != sequence:
            self.report_violation(1, node, f"numbered its message {sequence} where {len(times)} comes next")
        if self._trace is not None:
            self._write_trace(node, f"sends {sequence}")

    def on_delivered(self, node: "SimNode", message: "Message") -> None:
        self.delivery_count += 1
        if message.hops > self.hops_max:
            self.hops_max = message.hops
        logs = self.author_logs.setdefault(node, {})
        log = logs.get(message.author)
        if log is None:
            logs[message.author] = AuthorLog(message.sequence, message.sequence)
        elif message.sequence == log.last_sequence + 1:
            log.last_sequence = message.sequence
        elif message.sequence <= log.last_sequence and not log.was_missed(message.sequence):
            self.report_violation(
                1, node, f"was given message {self.message_label(message.author, message.sequence)} twice"
            )
        else:
            expected = self.message_label(message.author, log.last_sequence + 1)
            self.report_violation(
                1, node, f"was given {self.message_label(message.author, message.sequence)} before {expected}"
            )
        if message.sequence > len(self.sent_at.get(message.author, ())):
            name = self.message_label(message.author, message.sequence)
            self.report_violation(1, node, f"was given {name}, which nobody sent")
        if message.data != self._sent_data[message.author][message.sequence - 1]:
            self.report_violation(
                1, node, f"was given {self.message_label(message.author, message.sequence)} with other words"
            )
        latency_s = self._clock.now - self.sent_at[message.author][message.sequence - 1]
        if latency_s > self.latency_max_s:
            self.latency_max_s = latency_s
        if self._trace is not None:
            self._write_trace(
                node, f"gets {self.message_label(message.author, message.sequence)} after {message.hops} hops"
            )

    def on_missed(self, node: "SimNode", missed: "Missed") -> None:
        self.missed_count += missed.last_sequence - missed.first_sequence + 1
        logs = self.author_logs.setdefault(node, {})
        log = logs.get(missed.author)
        if log is None:
            log = logs[missed.author] = AuthorLog(missed.first_sequence, missed.first_sequence - 1)
        if missed.first_sequence != log.last_sequence + 1:
            name = self.message_label(missed.author, missed.first_sequence)
            self.report_violation(2, node, f"was told that it missed from {name} on, but had {log.last_sequence}")
        if missed.last_sequence < missed.first_sequence:
            name = self.message_label(missed.author, missed.first_sequence)
            self.report_violation(2, node, f"was told of an empty range from {name} on")
        times = self.sent_at.get(missed.author, [])
        name = self.message_label(missed.author, missed.last_sequence)
        if missed.last_sequence > len(times):
            self.report_violation(2, node, f"was told that it missed {name}, which nobody sent")
        age_s = self._clock.now - times[missed.last_sequence - 1]
        if age_s < node.peer.settings.retention_s and self._is_available(missed):
            self.report_violation(2, node, f"was told that it missed {name}, which is only {age_s:.3f} s old")
        log.missed.append((missed.first_sequence, missed.last_sequence))
        log.last_sequence = missed.last_sequence
        self._write_trace(
            node, f"is told that it missed {missed.first_sequence}..{missed.last_sequence} of {missed.author:016x}"
        )

    def _is_available(self, missed: "Missed") -> bool:
        """Whether anybody who lives has a part of it, given to its application or only kept. (What died with its author
        need not be waited for.)"""
        author, wanted = missed.author, range(missed.first_sequence, missed.last_sequence + 1)
        return any(
            node.peer.me.peer_id == author
            or ((had := self.author_logs.get(node, {}).get(author)) is not None and any(map(had.has, wanted)))
            or any(node.peer.broadcaster.retention.in_range(author, missed.first_sequence, missed.last_sequence))
            for node in self.connected_at
            if node.is_alive
        )

    def on_event(self, node: "SimNode", event: "Event") -> None:
        if isinstance(event, LinkUp | LinkDown):
            self.links_changed_at = self._clock.now
        if isinstance(event, LinkDown) and event.reason in (
            LinkDownReason.CONNECTION_LOST,
            LinkDownReason.HEARTBEAT_TIMEOUT,
        ):
            self._link_lost_at = self._clock.now
        if isinstance(event, LinkUp):
            if len(node.peer.links) > self._degree:
                self.report_violation(4, node, f"has {len(node.peer.links)} links; at most {self._degree} are allowed")
        elif isinstance(event, StateChanged):
            if event.state is PeerState.CONNECTED:
                self.connected_at.setdefault(node, self._clock.now)
            elif event.state in (PeerState.LEAVING, PeerState.LEFT):
                self.left_at.setdefault(node, self._clock.now)
                if event.state is PeerState.LEFT:
                    self._clock.call_at(self._clock.now, node.stop)
        if self._trace is not None:
            self._write_trace(node, _describe_event(event))

    def on_departed(self, node: "SimNode", reason: str) -> None:
        """Killed, or left."""
        self.left_at.setdefault(node, self._clock.now)
        if reason == "leaves" and len(node.peer.links):  # who is alone cannot leave anything with anybody
            self._left_gracefully[node.peer.me.peer_id] = None
        self._write_trace(node, reason)

    def left_cleanly(self, author: int) -> bool:
        """Whether it went in good order while nobody died or was cut off: all that it said must have been heard."""
        return author in self._left_gracefully and self._link_lost_at + STABLE_PERIOD_S < self.sent_at[author][-1]

    # -- saying it

    def message_label(self, author: int, sequence: int) -> str:
        return f"{author:016x}#{sequence}"

    def report_violation(self, guarantee: int, node: "SimNode | None", text: str) -> None:
        subject = f"{node} ({node.peer.me}) " if node is not None else ""
        raise GuaranteeViolation(f"promise {guarantee}, at {self._clock.now:.3f} s: {subject}{text}")

    def _write_trace(self, node: "SimNode", text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self._clock.now:12.6f} {node}: {text}")


def _describe_event(event: "Event") -> str:
    match event:
        case LinkUp(neighbour):
            return f"link to {neighbour}"
        case LinkDown(neighbour, why):
            return f"no link to {neighbour} any more: {why.value}"
        case StateChanged(state):
            return f"is {state.value}"
        case Rejected(_, text) | TraceEvent(text):
            return text
