"""Plumtree: large frames and busy authors use a broadcast tree per author, which the fabric learns by itself.

After Leitão, Pereira and Rodrigues, "Epidemic Broadcast Trees" (SRDS 2007). At first every link is eager: frames are
pushed to all neighbors. A peer that gets a second copy sends `Prune` over that link, which makes it lazy: the other end
only announces that author's messages there (`IHave`, in batches). The eager links that remain form a tree. A peer that
hears of messages that do not arrive pulls them over the link of the `IHave` and makes it eager again (`Graft`); a peer
that loses its parent grafts all other links at once and prunes again what turns out to be redundant. As every link
carries at least `IHave`, no message depends on the tree being intact.

Two differences: each author has its own tree, and one `IHave` announces all messages of an author up to a sequence
number. As in the paper's optimization, a peer moves to a parent that is closer to the author by a threshold. The first
copy alone does not make a link the parent: peers could come to feed each other in a cycle cut off from the author.
"""

from typing import TYPE_CHECKING

from broadloom.wire import PeerId
from broadloom.wire.link_messages import Graft, IHave, Prune
from broadloom.wire.types import TreePosition

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.broadcast.fast_path import RelayPlan
    from broadloom.protocol.broadcast.receive_window import ReceiveWindow
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

PARENT_SWITCH_HOPS = 2
"""A link becomes the parent if the author is closer by this many hops; for less, a change is not worth it."""
HOPS_UNKNOWN = 0xFFFFFFFF
"""Distance over a parent that has delivered nothing yet: no peer prefers this one, and this one prefers any other."""
RECENT_S = 30.0
"""Authors active within this time get a new parent at once when theirs is lost; others when they send again."""


class TreeState:
    """This peer's place in the tree of one author. Only `Plumtree` writes it, except `relay_plan`."""

    __slots__ = (
        "failed_parent",
        "first_copy_hops",
        "first_copy_link",
        "has_pending_ihave",
        "hops",
        "lazy_links",
        "parent",
        "pruned_links",
        "relay_plan",
    )

    def __init__(self) -> None:
        self.parent: Link | None = None
        """The link that should deliver the author's frames."""
        self.hops = 0
        """Distance from the author over the parent; 0 for this peer's own tree, and before the first frame."""
        self.first_copy_link: Link | None = None
        """The link that delivered the latest first copy over the tree, and the distance over it."""
        self.first_copy_hops = 0
        self.failed_parent: Link | None = None
        """The parent at the time of the last graft. It is not chosen again, however close, before it delivers
        something."""
        self.pruned_links: dict[Link, None] = {}
        """Links to which this peer sent `Prune`."""
        self.lazy_links: dict[Link, None] = {}
        """Links that get `IHave` instead of frames."""
        self.has_pending_ihave = False
        """All lazy links will get an `IHave` of this author at the end of the current interval."""
        self.relay_plan: RelayPlan | None = None
        """Of the fast path, which learns it. None after something above or the links have changed."""


