"""One fabric or two: probes, and how parts that lost sight of each other are joined.

Now and then each peer asks one of its cache which beacon it hears. If they differ, the two are in different parts,
and link: through holes if they have any, else each gives an edge (u-v and x-y become u-x and v-y), so everyone keeps
its number of links. The greeting on the new links reconciles the messages. A false alarm costs no more than an exchange
of edges.
"""

from typing import TYPE_CHECKING

from weft.fabric.calls import Call, Incoming, Outgoing
from weft.wire.calls import Probe, ProbeAnswer, Refusal, Union
from weft.wire.codec import Message
from weft.wire.links import Cut
from weft.wire.types import Contact

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer

PORTAL_SHARE = 0.05
"""Share of probes that look at the portals too, where others may have founded the channel once more."""


class Merging:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._probe_at = 0.0
        self._loosen_at = 0.0
        self._cut_again_at = 0.0
        self._alarmed_until = 0.0

    def begin(self) -> None:
        """This peer became a member."""
        self._probe_at = self._next_probe(self._peer.world.now())

    def alarm(self) -> None:
        """A neighbour was lost without a word: perhaps more than that. Look around more often for a while."""
        now = self._peer.world.now()
        self._alarmed_until = now + self._peer.settings.alarm_s
        self._probe_at = min(self._probe_at, self._next_probe(now))

    @property
    def alarmed(self) -> bool:
        return self._peer.world.now() < self._alarmed_until

    def tick(self, now: float) -> None:
        if now >= self._probe_at:
            self._probe_at = self._next_probe(now)
            self._probe()
        elif now >= self._loosen_at:
            self._loosen_at = now + self._peer.settings.loosen_s * (0.5 + self._peer.world.random.random())
            self._loosen()

    def _next_probe(self, now: float) -> float:
        settings = self._peer.settings
        hurry = self.alarmed or not len(self._peer.links)
        period_s = settings.probe_alarmed_s if hurry else settings.probe_s
        return now + period_s * (0.5 + self._peer.world.random.random())

    # -- probes

    def _probe(self) -> None:
        peer = self._peer
        contact = peer.contacts.pick(peer.links.neighbours)
        if contact is None or not len(peer.links) or peer.world.random.random() < PORTAL_SHARE:
            peer.seeking.knock_at_portals(self._ask)
        if contact is not None:
            self._ask(contact)

    def _loosen(self) -> None:
        """An edge in a dense spot, where few deaths could tear the fabric: exchange it with a random one."""
        dense = self._peer.views.dense_link()
        contact = self._peer.contacts.pick(self._peer.links.neighbours)
        if dense is not None and dense.reserved is None and contact is not None:
            self._ask(contact, dense)

    def _ask(self, contact: Contact, dense: "Link | None" = None) -> None:
        """Ask one peer; if the answer is a union, the call becomes a link."""
        peer, links = self._peer, self._peer.links
        if not peer.is_member or contact.peer in links:
            return
        edge = dense or links.pick(unreserved=True)
        if edge is not None:
            edge.reserve(contact.peer)  # not to be promised elsewhere meanwhile
        sample = peer.contacts.sample(peer.settings.sample)
        given = edge.contact if edge is not None else None
        question = Probe(peer.beacons.mark, links.free, links.neighbours, given, dense is not None, sample)

        def over() -> None:
            if edge is not None and edge.reserved == contact.peer:
                edge.release()

        def on_answer(call: Call, answer: Message) -> None:
            usable = edge is not None and links.get(edge.neighbour) is edge and edge.reserved == contact.peer
            over()
            if isinstance(answer, ProbeAnswer):
                peer.contacts.add_all(answer.sample)
                self._unite(call, answer, edge if usable else None)

        def on_failure(_reason: Refusal | None) -> None:
            over()

        Outgoing(peer, contact, question, on_answer, on_failure)

    def _unite(self, call: Call, answer: ProbeAnswer, edge: "Link | None") -> None:
        """Do our share of the union; hanging up leaves the other with a hole, which it will fill."""
        peer, links = self._peer, self._peer.links
        union, other = answer.union, call.caller
        if union is Union.NOTHING or not peer.is_member or other.peer in links:
            return
        if union in (Union.PIN_CALLED, Union.EXCHANGE):
            if edge is None:
                return
            edge.drain(Cut(call=other if union is Union.PIN_CALLED else answer.edge, expect=None))
        elif links.free < (2 if union is Union.PIN_CALLER else 1):
            return
        call.become_link(after_parting=True)
        if union is Union.PIN_CALLER and answer.edge is not None:
            links.claim(answer.edge.peer)
        peer.beacons.united(answer.beacon)

    def on_probe(self, call: Incoming, probe: Probe) -> None:
        """Compare beacons and choose the union. Ours is the second move, so ours is the choice."""
        peer = self._peer
        peer.contacts.add_all(probe.sample)
        union, edge = Union.NOTHING, None
        if peer.is_member and call.caller.peer not in peer.links:
            if not peer.links.claimed(call.caller.peer):
                if not peer.beacons.of_one_fabric(probe.beacon):
                    union, edge = self._choose(call.caller, probe)
                elif probe.loosen and peer.links.holes == 0:
                    union, edge = self._exchange(call.caller, probe)
        sample = peer.contacts.sample(peer.settings.sample)
        call.answer(ProbeAnswer(peer.beacons.mark, union, edge.contact if edge is not None else None, sample))
        if union is Union.NOTHING:
            return
        if edge is not None:
            # Not too often: with a tale of another beacon, a stranger could replace our neighbours one by one.
            self._cut_again_at = peer.world.now() + peer.settings.probe_alarmed_s
            # The other end of our edge goes to the caller, or to the other end of the caller's.
            if union is Union.PIN_CALLER:
                edge.drain(Cut(call=call.caller, expect=None))
            else:
                edge.drain(Cut(call=None, expect=probe.edge))
        call.become_link(after_parting=True)
        if union is Union.PIN_CALLED and probe.edge is not None:
            peer.links.claim(probe.edge.peer)
        peer.beacons.united(probe.beacon)

    def _choose(self, caller: Contact, probe: Probe) -> "tuple[Union, Link | None]":
        links = self._peer.links
        if links.free >= 1 and probe.holes >= 1:
            return Union.LINK, None
        if self._peer.beacons.mark is None and probe.beacon is None:
            return Union.NOTHING, None  # no beacon on either side: nothing to compare, so no edge is cut for it
        edge, usable = self._edges(caller, probe)
        if probe.holes >= 2 and edge is not None:
            return Union.PIN_CALLER, edge
        if links.free >= 2 and usable:
            return Union.PIN_CALLED, None
        return self._exchange(caller, probe)

    def _exchange(self, caller: Contact, probe: Probe) -> "tuple[Union, Link | None]":
        edge, usable = self._edges(caller, probe)
        if edge is not None and usable and probe.edge is not None and probe.edge.peer != edge.neighbour:
            return Union.EXCHANGE, edge
        return Union.NOTHING, None

    def _edges(self, caller: Contact, probe: Probe) -> "tuple[Link | None, bool]":
        """An edge of ours that could be given, and whether the caller's could be taken."""
        links, far = self._peer.links, probe.edge
        may_cut = self._peer.world.now() >= self._cut_again_at
        edge = links.pick(unreserved=True) if may_cut else None
        if edge is not None and (edge.neighbour in probe.neighbours or edge.neighbour == caller.peer):
            edge = None
        if edge is not None and edge.view is not None and far is not None and far.peer in edge.view:
            edge = None  # the two other ends are neighbours already
        return edge, far is not None and far.peer not in links and far.peer != self._peer.me.peer
