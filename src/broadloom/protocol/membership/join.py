"""Become a member: request links, ask a member to be admitted, and answer both requests.

Members with free slots use the same requests: a peer that lost its neighbors joins again like a newcomer, but keeps
its position in the stream.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.events import PeerState
from broadloom.protocol.exchange import Exchange, IncomingExchange, OutgoingExchange
from broadloom.wire import PeerId, PeerInfo
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import JoinRequest, JoinResponse, LinkRequest, LinkResponse, RejectReason

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer

OnFinished = Callable[[bool], None]


class LinkAttempt:
    """One outgoing exchange that asks for a link. `on_finished` gets whether a link came of it."""

    def __init__(
        self,
        peer: "Peer",
        target: PeerInfo,
        request: WireMessage,
        on_finished: OnFinished | None,
        *,
        is_rewiring: bool = False,
        over: OutgoingExchange | None = None,
    ) -> None:
        """`is_rewiring`: the link would replace one that was cut. `over`: a probe that the target has just answered."""
        self._peer = peer
        self._is_rewiring = is_rewiring
        self._target = target
        self._on_finished = on_finished
        if over is not None:
            self._exchange = over
            over.continue_with(request, self._on_response, self._on_failure)
        else:
            self._exchange = OutgoingExchange(peer, target, request, self._on_response, self._on_failure)

    @property
    def is_open(self) -> bool:
        return self._exchange.is_open

    @property
    def is_hung(self) -> bool:
        """Pending long enough that another dial may be faster: a partition may have healed since."""
        limit_s = self._peer.pacing.stretched(self._peer.settings.announced_dial_s)
        return not self.is_open and self._exchange.age_s > limit_s

    def abandon(self) -> None:
        self._exchange.abandon()

    def _on_response(self, exchange: Exchange, response: WireMessage) -> None:
        self._peer.join_protocol.on_attempt_ended(self._target.peer_id, self)
        self._finish(self._accept(exchange, response))

    def _on_failure(self, _reason: RejectReason | None) -> None:
        self._peer.join_protocol.on_attempt_ended(self._target.peer_id, self)
        self._finish(False)

    def _finish(self, is_linked: bool) -> None:
        if not is_linked and not self._peer.join_protocol.is_requesting(self._target.peer_id):
            self._peer.links.release(self._target.peer_id)
        self._report(is_linked)
        if is_linked:
            return
        if self._is_rewiring:
            self._peer.slot_repair.restart()
        else:
            self._peer.slot_repair.schedule()

    def _accept(self, exchange: Exchange, response: WireMessage) -> bool:
        """Whether the response made the exchange a link."""
        return isinstance(response, LinkResponse) and self._upgrade_to_link(exchange)

    def _report(self, is_linked: bool) -> None:
        if self._on_finished is not None:
            self._on_finished(is_linked)

    def _upgrade_to_link(self, exchange: Exchange) -> bool:
        links, peer_id = self._peer.links, exchange.remote.peer_id
        has_slot = links.is_reserved(peer_id) or links.unreserved_slots > 0
        if not self._peer.is_present or peer_id in links or not has_slot:
            return False
        exchange.upgrade_to_link()
        return True


class JoinAttempt(LinkAttempt):
    """Asks a member for all links that are missing. `on_finished` gets whether the member accepted."""

    _is_accepted = False
    _mesh_requests = 0

    def _accept(self, exchange: Exchange, response: WireMessage) -> bool:
        if not isinstance(response, JoinResponse):
            return False
        self._is_accepted = True
        self._peer.diameter.on_reported(response.diameter)
        self._peer.peer_cache.add_all(response.peer_sample)
        is_linked = response.is_linked and self._upgrade_to_link(exchange)
        if response.is_full_mesh and is_linked:
            self._link_full_mesh(response.members)
        return is_linked

    def _report(self, _is_linked: bool) -> None:
        super()._report(self._is_accepted)

    def _link_full_mesh(self, members: tuple[PeerInfo, ...]) -> None:
        """Request a link from every member. When all have answered, there is nothing more to wait for."""
        self._peer.join_protocol.set_full_mesh(self._peer.links.free_slots > 0)
        self._mesh_requests = len(members)
        for member in members:
            self._peer.join_protocol.request_link(member, self._on_mesh_request_finished)
        if not members:
            self._peer.on_enough_links()

    def _on_mesh_request_finished(self, _is_linked: bool) -> None:
        self._mesh_requests -= 1
        if self._mesh_requests == 0:
            self._peer.on_enough_links()


class JoinProtocol:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._attempts: dict[PeerId, LinkAttempt] = {}
        self.is_full_mesh = False
        """Whether newcomers link to every member: known from creating, from joining, or from the neighbor lists."""

    def set_full_mesh(self, is_full_mesh: bool) -> None:
        self.is_full_mesh = is_full_mesh

    # -- our requests

    def request_link(
        self, target: PeerInfo, on_finished: OnFinished | None = None, *, announced_by: PeerId | None = None
    ) -> None:
        """Ask a peer for a link; its slot is reserved meanwhile."""
        links = self._peer.links
        attempt = self._attempts.get(target.peer_id)
        if attempt is not None and attempt.is_hung:
            attempt.abandon()
        if self.is_requesting(target.peer_id) or not links.reserve(target.peer_id, announced_by=announced_by):
            if on_finished is not None:
                on_finished(False)
            return
        self._attempts[target.peer_id] = LinkAttempt(
            self._peer, target, LinkRequest(), on_finished, is_rewiring=announced_by is not None
        )

    def join_via(self, target: PeerInfo, on_finished: OnFinished, *, over: OutgoingExchange | None = None) -> None:
        """Ask a member for all links that are missing. No slot is reserved: many members may be asked and few answer,
        and any other link that comes first is as good. `over`: a probe that the member has just answered."""
        links = self._peer.links
        if self.is_requesting(target.peer_id) or target.peer_id in links or links.unreserved_slots <= 0:
            on_finished(False)
            return
        self._attempts[target.peer_id] = JoinAttempt(self._peer, target, self.join_request(), on_finished, over=over)

    def join_request(self) -> JoinRequest:
        return JoinRequest(self._peer.links.unreserved_slots, self._peer.links.neighbors)

    def is_requesting(self, peer_id: PeerId) -> bool:
        return peer_id in self._attempts

    def on_attempt_ended(self, peer_id: PeerId, attempt: LinkAttempt) -> None:
        if self._attempts.get(peer_id) is attempt:
            del self._attempts[peer_id]

    # -- requests of others

    def on_link_request(self, exchange: IncomingExchange, _request: LinkRequest) -> None:
        reason = self._reject_reason(exchange)
        if reason is None:
            exchange.respond(LinkResponse())
            exchange.upgrade_to_link()
        else:
            exchange.reject(reason, "this peer cannot link now")

    def on_join_request(self, exchange: IncomingExchange, request: JoinRequest) -> None:
        """Admit a newcomer: link directly if we have a free slot, and find edges for the rest by random walks."""
        peer, links, initiator = self._peer, self._peer.links, exchange.remote
        if peer.state is not PeerState.CONNECTED:
            exchange.reject(RejectReason.NOT_CONNECTED, "this peer is not connected itself")
            return
        is_full_mesh = self.is_full_mesh and links.free_slots > 0 and not peer.is_filling_slots
        members = links.peer_infos if is_full_mesh else ()
        is_linked = not peer.is_filling_slots and self._reject_reason(exchange) is None
        cache = peer.peer_cache
        sample = cache.sample if exchange.has_position else cache.sample_for_newcomer
        peer_sample = sample(peer.settings.peer_sample_size)
        exchange.respond(JoinResponse(is_linked, is_full_mesh, peer.diameter.estimate, members, peer_sample))
        if is_linked:
            exchange.upgrade_to_link()
        else:
            exchange.close()
        if not is_full_mesh:
            excluded = request.neighbors[: peer.settings.degree] + ((peer.me.peer_id,) if is_linked else ())
            slots = min(request.free_slots, peer.settings.degree) - is_linked
            for _ in range(slots // 2):
                peer.random_walks.start(initiator, excluded)
            if slots == 1:
                peer.random_walks.start(initiator, excluded, free_slot_only=True)

    def _reject_reason(self, exchange: IncomingExchange) -> RejectReason | None:
        peer, initiator = self._peer, exchange.remote.peer_id
        if not peer.is_present:
            return RejectReason.LEAVING
        if initiator in peer.links:
            return RejectReason.ALREADY_LINKED
        if not (exchange.has_position or peer.broadcaster.has_position):
            return RejectReason.NOT_READY
        if initiator in self._attempts:
            # Two peers ask each other at once: the exchange of the lower id goes on, the other one is dropped. But a
            # dial that is not yet established may never be, if it was made before a partition healed.
            if peer.me.peer_id < initiator and self._attempts[initiator].is_open:
                return RejectReason.BUSY
            self._attempts[initiator].abandon()
        if not peer.links.is_reserved(initiator) and peer.links.unreserved_slots <= 0:
            peer.links.release_announced(initiator)  # it wants its own slot back: its part of a rewiring has failed
            if peer.links.unreserved_slots <= 0:
                return RejectReason.NO_FREE_SLOT
        return None
