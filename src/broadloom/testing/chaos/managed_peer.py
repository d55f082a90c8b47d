"""One peer of a trial, inside its process: its channel, its ledger, and what it has said."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import broadloom
from broadloom.protocol.events import LinkDown, LinkUp, Message, Missed, StateChanged
from broadloom.testing.checks.delivery_log import DeliveryLog
from broadloom.testing.workloads import checked_payload

if TYPE_CHECKING:
    from broadloom.channel import ChannelEvent
    from broadloom.protocol import ChannelName
    from broadloom.protocol.events import Batch, Event
    from broadloom.protocol.runtime import Observer, ObserverFactory
    from broadloom.wire import Broadcast, PeerId


class PeerObserver:
    """Stands where a tape would, so that it sees a peer from its first moment on; hands all on to the real tape.

    What a peer is told it missed before `connect` returns, no application can hear in its place among the messages
    that wait to be read; so that is kept here with the number of messages before it.
    """

    def __init__(self, tape: "ObserverFactory | None") -> None:
        self._tape = tape
        self._observer: Observer | None = None
        self.early_missed: deque[tuple[int, Missed]] = deque()
        self._delivered_count = 0
        self.is_attached = False
        self.created_ns = 0
        self.events: list[tuple[int, Event]] = []
        """Until `connect` returns: what happened to links and state, and when."""

    def observer(self, channel: "ChannelName", me: "PeerId") -> "Observer":
        self.created_ns = time.monotonic_ns()
        self._observer = self._tape.observer(channel, me) if self._tape is not None else None
        return self

    def sent(self, sequence: int, data: bytes) -> None:
        if self._observer is not None:
            self._observer.sent(sequence, data)

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        if self._observer is not None:
            self._observer.received(message, neighbor)

    def delivered(self, batch: "Batch") -> None:
        self._delivered_count += len(batch)
        if self._observer is not None:
            self._observer.delivered(batch)

    def missed(self, missed: Missed) -> None:
        if not self.is_attached:
            self.early_missed.append((self._delivered_count, missed))
        if self._observer is not None:
            self._observer.missed(missed)

    def on_event(self, event: "Event") -> None:
        if not self.is_attached:
            self.events.append((time.monotonic_ns(), event))
        if self._observer is not None:
            self._observer.on_event(event)

    def duplicates(self, count: int) -> None:
        if self._observer is not None:
            self._observer.duplicates(count)


class ManagedPeer:
    """Made when `connect` has returned: from here on the channel owes it everything."""

    def __init__(
        self,
        number: int,
        channel: broadloom.Channel,
        observer: PeerObserver,
        *,
        on_violation: Callable[[int, str], None],
        on_change: Callable[["ManagedPeer"], None],
    ) -> None:
        self.number = number
        self.channel = channel
        self.connected_ns = time.monotonic_ns()
        self.delivery_log = DeliveryLog(channel.peer_id, self.connected_ns, on_violation)
        self._on_violation = on_violation
        self._on_change = on_change
        self.sent_count = 0
        self.last_sent_ns = 0
        self.changed_ns = self.connected_ns
        self._drain_early(observer)
        channel.on_message(self._on_message)
        channel.on_event(self._on_event)

    def _drain_early(self, observer: PeerObserver) -> None:
        """What came before `connect` returned, each in its place."""
        observer.is_attached = True
        count = 0
        while True:
            while observer.early_missed and observer.early_missed[0][0] <= count:
                self.delivery_log.on_missed(observer.early_missed.popleft()[1])
            message = self.channel.receive_nowait()
            if message is None:
                return
            self._on_message(message)
            count += 1

    def _on_message(self, message: Message) -> None:
        self.delivery_log.on_delivered(message, time.monotonic_ns())

    def _on_event(self, event: "ChannelEvent") -> None:
        if isinstance(event, Missed):
            self.delivery_log.on_missed(event)
        elif isinstance(event, LinkUp | LinkDown | StateChanged):
            self.changed_ns = time.monotonic_ns()
            self._on_change(self)

    @property
    def peer_id(self) -> int:
        return self.channel.peer_id

    async def send(self, size_bytes: int) -> bool:
        """Broadcast the next message; False if the peer is not connected just now."""
        sequence, now_ns = self.sent_count + 1, time.monotonic_ns()
        data = checked_payload.encode(
            checked_payload.CheckedPayload(self.peer_id, sequence, now_ns, self.last_sent_ns), size_bytes
        )
        try:
            assigned = await self.channel.broadcast(data)
        except broadloom.NotConnectedError:
            return False
        self.sent_count, self.last_sent_ns = sequence, now_ns
        if assigned != sequence:
            self._on_violation(1, f"numbered its message {assigned} where {sequence} comes next")
        return True

    def view(self) -> list[Any]:
        """Number, id, state, time of the last change, and neighbours: what `crew.py` makes a View of."""
        peer = self.channel._node.peer
        return [self.number, self.peer_id, peer.state.value, self.changed_ns, list(peer.links.neighbors)]

    def report(self) -> dict[str, Any]:
        status = self.channel.status()
        return {
            "number": self.number,
            "peer": self.peer_id,
            "view": self.view(),
            "sent": self.sent_count,
            "deliveries": self.delivery_log.latency.total,
            "hops_max": self.delivery_log.hops_max,
            "missed": self.delivery_log.missed_count,
            "twice": self.delivery_log.delivered_twice,
            "latency": self.delivery_log.latency.as_dict(),
            "counters": {name: count for name, count in status.counters.items() if count},
        }
