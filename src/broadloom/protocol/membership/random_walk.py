"""`RandomWalks`: find a random edge for a newcomer and pin it (edge pinning in SWAN).

A walk is forwarded from neighbor to random neighbor. Where it ends, the last edge is offered to the requester; if it is
accepted, the edge is cut and both its ends link to the requester (or one of them to its partner). Both ends reserve
the edge meanwhile, one when it forwards the walk, the other when the walk arrives, so an edge is never offered twice.
Reservations expire.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from broadloom.protocol.events import PeerState
from broadloom.protocol.exchange import Exchange, IncomingExchange, OutgoingExchange
from broadloom.protocol.membership.control_flood import ESTIMATE_MAX
from broadloom.wire import PeerId, PeerInfo
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import EdgeOffer, EdgeOfferResponse, EdgeOfferResult, RejectReason
from broadloom.wire.link_messages import RandomWalk, Unlink, WalkEnd

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer


STEPS_MAX = 2 * ESTIMATE_MAX + 1


class RandomWalks:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer

    def start(
        self,
        requester: PeerInfo,
        excluded: tuple[PeerId, ...],
        partner: PeerInfo | None = None,
        partner_excluded: tuple[PeerId, ...] = (),
        *,
        free_slot_only: bool = False,
    ) -> None:
        """Start a walk of about twice the diameter, with one random extra step for parity."""
        random = self._peer.runtime.random
        steps = 2 * max(self._peer.diameter.estimate, 2) + random.getrandbits(1)
        extra_steps = self._peer.settings.walk_extra_steps
        walk = RandomWalk(
            random.getrandbits(64), requester, partner, excluded, partner_excluded, free_slot_only, steps, extra_steps
        )
        self._forward(walk, None)

    def _forward(self, walk: RandomWalk, received_over: "Link | None") -> None:
        """Take one step. The last edge is reserved here now, and at the other end when the walk arrives."""
        last_step = walk.steps <= 1 and not walk.free_slot_only
        link = self._peer.links.pick(received_over, unreserved=last_step) or received_over
        if link is None or (last_step and link.reserved_for is not None):
            return  # the requester will try again
        if last_step:
            link.reserve_edge(walk.walk_id)
        # The numbers come from another peer: bound them.
        steps, extra_steps = min(walk.steps, STEPS_MAX) - 1, min(walk.extra_steps, self._peer.settings.walk_extra_steps)
        link.send(replace(walk, steps=max(steps, 0), extra_steps=extra_steps))

    def on_random_walk(self, link: "Link", walk: RandomWalk) -> None:
        self._peer.peer_cache.add(walk.requester)
        if walk.free_slot_only and self._fills_own_slot(walk):
            self._peer.join_protocol.request_link(walk.requester)
        elif walk.steps > 0:
            self._forward(walk, link)
        elif walk.free_slot_only:
            return  # the requester will flood a search next
        elif self._fills_own_slot(walk):
            link.send(WalkEnd(walk.walk_id))
            self._peer.join_protocol.request_link(walk.requester)
        elif self._is_usable(link, walk):
            self._offer_edge(link, walk)
        else:
            link.send(WalkEnd(walk.walk_id))
            self._continue(link, walk)

    def _fills_own_slot(self, walk: RandomWalk) -> bool:
        """With a free slot of our own, link to the requester directly; no edge is cut."""
        peer = self._peer
        return (
            walk.partner is None
            and peer.state is PeerState.CONNECTED
            and not peer.is_filling_slots
            and peer.links.unreserved_slots > 0
            and walk.requester.peer_id != peer.me.peer_id
            and walk.requester.peer_id not in peer.links
            and not peer.links.is_reserved(walk.requester.peer_id)
        )

    def _is_usable(self, link: "Link", walk: RandomWalk) -> bool:
        """Neither end may be the peer it would link to or a neighbor of it, and the edge must not be on offer."""
        peer = self._peer
        near, far = peer.me.peer_id, link.peer_id
        to_far = walk.partner.peer_id if walk.partner is not None else walk.requester.peer_id
        far_excluded = walk.partner_excluded if walk.partner is not None else walk.excluded
        return (
            peer.is_member
            and not link.is_draining
            and link.reserved_for is None
            and walk.requester.peer_id not in (near, far)
            and to_far not in (near, far)
            and near not in walk.excluded
            and walk.requester.peer_id not in peer.links
            and not peer.links.is_reserved(walk.requester.peer_id)
            and far not in far_excluded
        )

    def _continue(self, link: "Link", walk: RandomWalk) -> None:
        """Take one or two more steps from an unsuitable edge: without odd cycles, parity decides where a walk ends."""
        if walk.extra_steps > 0:
            steps = 1 + self._peer.runtime.random.getrandbits(1)
            self._forward(replace(walk, steps=steps, extra_steps=walk.extra_steps - 1), link)

    def on_walk_end(self, link: "Link", end: WalkEnd) -> None:
        if link.reserved_for == end.walk_id:
            link.release_edge()

    # -- offer, at the near end of the edge

    def _offer_edge(self, link: "Link", walk: RandomWalk) -> None:
        link.reserve_edge(walk.walk_id)

        def on_response(exchange: Exchange, response: WireMessage) -> None:
            result = response.result if isinstance(response, EdgeOfferResponse) else EdgeOfferResult.NO_FREE_SLOT
            if result is EdgeOfferResult.ACCEPTED:
                self._pin(exchange, link, walk)
                return
            self._release(link, walk)
            if result is EdgeOfferResult.UNSUITABLE:
                self._continue(link, walk)

        def on_failure(_reason: RejectReason | None) -> None:
            self._release(link, walk)

        near, far = self._peer.links.neighbors, link.neighbor_list or ()
        request = EdgeOffer(walk.walk_id, link.peer_info, walk.partner is not None, near, far, walk.extra_steps == 0)
        OutgoingExchange(self._peer, walk.requester, request, on_response, on_failure)

    def _pin(self, exchange: Exchange, link: "Link", walk: RandomWalk) -> None:
        """Replace the neighbor with the newcomer in one step, so our degree does not change."""
        peer = self._peer
        if peer.links.get(link.peer_id) is not link or link.reserved_for != walk.walk_id or not peer.is_member:
            return  # the edge is gone; the newcomer sees the connection close
        if exchange.remote.peer_id in peer.links:
            self._release(link, walk)
            return
        link.drain(Unlink(dial=walk.partner or walk.requester, await_dial=None))
        exchange.upgrade_to_link()

    def _release(self, link: "Link", walk: RandomWalk) -> None:
        if link.reserved_for == walk.walk_id:
            link.release_edge()
            link.send(WalkEnd(walk.walk_id))

    # -- offer, at the newcomer

    def on_edge_offer(self, exchange: IncomingExchange, offer: EdgeOffer) -> None:
        """Accept an edge if neither end is a neighbor and slots are free for both."""
        links = self._peer.links
        near, far = exchange.remote.peer_id, offer.far_end.peer_id
        slots_needed = 1 if offer.splits_pair else 2
        if near in links or links.is_reserved(near) or not exchange.has_position or not self._peer.is_present:
            result = EdgeOfferResult.UNSUITABLE
        elif not offer.splits_pair and (far in links or links.is_reserved(far) or far == self._peer.me.peer_id):
            result = EdgeOfferResult.UNSUITABLE
        elif links.unreserved_slots < slots_needed:
            result = EdgeOfferResult.NO_FREE_SLOT
        elif self._avoids_clusters(offer) and self._peer.two_hop_view.would_cluster(
            near, offer.near_neighbors, far, offer.far_neighbors
        ):
            result = EdgeOfferResult.UNSUITABLE
        else:
            result = EdgeOfferResult.ACCEPTED
        exchange.respond(EdgeOfferResponse(result))
        if result is EdgeOfferResult.ACCEPTED:
            exchange.upgrade_to_link()
            if not offer.splits_pair:
                links.await_dial(offer.far_end, announced_by=near)

    def _avoids_clusters(self, offer: EdgeOffer) -> bool:
        """Whether to wait for a better edge: not if the walk is at its end or earlier attempts failed."""
        return not (offer.splits_pair or offer.is_final or self._peer.slot_repair.is_urgent)
