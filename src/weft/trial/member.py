"""One peer of a trial, inside its process: its channel, its ledger, and what it has said."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import weft
from weft.fabric.events import LinkDown, LinkUp, Message, Missed, StateChanged
from weft.trial import payload
from weft.trial.ledger import Ledger

if TYPE_CHECKING:
    from weft.channel import ChannelEvent
    from weft.fabric import ChannelName
    from weft.fabric.events import Batch, Event
    from weft.fabric.observer import Observer, Tape
    from weft.wire import Broadcast, PeerId


class Witness:
    """Stands where a tape would, so that it sees a peer from its first moment on; hands all on to the real tape.

    What a peer is told it missed before `connect` returns, no application can hear in its place among the messages
    that wait to be read; so that is kept here with the number of messages before it.
    """

    def __init__(self, tape: "Tape | None") -> None:
        self._tape = tape
        self._observer: Observer | None = None
        self.early: deque[tuple[int, Missed]] = deque()
        self._delivered = 0
        self.attached = False
        self.made_ns = 0
        self.events: list[tuple[int, Event]] = []
        """Until `connect` returns: what happened to links and state, and when."""

    def observer(self, channel: "ChannelName", me: "PeerId") -> "Observer":
        self.made_ns = time.monotonic_ns()
        self._observer = self._tape.observer(channel, me) if self._tape is not None else None
        return self

    def sent(self, sequence: int, data: bytes) -> None:
        if self._observer is not None:
            self._observer.sent(sequence, data)

    def received(self, message: "Broadcast", neighbour: "PeerId") -> None:
        if self._observer is not None:
            self._observer.received(message, neighbour)

    def delivered(self, batch: "Batch") -> None:
        self._delivered += len(batch)
        if self._observer is not None:
            self._observer.delivered(batch)

    def missed(self, missed: Missed) -> None:
        if not self.attached:
            self.early.append((self._delivered, missed))
        if self._observer is not None:
            self._observer.missed(missed)

    def happened(self, event: "Event") -> None:
        if not self.attached:
            self.events.append((time.monotonic_ns(), event))
        if self._observer is not None:
            self._observer.happened(event)

    def duplicates(self, count: int) -> None:
        if self._observer is not None:
            self._observer.duplicates(count)


class Member:
    """Made when `connect` has returned: from here on the channel owes it everything."""

    def __init__(
        self,
        number: int,
        channel: weft.Channel,
        witness: Witness,
        *,
        broken: Callable[[int, str], None],
        changed: Callable[["Member"], None],
    ) -> None:
        self.number = number
        self.channel = channel
        self.connected_ns = time.monotonic_ns()
        self.ledger = Ledger(channel.peer, self.connected_ns, broken)
        self._broken = broken
        self._changed = changed
        self.sent = 0
        self.sent_ns = 0
        self.changed_ns = self.connected_ns
        self._read_early(witness)
        channel.on_message(self._delivered)
        channel.on_event(self._happened)

    def _read_early(self, witness: Witness) -> None:
        """What came before `connect` returned, each in its place."""
        witness.attached = True
        count = 0
        while True:
            while witness.early and witness.early[0][0] <= count:
                self.ledger.missed(witness.early.popleft()[1])
            message = self.channel.acquire()
            if message is None:
                return
            self._delivered(message)
            count += 1

    def _delivered(self, message: Message) -> None:
        self.ledger.delivered(message, time.monotonic_ns())

    def _happened(self, event: "ChannelEvent") -> None:
        if isinstance(event, Missed):
            self.ledger.missed(event)
        elif isinstance(event, LinkUp | LinkDown | StateChanged):
            self.changed_ns = time.monotonic_ns()
            self._changed(self)

    @property
    def id(self) -> int:
        return self.channel.peer

    async def say(self, size_bytes: int) -> bool:
        """Broadcast the next message; False if the peer is not connected just now."""
        sequence, now_ns = self.sent + 1, time.monotonic_ns()
        data = payload.make(payload.Said(self.id, sequence, now_ns, self.sent_ns), size_bytes)
        try:
            numbered = await self.channel.broadcast(data)
        except weft.NotConnected:
            return False
        self.sent, self.sent_ns = sequence, now_ns
        if numbered != sequence:
            self._broken(1, f"numbered its message {numbered} where {sequence} comes next")
        return True

    def view(self) -> list[Any]:
        """Number, id, state, time of the last change, and neighbours: what `crew.py` makes a View of."""
        peer = self.channel._node.peer
        return [self.number, self.id, peer.state.value, self.changed_ns, list(peer.links.neighbours)]

    def report(self) -> dict[str, Any]:
        status = self.channel.status()
        return {
            "number": self.number,
            "peer": self.id,
            "view": self.view(),
            "sent": self.sent,
            "deliveries": self.ledger.latency.total,
            "hops_max": self.ledger.hops_max,
            "missed": self.ledger.missed_count,
            "twice": self.ledger.twice,
            "latency": self.ledger.latency.as_dict(),
            "counters": {name: count for name, count in status.counters.items() if count},
        }
