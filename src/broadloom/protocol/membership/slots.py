"""`SlotTable`: the slots of a peer, each a link, a reservation or free.

Every link is added and removed here, so a peer never has more links than its degree.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broadloom.protocol.events import LinkDown, LinkDownReason, LinkUp
from broadloom.protocol.link import Link
from broadloom.wire import PeerId, PeerInfo

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer


class SlotTable:
    """Links and reservations, together at most `degree`."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._links: dict[PeerId, Link] = {}
        self._reservations: dict[PeerId, Timer] = {}
        self._announced_by: dict[PeerId, PeerId] = {}
        """The neighbor that announced the peer for which a slot is reserved, and may withdraw it."""
        self._was_isolated = False
        """Was without any neighbor, so may have missed more than an incremental digest lists."""

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
        """Slots without a link, reserved or not."""
        return self._peer.settings.degree - len(self._links)

    @property
    def unreserved_slots(self) -> int:
        return self._peer.settings.degree - len(self._links) - len(self._reservations)

    # -- reservations, for a peer that we dial or that will dial us

    def reserve(self, peer_id: PeerId, *, announced_by: PeerId | None = None) -> bool:
        """Reserve a slot for a limited time. False if the peer is already a neighbor or no slot is free."""
        delay_s = self._peer.pacing.stretched(self._peer.settings.slot_reservation_s)
        return self._reserve(peer_id, announced_by, delay_s, self._expire, peer_id)

    def await_dial(self, peer_info: PeerInfo, announced_by: PeerId) -> None:
        """Reserve a slot for a peer that a neighbor announced. If it does not dial soon, it is dialed: its own
        announcement may have been lost with a link that was cut at the same moment."""
        delay_s = self._peer.pacing.stretched(self._peer.settings.announced_dial_s)
        self._reserve(peer_info.peer_id, announced_by, delay_s, self._peer.join_protocol.request_link, peer_info)

    def _reserve(
        self,
        peer_id: PeerId,
        announced_by: PeerId | None,
        delay_s: float,
        on_timeout: Callable[..., None],
        argument: PeerId | PeerInfo,
    ) -> bool:
        if peer_id in self._links or peer_id == self._peer.me.peer_id:
            return False
        timer = self._reservations.pop(peer_id, None)
        if timer is not None:
            timer.cancel()
        elif self.unreserved_slots <= 0:
            return False
        self._reservations[peer_id] = self._peer.runtime.call_later(delay_s, on_timeout, argument)
        if announced_by is not None:
            self._announced_by[peer_id] = announced_by
        return True

    def is_reserved(self, peer_id: PeerId) -> bool:
        return peer_id in self._reservations

    def release(self, peer_id: PeerId) -> None:
        timer = self._reservations.pop(peer_id, None)
        self._announced_by.pop(peer_id, None)
        if timer is not None:
            timer.cancel()

    def release_announced(self, announced_by: PeerId) -> None:
        """This neighbor rewired one of our links, but could not do its part: whom it announced will not come."""
        for peer_id in [each for each, neighbor in self._announced_by.items() if neighbor == announced_by]:
            self.release(peer_id)

    def _expire(self, peer_id: PeerId) -> None:
        self.release(peer_id)
        self._peer.slot_repair.schedule()

    # -- links

    def add(self, link: Link, *, complete: bool) -> None:
        """Add a link; the caller has checked that a slot is free. `complete`: the neighbor is new, or may have been
        separated from us for long, so the digest lists every author."""
        self.release(link.peer_id)
        if link.peer_id in self._links or self.unreserved_slots <= 0:
            raise AssertionError(f"no free slot for {link.peer_info}")
        # Bundled messages go to the other links now, and over this one by anti-entropy.
        self._peer.broadcaster.flush()
        self._links[link.peer_id] = link
        self._peer.broadcaster.plumtree.on_link_added()
        self._peer.peer_cache.mark_alive(link.peer_info)
        self._peer.emit(LinkUp(link.peer_info, link.identity))
        self._peer.broadcaster.anti_entropy.send_digest(link, is_complete=complete or self._was_isolated)
        self._was_isolated = False
        self._peer.on_links_changed(None)

    def remove(self, link: Link, reason: LinkDownReason) -> None:
        """Free the slot of a link that ended or is being drained. Does nothing if it was removed before."""
        if self._links.get(link.peer_id) is not link:
            return
        del self._links[link.peer_id]
        self._was_isolated = self._was_isolated or not self._links
        link.release_edge()
        self._peer.broadcaster.on_link_lost(link)
        self._peer.emit(LinkDown(link.peer_info, reason))
        self._peer.on_links_changed(reason)
        if reason is LinkDownReason.CONNECTION_LOST and not link.digest_received:
            self._on_rewiring_failed(link)

    def _on_rewiring_failed(self, link: Link) -> None:
        """The other side closed a link before its digest, so it could not do its part of a rewiring. Undo ours."""
        self.release_announced(link.peer_id)
        if link.replaced is not None and self._peer.is_present:
            self._peer.join_protocol.request_link(link.replaced)

    def pick(self, excluded: Link | None = None, *, unreserved: bool = False) -> Link | None:
        """A random link other than `excluded`."""
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
        self._announced_by.clear()
