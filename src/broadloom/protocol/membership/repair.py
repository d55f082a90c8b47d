"""`SlotRepair`: fill free slots, with backoff.

- One free slot: a random walk looks for another peer with a free slot (after a mass failure there are many). If it
  finds none, or in a small fabric, a search is flooded, and non-neighbors with a free slot respond.
- Two or more: the peer pins itself onto a random edge, like a newcomer.
- Two neighbors with one free slot each cannot link to each other again: a random edge is cut and pinned onto both.
- If nothing helps, cached peers and the bootstrap hosts are tried as well.

With an odd degree and an odd number of peers one slot stays free, so attempts become rare when they fail.
"""

from collections import deque
from typing import TYPE_CHECKING

from broadloom.protocol.events import PeerState
from broadloom.wire import PeerInfo
from broadloom.wire.link_messages import SlotSearch

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

CACHE_TRIES = 3
"""Cached peers asked per attempt,"""
CACHE_TRIES_ISOLATED = 8
"""and by a peer without any link."""
ATTEMPTS_BEFORE_CACHE = 2
"""Attempts within the fabric before cached peers are asked as well."""
PAIR_WALKS = 3
"""Walks at a time for two neighbors with one free slot each. In a small fabric few edges are suitable."""
RECENT_S = 2.0
"""Searches within this time count as concurrent."""
RESPONDERS = 3
"""Expected number of peers that respond to a search."""


class SlotRepair:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._attempt = 0
        self._timer: Timer | None = None
        self._due_at = 0.0
        self._searches: deque[float] = deque(maxlen=1000)
        """Times of recent searches by others: an estimate of how many peers have free slots."""

    @property
    def is_urgent(self) -> bool:
        """Earlier attempts have failed."""
        return self._attempt > 1

    def schedule(self) -> None:
        """Attempt a repair soon, unless an attempt is already scheduled."""
        if self._timer is None:
            settings, random = self._peer.settings, self._peer.runtime.random.random()
            # A newcomer first waits for the walks that were started on its behalf.
            delay_s = settings.join_timeout_s / 2 if self._peer.is_filling_slots else settings.repair_delay_s
            self._start_timer(self._peer.pacing.stretched(delay_s) * (0.1 + random))

    def restart(self) -> None:
        """A neighbor was lost, or something else has changed: start over with short pauses. An attempt that is due
        sooner is not postponed, however often this happens."""
        timer, due_at = self._timer, self._due_at
        self._attempt, self._timer = 0, None
        self.schedule()
        if timer is not None and due_at <= self._due_at:
            timer, self._timer, self._due_at = self._timer, timer, due_at
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        self._attempt = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self, delay_s: float) -> None:
        self._due_at = self._peer.runtime.now() + delay_s
        self._timer = self._peer.runtime.call_later(delay_s, self._attempt_repair)

    def _attempt_repair(self) -> None:
        self._timer = None
        peer, links = self._peer, self._peer.links
        if not peer.is_member or links.free_slots == 0:
            return
        if peer.two_hop_view.is_full_mesh:
            # Free slots are normal in a full mesh. But if neighbors were lost ungracefully just before, it may be one
            # side of a partition: any live peer that is not a neighbor is on the other side.
            if not peer.partition_merge.is_alert:
                return
            self._try_cached_peers()
        elif links.unreserved_slots > 0:
            self._request_links()
        settings = peer.settings
        pause_max_s = (
            settings.repair_backoff_alert_s_max if peer.partition_merge.is_alert else settings.repair_backoff_s_max
        )
        pause_s = min(peer.pacing.stretched(settings.repair_backoff_s) * 2 ** (self._attempt // 2), pause_max_s)
        if (
            self._attempt == 0
            and links.unreserved_slots == 1
            and peer.two_hop_view.neighbor_with_free_slot() is not None
        ):
            pause_s /= 2  # unless another peer with a free slot responds at once, an edge is pinned onto the two
        self._attempt = min(self._attempt + 1, 16)
        self._start_timer(pause_s * (0.5 + peer.runtime.random.random()))

    def _request_links(self) -> None:
        peer, links = self._peer, self._peer.links
        if len(links) == 0:
            self._try_cached_peers()
            return
        partner = peer.two_hop_view.neighbor_with_free_slot()
        if links.unreserved_slots >= 2:
            for _ in range(links.unreserved_slots // 2):
                peer.random_walks.start(peer.me, links.neighbors)
            if self._attempt % 2 and not peer.pacing.is_slow:
                peer.control_flood.start(SlotSearch, peer.me)
        elif partner is not None and peer.me.peer_id < partner.peer_id and self._attempt > 0:
            # The partner is a neighbor already, so a random edge is cut and pinned onto the two, one end each. The
            # one with the lower id asks for it. The first of several offers is accepted.
            for _ in range(1 if peer.pacing.is_slow else PAIR_WALKS):
                peer.random_walks.start(peer.me, links.neighbors, partner.peer_info, partner.neighbor_list or ())
        elif peer.pacing.is_slow or (self._attempt % 2 == 0 and not peer.diameter.is_small):
            peer.random_walks.start(peer.me, links.neighbors, free_slot_only=True)
        else:
            peer.control_flood.start(SlotSearch, peer.me)
        if self._attempt >= ATTEMPTS_BEFORE_CACHE:
            self._try_cached_peers()

    def _try_cached_peers(self) -> None:
        """Ask peers that the fabric itself does not reach: cached ones, and those on the bootstrap hosts."""
        peer = self._peer
        excluded = [peer.me.peer_id, *peer.links.neighbors]
        tries = CACHE_TRIES if len(peer.links) else CACHE_TRIES_ISOLATED
        for _ in range(1 if peer.pacing.is_slow else tries):
            peer_info = peer.peer_cache.pick(excluded)
            if peer_info is not None:
                excluded.append(peer_info.peer_id)
                self._join_via(peer_info)
        if self._attempt % 4 == 1 or not peer.peer_cache.responsive_count:
            peer.discovery.contact_bootstrap_hosts(self._join_via)

    def _join_via(self, peer_info: PeerInfo) -> None:
        if self._peer.links.unreserved_slots > 0:
            self._peer.join_protocol.join_via(peer_info, lambda _accepted: None)

    def on_slot_search(self, _link: "Link", search: SlotSearch) -> None:
        """Another peer has a free slot: request a link if we have one, too."""
        peer, requester, now = self._peer, search.requester, self._peer.runtime.now()
        peer.peer_cache.add(requester)
        while self._searches and self._searches[0] < now - RECENT_S:
            self._searches.popleft()
        self._searches.append(now)
        if peer.state is not PeerState.CONNECTED or peer.is_filling_slots:
            return
        if peer.links.unreserved_slots <= 0 or requester.peer_id in peer.links:
            return
        # Only one can get the slot, so only a few of the peers that could respond do.
        if (
            not peer.links.is_reserved(requester.peer_id)
            and peer.runtime.random.random() * len(self._searches) < RESPONDERS
        ):
            peer.join_protocol.request_link(requester)
