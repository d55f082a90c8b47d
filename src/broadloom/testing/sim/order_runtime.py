"""Ordered conversations on a bare peer, without a channel: `PeerOrderRuntime` for any runtime of a peer,
`SimOrderRuntime` for simulated ones. The replica is the same as in programs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broadloom.order.codec import LAYER, decode
from broadloom.order.model import Rewound
from broadloom.order.replica import Replica
from broadloom.order.runtime import GiveUp
from broadloom.protocol.events import PeerState
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, RequestState
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost
from broadloom.wire.direct_messages import RequestStatus
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_kind

if TYPE_CHECKING:
    from broadloom.order.model import Entry, OrderEvent, Placed
    from broadloom.order.settings import OrderSettings
    from broadloom.order.store import OrderStore
    from broadloom.protocol import Peer
    from broadloom.protocol.events import Event, Message, Missed
    from broadloom.protocol.requests.incoming import IncomingRequest
    from broadloom.protocol.runtime import Timer
    from broadloom.testing.sim.node import SimNode

ORDER_KIND = layer_kind(LAYER)
CONVERSATION = 7
CONCURRENCY = 64
TELL_TIMEOUT_S = 5.0


class PeerOrderRuntime:
    """A replica on a peer, and what its application got. Its owner calls `on_message`, `on_event` and `on_missed`."""

    def __init__(
        self,
        peer: "Peer",
        names: dict[int, str],
        *,
        conversation: int = CONVERSATION,
        voters: tuple[str, ...] = (),
        store: "OrderStore | None" = None,
        settings: "OrderSettings | None" = None,
        from_index: int | None = None,
    ) -> None:
        self.peer = peer
        self._names = names
        """Names of members by peer id."""
        self.delivered: list[Entry] = []
        """As the application sees it: revoked entries are removed."""
        self.events: list[OrderEvent] = []
        self.placed: dict[int, Placed] = {}
        self.on_entry: Callable[[Entry], None] = self.delivered.append
        self.on_order_event: Callable[[OrderEvent], None] = self._keep_event
        peer.roster.set_layers((ORDER_KIND,))
        peer.requests.handlers.set(ORDER_KIND >> LAYER_SHIFT, self._on_request, CONCURRENCY)
        self.replica = Replica(self, conversation, voters=voters, store=store, settings=settings, from_index=from_index)

    def _keep_event(self, event: "OrderEvent") -> None:
        self.events.append(event)
        if isinstance(event, Rewound):
            self.delivered = [entry for entry in self.delivered if entry.index <= event.to_index]
            self.on_entry = self.delivered.append

    # -- OrderRuntime

    @property
    def peer_id(self) -> int:
        return self.peer.me.peer_id

    @property
    def is_alone(self) -> bool:
        return self.peer.roster.is_complete and len(self.peer.roster.peer_ids()) == 1

    def now(self) -> float:
        return self.peer.runtime.now()

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer":
        return self.peer.runtime.call_later(delay_s, callback, *args)

    def broadcast(self, data: bytes) -> None:
        if self.is_connected:
            self.peer.broadcast(data, kind=ORDER_KIND)

    def tell(self, peer_id: int, data: bytes) -> None:
        self.peer.requests.request(
            peer_id, data, TELL_TIMEOUT_S, lambda _outcome: None, layer=ORDER_KIND >> LAYER_SHIFT, is_tell=True
        )

    def request(
        self, peer_id: int, data: bytes, timeout_s: float, on_outcome: Callable[[OutcomeKind, bytes], None]
    ) -> GiveUp:
        def on_end(outcome: Outcome) -> None:
            self.peer.runtime.call_soon(lambda: on_outcome(outcome.kind, outcome.data))

        request = self.peer.requests.request(peer_id, data, timeout_s, on_end, layer=ORDER_KIND >> LAYER_SHIFT)

        def give_up() -> None:
            if request.state is not RequestState.ENDED:
                self.peer.requests.give_up(request)

        return give_up

    def is_present(self, peer_id: int) -> bool:
        return self.peer.roster.get(peer_id) is not None

    def may_send(self, peer_id: int) -> bool:
        return True

    def name_of(self, peer_id: int) -> str:
        return self._names.get(peer_id, "") if peer_id == self.peer_id or self.is_present(peer_id) else ""

    def deliver(self, entry: "Entry") -> None:
        self.on_entry(entry)

    def on_placed(self, number: int, placed: "Placed") -> None:
        self.placed[number] = placed

    def emit(self, event: "OrderEvent") -> None:
        self.on_order_event(event)

    # -- the peer

    @property
    def is_connected(self) -> bool:
        return self.peer.state is PeerState.CONNECTED

    def on_message(self, message: "Message") -> None:
        if message.kind == ORDER_KIND and (decoded := decode(message.data)).conversation == self.replica.id:
            self.replica.on_message(message.author, decoded)

    def _on_request(self, request: "IncomingRequest") -> None:
        request.on_cancel = request.done

        def reply(data: bytes | None) -> None:
            if data is not None:
                request.reply(data)
            else:
                request.refuse(RequestStatus.REFUSED, "")
            request.done()

        if (decoded := decode(request.data)).conversation == self.replica.id:
            self.replica.on_request(request.peer_id, decoded, reply)
        else:
            reply(None)

    def on_event(self, event: "Event") -> None:
        if isinstance(event, MemberJoined):
            self.replica.on_member_joined()
        elif isinstance(event, MemberLeft | MemberLost):
            self.replica.on_member_gone(event.member.peer_id)

    def on_missed(self, missed: "Missed") -> None:
        self.replica.on_missed(missed.author)


class SimOrderRuntime(PeerOrderRuntime):
    """On a simulated peer, whose broadcasts are checked."""

    def __init__(self, node: "SimNode", names: dict[int, str], **options: Any) -> None:
        self.node = node
        super().__init__(node.peer, names, **options)
        node.on_message, node.on_event, node.on_missed = self.on_message, self.on_event, self.on_missed
        self.replica.start()

    @property
    def is_connected(self) -> bool:
        return self.node.is_connected

    def broadcast(self, data: bytes) -> None:
        if self.is_connected:
            self.node.broadcast(data, kind=ORDER_KIND)