class Plumtree:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._pending_ihaves: dict[Link, dict[PeerId, None]] = {}
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._ihave_interval_s = peer.settings.ihave_interval_s

    # -- towards the leaves

    def queue_ihave(self, link: "Link", author: PeerId) -> None:
        pending = self._pending_ihaves.get(link)
        if pending is None:
            pending = self._pending_ihaves[link] = {}
            if self._timer is None:
                self._schedule_ihaves()
        pending[author] = None

    def _schedule_ihaves(self) -> None:
        runtime = self._peer.runtime
        self._timer_at = runtime.now() + self._ihave_interval_s
        self._timer = runtime.call_later(self._ihave_interval_s, self._send_ihaves)

    def announce(self, author: PeerId, tree: TreeState, lazy_links: "tuple[Link, ...]") -> None:
        """Queue an `IHave` for all lazy links at once; once in each interval is enough."""
        for link in lazy_links:
            self.queue_ihave(link, author)
        tree.has_pending_ihave = True

    def _send_ihaves(self) -> None:
        self._timer = None
        self._ihave_interval_s = min(2 * self._ihave_interval_s, self._peer.settings.ihave_interval_s_max)
        pending, self._pending_ihaves = self._pending_ihaves, {}
        windows = self._broadcaster.receiver.windows
        for link, authors in pending.items():
            positions = []
            for author in authors:
                if (window := windows.get(author)) is not None:
                    window.tree.has_pending_ihave = False
                    positions.append(
                        TreePosition(author, window.stream_start, window.last_contiguous, window.tree.hops)
                    )
            if positions and not link.is_draining:
                link.send(IHave(tuple(positions)))

    def alert(self) -> None:
        """Something is missing, or a tree has changed: messages are announced more often for a while, from now on."""
        self._ihave_interval_s = self._peer.settings.ihave_interval_s
        if self._timer is not None and self._timer_at > self._peer.runtime.now() + self._ihave_interval_s:
            self._timer.cancel()
            self._schedule_ihaves()

    def make_lazy(self, link: "Link", author: PeerId) -> None:
        """Announce the author's messages on this link from now on. The first `IHave` covers what the neighbor may not
        have received another way yet."""
        window = self._broadcaster.receiver.windows.get(author)
        if window is not None:
            self.alert()
            window.tree.relay_plan = None
            window.tree.lazy_links[link] = None
            self.queue_ihave(link, author)

    def on_prune(self, link: "Link", prune: Prune) -> None:
        is_final_push = self._broadcaster.is_leaving and prune.author == self._peer.me.peer_id
        if prune.author in self._broadcaster.receiver.windows and self._is_active(link) and not is_final_push:
            self.make_lazy(link, prune.author)
            link.backlog.drop(prune.author)
            self._broadcaster.acks.remove_child(prune.author, link)

    def on_graft(self, link: "Link", graft: Graft) -> None:
        window = self._broadcaster.receiver.windows.get(graft.author)
        if window is None or not self._is_active(link):
            return
        self.alert()
        window.tree.relay_plan = None
        window.tree.lazy_links.pop(link, None)
        if window.last_known > graft.last_contiguous:
            link.backlog.rewind(graft.author, graft.last_contiguous + 1)
            link.backlog.drain()

    # -- towards the author

    def on_first_copy(self, tree: TreeState, link: "Link", hops: int, *, is_flood: bool) -> None:
        """Learn from a first copy. A flooded one did not use the tree; it only suggests a parent if there is none."""
        if link.is_draining:
            return
        if is_flood:
            if not tree.hops:
                tree.parent, tree.hops = link, HOPS_UNKNOWN
            return
        if tree.first_copy_link is not link or tree.first_copy_hops != hops:
            tree.relay_plan = None
        tree.first_copy_link, tree.first_copy_hops = link, hops
        if tree.failed_parent is link:
            tree.failed_parent = None
        if tree.parent is None:
            tree.parent = link
        if tree.parent is link:
            tree.hops = hops

    def on_duplicate(self, window: "ReceiveWindow", author: PeerId, link: "Link", hops: int, *, is_flood: bool) -> None:
        """Prune one of two links that deliver the same frames. The parent stays, unless the other link is closer to the
        author."""
        tree = window.tree
        if link in tree.pruned_links or not self._is_active(link):
            return
        tree.relay_plan = None
        parent, first = tree.parent, tree.first_copy_link
        if author == self._peer.me.peer_id:
            self._prune(tree, author, link)
        elif is_flood:
            if parent is not None and parent is not link:
                self._prune(tree, author, link)
        elif parent is None:
            tree.parent, tree.hops = link, hops
        elif link is parent:
            tree.hops = hops
            if first is not None and first is not link and first not in tree.pruned_links:
                if tree.first_copy_hops + PARENT_SWITCH_HOPS <= hops:
                    self._switch_parent(window, author, first, tree.first_copy_hops)
                else:
                    self._prune(tree, author, first)
        elif first is link:
            return  # two copies over one link: the frame was requested twice
        elif hops + PARENT_SWITCH_HOPS <= tree.hops:
            self._switch_parent(window, author, link, hops)
        else:
            if first is not None and first not in tree.pruned_links:
                tree.parent, tree.hops = first, tree.first_copy_hops  # it delivers; the parent may not
            self._prune(tree, author, link)

    def _switch_parent(self, window: "ReceiveWindow", author: PeerId, link: "Link", hops: int) -> None:
        tree = window.tree
        self.alert()
        tree.relay_plan = None
        old_parent, tree.parent, tree.hops = tree.parent, link, hops
        if link in tree.pruned_links:
            del tree.pruned_links[link]
            link.send(Graft(author, window.reached))
        if old_parent is not None:
            self._prune(tree, author, old_parent)

    def _prune(self, tree: TreeState, author: PeerId, link: "Link") -> None:
        if self._is_active(link):
            tree.pruned_links[link] = None
            link.send(Prune(author))

    def on_ihave(self, link: "Link", ihave: IHave) -> None:
        if not self._broadcaster.receiver.has_position:
            return
        me, windows = self._peer.me.peer_id, self._broadcaster.receiver.windows
        for author, stream_start, last_contiguous, hops in ihave.positions:
            window = windows.get(author)
            if author == me:
                continue
            if window is None or last_contiguous > window.reached:
                self._broadcaster.anti_entropy.on_position(link, author, stream_start, last_contiguous)
            elif (
                link in window.tree.pruned_links
                and link is not window.tree.failed_parent
                and hops + 1 + PARENT_SWITCH_HOPS <= window.tree.hops
            ):
                self._switch_parent(window, author, link, hops + 1)

    def graft(self, window: "ReceiveWindow", author: PeerId, link: "Link") -> None:
        """Make this link the parent, because announced messages did not arrive. It delivers everything after
        `last_known`; gap repair requests the rest. Sent even to links that were not pruned: the neighbor may have made
        the link lazy itself when this peer was slow."""
        tree = window.tree
        self.alert()
        tree.relay_plan = None
        if tree.parent is not link:
            tree.failed_parent = tree.parent
        tree.parent = link
        tree.pruned_links.pop(link, None)
        link.send(Graft(author, window.last_known))

    # -- links

    def _is_active(self, link: "Link") -> bool:
        """Neither lost nor draining."""
        return self._peer.links.get(link.peer_id) is link

    def on_link_added(self) -> None:
        for window in self._broadcaster.receiver.windows.values():
            window.tree.relay_plan = None

    def on_link_lost(self, link: "Link") -> None:
        """Graft all other links for recent authors that lose their parent; redundant ones are pruned again."""
        self._pending_ihaves.pop(link, None)
        self.alert()
        since = self._peer.runtime.now() - RECENT_S
        for author, window in self._broadcaster.receiver.windows.items():
            tree = window.tree
            tree.relay_plan = None
            tree.lazy_links.pop(link, None)
            tree.pruned_links.pop(link, None)
            if tree.first_copy_link is link:
                tree.first_copy_link = None
            if tree.failed_parent is link:
                tree.failed_parent = None
            if tree.parent is link:
                tree.parent = None
                if window.last_active_at >= since:
                    for other in tree.pruned_links:
                        other.send(Graft(author, window.reached))
                    tree.pruned_links.clear()
