"""`SimGroupRuntime`: groups on a simulated peer, with the same participant code as over sockets."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from broadloom.groups.participant import Participant
from broadloom.groups.runtime import SUSPECT_REASONS
from broadloom.protocol.events import LinkDown, PeerState, StateChanged
from broadloom.testing.sim.node import START_TIME_S

if TYPE_CHECKING:
    from broadloom.groups.model import GroupEvent, GroupMessage
    from broadloom.groups.proofs import PostSigner
    from broadloom.groups.settings import GroupSettings
    from broadloom.groups.store import Store
    from broadloom.protocol.events import Event, Missed
    from broadloom.protocol.runtime import Timer
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.simulation import Simulation


class SimGroupRuntime:
    """A participant on a simulated peer, and what its application received. Announces itself once the peer connects."""

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        *,
        store: "Store | None" = None,
        settings: "GroupSettings | None" = None,
        node: "SimNode | None" = None,
        post_signer: "PostSigner | None" = None,
    ) -> None:
        self.post_signer = post_signer
        """Makes it a channel with tickets."""
        self.node = node if node is not None else simulation.add_peer()
        self.random = Random(self.node.random.getrandbits(64))
        self.delivered: list[GroupMessage] = []
        self.events: list[GroupEvent] = []
        self.sent_bytes = 0
        self._missed_reported = False
        self.participant = Participant(self, name, store, settings)
        self.node.on_event, self.node.on_missed = self._on_event, self._on_missed
        self.node.on_message = lambda message: self.participant.on_message(message.author, message.data)
        if self.node.is_connected:
            self.participant.announce()

    # -- GroupRuntime

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
        if self.node.is_connected:
            self.sent_bytes += len(data)
            self.node.broadcast(data)

    def deliver(self, message: "GroupMessage") -> None:
        self.delivered.append(message)

    def emit(self, event: "GroupEvent") -> None:
        self.events.append(event)

    # -- the peer

    def _on_missed(self, _missed: "Missed") -> None:
        if not self._missed_reported:
            self._missed_reported = True
            self.node.call_later(1.0, self._report_missed)

    def _report_missed(self) -> None:
        self._missed_reported = False
        self.participant.on_missed()

    def _on_event(self, event: "Event") -> None:
        if isinstance(event, LinkDown) and event.reason in SUSPECT_REASONS:
            self.participant.on_neighbor_lost(event.neighbor.peer_id)
        elif isinstance(event, StateChanged) and event.state is PeerState.CONNECTED:
            self.participant.announce()
