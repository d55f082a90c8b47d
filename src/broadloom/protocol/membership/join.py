"""Becoming a member: asking to be woven in, taking links, and answering those who ask.

Everything here is also used by members that have holes: a peer that lost its neighbours joins again the way a
newcomer does, only that it keeps what it has heard.
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
"""Told whether a link came of it."""


class JoinProtocol:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._link_requests: dict[PeerId, OutgoingExchange] = {}
        """Calls of ours that ask for a link."""
        self.is_full_mesh = False
        """Whether newcomers shall be linked to everyone: set by founding, by whom we joined through, and by `views`."""

    # -- asking for one link

    def request_link(self, peer_info: PeerInfo, on_finished: OnFinished | None = None) -> None:
        """Call a peer and ask for a link; the place is kept meanwhile."""
        if peer_info.peer_id in self._link_requests or not self._peer.links.reserve(peer_info.peer_id):
            if on_finished is not None:
                on_finished(False)
            return

        def on_response(exchange: OutgoingExchange, response: WireMessage) -> bool:
            return isinstance(response, LinkResponse) and self._upgrade_to_link(exchange)

        self._send_request(peer_info, LinkRequest(), on_response, on_finished)

    def _send_request(
        self,
        peer_info: PeerInfo,
        request: WireMessage,
        on_response: Callable[[OutgoingExchange, WireMessage], bool],
        on_finished: OnFinished | None,
    ) -> None:
        """A call that may become a link."""

        def on_exchange_response(exchange: Exchange, response: WireMessage) -> None:
            if self._link_requests.get(peer_info.peer_id) is exchange:
                del self._link_requests[peer_info.peer_id]
            assert isinstance(exchange, OutgoingExchange)
            finished(on_response(exchange, response))

        def on_failure(_reason: RejectReason | None) -> None:
            self._link_requests.pop(peer_info.peer_id, None)
            finished(False)

        def finished(is_linked: bool) -> None:
            if not is_linked and peer_info.peer_id not in self._link_requests:
                self._peer.links.release(peer_info.peer_id)
            if on_finished is not None:
                on_finished(is_linked)
            if not is_linked:
                self._peer.slot_repair.schedule()

        self._link_requests[peer_info.peer_id] = OutgoingExchange(
            self._peer, peer_info, request, on_exchange_response, on_failure
        )

    def _upgrade_to_link(self, exchange: OutgoingExchange) -> bool:
        links = self._peer.links
        peer_id = exchange.remote.peer_id
        if (
            not self._peer.is_present
            or peer_id in links
            or not (links.is_reserved(peer_id) or links.unreserved_slots > 0)
        ):
            return False
        exchange.upgrade_to_link()
        return True

    def on_link_request(self, exchange: IncomingExchange, _request: LinkRequest) -> None:
        """Somebody wants to fill a hole of ours."""
        reason = self._reject_reason(exchange)
        if reason is None:
            exchange.respond(LinkResponse())
            exchange.upgrade_to_link()
        else:
            exchange.reject(reason, "no link from here now")

    def _reject_reason(self, exchange: IncomingExchange) -> RejectReason | None:
        peer, initiator = self._peer, exchange.remote.peer_id
        if not peer.is_present:
            return RejectReason.LEAVING
        if initiator in peer.links:
            return RejectReason.ALREADY_LINKED
        if not (exchange.has_position or peer.broadcaster.has_position):
            return RejectReason.NOT_READY
        if initiator in self._link_requests:
            # Each calls the other: the call of the lower id goes on, the other one is dropped.
            if peer.me.peer_id < initiator:
                return RejectReason.BUSY
            self._link_requests[initiator].abandon()
        if not peer.links.is_reserved(initiator) and peer.links.unreserved_slots <= 0:
            return RejectReason.NO_FREE_SLOT
        return None

    # -- asking to be woven in

    def join_via(self, peer_info: PeerInfo, on_finished: OnFinished) -> None:
        """Ask a connected peer for all that we lack."""
        links = self._peer.links
        if peer_info.peer_id in self._link_requests or peer_info.peer_id in links or links.unreserved_slots <= 0:
            on_finished(False)
            return
        # No place is kept: many may be asked, few may answer, and whoever comes meanwhile is as welcome.
        request = JoinRequest(links.unreserved_slots, links.neighbors)

        accepted = False

        def on_response(exchange: OutgoingExchange, response: WireMessage) -> bool:
            nonlocal accepted
            if not isinstance(response, JoinResponse):
                return False
            accepted = True
            self._peer.diameter.on_reported(response.diameter)
            self._peer.peer_cache.add_all(response.peer_sample)
            is_linked = response.is_linked and self._upgrade_to_link(exchange)
            if response.is_full_mesh and is_linked:
                self._link_full_mesh(response.members)
            return is_linked

        self._send_request(peer_info, request, on_response, lambda _linked: on_finished(accepted))

    def _link_full_mesh(self, members: tuple[PeerInfo, ...]) -> None:
        """The small regime: call everyone; when all have answered, there is no more to wait for."""
        self.is_full_mesh = self._peer.links.free_slots > 0
        left = len(members)

        def finished(_linked: bool) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._peer.on_enough_links()

        for member in members:
            self.request_link(member, finished)
        if not members:
            self._peer.on_enough_links()

    def on_join_request(self, exchange: IncomingExchange, request: JoinRequest) -> None:
        """Weave a newcomer in: directly if we have a hole, by walks for the rest."""
        peer, links, initiator = self._peer, self._peer.links, exchange.remote
        if peer.state is not PeerState.CONNECTED:
            exchange.reject(RejectReason.NOT_CONNECTED, "this peer is still seeking the channel itself")
            return
        is_full_mesh = self.is_full_mesh and links.free_slots > 0
        members = links.peer_infos if is_full_mesh else ()
        is_linked = self._reject_reason(exchange) is None
        peer_sample = peer.peer_cache.sample(peer.settings.peer_sample_size)
        exchange.respond(JoinResponse(is_linked, is_full_mesh, peer.diameter.estimate, members, peer_sample))
        if is_linked:
            exchange.upgrade_to_link()
        else:
            exchange.close()
        if not is_full_mesh:
            excluded = request.neighbors[: peer.settings.degree] + ((peer.me.peer_id,) if is_linked else ())
            for _ in range((min(request.free_slots, peer.settings.degree) - is_linked) // 2):
                peer.random_walks.start(initiator, excluded)
