"""`TwoHopView`: the neighbors of a peer's neighbors, from the neighbor lists that all peers exchange.

It detects three things: a full mesh, in which every list in view is the same and free slots are normal; neighbors that
also have a free slot; and clusters, neighbors with many neighbors in common, where few failures could partition the
fabric.
"""

from typing import TYPE_CHECKING

from broadloom.wire import PeerId, encode
from broadloom.wire.link_messages import NeighborList

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

SHARED_NEIGHBORS_MAX = 1
"""Neighbors in common that do not count as a cluster: one is common in a random graph, two are not."""
DECLUSTER_SIZE_FACTOR = 4
"""Fabrics smaller than this multiple of the degree are clustered by nature."""


class TwoHopView:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._timer: Timer | None = None
        self.is_full_mesh = False
        """Every neighbor has the same neighbors, and fewer than `degree`."""

    def on_links_changed(self) -> None:
        self._recompute()
        if self._timer is None and self._peer.is_present:
            self._timer = self._peer.runtime.call_later(
                self._peer.settings.neighbor_list_delay_s, self._send_neighbor_list
            )

    def _send_neighbor_list(self) -> None:
        self._timer = None
        frame = encode(NeighborList(self._peer.links.neighbors))
        for link in self._peer.links:
            link.send_frame(frame)

    def on_neighbor_list(self, link: "Link", message: NeighborList) -> None:
        link.neighbor_list = message.neighbors
        self._recompute()

    def _recompute(self) -> None:
        links = self._peer.links
        own_clique = sorted((*links.neighbors, self._peer.me.peer_id))
        was_full_mesh = self.is_full_mesh
        self.is_full_mesh = 0 < len(links) < self._peer.settings.degree and all(
            link.neighbor_list is not None and sorted((*link.neighbor_list, link.peer_id)) == own_clique
            for link in links
        )
        if self.is_full_mesh and not was_full_mesh:
            self._peer.join_protocol.set_full_mesh(True)
            self._peer.diameter.reset()
        elif was_full_mesh and not self.is_full_mesh:
            self._peer.slot_repair.restart()  # free slots are no longer normal

    def neighbor_with_free_slot(self) -> "Link | None":
        degree = self._peer.settings.degree
        for link in self._peer.links:
            if link.neighbor_list is not None and len(link.neighbor_list) < degree:
                return link
        return None

    # -- clusters

    def would_cluster(
        self, near: PeerId, near_neighbors: tuple[PeerId, ...], far: PeerId, far_neighbors: tuple[PeerId, ...]
    ) -> bool:
        """Whether pinning the edge between these two here would link us to neighbors of our neighbors."""
        if self._peer.diameter.is_small:
            return False
        own_neighbors = self._peer.links.neighbors
        return any(each in own_neighbors for each in near_neighbors if each != far) or any(
            each in own_neighbors for each in far_neighbors if each != near
        )

    def clustered_link(self) -> "Link | None":
        """A link to a neighbor with too many neighbors in common. Of the two ends, the one with the lower id acts."""
        peer = self._peer
        if peer.links.free_slots or peer.peer_cache.responsive_count < DECLUSTER_SIZE_FACTOR * peer.settings.degree:
            return None
        own_neighbors = peer.links.neighbors
        for link in peer.links:
            if link.neighbor_list is not None and peer.me.peer_id < link.peer_id:
                if sum(each in own_neighbors for each in link.neighbor_list) > SHARED_NEIGHBORS_MAX:
                    return link
        return None
