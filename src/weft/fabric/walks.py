"""Walks: how a random edge is found for a newcomer, and how it is pinned.

A walk is handed from neighbour to random neighbour. Where it ends, the edge over which it came is offered to the
requester; if accepted, the edge is cut and both its ends link to the requester (or one of them to its partner). Both
ends reserve the edge meanwhile: the one that made the last step when it sent the walk, the one that offers when it
arrives; so an edge is never sold twice. Reservations lapse by themselves.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from weft.fabric.calls import Call, Incoming, Outgoing
from weft.fabric.diameter import ESTIMATE_MAX
from weft.fabric.state import State
from weft.wire import Contact, PeerId
from weft.wire.calls import Offer, OfferAnswer, Refusal, Verdict
from weft.wire.codec import Message
from weft.wire.links import Cut, Walk, WalkOver

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer


STEPS_MAX = 2 * ESTIMATE_MAX + 1


class Walks:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer

    def start(
        self,
        requester: Contact,
        avoid: tuple[PeerId, ...],
        partner: Contact | None = None,
        partner_avoid: tuple[PeerId, ...] = (),
        *,
        hole_only: bool = False,
    ) -> None:
        """Send a walk on its way: about twice the diameter, one more or less for parity."""
        random = self._peer.world.random
        steps = 2 * max(self._peer.diameter.estimate, 2) + random.getrandbits(1)
        spare = self._peer.settings.walk_spare
        walk = Walk(random.getrandbits(64), requester, partner, avoid, partner_avoid, hole_only, steps, spare)
        self._hand_on(walk, None)

    def _hand_on(self, walk: Walk, came_over: "Link | None") -> None:
        """One step. The edge of the last step is reserved at this end now, at the other when the walk arrives."""
        last_step = walk.steps <= 1 and not walk.hole_only
        link = self._peer.links.pick(came_over, unreserved=last_step) or came_over
        if link is None or (last_step and link.reserved is not None):
            return  # nowhere to go; the requester will try again
        if last_step:
            link.reserve(walk.walk)
        # What a stranger wrote shall not wander for ever.
        steps, spare = min(walk.steps, STEPS_MAX) - 1, min(walk.spare, self._peer.settings.walk_spare)
        link.send(replace(walk, steps=max(steps, 0), spare=spare))

    def on_walk(self, link: "Link", walk: Walk) -> None:
        self._peer.contacts.add(walk.requester)
        if walk.hole_only and self._fills_own_hole(walk):
            self._peer.joining.court(walk.requester)
        elif walk.steps > 0:
            self._hand_on(walk, link)
        elif walk.hole_only:
            return  # no hole on the way; the requester will ask everyone
        elif self._fills_own_hole(walk):
            link.send(WalkOver(walk.walk))
            self._peer.joining.court(walk.requester)
        elif self._is_usable(link, walk):
            self._offer(link, walk)
        else:
            link.send(WalkOver(walk.walk))
            self._go_on(link, walk)

    def _fills_own_hole(self, walk: Walk) -> bool:
        """With a hole of our own, no edge need be cut: link to the requester directly."""
        peer = self._peer
        return (
            walk.partner is None
            and peer.state is State.CONNECTED  # a newcomer's holes are being seen to
            and peer.links.free > 0
            and walk.requester.peer != peer.me.peer
            and walk.requester.peer not in peer.links
            and not peer.links.claimed(walk.requester.peer)
        )

    def _is_usable(self, link: "Link", walk: Walk) -> bool:
        """Neither end may be the one it is to be linked to, or its neighbour already; nor on offer to another."""
        peer = self._peer
        near, far = peer.me.peer, link.neighbour
        to_far = walk.partner.peer if walk.partner is not None else walk.requester.peer
        far_avoid = walk.partner_avoid if walk.partner is not None else walk.avoid
        return (
            peer.is_member
            and not link.draining
            and link.reserved is None
            and walk.requester.peer not in (near, far)
            and to_far not in (near, far)
            and near not in walk.avoid
            and walk.requester.peer not in peer.links
            and not peer.links.claimed(walk.requester.peer)
            and far not in far_avoid
        )

    def _go_on(self, link: "Link", walk: Walk) -> None:
        """An end of no use: one or two more steps. (In a fabric without odd cycles, parity decides where one ends.)"""
        if walk.spare > 0:
            steps = 1 + self._peer.world.random.getrandbits(1)
            self._hand_on(replace(walk, steps=steps, spare=walk.spare - 1), link)

    def on_walk_over(self, link: "Link", over: WalkOver) -> None:
        if link.reserved == over.walk:
            link.release()

    # -- the offer, from the side of the edge

    def _offer(self, link: "Link", walk: Walk) -> None:
        link.reserve(walk.walk)

        def on_answer(call: Call, answer: Message) -> None:
            verdict = answer.verdict if isinstance(answer, OfferAnswer) else Verdict.FULL
            if verdict is Verdict.ACCEPTED:
                self._pin(call, link, walk)
                return
            self._release(link, walk)
            if verdict is Verdict.UNUSABLE:
                self._go_on(link, walk)

        def on_failure(_reason: Refusal | None) -> None:
            self._release(link, walk)

        near, far = self._peer.links.neighbours, link.view or ()
        question = Offer(walk.walk, link.contact, walk.partner is not None, near, far, walk.spare == 0)
        Outgoing(self._peer, walk.requester, question, on_answer, on_failure)

    def _pin(self, call: Call, link: "Link", walk: Walk) -> None:
        """Accepted: swap the neighbour for the newcomer in one go, so that our degree never changes."""
        peer = self._peer
        if peer.links.get(link.neighbour) is not link or link.reserved != walk.walk or not peer.is_member:
            return  # the edge is gone meanwhile; the newcomer sees us hang up
        if call.caller.peer in peer.links:
            self._release(link, walk)
            return
        link.drain(Cut(call=walk.partner or walk.requester, expect=None))
        call.become_link()

    def _release(self, link: "Link", walk: Walk) -> None:
        if link.reserved == walk.walk:
            link.release()
            link.send(WalkOver(walk.walk))

    # -- the offer, from the side of the newcomer

    def on_offer(self, call: Incoming, offer: Offer) -> None:
        """Accept edges that are disjoint from what we have, as long as there is place for both ends."""
        links = self._peer.links
        near, far = call.caller.peer, offer.other.peer
        places = 1 if offer.pair else 2
        if near in links or links.claimed(near) or not call.settled or not self._peer.is_present:
            verdict = Verdict.UNUSABLE
        elif not offer.pair and (far in links or links.claimed(far) or far == self._peer.me.peer):
            verdict = Verdict.UNUSABLE
        elif links.free < places:
            verdict = Verdict.FULL
        elif self._is_choosy(offer) and self._peer.views.would_be_dense(near, offer.near, far, offer.far):
            verdict = Verdict.UNUSABLE
        else:
            verdict = Verdict.ACCEPTED
        call.answer(OfferAnswer(verdict))
        if verdict is Verdict.ACCEPTED:
            call.become_link()
            if not offer.pair:
                links.claim(far)

    def _is_choosy(self, offer: Offer) -> bool:
        """Whether a better edge may be waited for: not if the walk is at its end, or if we have waited before."""
        return not (offer.pair or offer.last_chance or self._peer.repair.is_urgent)
