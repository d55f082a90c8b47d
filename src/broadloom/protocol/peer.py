"""`Peer`: one participant of a channel, its state, and which part handles which message.

The runtime drives it through `on_accept` for incoming connections and through the handlers of connections (exchanges
and links) for everything that happens on them. The parts reach each other through the peer; each owns its state.
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
from broadloom.protocol.membership.join_states import LIFECYCLE, PeerEvent, bind
from broadloom.protocol.membership.leave import LeaveProtocol
from broadloom.protocol.membership.neighbor_lists import TwoHopView
from broadloom.protocol.membership.pacing import Pacing
from broadloom.protocol.membership.partitions import Beacons, PartitionMerge
from broadloom.protocol.membership.peer_cache import PeerCache
from broadloom.protocol.membership.random_walk import RandomWalks
from broadloom.protocol.membership.repair import SlotRepair
from broadloom.protocol.membership.slots import SlotTable
from broadloom.protocol.owner.owner import Owner
from broadloom.protocol.receipts.receipts import Receipts
from broadloom.protocol.receipts.reporter import DeliveryReporter
from broadloom.protocol.requests.direct_requests import DirectRequests
from broadloom.protocol.roster.roster import Roster
from broadloom.wire import (
    Address,
    PeerInfo,
    WireError,
    decode,
    direct_messages,
    exchange_messages,
    link_messages,
    owner_messages,
    receipt_messages,
    roster_messages,
)
from broadloom.wire.broadcast_frame import Priority
from broadloom.wire.codec import number_of
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.payload_kind import PayloadKind

if TYPE_CHECKING:
    from broadloom.protocol.identity import Signer
    from broadloom.protocol.link import Link
    from broadloom.protocol.owner.documents import OwnerVerifier
    from broadloom.protocol.runtime import Connection, Observer, Runtime

UNGRACEFUL_REASONS = (
    LinkDownReason.CONNECTION_LOST,
    LinkDownReason.HEARTBEAT_TIMEOUT,
    LinkDownReason.PROTOCOL_ERROR,
    LinkDownReason.TOO_SLOW,
    LinkDownReason.ACCESS_REVOKED,
    LinkDownReason.QUOTA_EXCEEDED,
)
"""After these the neighbor may be dead, and its other neighbors may not know yet."""
ACCESS_REASONS = (RejectReason.TICKET_EXPIRED, RejectReason.TICKET_REVOKED, RejectReason.CARD_MISMATCH)
"""A member that is rejected for these is no longer one. The others may concern another channel of the same name."""


class Peer:
    """Applications use `start`, `broadcast`, `leave` and `close_channel`; the rest is for the runtime and the parts."""

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
        roster_signer: "Signer | None" = None,
        name: str = "",
        is_secondary: bool = False,
        owner_verifier: "OwnerVerifier | None" = None,
    ) -> None:
        self.runtime = runtime
        self.me = me
        self.channel_id = channel_id
        self.settings = settings or Tuning()
        self.observer = observer
        self.is_paused = False
        """Reading is paused because the application does not keep up, so silent neighbors are not timed out."""
        self.state = PeerState.DISCOVERING
        self._transitions = bind(LIFECYCLE, self)
        self.counters = PeerCounters()
        self.pacing = Pacing()
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
        self.requests = DirectRequests(self)
        self.roster = Roster(self, roster_signer, name, is_secondary=is_secondary)
        self.receipts = Receipts(self)
        self.reporter = DeliveryReporter(self)
        self.owner = Owner(self, owner_verifier)
        self._exchanges: dict[IncomingExchange, None] = {}
        self.is_filling_slots = True
        """A newcomer: walks are under way for its free slots, so it does not fill them in other ways."""
        self._duplicates_reported = 0
        self._rejections: dict[RejectReason, Rejected] = {}
        """What members said since the last link came up: each reason is reported once."""
        self.request_handlers: dict[type[Any], Callable[[IncomingExchange, Any], None]] = {
            exchange_messages.DiscoverRequest: self.discovery.on_discover_request,
            exchange_messages.JoinRequest: self.join_protocol.on_join_request,
            exchange_messages.EdgeOffer: self.random_walks.on_edge_offer,
            exchange_messages.LinkRequest: self.join_protocol.on_link_request,
            exchange_messages.SeekerJoined: self.discovery.on_seeker_joined,
            exchange_messages.PartitionProbe: self.partition_merge.on_partition_probe,
            direct_messages.DirectOpen: self.requests.on_direct_open,
        }
        self._link_handlers: dict[type[Any], Callable[[Link, Any], None]] = {
            link_messages.Digest: self.broadcaster.anti_entropy.on_digest,
            link_messages.Want: self.broadcaster.gap_repair.on_want,
            link_messages.LastKnown: self.broadcaster.anti_entropy.on_last_known,
            link_messages.Unavailable: self.broadcaster.gap_repair.on_unavailable,
            link_messages.Heartbeat: lambda _link, _message: None,
            link_messages.RandomWalk: self.random_walks.on_random_walk,
            link_messages.WalkEnd: self.random_walks.on_walk_end,
            link_messages.Unlink: self.leave_protocol.on_unlink,
            link_messages.UnlinkAck: self.leave_protocol.on_unlink_ack,
            link_messages.Leave: self.leave_protocol.on_leave,
            link_messages.SlotSearch: self.slot_repair.on_slot_search,
            link_messages.DiameterEstimate: self.diameter.on_diameter_estimate,
            link_messages.Beacon: self.beacons.on_beacon,
            link_messages.IHave: self.broadcaster.plumtree.on_ihave,
            link_messages.Prune: self.broadcaster.plumtree.on_prune,
            link_messages.Graft: self.broadcaster.plumtree.on_graft,
            link_messages.Ack: self.broadcaster.acks.on_ack,
            link_messages.NeighborList: self.two_hop_view.on_neighbor_list,
            link_messages.CloseChannel: self.leave_protocol.on_close_channel,
            roster_messages.RosterDigest: self.roster.sync.on_digest,
            roster_messages.RosterRecords: self.roster.on_records,
            roster_messages.RosterBuckets: self.roster.sync.on_buckets,
            roster_messages.RosterVersions: self.roster.sync.on_versions,
            roster_messages.RosterWant: self.roster.sync.on_want,
            receipt_messages.DeliveryReports: self.reporter.on_reports,
            owner_messages.OwnerNotice: self.owner.documents.on_notice,
            owner_messages.OwnerWant: self.owner.documents.on_want,
            owner_messages.OwnerDocument: self.owner.documents.on_document,
        }
        if self.broadcaster.verifier is not None:
            self._link_handlers[link_messages.PositionProof] = self.broadcaster.verifier.on_position_proof
            self._link_handlers[link_messages.Credential] = self.broadcaster.verifier.on_credential
            self._link_handlers[link_messages.CredentialRequest] = self.broadcaster.verifier.on_credential_request

    # -- for the application

    def start(self) -> None:
        """Discover the channel and join it."""
        if not self.owner.may_start():
            return
        self._schedule_tick(self.settings.tick_s * (0.5 + self.runtime.random.random()))
        self.discovery.start()

    def broadcast(
        self, data: bytes, *, kind: int = PayloadKind.DATA, priority: int = Priority.NORMAL, ttl_ms: int = 0
    ) -> int:
        """Send to all members; returns the sequence number of the message."""
        if self.state is not PeerState.CONNECTED:
            raise RuntimeError(f"only a connected peer can broadcast; this one is {self.state.value}")
        return self.broadcaster.broadcast(data, kind, priority, ttl_ms)

    def set_bootstrap(self, bootstrap: tuple[Address, ...]) -> None:
        """Replace the bootstrap hosts, and look for other parts of the fabric on the new ones."""
        self.discovery.set_bootstrap(bootstrap)
        if self.state is PeerState.CONNECTED:
            self.partition_merge.probe_bootstrap_hosts()

    def leave(self) -> None:
        """Leave gracefully; the state is LEFT when that is done."""
        self.leave_protocol.start()

    def close_channel(self) -> None:
        """Close the channel for all members."""
        self.leave_protocol.close_channel()

    # -- for the runtime

    def on_accept(self, connection: "Connection") -> None:
        """Take an incoming connection. If too many exchanges are open, the oldest is closed: an honest initiator needs
        at most two round trips, and asks again over another connection."""
        if self.state is PeerState.LEFT:
            self.counters.exchanges_rejected += 1
            connection.close()
            return
        if len(self._exchanges) >= self.settings.exchanges_max:
            self.counters.exchanges_rejected += 1
            next(iter(self._exchanges)).close()
        self._exchanges[IncomingExchange(self, connection)] = None

    def set_paused(self, is_paused: bool) -> None:
        self.is_paused = is_paused

    def abort(self) -> None:
        """The runtime has dropped all connections, as a crash would: no event, no `Leave`."""
        self.state = PeerState.LEFT
        self.requests.close()
        self.receipts.end_all()

    # -- for the parts

    @property
    def is_present(self) -> bool:
        """Neither leaving nor gone."""
        return self.state not in (PeerState.LEAVING, PeerState.LEFT)

    @property
    def is_member(self) -> bool:
        """Has a position in the stream and takes part in maintaining the fabric."""
        return self.state in (PeerState.JOINING, PeerState.CONNECTED) and self.broadcaster.has_position

    @property
    def accepts_channel_close(self) -> bool:
        if self.settings.accept_channel_close is not None:
            return self.settings.accept_channel_close
        return self.broadcaster.verifier is None

    @property
    def full_mesh_size(self) -> int | None:
        """The number of peers while every peer is linked to every other; None in a larger fabric, where no peer knows
        it."""
        return len(self.links) + 1 if self.join_protocol.is_full_mesh else None

    def trace(self, text: str) -> None:
        self.runtime.emit(TraceEvent(text))

    def emit(self, event: Event) -> None:
        """Report a change of state or neighbors to the runtime and the observer."""
        self.runtime.emit(event)
        if self.observer is not None:
            self.observer.on_event(event)

    def on_auth_rejected(self, reason: RejectReason, text: str) -> None:
        """A member refused our credentials. A connected peer without neighbors has lost access (ticket expired or
        revoked), which is reported once; while the peer is still discovering, `Discovery` decides."""
        if self.state is PeerState.CONNECTED and not len(self.links):
            self.report_rejection(Rejected(reason, text))

    def report_rejection(self, rejected: Rejected) -> None:
        if rejected.reason not in self._rejections:
            self._rejections[rejected.reason] = rejected
            self.emit(rejected)

    @property
    def lost_access(self) -> Rejected | None:
        """Why this peer is no longer a member."""
        if not self._rejections:  # asked for each message
            return None
        return next((each for reason, each in self._rejections.items() if reason in ACCESS_REASONS), None)

    def on_exchange_ended(self, exchange: Exchange) -> None:
        if isinstance(exchange, IncomingExchange):
            self._exchanges.pop(exchange, None)

    def on_link_frame(self, link: "Link", frame: bytes) -> None:
        """Handle any frame on a link except broadcasts."""
        if number_of(frame) in FLOODED_NUMBERS:
            message = self.control_flood.on_frame(link, frame)
            if message is None:
                return
        else:
            message = decode(frame)
        handler = self._link_handlers.get(type(message))
        if handler is None:
            raise WireError(f"{type(message).__name__} is not allowed on a link")
        handler(link, message)

    def on_links_changed(self, reason: LinkDownReason | None) -> None:
        """A link went down for this reason, or (None) a link came up or the starting position was adopted."""
        self.two_hop_view.on_links_changed()
        self.roster.on_links_changed(reason)
        self.reporter.on_links_changed()
        self.owner.on_links_changed()
        if not self.is_present:
            self.leave_protocol.check_finished()
            return
        if reason in UNGRACEFUL_REASONS:
            self.partition_merge.alert()
        if reason is None:
            self._rejections.clear()
        if self.state is PeerState.CONNECTED and not len(self.links):
            self.is_filling_slots = False  # its walks went through neighbors that are gone: repair fills the slots
        if self.links.free_slots == 0:
            self.is_filling_slots = False
            self.join_protocol.set_full_mesh(False)
            self.slot_repair.stop()
        elif reason in UNGRACEFUL_REASONS or reason is LinkDownReason.PEER_LEFT:
            self.slot_repair.restart()
        elif reason is None and not self.is_filling_slots:
            self.slot_repair.restart()  # a new neighbor may lead to others with free slots
        else:
            self.slot_repair.schedule()
        self._advance()

    # -- state: the table is `join_states.LIFECYCLE`

    def create_channel(self) -> None:
        self.broadcaster.receiver.finish_join()
        self.join_protocol.set_full_mesh(True)
        self.is_filling_slots = False
        self._fire(PeerEvent.CHANNEL_CREATED)

    def on_enough_links(self) -> None:
        """Every member of a full mesh has answered, or the join timeout is over."""
        self.is_filling_slots = False
        self._fire(PeerEvent.LINKS_SUFFICE)

    def begin_leave(self) -> None:
        self.requests.begin_leave()
        self.receipts.end_all()
        if not self.owner.excludes_this_peer:  # then it does not leave: the others lose it
            self.roster.leave()
        self._fire(PeerEvent.LEAVE)

    def finish_leave(self) -> None:
        self._report_duplicates()
        self.requests.close()
        self._fire(PeerEvent.LEAVE_FINISHED)

    def _advance(self) -> None:
        """Raise the events that follow from the links that are up."""
        if len(self.links):
            if self.broadcaster.has_position:
                self._fire(PeerEvent.POSITION_ADOPTED)
            if not (self.is_filling_slots and self.join_protocol.is_full_mesh):
                # One neighbor is enough to miss nothing. Only a full mesh is joined as a whole: the next newcomer
                # learns all its members from this peer.
                self._fire(PeerEvent.LINKS_SUFFICE)
        else:
            self._fire(PeerEvent.LAST_LINK_LOST)

    def _fire(self, event: PeerEvent) -> None:
        transition = self._transitions.get((self.state, event))
        if transition is None:
            return
        action, next_state = transition
        if next_state is not self.state:
            self.state = next_state
            self.emit(StateChanged(next_state))
        if action is not None:
            action()

    def _fill_slots(self) -> None:
        self.runtime.call_later(self.pacing.stretched(self.settings.join_timeout_s), self.on_enough_links)
        self.slot_repair.schedule()

    def _restart_discovery(self) -> None:
        self.is_filling_slots = True
        self.discovery.start()

    def _begin_membership(self) -> None:
        self.broadcaster.receiver.begin_membership()
        self.roster.begin()
        self.beacons.begin()
        self.partition_merge.begin()
        self.discovery.notify_seekers()

    def _stop_filling_slots(self) -> None:
        self.slot_repair.stop()
        self.links.clear_reservations()

    # -- timer

    def _schedule_tick(self, delay_s: float) -> None:
        self.runtime.call_later(delay_s, self._tick, self.runtime.now() + delay_s)

    def _tick(self, due_at: float) -> None:
        if self.state is PeerState.LEFT:
            return
        now = self.runtime.now()
        self.pacing.on_tick(now - due_at)
        self._schedule_tick(self.settings.tick_s)
        self.broadcaster.tick(now)
        self.requests.tick(now)
        self.roster.tick(now)
        self.reporter.tick(now)
        self.receipts.tick()
        self.owner.tick(now)
        self._report_duplicates()
        if self.state is PeerState.CONNECTED:
            self.beacons.tick(now)
            self.partition_merge.tick(now)
        for link in list(self.links):
            link.tick(now)

    def _report_duplicates(self) -> None:
        if self.observer is not None and self.counters.duplicates > self._duplicates_reported:
            self.observer.duplicates(self.counters.duplicates - self._duplicates_reported)
            self._duplicates_reported = self.counters.duplicates
