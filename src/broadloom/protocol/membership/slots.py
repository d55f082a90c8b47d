"""The places of a peer: which are taken by links, which are kept for somebody, which are holes.

Everything that makes or ends a link goes through here, so that no peer ever has more than its degree.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broadloom.protocol.events import LinkDown, LinkDownReason, LinkUp
from broadloom.protocol.link import Link
from broadloom.wire import PeerId, PeerInfo

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer


class SlotTable:
    """At most `degree` of links and claims together."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._links: dict[PeerId, Link] = {}
        self._reservations: dict[PeerId, Timer] = {}
        self._was_isolated = False
        """Had no neighbour at all for a time, so may have missed more than neighbours speak of by themselves."""

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def __contains__(self, peer: object) -> bool:
        return peer in self._links

    def get(self, peer_id: PeerId) -> Link | None:
        return self._links.get(peer_id)

    @property
    def peer_infos(self) -> tuple[PeerInfo, ...]:
        return tuple(link.peer_info for link in self._links.values())

    @property
    def neighbors(self) -> tuple[PeerId, ...]:
        return tuple(self._links)

    @property
    def free_slots(self) -> int:
        """Places without a link, whether kept for somebody or not."""
        return self._peer.settings.degree - len(self._links)

    @property
    def unreserved_slots(self) -> int:
        """Places that nobody has and nobody was promised."""
        return self._peer.settings.degree - len(self._links) - len(self._reservations)

    # -- claims: a place kept for a peer that we call or that will call us

    def reserve(self, peer_id: PeerId) -> bool:
        """Keep a place for this peer for a while. False if it is a neighbour already or there is no place."""
        if peer_id in self._links or peer_id == self._peer.me.peer_id:
            return False
        timer = self._reservations.pop(peer_id, None)
        if timer is not None:
            timer.cancel()
        elif self.unreserved_slots <= 0:
            return False
        self._reservations[peer_id] = self._peer.runtime.call_later(
            self._peer.settings.slot_reservation_s, self._expire, peer_id
        )
        return True

    def is_reserved(self, peer_id: PeerId) -> bool:
        return peer_id in self._reservations

    def release(self, peer_id: PeerId) -> None:
        timer = self._reservations.pop(peer_id, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, peer_id: PeerId) -> None:
        del self._reservations[peer_id]
        self._peer.slot_repair.schedule()

    # -- links

    def add(self, link: Link, *, complete: bool) -> None:
        """A call became a link. The caller of this has made sure that there is a place. `complete`: the other end is
        new, or may have been apart from us for long, so it shall hear of every author."""
        self.release(link.peer_id)
        if link.peer_id in self._links or self.unreserved_slots <= 0:
            raise AssertionError(f"no place for {link.peer_info}")
        # What was said so far goes to the others now, and over this link by reconciliation.
        self._peer.broadcaster.flush()
        self._links[link.peer_id] = link
        self._peer.peer_cache.mark_alive(link.peer_info)
        self._peer.emit(LinkUp(link.peer_info))
        self._peer.broadcaster.anti_entropy.send_digest(link, is_complete=complete or self._was_isolated)
        self._was_isolated = False
        self._peer.on_links_changed(None)

    def remove(self, link: Link, reason: LinkDownReason) -> None:
        """A link ended or is being drained; does nothing if it was removed before."""
        if self._links.get(link.peer_id) is not link:
            return
        del self._links[link.peer_id]
        self._was_isolated = self._was_isolated or not self._links
        link.release_edge()
        self._peer.broadcaster.on_link_lost(link)
        self._peer.emit(LinkDown(link.peer_info, reason))
        self._peer.on_links_changed(reason)

    def pick(self, excluded: Link | None = None, *, unreserved: bool = False) -> Link | None:
        """A random link, but not `avoid`."""
        choices = [
            link
            for link in self._links.values()
            if link is not excluded and not (unreserved and link.reserved_for is not None)
        ]
        return self._peer.runtime.random.choice(choices) if choices else None

    def clear_reservations(self) -> None:
        for timer in self._reservations.values():
            timer.cancel()
        self._reservations.clear()
