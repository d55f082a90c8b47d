"""`PeerCache`: addresses of non-neighbors, for the case that all neighbors fail (the passive view of HyParView).

It is a random sample of the fabric, refreshed from joins, walks, digests and probes. A peer that does not answer is not
dropped at once: after a network partition it is the way back.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from broadloom.wire import PeerId, PeerInfo

if TYPE_CHECKING:
    from random import Random

MESSAGE_SHARE = 8
"""One message replaces at most the cache size divided by this."""
FAILURES_MAX = 6
"""Consecutive failures after which a peer is dropped."""


class PeerCache:
    """Bounded: peers that failed are replaced first, then random ones."""

    def __init__(self, own_id: PeerId, cache_max: int, random: "Random") -> None:
        self._own_id = own_id
        self._max = cache_max
        self._random = random
        self._entries: list[PeerInfo] = []
        self._position: dict[PeerId, int] = {}
        self._failures: dict[PeerId, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, peer: object) -> bool:
        return peer in self._position

    def add(self, peer_info: PeerInfo) -> None:
        """Add a peer that another one named."""
        peer_id = peer_info.peer_id
        if peer_id in self._position or peer_id == self._own_id:
            return
        if len(self._entries) >= self._max:
            self.drop(self._eviction_candidate())
        self._position[peer_id] = len(self._entries)
        self._entries.append(peer_info)

    def add_all(self, peer_infos: Sequence[PeerInfo]) -> None:
        """Add a sample from another peer, limited so that a single message cannot replace the cache."""
        for peer_info in peer_infos[: self._max // MESSAGE_SHARE]:
            self.add(peer_info)

    def mark_alive(self, peer_info: PeerInfo) -> None:
        """The peer itself has answered."""
        self._failures.pop(peer_info.peer_id, None)
        position = self._position.get(peer_info.peer_id)
        if position is None:
            self.add(peer_info)
        else:
            self._entries[position] = peer_info  # the peer knows its own address best

    def mark_failed(self, peer_id: PeerId) -> None:
        """The peer did not answer. It is kept for a while: it may be behind a partition that heals."""
        if peer_id in self._position:
            count = self._failures.get(peer_id, 0) + 1
            self._failures[peer_id] = count
            if count >= FAILURES_MAX:
                self.drop(peer_id)

    def forgive(self) -> None:
        """Dials fail because of this machine, which says nothing about the others."""
        self._failures.clear()

    def drop(self, peer_id: PeerId) -> None:
        """The peer left, or another one has its address now."""
        position = self._position.pop(peer_id, None)
        if position is None:
            return
        self._failures.pop(peer_id, None)
        last = self._entries.pop()
        if last.peer_id != peer_id:
            self._entries[position] = last
            self._position[last.peer_id] = position

    def sample(self, count: int) -> tuple[PeerInfo, ...]:
        """Random entries to send to another peer, without those that failed."""
        if count >= len(self._entries):
            chosen = list(self._entries)
        else:
            chosen = self._random.sample(self._entries, count)
        if self._failures:
            chosen = [each for each in chosen if each.peer_id not in self._failures]
        return tuple(chosen)

    def pick(self, excluded: Iterable[PeerId] = (), *, prefer_responsive: bool = False) -> PeerInfo | None:
        """A random entry that is not excluded; with `prefer_responsive`, one that has not failed if there is any."""
        if prefer_responsive and self._failures:
            left = [
                each for each in self._entries if each.peer_id not in excluded and each.peer_id not in self._failures
            ]
            if left:
                return self._random.choice(left)
        for _ in range(4):
            if not self._entries:
                return None
            peer_info = self._random.choice(self._entries)
            if peer_info.peer_id not in excluded:
                return peer_info
        left = [each for each in self._entries if each.peer_id not in excluded]
        return self._random.choice(left) if left else None

    def _eviction_candidate(self) -> PeerId:
        if self._failures:
            return next(iter(self._failures))
        return self._random.choice(self._entries).peer_id
