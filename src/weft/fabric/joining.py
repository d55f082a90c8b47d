"""Becoming a member: asking to be woven in, taking links, and answering those who ask.

Everything here is also used by members that have holes: a peer that lost its neighbours joins again the way a
newcomer does, only that it keeps what it has heard.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.fabric.calls import Call, Incoming, Outgoing
from weft.fabric.state import State
from weft.wire import Contact, PeerId
from weft.wire.calls import JoinAnswer, JoinRequest, PortAnswer, PortRequest, Refusal
from weft.wire.codec import Message

if TYPE_CHECKING:
    from weft.fabric.peer import Peer

OnOver = Callable[[bool], None]
"""Told whether a link came of it."""


class Joining:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._courted: dict[PeerId, Outgoing] = {}
        """Calls of ours that ask for a link."""
        self.small = False
        """Whether newcomers shall be linked to everyone: set by founding, by whom we joined through, and by `views`."""

    # -- asking for one link

    def court(self, contact: Contact, on_over: OnOver | None = None) -> None:
        """Call a peer and ask for a link; the place is kept meanwhile."""
        if contact.peer in self._courted or not self._peer.links.claim(contact.peer):
            if on_over is not None:
                on_over(False)
            return

        def on_answer(call: Outgoing, answer: Message) -> bool:
            return isinstance(answer, PortAnswer) and self._linked(call)

        self._ask(contact, PortRequest(), on_answer, on_over)

    def _ask(
        self,
        contact: Contact,
        question: Message,
        on_answer: Callable[[Outgoing, Message], bool],
        on_over: OnOver | None,
    ) -> None:
        """A call that may become a link."""

        def answered(call: Call, answer: Message) -> None:
            if self._courted.get(contact.peer) is call:
                del self._courted[contact.peer]
            assert isinstance(call, Outgoing)
            over(on_answer(call, answer))

        def failed(_reason: Refusal | None) -> None:
            self._courted.pop(contact.peer, None)
            over(False)

        def over(linked: bool) -> None:
            if not linked and contact.peer not in self._courted:
                self._peer.links.unclaim(contact.peer)
            if on_over is not None:
                on_over(linked)
            if not linked:
                self._peer.repair.kick()

        self._courted[contact.peer] = Outgoing(self._peer, contact, question, answered, failed)

    def _linked(self, call: Outgoing) -> bool:
        links = self._peer.links
        peer = call.caller.peer
        if not self._peer.is_present or peer in links or not (links.claimed(peer) or links.free > 0):
            return False
        call.become_link()
        return True

    def on_port(self, call: Incoming, _request: PortRequest) -> None:
        """Somebody wants to fill a hole of ours."""
        reason = self._why_not(call)
        if reason is None:
            call.answer(PortAnswer())
            call.become_link()
        else:
            call.refuse(reason, "no link from here now")

    def _why_not(self, call: Incoming) -> Refusal | None:
        peer, caller = self._peer, call.caller.peer
        if not peer.is_present:
            return Refusal.LEAVING
        if caller in peer.links:
            return Refusal.ALREADY_NEIGHBOURS
        if not (call.settled or peer.stream.settled):
            return Refusal.NOT_READY
        if caller in self._courted:
            # Each calls the other: the call of the lower id goes on, the other one is dropped.
            if peer.me.peer < caller:
                return Refusal.BUSY
            self._courted[caller].abandon()
        if not peer.links.claimed(caller) and peer.links.free <= 0:
            return Refusal.NO_ROOM
        return None

    # -- asking to be woven in

    def join_through(self, contact: Contact, on_over: OnOver) -> None:
        """Ask a connected peer for all that we lack."""
        links = self._peer.links
        if contact.peer in self._courted or contact.peer in links or links.free <= 0:
            on_over(False)
            return
        # No place is kept: many may be asked, few may answer, and whoever comes meanwhile is as welcome.
        question = JoinRequest(links.free, links.neighbours)

        accepted = False

        def on_answer(call: Outgoing, answer: Message) -> bool:
            nonlocal accepted
            if not isinstance(answer, JoinAnswer):
                return False
            accepted = True
            self._peer.diameter.told(answer.diameter)
            self._peer.contacts.add_all(answer.sample)
            linked = answer.linked and self._linked(call)
            if answer.small and linked:
                self._link_to_all(answer.members)
            return linked

        self._ask(contact, question, on_answer, lambda _linked: on_over(accepted))

    def _link_to_all(self, members: tuple[Contact, ...]) -> None:
        """The small regime: call everyone; when all have answered, there is no more to wait for."""
        self.small = self._peer.links.holes > 0
        left = len(members)

        def over(_linked: bool) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._peer.enough()

        for member in members:
            self.court(member, over)
        if not members:
            self._peer.enough()

    def on_join(self, call: Incoming, request: JoinRequest) -> None:
        """Weave a newcomer in: directly if we have a hole, by walks for the rest."""
        peer, links, caller = self._peer, self._peer.links, call.caller
        if peer.state is not State.CONNECTED:
            call.refuse(Refusal.NOT_CONNECTED, "this peer is still seeking the channel itself")
            return
        small = self.small and links.holes > 0
        members = links.contacts if small else ()
        linked = self._why_not(call) is None
        sample = peer.contacts.sample(peer.settings.sample)
        call.answer(JoinAnswer(linked, small, peer.diameter.estimate, members, sample))
        if linked:
            call.become_link()
        else:
            call.hang_up()
        if not small:
            avoid = request.neighbours[: peer.settings.degree] + ((peer.me.peer,) if linked else ())
            for _ in range((min(request.holes, peer.settings.degree) - linked) // 2):
                peer.walks.start(caller, avoid)
