"""Announce and pull: the way that large frames spread, along a tree for each author that the fabric learns by itself.

At first everyone sends everyone. Who gets a second copy tells the neighbour that brought it (`Prune`), which from then
on only announces that author's messages on this link: names in batches, instead of the messages themselves. What
remains is a tree. Whoever hears of messages that do not come pulls them from the one that announced them and makes
that link a branch again (`Graft`); whoever loses the neighbour that fed it grafts all others at once, and prunes what
turns out to be too many. So names of everything go over every link, and the promises rest on that.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.receive_window import ReceiveWindow
from broadloom.wire import PeerId
from broadloom.wire.link_messages import Graft, IHave, Prune
from broadloom.wire.types import TreePosition

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

PARENT_SWITCH_HOPS = 2
"""A link over which the author is nearer by so much becomes the branch: less is not worth the change."""
HOPS_UNKNOWN = 0xFFFFFFFF
"""The author's distance by a tree over which nothing has come yet: nobody prefers us, and we prefer anybody."""
RECENT_S = 30.0
"""Authors heard within this time get a new branch at once when theirs breaks; others when they speak again."""


class Plumtree:
    """Which link feeds us with which author, and whom we feed."""

    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._pending_ihaves: dict[Link, dict[PeerId, None]] = {}
        self._timer: Timer | None = None

    # -- feeding others

    def queue_ihave(self, link: "Link", author: PeerId) -> None:
        """This neighbour gets the author's messages another way; it shall hear in a moment what we have."""
        pending = self._pending_ihaves.get(link)
        if pending is None:
            pending = self._pending_ihaves[link] = {}
            if self._timer is None:
                self._timer = self._peer.runtime.call_later(self._peer.settings.ihave_interval_s, self._send_ihaves)
        pending[author] = None

    def _send_ihaves(self) -> None:
        self._timer = None
        pending, self._pending_ihaves = self._pending_ihaves, {}
        authors = self._broadcaster.authors
        for link, pending_authors in pending.items():
            positions = tuple(
                TreePosition(author, window.stream_start, window.last_contiguous, window.hops)
                for author in pending_authors
                if (window := authors.get(author)) is not None
            )
            if positions and not link.is_draining:
                link.send(IHave(positions))

    def on_prune(self, link: "Link", prune: Prune) -> None:
        window = self._broadcaster.authors.get(prune.author)
        if window is not None and self._is_active(link):
            window.lazy_children[link] = None
            link.backlog.drop(prune.author)
            self._broadcaster.acks.remove_child(prune.author, link)
            self.queue_ihave(link, prune.author)  # what it does not take from us may not have come the other way yet

    def on_graft(self, link: "Link", graft: Graft) -> None:
        window = self._broadcaster.authors.get(graft.author)
        if window is None or not self._is_active(link):
            return
        window.lazy_children.pop(link, None)
        if window.last_known > graft.last_contiguous:
            link.backlog.rewind(graft.author, graft.last_contiguous + 1)
            link.backlog.drain()

    # -- being fed

    def on_first_copy(self, window: ReceiveWindow, link: "Link", hops: int, *, is_flood: bool) -> None:
        """A first copy came over this link. One that floods takes ways that are none of the tree: it only tells a peer
        that nobody can be fed by yet where to begin."""
        if link.is_draining:
            return
        if is_flood:
            if not window.hops:
                window.parent, window.hops = link, HOPS_UNKNOWN
            return
        window.first_copy_link, window.first_copy_hops = link, hops
        if window.failed_parent is link:
            window.failed_parent = None
        if window.parent is None:
            window.parent = link
        if window.parent is link:
            window.hops = hops

    def on_duplicate(self, window: ReceiveWindow, author: PeerId, link: "Link", hops: int, *, is_flood: bool) -> None:
        """A further copy came over this link: one branch is too many, unless it is known to end already. The one that
        stays is the parent, if it feeds us, or one that is nearer to the author. (If each peer went by what came first
        to it, some would come to feed each other in a circle, and nobody them.)"""
        if link in window.pruned_links or not self._is_active(link):
            return
        parent, first = window.parent, window.first_copy_link
        if author == self._peer.me.peer_id:
            self._prune(window, author, link)
        elif is_flood:
            if parent is not None and parent is not link:
                self._prune(window, author, link)
        elif parent is None:
            window.parent, window.hops = link, hops
        elif link is parent:
            window.hops = hops
            if first is not None and first is not link and first not in window.pruned_links:
                if window.first_copy_hops + PARENT_SWITCH_HOPS <= hops:
                    self._switch_parent(window, author, first, window.first_copy_hops)
                else:
                    self._prune(window, author, first)
        elif first is link:
            return  # twice over the same link: it was asked for twice
        elif hops + PARENT_SWITCH_HOPS <= window.hops:
            self._switch_parent(window, author, link, hops)
        else:
            if first is not None and first not in window.pruned_links:
                window.parent, window.hops = first, window.first_copy_hops  # this one feeds us, and the parent may not
            self._prune(window, author, link)

    def _switch_parent(self, window: ReceiveWindow, author: PeerId, link: "Link", hops: int) -> None:
        """Be fed over this link from now on."""
        old_parent, window.parent, window.hops = window.parent, link, hops
        if window.pruned_links.pop(link, 0) is None:
            link.send(Graft(author, window.reached))
        if old_parent is not None:
            self._prune(window, author, old_parent)

    def _prune(self, window: ReceiveWindow, author: PeerId, link: "Link") -> None:
        if self._is_active(link):
            window.pruned_links[link] = None
            link.send(Prune(author))

    def on_ihave(self, link: "Link", ihave: IHave) -> None:
        if not self._broadcaster.has_position:
            return
        me, authors, now = self._peer.me.peer_id, self._broadcaster.authors, self._peer.runtime.now()
        for author, stream_start, last_contiguous, hops in ihave.positions:
            window = authors.get(author)
            if author == me:
                continue
            if window is None or last_contiguous > window.reached:
                self._broadcaster.anti_entropy.on_position(author, stream_start, last_contiguous, now, source=link)
            elif (
                link in window.pruned_links
                and link is not window.failed_parent
                and hops + 1 + PARENT_SWITCH_HOPS <= window.hops
            ):
                self._switch_parent(window, author, link, hops + 1)

    def graft(self, window: ReceiveWindow, author: PeerId, link: "Link") -> None:
        """What was announced did not come: this link shall feed us again, with all that we do not know of yet. (What we
        lack is asked for by itself.)"""
        if window.parent is not link:
            window.failed_parent = window.parent
        window.parent = link
        window.pruned_links.pop(link, None)
        link.send(
            Graft(author, window.last_known)
        )  # also if it sends us names by its own choice, because we were behind

    # -- links

    def _is_active(self, link: "Link") -> bool:
        """Neither lost nor being drained: one that may be a branch."""
        return self._peer.links.get(link.peer_id) is link

    def on_link_lost(self, link: "Link") -> None:
        """Authors that this link fed us need another one at once: any, and pruned again if it is one too many."""
        self._pending_ihaves.pop(link, None)
        self._broadcaster.acks.on_link_lost(link)
        since = self._peer.runtime.now() - RECENT_S
        for author, window in self._broadcaster.authors.items():
            window.lazy_children.pop(link, None)
            window.pruned_links.pop(link, None)
            if window.first_copy_link is link:
                window.first_copy_link = None
            if window.source is link:
                window.source = None
            if window.failed_parent is link:
                window.failed_parent = None
            if window.parent is link:
                window.parent = None
                if window.last_active_at >= since:
                    for other in window.pruned_links:
                        other.send(Graft(author, window.reached))
                    window.pruned_links.clear()
