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

from broadloom.protocol.events import PeerState
from broadloom.wire import PeerInfo
from broadloom.wire.link_messages import SlotSearch

if TYPE_CHECKING:
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

CACHE_TRIES = 3
"""Cached addresses called in one attempt."""
CACHE_TRIES_ISOLATED = 8
"""The same, for a peer without any link."""
ATTEMPTS_BEFORE_CACHE = 2
"""Attempts within the fabric before the cache is asked as well."""
RECENT_S = 2.0
"""Searches of so recent times tell how many others have holes."""
RESPONDERS = 3
"""About so many of them shall call one that searches."""


class SlotRepair:
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

    def schedule(self) -> None:
        """Something changed: if there is a hole, see to it soon. An attempt already planned stays as it is."""
        if self._timer is None:
            settings, random = self._peer.settings, self._peer.runtime.random.random()
            # A newcomer gives the walks that were started for it a chance first.
            delay_s = (
                settings.repair_delay_s if self._peer.state is PeerState.CONNECTED else settings.join_timeout_s / 2
            )
            self._timer = self._peer.runtime.call_later(delay_s * (0.1 + random), self._attempt_repair)

    def restart(self) -> None:
        """A neighbour was lost: begin again with short pauses."""
        self.stop()
        self.schedule()

    def stop(self) -> None:
        """Nothing to do; whatever comes next is a new matter."""
        self._attempt = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _attempt_repair(self) -> None:
        self._timer = None
        peer, links = self._peer, self._peer.links
        if not peer.is_member or links.free_slots == 0:
            return
        if peer.two_hop_view.is_full_mesh:
            # The small regime: holes are as they should be. But if we got here by losing others without a word, they
            # may be small by the same misfortune: whoever lives and is no neighbour is in another part.
            if not peer.partition_merge.is_alert:
                return
            self._try_cached_peers()
        elif links.unreserved_slots > 0:
            self._request_links()
        settings = peer.settings
        pause_max_s = (
            settings.repair_backoff_alert_s_max if peer.partition_merge.is_alert else settings.repair_backoff_s_max
        )
        pause_s = min(settings.repair_backoff_s * 2 ** (self._attempt // 2), pause_max_s)
        self._attempt = min(self._attempt + 1, 16)
        self._timer = peer.runtime.call_later(pause_s * (0.5 + peer.runtime.random.random()), self._attempt_repair)

    def _request_links(self) -> None:
        peer, links = self._peer, self._peer.links
        if len(links) == 0:
            self._try_cached_peers()
            return
        partner = peer.two_hop_view.neighbor_with_free_slot()
        if links.unreserved_slots >= 2 and self._attempt % 2 == 0:
            for _ in range(links.unreserved_slots // 2):
                peer.random_walks.start(peer.me, links.neighbors)
        elif (
            links.unreserved_slots == 1
            and partner is not None
            and peer.me.peer_id < partner.peer_id
            and self._attempt > 0
        ):
            # Neighbours with empty ports: they cannot give the link to each other, so a random edge is cut and pinned
            # onto the two, one end each. One of them is enough to ask for it: the one with the lower id.
            peer.random_walks.start(peer.me, links.neighbors, partner.peer_info, partner.neighbor_list or ())
        elif self._attempt % 2 == 0:
            peer.random_walks.start(peer.me, links.neighbors, free_slot_only=True)
        else:
            peer.control_flood.start(SlotSearch, peer.me)
        if self._attempt >= ATTEMPTS_BEFORE_CACHE:
            self._try_cached_peers()

    def _try_cached_peers(self) -> None:
        """Beyond the fabric's own reach: call peers we have heard of, and the portals."""
        peer = self._peer
        excluded = [peer.me.peer_id, *peer.links.neighbors]
        for attempt in range(CACHE_TRIES if len(peer.links) else CACHE_TRIES_ISOLATED):
            peer_info = peer.peer_cache.pick(excluded, prefer_responsive=attempt > 0)
            if peer_info is not None:
                excluded.append(peer_info.peer_id)
                self._join_via(peer_info)
        if self._attempt % 4 == 1 or not len(peer.peer_cache):
            peer.discovery.contact_bootstrap_hosts(self._join_via)

    def _join_via(self, peer_info: PeerInfo) -> None:
        if self._peer.links.unreserved_slots > 0:
            self._peer.join_protocol.join_via(peer_info, lambda _accepted: None)

    def on_slot_search(self, _link: "Link", search: SlotSearch) -> None:
        """Somebody has a hole. With one of our own: call."""
        peer, requester, now = self._peer, search.requester, self._peer.runtime.now()
        peer.peer_cache.add(requester)
        while self._searches and self._searches[0] < now - RECENT_S:
            self._searches.popleft()
        self._searches.append(now)
        if peer.state is not PeerState.CONNECTED or peer.links.unreserved_slots <= 0 or requester.peer_id in peer.links:
            return  # (a newcomer's holes are being seen to)
        if (
            not peer.links.is_reserved(requester.peer_id)
            and peer.runtime.random.random() * len(self._searches) < RESPONDERS
        ):
            peer.join_protocol.request_link(requester)  # not all at once: only one of us can have the place
