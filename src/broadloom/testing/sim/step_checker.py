"""`StepChecker`: records the history of a simulation and checks at every step what can be checked there."""

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from broadloom.protocol.events import (
    AuthorWarning,
    CardChanged,
    ChannelClosed,
    LinkDown,
    LinkDownReason,
    LinkUp,
    PeerState,
    QuotaExceeded,
    Rejected,
    Revoked,
    StateChanged,
    TraceEvent,
)
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost, Merged, Partitioned
from broadloom.testing.checks.audit import STABLE_PERIOD_S
from broadloom.testing.checks.delivery_log import AuthorLog, message_label

if TYPE_CHECKING:
    from collections.abc import Callable

    from broadloom.protocol.events import Event, Message, Missed
    from broadloom.protocol.receipts.receipts import Receipt
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.owner import SimOwner
    from broadloom.testing.sim.roster_checker import RosterChecker
    from broadloom.testing.sim.virtual_clock import VirtualClock


IN_FLIGHT_HOPS = 25
"""A message may be on the way for this many times the latency of the network: the longest path, and jitter."""


class GuaranteeViolation(AssertionError):  # noqa: N818 (events of the checks, not errors of the library)
    """A guarantee did not hold. The message names the guarantee, the peer and the virtual time."""


class StepChecker:
    def __init__(
        self, clock: "VirtualClock", degree: int, latency_s: float, trace: "Callable[[str], None] | None" = None
    ) -> None:
        self._clock = clock
        self._degree = degree
        self._trace = trace
        self.sent_at: dict[int, list[float]] = {}
        """Times of the messages of each author; sequence 1 comes first."""
        self._sent_data: dict[int, list[bytes]] = {}
        self.author_logs: dict[SimNode, dict[int, AuthorLog]] = {}
        self.connected_at: dict[SimNode, float] = {}
        self.left_at: dict[SimNode, float] = {}
        self.delivery_count = 0
        self.missed_count = 0
        self.hops_max = 0
        self.latency_max_s = 0.0
        self._network_s = IN_FLIGHT_HOPS * latency_s
        self._delays: list[tuple[float, float]] = []
        """Begin and end of the delays, without overlaps."""
        self.in_flight_s = self._network_s
        """How long a message may have been on the way: longer if processes are paused or hosts are slow."""
        self.links_changed_at = 0.0
        self._left_gracefully: dict[int, tuple[float, float]] = {}
        """For authors that left in a stable period, since when another member of the same part of the fabric was
        connected, who then has what the author sent, and when the author left."""
        self._disturbed_at = -STABLE_PERIOD_S
        """When a peer crashed, or a link was lost."""
        self.roster_checker: RosterChecker | None = None
        self.owner: SimOwner | None = None
        self.unchecked_authors: dict[int, None] = {}
        """Authors that the owner has excluded, or that exceed their quota: who gets their messages is open."""
        self.fetching: dict[SimNode, None] = {}
        """Peers that fetch state: they may get older messages, which their state contains."""
        self.eclipsed: dict[tuple[SimNode, Missed], None] = {}
        """What peers reported as missed, although it was available, while they were eclipsed."""

    # -- reported by nodes

    def on_sent(self, node: "SimNode", sequence: int, data: bytes) -> None:
        times = self.sent_at.setdefault(node.peer.me.peer_id, [])
        times.append(self._clock.now)
        self._sent_data.setdefault(node.peer.me.peer_id, []).append(data)
        if len(times) != sequence:
            self.report_violation(1, node, f"numbered its message {sequence} instead of {len(times)}")
        if self._trace is not None:
            self._write_trace(node, f"sends {sequence}")

    def on_delivered(self, node: "SimNode", message: "Message") -> None:
        if message.author in self.unchecked_authors:
            return
        self.delivery_count += 1
        self._check_due(node, message.author, message.sequence, "received")
        if message.hops > self.hops_max:
            self.hops_max = message.hops
        logs = self.author_logs.setdefault(node, {})
        log = logs.get(message.author)
        if log is None:
            logs[message.author] = AuthorLog(message.sequence, message.sequence)
        elif (problem := log.deliver(message.sequence)) is not None:
            self.report_violation(1, node, f"received {self._label(message)} {problem}")
        if message.sequence > len(self.sent_at.get(message.author, ())):
            self.report_violation(1, node, f"received {self._label(message)}, which was never sent")
        if message.data != self._sent_data[message.author][message.sequence - 1]:
            self.report_violation(1, node, f"received {self._label(message)} with different content")
        latency_s = self._clock.now - self.sent_at[message.author][message.sequence - 1]
        if latency_s > self.latency_max_s:
            self.latency_max_s = latency_s
        if self._trace is not None:
            self._write_trace(node, f"receives {self._label(message)} after {message.hops} hops")

    def on_receipt(self, node: "SimNode", receipt: "Receipt") -> None:
        """Guarantee 10: every member that a receipt names has the message. A hostile one can lie about itself."""
        author = node.peer.me.peer_id
        hostile = self._hostile_ids()
        logs = {each.peer.me.peer_id: log[author] for each, log in self.author_logs.items() if author in log}
        for peer_id in receipt.confirmed:
            if peer_id in hostile:
                continue
            log = logs.get(peer_id)
            if log is None or not log.has(receipt.sequence):
                label = message_label(author, receipt.sequence)
                self.report_violation(10, node, f"got a receipt of {peer_id:016x} for {label}, which it has not")

    def on_missed(self, node: "SimNode", missed: "Missed") -> None:
        if missed.author in self.unchecked_authors:
            return
        self.missed_count += missed.last_sequence - missed.first_sequence + 1
        self._check_due(node, missed.author, missed.last_sequence, "reported as missed")
        last = message_label(missed.author, missed.last_sequence)
        log = self.author_logs.setdefault(node, {}).setdefault(
            missed.author, AuthorLog(missed.first_sequence, missed.first_sequence - 1)
        )
        if (problem := log.miss(*missed)) is not None:
            self.report_violation(2, node, problem)
        times = self.sent_at.get(missed.author, [])
        if missed.last_sequence > len(times):
            self.report_violation(2, node, f"reported {last} as missed, which was never sent")
        age_s = self._clock.now - times[missed.last_sequence - 1]
        if age_s < node.peer.settings.retention_s and self._is_available(missed):
            if not self.is_eclipsed(node):
                text = f"reported {last} as missed, which is available and only {age_s:.3f} s old"
                self.report_violation(2, node, text)
            self.eclipsed[node, missed] = None
        self._write_trace(node, f"misses {missed.first_sequence}..{missed.last_sequence} of {missed.author:016x}")

    def _hostile_ids(self) -> dict[int, None]:
        return {each.peer.me.peer_id: None for each in self.connected_at if each.is_hostile}

    def is_eclipsed(self, node: "SimNode") -> bool:
        """Whether most neighbors of a peer, or all that it has, are hostile: together they can hide messages from it,
        and hide it from the rosters of others (docs/security.md)."""
        hostile, neighbors = self._hostile_ids(), node.peer.links.neighbors
        count = sum(each in hostile for each in neighbors)
        return 2 * count > self._degree or 0 < count == len(neighbors)

    def on_delay(self, seconds: float) -> None:
        """Frames were delayed until now, for this time, in a way that relays cannot measure. Delays that overlap may
        have held the same frame one after the other."""
        now = self._clock.now
        since = now - seconds
        while self._delays and self._delays[-1][1] >= since:
            since = min(since, self._delays.pop()[0])
        self._delays.append((since, now))
        self.in_flight_s = max(self.in_flight_s, self._network_s + now - since)

    def _check_due(self, node: "SimNode", author: int, sequence: int, what: str) -> None:
        """A newcomer gets nothing that was sent before it was connected, except what was on the way at that time."""
        times = self.sent_at.get(author, ())
        if node in self.fetching:
            return
        if sequence > len(times):
            return  # never sent: another violation
        connected_at = self.connected_at.get(node)
        label = message_label(author, sequence)
        if connected_at is None:
            self.report_violation(3, node, f"{what} {label} before it was connected")
        elif (early_s := connected_at - times[sequence - 1]) > self.in_flight_s:
            self.report_violation(3, node, f"{what} {label}, sent {early_s:.3f} s before it was connected")

    def _is_available(self, missed: "Missed") -> bool:
        """Return whether a living peer has delivered or retains a part of it."""
        author, wanted = missed.author, range(missed.first_sequence, missed.last_sequence + 1)
        return any(
            node.peer.me.peer_id == author
            or ((log := self.author_logs.get(node, {}).get(author)) is not None and any(map(log.has, wanted)))
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
            self._disturbed_at = self._clock.now
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
        if self.roster_checker is not None:
            self.roster_checker.on_event(node, event)
        if self.owner is not None:
            self.owner.on_event(node, event)

    def on_departed(self, node: "SimNode", reason: str) -> None:
        self.left_at.setdefault(node, self._clock.now)
        if reason != "leaves":
            self._disturbed_at = self._clock.now
            # The last messages of an author that has just left may be on the way to this peer alone.
            for author, (_, left_at) in list(self._left_gracefully.items()):
                if left_at > self._clock.now - self.in_flight_s:
                    del self._left_gracefully[author]
        elif (author := node.peer.me.peer_id) in self.sent_at and not node.network.is_partitioned:
            others = self._same_part(node)  # a lone peer has no other member to leave its messages with
            if others and self._disturbed_at + STABLE_PERIOD_S < self.sent_at[author][-1]:
                self._left_gracefully[author] = min(self.connected_at[each] for each in others), self._clock.now
        self._write_trace(node, reason)

    def _same_part(self, node: "SimNode") -> "list[SimNode]":
        """The other members of the component of this node."""
        nodes = {each.peer.me.peer_id: each for each in self.connected_at}
        seen, found = {node.peer.me.peer_id}, [node]
        for each in found:
            near = [nodes[peer_id] for peer_id in each.peer.links.neighbors if peer_id in nodes and peer_id not in seen]
            seen.update(other.peer.me.peer_id for other in near)
            found += near
        return found[1:]

    def first_shared_sequence(self, author: int) -> int | None:
        """The first message of an author that left gracefully in a stable period which another member had then: it must
        be delivered, and all later ones. None: it did not leave like this, or there is no such message."""
        times = self.sent_at[author]
        shared_at, _ = self._left_gracefully.get(author, (math.inf, 0.0))
        return None if shared_at > times[-1] else bisect_left(times, shared_at) + 1

    # -- reports

    def _label(self, message: "Message") -> str:
        return message_label(message.author, message.sequence)

    def report_violation(self, guarantee: int | str, node: "SimNode | None", text: str) -> None:
        """`guarantee` is the number of a guarantee of the channel, or names another one."""
        subject = f"{node} ({node.peer.me}) " if node is not None else ""
        what = f"guarantee {guarantee}" if isinstance(guarantee, int) else guarantee
        raise GuaranteeViolation(f"{what}, at {self._clock.now:.3f} s: {subject}{text}")

    def _write_trace(self, node: "SimNode", text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self._clock.now:12.6f} {node}: {text}")


def _describe_event(event: "Event") -> str:
    match event:
        case LinkUp(neighbor):
            return f"link to {neighbor}"
        case LinkDown(neighbor, reason):
            return f"no link to {neighbor} any more: {reason.value}"
        case StateChanged(state):
            return f"is {state.value}"
        case MemberJoined(member):
            return f"member {member.peer_id:016x} joined"
        case MemberLeft(member):
            return f"member {member.peer_id:016x} left"
        case MemberLost(member, cause):
            return f"member {member.peer_id:016x} lost: {cause.value}"
        case Partitioned(members):
            return f"partitioned from {len(members)} members"
        case Merged(members):
            return f"merged with {len(members)} members"
        case CardChanged(card):
            return f"card {card.number} is in force"
        case ChannelClosed(text):
            return f"the owner has closed the channel: {text}"
        case QuotaExceeded(peer_id, _, what, measured, allowed):
            return f"cut off {peer_id:016x}: {measured:g} {what} instead of {allowed:g}"
        case Revoked(serials, number):
            return f"revocation list {number} is in force, with {len(serials)} new tickets"
        case Rejected(_, text) | AuthorWarning(_, _, text) | TraceEvent(text):
            return text
