"""What a peer knows of its neighbours' neighbours: everyone tells its neighbours who its neighbours are.

This is all that is needed to tell three things apart. The small regime: everyone in view has the same view, so holes
are as they should be. Neighbours with empty ports: two neighbours that both lack a link though the fabric is larger.
Dense spots: neighbours that share many neighbours, where few deaths could tear the fabric.
"""

from typing import TYPE_CHECKING

from weft.wire import PeerId, encode
from weft.wire.links import View

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.world import Timer

SHARED_MAX = 1
"""Neighbours may share so many neighbours: one is as common in any random graph, two or more are a dense spot."""
SMALL_DIAMETER = 3
"""Up to this estimate nobody is choosy about edges: there are few."""
LOOSE_FACTOR = 4
"""Fabrics smaller than this many times the degree are dense by nature."""


class Views:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._timer: Timer | None = None
        self.small = False
        """Everyone in view has the same view, and fewer than a full set of neighbours: the small regime."""

    def links_changed(self) -> None:
        self._look()
        if self._timer is None and self._peer.is_present:
            self._timer = self._peer.world.after(self._peer.settings.view_s, self._tell)

    def _tell(self) -> None:
        self._timer = None
        frame = encode(View(self._peer.links.neighbours))
        for link in self._peer.links:
            link.send_frame(frame)

    def on_view(self, link: "Link", view: View) -> None:
        link.view = view.neighbours
        self._look()

    def _look(self) -> None:
        """First compare with one neighbour, then with all that are in view."""
        links = self._peer.links
        mine = sorted((*links.neighbours, self._peer.me.peer))
        was_small = self.small
        self.small = 0 < len(links) < self._peer.settings.degree and all(
            link.view is not None and sorted((*link.view, link.neighbour)) == mine for link in links
        )
        if self.small and not was_small:
            self._peer.joining.small = True
            self._peer.diameter.reset()
        elif was_small and not self.small:
            self._peer.repair.kick()

    def lacking_neighbour(self) -> "Link | None":
        """A neighbour that has a hole too."""
        degree = self._peer.settings.degree
        for link in self._peer.links:
            if link.view is not None and len(link.view) < degree:
                return link
        return None

    # -- dense spots

    def would_be_dense(
        self, near: PeerId, near_view: tuple[PeerId, ...], far: PeerId, far_view: tuple[PeerId, ...]
    ) -> bool:
        """Whether an edge between these two, pinned here, would make neighbours of ours share us as well."""
        if self._peer.diameter.estimate <= SMALL_DIAMETER:
            return False
        mine = self._peer.links.neighbours
        return any(each in mine for each in near_view if each != far) or any(
            each in mine for each in far_view if each != near
        )

    def dense_link(self) -> "Link | None":
        """A link to a neighbour with which we share too many. Of the two, the one with the lower id acts."""
        peer = self._peer
        if peer.links.holes or len(peer.contacts) < LOOSE_FACTOR * peer.settings.degree:
            return None
        mine = peer.links.neighbours
        for link in peer.links:
            if link.view is not None and peer.me.peer < link.neighbour:
                if sum(each in mine for each in link.view) > SHARED_MAX:
                    return link
        return None
