"""One peer: its parts, its state, and which part handles what.

Driven by its world: `on_call` for a line that somebody dialled, and the owners of lines (calls, links) for all that
happens on them. The parts know each other through the peer; each keeps its own state and nothing else's.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broadloom.protocol.broadcast.broadcaster import Broadcaster
from broadloom.protocol.constants import Tuning
from broadloom.protocol.counters import PeerCounters
from broadloom.protocol.events import Event, LinkDownReason, PeerState, Rejected, StateChanged, TraceEvent
from broadloom.protocol.exchange import Exchange, IncomingExchange
from broadloom.protocol.membership.control_flood import FLOODED_NUMBERS, ControlFlood, DiameterEstimator
from broadloom.protocol.membership.discovery import Discovery
from broadloom.protocol.membership.join import JoinProtocol
from broadloom.protocol.membership.leave import LeaveProtocol
from broadloom.protocol.membership.neighbor_lists import TwoHopView
from broadloom.protocol.membership.partitions import Beacons, PartitionMerge
from broadloom.protocol.membership.peer_cache import PeerCache
from broadloom.protocol.membership.random_walk import RandomWalks
from broadloom.protocol.membership.repair import SlotRepair
from broadloom.protocol.membership.slots import SlotTable
from broadloom.wire import Address, PeerInfo, WireError, decode
from broadloom.wire import exchange_messages as c
from broadloom.wire import link_messages as k
from broadloom.wire.broadcast_frame import PayloadKind, Priority
from broadloom.wire.codec import number_of
from broadloom.wire.exchange_messages import RejectReason

if TYPE_CHECKING:
    from broadloom.protocol.identity import Signer
    from broadloom.protocol.link import Link
    from broadloom.protocol.runtime import Connection, Observer, Runtime

UNGRACEFUL_REASONS = (
    LinkDownReason.CONNECTION_LOST,
    LinkDownReason.HEARTBEAT_TIMEOUT,
    LinkDownReason.PROTOCOL_ERROR,
    LinkDownReason.TOO_SLOW,
    LinkDownReason.ACCESS_REVOKED,
)
"""Ends of a link after which the neighbour is gone and has told nobody."""


class Peer:
    """A participant of one channel. `start`, `broadcast` and `leave` are the application's; the rest the world's."""

    def __init__(
        self,
        runtime: "Runtime",
        me: PeerInfo,
        channel_id: bytes,
        bootstrap: tuple[Address, ...] = (),
        settings: Tuning | None = None,
        *,
        signer: "Signer | None" = None,
        observer: "Observer | None" = None,
    ) -> None:
        self.runtime = runtime
        self.me = me
        self.channel_id = channel_id
        self.settings = settings or Tuning()
        self.observer = observer
        self.is_paused = False
        """Does not read for now, because its application does not; so it cannot blame neighbours for being silent."""
        self.state = PeerState.DISCOVERING
        self.counters = PeerCounters()
        self.peer_cache = PeerCache(me.peer_id, self.settings.peer_cache_max, runtime.random)
        self.links = SlotTable(self)
        self.control_flood = ControlFlood(self)
        self.diameter = DiameterEstimator(self)
        self.broadcaster = Broadcaster(self, signer)
        self.random_walks = RandomWalks(self)
        self.join_protocol = JoinProtocol(self)
        self.discovery = Discovery(self, bootstrap)
        self.two_hop_view = TwoHopView(self)
        self.slot_repair = SlotRepair(self)
        self.leave_protocol = LeaveProtocol(self)
        self.beacons = Beacons(self)
        self.partition_merge = PartitionMerge(self)
        self._exchanges: dict[IncomingExchange, None] = {}
        self._has_enough_links = False
        self._duplicates_reported = 0
        self._rejection_reported = False
        self.request_handlers: dict[type[Any], Callable[[IncomingExchange, Any], None]] = {
            c.DiscoverRequest: self.discovery.on_discover_request,
            c.JoinRequest: self.join_protocol.on_join_request,
            c.EdgeOffer: self.random_walks.on_edge_offer,
            c.LinkRequest: self.join_protocol.on_link_request,
            c.SeekerJoined: self.discovery.on_seeker_joined,
            c.PartitionProbe: self.partition_merge.on_partition_probe,
        }
        self._link_handlers: dict[type[Any], Callable[[Link, Any], None]] = {
            k.Digest: self.broadcaster.anti_entropy.on_digest,
            k.Want: self.broadcaster.gap_repair.on_want,
            k.LastKnown: self.broadcaster.anti_entropy.on_last_known,
            k.Unavailable: self.broadcaster.gap_repair.on_unavailable,
            k.Heartbeat: lambda _link, _message: None,
            k.RandomWalk: self.random_walks.on_random_walk,
            k.WalkEnd: self.random_walks.on_walk_end,
            k.Unlink: self.leave_protocol.on_unlink,
            k.UnlinkAck: self.leave_protocol.on_unlink_ack,
            k.Leave: self.leave_protocol.on_leave,
            k.SlotSearch: self.slot_repair.on_slot_search,
            k.DiameterEstimate: self.diameter.on_diameter_estimate,
            k.Beacon: self.beacons.on_beacon,
            k.IHave: self.broadcaster.plumtree.on_ihave,
            k.Prune: self.broadcaster.plumtree.on_prune,
            k.Graft: self.broadcaster.plumtree.on_graft,
            k.Ack: self.broadcaster.acks.on_ack,
            k.NeighborList: self.two_hop_view.on_neighbor_list,
            k.CloseChannel: self.leave_protocol.on_close_channel,
        }
        if self.broadcaster.verifier is not None:
            self._link_handlers[k.Credential] = self.broadcaster.verifier.on_credential
            self._link_handlers[k.CredentialRequest] = self.broadcaster.verifier.on_credential_request

    # -- for the application

    def start(self) -> None:
        """Look for the channel and join it."""
        self.runtime.call_later(self.settings.tick_s * (0.5 + self.runtime.random.random()), self._tick)
        self.discovery.start()

    def broadcast(
        self, data: bytes, *, kind: int = PayloadKind.DATA, priority: int = Priority.NORMAL, ttl_ms: int = 0
    ) -> int:
        """Send to all members; returns this author's sequence number."""
        if self.state is not PeerState.CONNECTED:
            raise RuntimeError(f"only a connected peer can broadcast; this one is {self.state.value}")
        return self.broadcaster.broadcast(data, kind, priority, ttl_ms)

    def leave(self) -> None:
        """Go in good order; the state is LEFT when that is done."""
        self.leave_protocol.start()

    def close_channel(self) -> None:
        """Close the channel for everyone."""
        self.leave_protocol.close_channel()

    # -- for the world

    def on_accept(self, connection: "Connection") -> None:
        """Somebody dialled us. If too many calls are under way, the oldest makes room: an honest caller says everything
        at once and is answered at once, so who has been on the line for long only wants to exhaust us."""
        if self.state is PeerState.LEFT:
            self.counters.exchanges_rejected += 1
            connection.close()
            return
        if len(self._exchanges) >= self.settings.exchanges_max:
            self.counters.exchanges_rejected += 1
            next(iter(self._exchanges)).close()
        self._exchanges[IncomingExchange(self, connection)] = None

    # -- for the parts

    @property
    def is_present(self) -> bool:
        """On the channel or on its way there."""
        return self.state not in (PeerState.LEAVING, PeerState.LEFT)

    @property
    def is_member(self) -> bool:
        """Has a starting point in the stream and takes part in the fabric's affairs."""
        return self.state in (PeerState.JOINING, PeerState.CONNECTED) and self.broadcaster.has_position

    @property
    def accepts_channel_close(self) -> bool:
        if self.settings.accept_channel_close is not None:
            return self.settings.accept_channel_close
        return self.broadcaster.verifier is None

    def trace(self, text: str) -> None:
        self.runtime.emit(TraceEvent(text))

    def on_auth_rejected(self, reason: RejectReason, text: str) -> None:
        """Somebody of the channel does not let us in. A member that has no neighbour left has been put out, by an
        expired or withdrawn ticket, and shall know it; for one that still seeks, `seeking` judges."""
        if self.state is PeerState.CONNECTED and not len(self.links) and not self._rejection_reported:
            self._rejection_reported = True
            self.emit(Rejected(reason, text))

    def emit(self, event: Event) -> None:
        """To neighbours or to our state: whoever watches or records shall know."""
        self.runtime.emit(event)
        if self.observer is not None:
            self.observer.on_event(event)

    def on_exchange_ended(self, exchange: Exchange) -> None:
        if isinstance(exchange, IncomingExchange):
            self._exchanges.pop(exchange, None)

    def on_link_frame(self, link: "Link", frame: bytes) -> None:
        """Everything on a link but broadcasts."""
        if number_of(frame) in FLOODED_NUMBERS:
            message = self.control_flood.on_frame(link, frame)
            if message is None:
                return
        else:
            message = decode(frame)
        handler = self._link_handlers.get(type(message))
        if handler is None:
            raise WireError(f"{type(message).__name__} does not belong on a link")
        handler(link, message)

    def on_links_changed(self, reason: LinkDownReason | None) -> None:
        """A link came (no reason) or went, or the starting point was found."""
        self.two_hop_view.on_links_changed()
        if not self.is_present:
            self.leave_protocol.check_finished()
            return
        if reason in UNGRACEFUL_REASONS:
            self.partition_merge.alert()
        if reason is None:
            self._rejection_reported = False
        if self.links.free_slots == 0:
            self.join_protocol.is_full_mesh = False
            self.slot_repair.stop()
        elif reason in UNGRACEFUL_REASONS or reason is LinkDownReason.PEER_LEFT:
            self.slot_repair.restart()
        else:
            self.slot_repair.schedule()
        self._advance()

    @property
    def full_mesh_size(self) -> int | None:
        """How many peers there are, if so few that everyone is linked to everyone; of more, nobody knows."""
        return len(self.links) + 1 if self.join_protocol.is_full_mesh else None

    def found_channel(self) -> None:
        """Nobody is here: begin the channel."""
        self.broadcaster.receiver.finish_join()
        self.join_protocol.is_full_mesh = True
        self.enter(PeerState.CONNECTED)

    def enter(self, state: PeerState) -> None:
        if state is self.state:
            return
        self.state = state
        if state is PeerState.LEFT:
            self._report_duplicates()
        self.emit(StateChanged(state))
        if state is PeerState.CONNECTED:
            self.beacons.begin()
            self.partition_merge.begin()
            self.discovery.notify_seekers()
        elif state is PeerState.LEAVING:
            self.slot_repair.stop()
            self.links.clear_reservations()

    def _advance(self) -> None:
        """Seeking, partially connected, connected: as far as the links that are there allow."""
        if self.state is PeerState.DISCOVERING and len(self.links) and self.broadcaster.has_position:
            self.enter(PeerState.JOINING)
            self.runtime.call_later(self.settings.join_timeout_s, self.on_enough_links)
            self.slot_repair.schedule()
        if (
            self.state is PeerState.JOINING
            and len(self.links)
            and (self.links.free_slots == 0 or self._has_enough_links)
        ):
            self.on_enough_links()
        if self.state in (PeerState.DISCOVERING, PeerState.JOINING) and not len(self.links):
            self.enter(PeerState.DISCOVERING)  # what came of the search is gone again
            self._has_enough_links = False
            self.discovery.start()

    def on_enough_links(self) -> None:
        """All places are filled, or there is no more to be had now. One neighbour suffices to miss nothing."""
        self._has_enough_links = True
        if self.state is PeerState.JOINING:
            self.enter(PeerState.CONNECTED)

    def _report_duplicates(self) -> None:
        if self.observer is not None and self.counters.duplicates > self._duplicates_reported:
            self.observer.duplicates(self.counters.duplicates - self._duplicates_reported)
            self._duplicates_reported = self.counters.duplicates

    def _tick(self) -> None:
        if self.state is PeerState.LEFT:
            return
        now = self.runtime.now()
        self.runtime.call_later(self.settings.tick_s, self._tick)
        self.broadcaster.tick(now)
        self._report_duplicates()
        if self.state is PeerState.CONNECTED:
            self.beacons.tick(now)
            self.partition_merge.tick(now)
        for link in list(self.links):
            link.tick(now)
