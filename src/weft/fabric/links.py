"""The places of a peer: which are taken by links, which are kept for somebody, which are holes.

Everything that makes or ends a link goes through here, so that no peer ever has more than its degree.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft.fabric.events import LinkDown, LinkUp, Why
from weft.fabric.link import Link
from weft.wire import Contact, PeerId

if TYPE_CHECKING:
    from weft.fabric.peer import Peer
    from weft.fabric.world import Timer


class Links:
    """At most `degree` of links and claims together."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._links: dict[PeerId, Link] = {}
        self._claims: dict[PeerId, Timer] = {}
        self._was_alone = False
        """Had no neighbour at all for a time, so may have missed more than neighbours speak of by themselves."""

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def __contains__(self, peer: object) -> bool:
        return peer in self._links

    def get(self, peer: PeerId) -> Link | None:
        return self._links.get(peer)

    @property
    def contacts(self) -> tuple[Contact, ...]:
        return tuple(link.contact for link in self._links.values())

    @property
    def neighbours(self) -> tuple[PeerId, ...]:
        return tuple(self._links)

    @property
    def holes(self) -> int:
        """Places without a link, whether kept for somebody or not."""
        return self._peer.settings.degree - len(self._links)

    @property
    def free(self) -> int:
        """Places that nobody has and nobody was promised."""
        return self._peer.settings.degree - len(self._links) - len(self._claims)

    # -- claims: a place kept for a peer that we call or that will call us

    def claim(self, peer: PeerId) -> bool:
        """Keep a place for this peer for a while. False if it is a neighbour already or there is no place."""
        if peer in self._links or peer == self._peer.me.peer:
            return False
        claimed = self._claims.pop(peer, None)
        if claimed is not None:
            claimed.cancel()
        elif self.free <= 0:
            return False
        self._claims[peer] = self._peer.world.after(self._peer.settings.claim_s, self._lapse, peer)
        return True

    def claimed(self, peer: PeerId) -> bool:
        return peer in self._claims

    def unclaim(self, peer: PeerId) -> None:
        timer = self._claims.pop(peer, None)
        if timer is not None:
            timer.cancel()

    def _lapse(self, peer: PeerId) -> None:
        del self._claims[peer]
        self._peer.repair.kick()

    # -- links

    def add(self, link: Link, *, complete: bool) -> None:
        """A call became a link. The caller of this has made sure that there is a place. `complete`: the other end is
        new, or may have been apart from us for long, so it shall hear of every author."""
        self.unclaim(link.neighbour)
        if link.neighbour in self._links or self.free <= 0:
            raise AssertionError(f"no place for {link.contact}")
        self._peer.stream.pack()  # what was said so far goes to the others now, and over this link by reconciliation
        self._links[link.neighbour] = link
        self._peer.contacts.answered(link.contact)
        self._peer.happened(LinkUp(link.contact))
        self._peer.stream.reconcile.greet(link, complete=complete or self._was_alone)
        self._was_alone = False
        self._peer.on_links_changed(None)

    def remove(self, link: Link, why: Why) -> None:
        """A link ended or is being drained; does nothing if it was removed before."""
        if self._links.get(link.neighbour) is not link:
            return
        del self._links[link.neighbour]
        self._was_alone = self._was_alone or not self._links
        link.release()
        self._peer.stream.tree.link_lost(link)
        self._peer.happened(LinkDown(link.contact, why))
        self._peer.on_links_changed(why)

    def pick(self, avoid: Link | None = None, *, unreserved: bool = False) -> Link | None:
        """A random link, but not `avoid`."""
        choices = [
            link
            for link in self._links.values()
            if link is not avoid and not (unreserved and link.reserved is not None)
        ]
        return self._peer.world.random.choice(choices) if choices else None

    def clear_claims(self) -> None:
        for timer in self._claims.values():
            timer.cancel()
        self._claims.clear()
