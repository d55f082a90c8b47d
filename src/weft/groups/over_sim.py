"""A simulated peer as a medium: the same member code as over sockets, in virtual time."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from weft.fabric.events import LinkDown, StateChanged, Why
from weft.fabric.state import State
from weft.groups.participant import Participant
from weft.sim.simulation import BEGINS_AT

if TYPE_CHECKING:
    from weft.fabric.events import Batch, Event, Missed
    from weft.groups.events import GroupEvent
    from weft.groups.history import Store
    from weft.groups.medium import Timer
    from weft.groups.names import Message
    from weft.groups.settings import Settings
    from weft.sim.node import Node
    from weft.sim.simulation import Simulation

WITHOUT_A_WORD = (Why.LOST, Why.SILENT)


class SimMember:
    """A member on a simulated peer, and what its application saw. It arrives when its peer is connected."""

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        *,
        store: "Store | None" = None,
        settings: "Settings | None" = None,
        node: "Node | None" = None,
    ) -> None:
        self._simulation = simulation
        self.node = node if node is not None else simulation.add()
        self.random = Random(self.node.random.getrandbits(64))
        self.delivered: list[Message] = []
        self.events: list[GroupEvent] = []
        self.sent_bytes = 0
        self._missed_told = False
        self.participant = Participant(self, name, store, settings)
        node = self.node
        self._observe, self._missed = node.observe, node.missed
        self._deliver = node.deliver
        node.observe = self._observed  # type: ignore[method-assign]
        node.missed = self._was_missed  # type: ignore[method-assign]
        node.deliver = self._take  # type: ignore[method-assign]
        if node.peer.state is State.CONNECTED:
            self.participant.arrive()

    # -- the medium

    @property
    def me(self) -> int:
        return self.node.peer.me.peer

    @property
    def is_busy(self) -> bool:
        return any(link.is_full for link in self.node.peer.links)

    @property
    def few(self) -> int | None:
        return self.node.peer.few

    def now(self) -> float:
        return self.node.clock.now

    def wall_s(self) -> float:
        return BEGINS_AT + self.node.clock.now

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> "Timer":
        return self.node.after(delay_s, act, *args)

    def proven_name(self, peer: int) -> str:
        return ""

    def broadcast(self, data: bytes) -> None:
        if self.node.alive and self.node.peer.state is State.CONNECTED:
            self.sent_bytes += len(data)
            self._simulation.broadcast(self.node, data)

    def deliver(self, message: "Message") -> None:
        self.delivered.append(message)

    def tell(self, event: "GroupEvent") -> None:
        self.events.append(event)

    # -- told by the peer

    def _take(self, batch: "Batch") -> None:
        self._deliver(batch)
        for message in batch:
            self.participant.on_message(message.author, message.data)

    def _was_missed(self, missed: "Missed") -> None:
        self._missed(missed)
        if not self._missed_told:
            self._missed_told = True
            self.node.after(1.0, self._tell_missed)

    def _tell_missed(self) -> None:
        self._missed_told = False
        self.participant.on_missed()

    def _observed(self, event: "Event") -> None:
        self._observe(event)
        if isinstance(event, LinkDown) and event.why in WITHOUT_A_WORD:
            self.participant.on_neighbour_lost(event.neighbour.peer)
        elif isinstance(event, StateChanged) and event.state is State.CONNECTED:
            self.participant.arrive()
