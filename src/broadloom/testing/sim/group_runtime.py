"""A simulated peer as a medium: the same member code as over sockets, in virtual time."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from broadloom.groups.participant import Participant
from broadloom.protocol.events import LinkDown, LinkDownReason, PeerState, StateChanged
from broadloom.testing.sim.simulation import START_TIME_S

if TYPE_CHECKING:
    from broadloom.groups.model import GroupEvent, GroupMessage
    from broadloom.groups.settings import GroupSettings
    from broadloom.groups.store import Store
    from broadloom.protocol.events import Batch, Event, Missed
    from broadloom.protocol.runtime import Timer
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation

UNGRACEFUL_REASONS = (LinkDownReason.CONNECTION_LOST, LinkDownReason.HEARTBEAT_TIMEOUT)


class SimGroupRuntime:
    """A member on a simulated peer, and what its application saw. It arrives when its peer is connected."""

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        *,
        store: "Store | None" = None,
        settings: "GroupSettings | None" = None,
        node: "SimNode | None" = None,
    ) -> None:
        self._simulation = simulation
        self.node = node if node is not None else simulation.add()
        self.random = Random(self.node.random.getrandbits(64))
        self.delivered: list[GroupMessage] = []
        self.events: list[GroupEvent] = []
        self.sent_bytes = 0
        self._missed_reported = False
        self.participant = Participant(self, name, store, settings)
        node = self.node
        self._node_emit, self._node_report_missed = node.emit, node.report_missed
        self._node_deliver = node.deliver
        node.emit = self._on_event  # type: ignore[method-assign]
        node.report_missed = self._on_missed  # type: ignore[method-assign]
        node.deliver = self._on_batch  # type: ignore[method-assign]
        if node.peer.state is PeerState.CONNECTED:
            self.participant.announce()

    # -- the medium

    @property
    def peer_id(self) -> int:
        return self.node.peer.me.peer_id

    @property
    def is_congested(self) -> bool:
        return any(link.is_congested for link in self.node.peer.links)

    @property
    def known_peer_count(self) -> int | None:
        return self.node.peer.full_mesh_size

    def now(self) -> float:
        return self.node.clock.now

    def wall_time_s(self) -> float:
        return START_TIME_S + self.node.clock.now

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer":
        return self.node.call_later(delay_s, callback, *args)

    def verified_name(self, peer_id: int) -> str:
        return ""

    def broadcast(self, data: bytes) -> None:
        if self.node.is_alive and self.node.peer.state is PeerState.CONNECTED:
            self.sent_bytes += len(data)
            self._simulation.broadcast(self.node, data)

    def deliver(self, message: "GroupMessage") -> None:
        self.delivered.append(message)

    def emit(self, event: "GroupEvent") -> None:
        self.events.append(event)

    # -- told by the peer

    def _on_batch(self, batch: "Batch") -> None:
        self._node_deliver(batch)
        for message in batch:
            self.participant.on_message(message.author, message.data)

    def _on_missed(self, missed: "Missed") -> None:
        self._node_report_missed(missed)
        if not self._missed_reported:
            self._missed_reported = True
            self.node.call_later(1.0, self._report_missed)

    def _report_missed(self) -> None:
        self._missed_reported = False
        self.participant.on_missed()

    def _on_event(self, event: "Event") -> None:
        self._node_emit(event)
        if isinstance(event, LinkDown) and event.reason in UNGRACEFUL_REASONS:
            self.participant.on_neighbor_lost(event.neighbor.peer_id)
        elif isinstance(event, StateChanged) and event.state is PeerState.CONNECTED:
            self.participant.announce()
