"""`PeerCache`: addresses of non-neighbors, for the case that all neighbors fail (the passive view of HyParView).

It is a random sample of the fabric, refreshed from joins, walks, digests and probes. A peer that does not answer is
kept until another one needs its place: after a partition, however long, it may be the only way back.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from broadloom.wire import PeerId, PeerInfo

if TYPE_CHECKING:
    from random import Random

MESSAGE_SHARE = 8
"""One message replaces at most the cache size divided by this."""
FAILED_SHARE = 4
"""Peers that failed are replaced first while they are more than the cache size divided by this."""


class PeerCache:
    """Bounded: peers that failed are replaced first, unless they are few, then random ones."""

    def __init__(self, own_id: PeerId, cache_max: int, random: "Random") -> None:
        self._own_id = own_id
        self._max = cache_max
        self._random = random
        self._entries: list[PeerInfo] = []
        self._position: dict[PeerId, int] = {}
        self._failed: dict[PeerId, None] = {}
        """Did not answer the last time; those that have failed for longest first."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def responsive_count(self) -> int:
        return len(self._entries) - len(self._failed)

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
        self._failed.pop(peer_info.peer_id, None)
        position = self._position.get(peer_info.peer_id)
        if position is None:
            self.add(peer_info)
        else:
            self._entries[position] = peer_info  # the peer knows its own address best

    def mark_failed(self, peer_id: PeerId) -> None:
        """The peer did not answer. It may be behind a partition that heals."""
        if peer_id in self._position:
            self._failed[peer_id] = None

    def forgive(self) -> None:
        """Dials fail because of this machine, which says nothing about the others."""
        self._failed.clear()

    def drop(self, peer_id: PeerId) -> None:
        """The peer left, or another one has its address now."""
        position = self._position.pop(peer_id, None)
        if position is None:
            return
        self._failed.pop(peer_id, None)
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
        if self._failed:
            chosen = [each for each in chosen if each.peer_id not in self._failed]
        return tuple(chosen)

    def sample_for_newcomer(self, count: int) -> tuple[PeerInfo, ...]:
        """The same, filled up with peers that failed: the newcomer inherits the way back to them."""
        sample = self.sample(count)
        failed = [self._entries[self._position[peer_id]] for peer_id in self._failed]
        return *sample, *self._random.sample(failed, min(len(failed), count - len(sample)))

    def pick(self, excluded: Iterable[PeerId] = (), *, prefer_responsive: bool = False) -> PeerInfo | None:
        """A random entry that is not excluded; with `prefer_responsive`, one that has not failed if there is any."""
        if prefer_responsive and self._failed:
            left = [each for each in self._entries if each.peer_id not in excluded and each.peer_id not in self._failed]
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
        """The peer that has failed for longest, or a random one: if few have failed, one that answers."""
        if len(self._failed) > self._max // FAILED_SHARE:
            return next(iter(self._failed))
        while (peer_id := self._random.choice(self._entries).peer_id) in self._failed:
            pass
        return peer_id
