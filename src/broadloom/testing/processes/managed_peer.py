"""One peer inside a worker: its channel and its delivery log.

It reads the channel before the application (the groups) does, so the checks cover what an application really gets.
"""

import time
from typing import TYPE_CHECKING, Any

from broadloom.protocol.events import Batch, LinkDown, LinkUp, Missed, StateChanged
from broadloom.testing.checks.delivery_log import DeliveryLog
from broadloom.testing.checks.guarantees import PeerView

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.testing.processes.peer_observer import PeerObserver
    from broadloom.testing.processes.worker import Worker


class ManagedPeer:
    """Created as soon as `connect` has returned: from then on every message is due to it.

    `attach` starts reading the channel.
    """

    checks_payloads = False
    """Whether messages are `CheckedPayload`s."""
    logs_layers = False
    """Whether messages of layers are logged too, which the channel hands to those layers only."""

    def __init__(self, worker: "Worker[Any]", number: int, channel: "Channel", observer: "PeerObserver | None") -> None:
        self.worker = worker
        self.number = number
        self.channel = channel
        self.observer = observer
        self.connected_ns = self.changed_ns = time.monotonic_ns()
        self.delivery_log = DeliveryLog(
            channel.peer_id, self.connected_ns, self.report_violation, checks_payloads=self.checks_payloads
        )
        self.sent_count = 0
        self.last_sent_ns = 0

    def attach(self) -> None:
        self._take_early()
        self.channel.on_event(self._on_event)
        if self.logs_layers and self.observer is not None:
            self.observer.on_delivered = self._on_batch
            self.channel.on_batch(lambda _batch: None)
        else:
            self.channel.on_batch(self._on_batch)

    def _take_early(self) -> None:
        """Take what arrived before `connect` returned, with `Missed` events in their places among the messages."""
        unread = list(iter(self.channel.receive_nowait, None))
        if self.observer is None:
            early: list[Batch | Missed] = [Batch.from_message(message) for message in unread]
        else:
            self.observer.is_attached = True
            early, self.observer.early = self.observer.early, []
        for each in early:
            self._on_missed(each) if isinstance(each, Missed) else self._on_batch(each)

    def _on_batch(self, batch: Batch) -> None:
        now_ns = time.monotonic_ns()
        for message in batch:
            self.delivery_log.on_delivered(message, now_ns)

    def _on_event(self, event: "ChannelEvent") -> None:
        if isinstance(event, Missed):
            self._on_missed(event)
        elif isinstance(event, LinkUp | LinkDown | StateChanged):
            self.changed_ns = time.monotonic_ns()
            self.worker.on_change(self)

    def _on_missed(self, missed: Missed) -> None:
        self.delivery_log.on_missed(missed)

    def report_violation(self, guarantee: int, text: str) -> None:
        self.worker.report_violation(guarantee, f"peer {self.number} ({self.peer_id:016x}) {text}")

    @property
    def peer_id(self) -> int:
        return self.channel.peer_id

    @property
    def port(self) -> int:
        return self.channel._node.peer.me.address.port

    def view(self) -> PeerView:
        peer = self.channel._node.peer
        is_full_mesh = peer.join_protocol.is_full_mesh
        return PeerView(
            self.number,
            self.peer_id,
            peer.state.value,
            self.changed_ns,
            tuple(peer.links.neighbors),
            0 if is_full_mesh else peer.links.free_slots,
            peer.diameter.estimate,
            is_full_mesh,
        )

    async def leave(self) -> None:
        await self.channel.leave()
