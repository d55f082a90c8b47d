"""Announce and pull: the way that large frames spread, along a tree for each author that the fabric learns by itself.

At first everyone sends everyone. Who gets a second copy tells the neighbour that brought it (`Prune`), which from then
on only announces that author's messages on this link: names in batches, instead of the messages themselves. What
remains is a tree. Whoever hears of messages that do not come pulls them from the one that announced them and makes
that link a branch again (`Graft`); whoever loses the neighbour that fed it grafts all others at once, and prunes what
turns out to be too many. So names of everything go over every link, and the promises rest on that.
"""

from typing import TYPE_CHECKING

from weft.fabric.authors import AuthorWindow
from weft.wire import PeerId
from weft.wire.links import Announce, Graft, Prune
from weft.wire.types import Standing

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.stream import Stream
    from weft.fabric.world import Timer

NEARER_HOPS = 2
"""A link over which the author is nearer by so much becomes the branch: less is not worth the change."""
HOPS_UNKNOWN = 0xFFFFFFFF
"""The author's distance by a tree over which nothing has come yet: nobody prefers us, and we prefer anybody."""
LATELY_S = 30.0
"""Authors heard within this time get a new branch at once when theirs breaks; others when they speak again."""


class Tree:
    """Which link feeds us with which author, and whom we feed."""

    def __init__(self, peer: "Peer", stream: "Stream") -> None:
        self._peer = peer
        self._stream = stream
        self._to_announce: dict[Link, dict[PeerId, None]] = {}
        self._timer: Timer | None = None

    # -- feeding others

    def announce(self, link: "Link", author: PeerId) -> None:
        """This neighbour gets the author's messages another way; it shall hear in a moment what we have."""
        waiting = self._to_announce.get(link)
        if waiting is None:
            waiting = self._to_announce[link] = {}
            if self._timer is None:
                self._timer = self._peer.world.after(self._peer.settings.announce_s, self._announce_all)
        waiting[author] = None

    def _announce_all(self) -> None:
        self._timer = None
        to_announce, self._to_announce = self._to_announce, {}
        authors = self._stream.authors
        for link, names in to_announce.items():
            standings = tuple(
                Standing(author, window.run_start, window.mark, window.hops)
                for author in names
                if (window := authors.get(author)) is not None
            )
            if standings and not link.draining:
                link.send(Announce(standings))

    def on_prune(self, link: "Link", prune: Prune) -> None:
        window = self._stream.authors.get(prune.author)
        if window is not None and self._is_ours(link):
            window.lazy[link] = None
            link.arrears.forget(prune.author)
            self._stream.progress.not_fed(prune.author, link)
            self.announce(link, prune.author)  # what it does not take from us may not have come the other way yet

    def on_graft(self, link: "Link", graft: Graft) -> None:
        window = self._stream.authors.get(graft.author)
        if window is None or not self._is_ours(link):
            return
        window.lazy.pop(link, None)
        if window.known > graft.mark:
            link.arrears.owe(graft.author, graft.mark + 1)
            link.arrears.pay()

    # -- being fed

    def came_first(self, window: AuthorWindow, link: "Link", hops: int, *, floods: bool) -> None:
        """A first copy came over this link. One that floods takes ways that are none of the tree: it only tells a peer
        that nobody can be fed by yet where to begin."""
        if link.draining:
            return
        if floods:
            if not window.hops:
                window.parent, window.hops = link, HOPS_UNKNOWN
            return
        window.first_from, window.first_hops = link, hops
        if window.failed is link:
            window.failed = None
        if window.parent is None:
            window.parent = link
        if window.parent is link:
            window.hops = hops

    def came_again(self, window: AuthorWindow, author: PeerId, link: "Link", hops: int, *, floods: bool) -> None:
        """A further copy came over this link: one branch is too many, unless it is known to end already. The one that
        stays is the parent, if it feeds us, or one that is nearer to the author. (If each peer went by what came first
        to it, some would come to feed each other in a circle, and nobody them.)"""
        if link in window.pruned or not self._is_ours(link):
            return
        parent, first = window.parent, window.first_from
        if author == self._peer.me.peer:
            self._prune(window, author, link)
        elif floods:
            if parent is not None and parent is not link:
                self._prune(window, author, link)
        elif parent is None:
            window.parent, window.hops = link, hops
        elif link is parent:
            window.hops = hops
            if first is not None and first is not link and first not in window.pruned:
                if window.first_hops + NEARER_HOPS <= hops:
                    self._change_to(window, author, first, window.first_hops)
                else:
                    self._prune(window, author, first)
        elif first is link:
            return  # twice over the same link: it was asked for twice
        elif hops + NEARER_HOPS <= window.hops:
            self._change_to(window, author, link, hops)
        else:
            if first is not None and first not in window.pruned:
                window.parent, window.hops = first, window.first_hops  # this one feeds us, and the parent may not
            self._prune(window, author, link)

    def _change_to(self, window: AuthorWindow, author: PeerId, link: "Link", hops: int) -> None:
        """Be fed over this link from now on."""
        before, window.parent, window.hops = window.parent, link, hops
        if window.pruned.pop(link, 0) is None:
            link.send(Graft(author, window.reached))
        if before is not None:
            self._prune(window, author, before)

    def _prune(self, window: AuthorWindow, author: PeerId, link: "Link") -> None:
        if self._is_ours(link):
            window.pruned[link] = None
            link.send(Prune(author))

    def on_announce(self, link: "Link", announce: Announce) -> None:
        if not self._stream.settled:
            return
        me, authors, now = self._peer.me.peer, self._stream.authors, self._peer.world.now()
        for author, run_start, mark, hops in announce.standings:
            window = authors.get(author)
            if author == me:
                continue
            if window is None or mark > window.reached:
                self._stream.reconcile.learn(author, run_start, mark, now, source=link)
            elif link in window.pruned and link is not window.failed and hops + 1 + NEARER_HOPS <= window.hops:
                self._change_to(window, author, link, hops + 1)

    def pull(self, window: AuthorWindow, author: PeerId, link: "Link") -> None:
        """What was announced did not come: this link shall feed us again, with all that we do not know of yet. (What we
        lack is asked for by itself.)"""
        if window.parent is not link:
            window.failed = window.parent
        window.parent = link
        window.pruned.pop(link, None)
        link.send(Graft(author, window.known))  # also if it sends us names by its own choice, because we were behind

    # -- links

    def _is_ours(self, link: "Link") -> bool:
        """Neither lost nor being drained: one that may be a branch."""
        return self._peer.links.get(link.neighbour) is link

    def link_lost(self, link: "Link") -> None:
        """Authors that this link fed us need another one at once: any, and pruned again if it is one too many."""
        self._to_announce.pop(link, None)
        self._stream.progress.link_lost(link)
        since = self._peer.world.now() - LATELY_S
        for author, window in self._stream.authors.items():
            window.lazy.pop(link, None)
            window.pruned.pop(link, None)
            if window.first_from is link:
                window.first_from = None
            if window.source is link:
                window.source = None
            if window.failed is link:
                window.failed = None
            if window.parent is link:
                window.parent = None
                if window.heard_at >= since:
                    for other in window.pruned:
                        other.send(Graft(author, window.reached))
                    window.pruned.clear()
