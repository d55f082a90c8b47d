"""Filling holes: whoever lacks a neighbour does something about it, and goes on until nobody does.

One hole: a walk looks for another peer with a hole (after a disaster there are many), and if it finds none a search
is flooded: whoever has a hole too, and is no neighbour yet, calls. Two holes or more: the peer pins itself onto a
random edge, as a newcomer would. If that stays without an answer, addresses of the cache and the portals are called
as well. Two neighbours that lack one link each cannot help each other: for them a random edge is cut and pinned onto
both. Attempts become rare when they do not help: with an odd degree and an odd number of peers, one hole must
remain.
"""

from collections import deque
from typing import TYPE_CHECKING

from weft.fabric.state import State
from weft.wire import Contact
from weft.wire.links import PortSearch

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.world import Timer

KNOCKS = 3
"""Cached addresses called in one attempt."""
KNOCKS_ALONE = 8
"""The same, for a peer without any link."""
PATIENCE = 2
"""Attempts within the fabric before the cache is asked as well."""
RECENT_S = 2.0
"""Searches of so recent times tell how many others have holes."""
CALLERS = 3
"""About so many of them shall call one that searches."""


class Repair:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._attempt = 0
        self._timer: Timer | None = None
        self._searches: deque[float] = deque(maxlen=1000)
        """When others were heard to search."""

    @property
    def is_urgent(self) -> bool:
        """Attempts have failed already."""
        return self._attempt > 1

    def kick(self) -> None:
        """Something changed: if there is a hole, see to it soon. An attempt already planned stays as it is."""
        if self._timer is None:
            settings, random = self._peer.settings, self._peer.world.random.random()
            # A newcomer gives the walks that were started for it a chance first.
            delay_s = settings.repair_s if self._peer.state is State.CONNECTED else settings.join_s / 2
            self._timer = self._peer.world.after(delay_s * (0.1 + random), self._try)

    def alarm(self) -> None:
        """A neighbour was lost: begin again with short pauses."""
        self.stop()
        self.kick()

    def stop(self) -> None:
        """Nothing to do; whatever comes next is a new matter."""
        self._attempt = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try(self) -> None:
        self._timer = None
        peer, links = self._peer, self._peer.links
        if not peer.is_member or links.holes == 0:
            return
        if peer.views.small:
            # The small regime: holes are as they should be. But if we got here by losing others without a word, they
            # may be small by the same misfortune: whoever lives and is no neighbour is in another part.
            if not peer.merging.alarmed:
                return
            self._knock()
        elif links.free > 0:
            self._seek_links()
        settings = peer.settings
        pause_max_s = settings.repair_alarmed_s if peer.merging.alarmed else settings.repair_max_s
        pause_s = min(settings.repair_wait_s * 2 ** (self._attempt // 2), pause_max_s)
        self._attempt = min(self._attempt + 1, 16)
        self._timer = peer.world.after(pause_s * (0.5 + peer.world.random.random()), self._try)

    def _seek_links(self) -> None:
        peer, links = self._peer, self._peer.links
        if len(links) == 0:
            self._knock()
            return
        partner = peer.views.lacking_neighbour()
        if links.free >= 2 and self._attempt % 2 == 0:
            for _ in range(links.free // 2):
                peer.walks.start(peer.me, links.neighbours)
        elif links.free == 1 and partner is not None and peer.me.peer < partner.neighbour and self._attempt > 0:
            # Neighbours with empty ports: they cannot give the link to each other, so a random edge is cut and pinned
            # onto the two, one end each. One of them is enough to ask for it: the one with the lower id.
            peer.walks.start(peer.me, links.neighbours, partner.contact, partner.view or ())
        elif self._attempt % 2 == 0:
            peer.walks.start(peer.me, links.neighbours, hole_only=True)
        else:
            peer.floods.start(PortSearch, peer.me)
        if self._attempt >= PATIENCE:
            self._knock()

    def _knock(self) -> None:
        """Beyond the fabric's own reach: call peers we have heard of, and the portals."""
        peer = self._peer
        called = [peer.me.peer, *peer.links.neighbours]
        for knock in range(KNOCKS if len(peer.links) else KNOCKS_ALONE):
            contact = peer.contacts.pick(called, hopeful=knock > 0)
            if contact is not None:
                called.append(contact.peer)
                self._call(contact)
        if self._attempt % 4 == 1 or not len(peer.contacts):
            peer.seeking.knock_at_portals(self._call)

    def _call(self, contact: Contact) -> None:
        if self._peer.links.free > 0:
            self._peer.joining.join_through(contact, lambda _accepted: None)

    def on_port_search(self, _link: "Link", search: PortSearch) -> None:
        """Somebody has a hole. With one of our own: call."""
        peer, requester, now = self._peer, search.requester, self._peer.world.now()
        peer.contacts.add(requester)
        while self._searches and self._searches[0] < now - RECENT_S:
            self._searches.popleft()
        self._searches.append(now)
        if peer.state is not State.CONNECTED or peer.links.free <= 0 or requester.peer in peer.links:
            return  # (a newcomer's holes are being seen to)
        if not peer.links.claimed(requester.peer) and peer.world.random.random() * len(self._searches) < CALLERS:
            peer.joining.court(requester)  # not all at once: only one of us can have the place
