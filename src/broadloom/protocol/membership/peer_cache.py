"""`PeerCache`: addresses of non-neighbors, for the case that all neighbors fail (the passive view of HyParView).

It is a random sample of the fabric, refreshed from joins, walks, digests and probes. Peers that did not answer are kept
apart: after a partition, however long, they may be the only way back.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from broadloom.wire import PeerId, PeerInfo

if TYPE_CHECKING:
    from random import Random

MESSAGE_SHARE = 8
"""One message replaces at most the cache size divided by this."""
RETRY_SHARE = 0.5
"""Share of probes to peers that failed: they may be in another part of the fabric."""
FAILED_SHARE = 4
"""Peers that failed are kept up to the cache size divided by this."""


class _PeerSample:
    """At most this many peers; a further one replaces a random one."""

    def __init__(self, count_max: int, random: "Random") -> None:
        self._max = count_max
        self._random = random
        self._entries: list[PeerInfo] = []
        self._position: dict[PeerId, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, peer: object) -> bool:
        return peer in self._position

    def put(self, peer_info: PeerInfo) -> None:
        """Add the peer, or update its address."""
        position = self._position.get(peer_info.peer_id)
        if position is not None:
            self._entries[position] = peer_info
            return
        if len(self._entries) >= self._max:
            self.pop(self._random.choice(self._entries).peer_id)
        self._position[peer_info.peer_id] = len(self._entries)
        self._entries.append(peer_info)

    def pop(self, peer_id: PeerId) -> PeerInfo | None:
        position = self._position.pop(peer_id, None)
        if position is None:
            return None
        peer_info, last = self._entries[position], self._entries.pop()
        if last is not peer_info:
            self._entries[position] = last
            self._position[last.peer_id] = position
        return peer_info

    def sample(self, count: int) -> list[PeerInfo]:
        return self._random.sample(self._entries, count) if count < len(self._entries) else list(self._entries)

    def pick(self, excluded: Collection[PeerId]) -> PeerInfo | None:
        for _ in range(4):
            if not self._entries:
                return None
            peer_info = self._random.choice(self._entries)
            if peer_info.peer_id not in excluded:
                return peer_info
        left = [each for each in self._entries if each.peer_id not in excluded]
        return self._random.choice(left) if left else None


class PeerCache:
    def __init__(self, own_id: PeerId, cache_max: int, random: "Random") -> None:
        self._own_id = own_id
        self._random = random
        self._message_max = cache_max // MESSAGE_SHARE
        self._responsive = _PeerSample(cache_max, random)
        self._failed = _PeerSample(max(1, cache_max // FAILED_SHARE), random)
        """Did not answer the last time."""

    def __len__(self) -> int:
        return len(self._responsive) + len(self._failed)

    def __contains__(self, peer: object) -> bool:
        return peer in self._responsive or peer in self._failed

    @property
    def responsive_count(self) -> int:
        """Peers that have not failed."""
        return len(self._responsive)

    def add(self, peer_info: PeerInfo) -> None:
        """Add a peer that another one named."""
        if peer_info.peer_id not in self and peer_info.peer_id != self._own_id:
            self._responsive.put(peer_info)

    def add_all(self, peer_infos: Sequence[PeerInfo]) -> None:
        """Add a sample from another peer, limited so that a single message cannot replace the cache."""
        for peer_info in peer_infos[: self._message_max]:
            self.add(peer_info)

    def mark_alive(self, peer_info: PeerInfo) -> None:
        """The peer itself has answered, and knows its own address best."""
        if peer_info.peer_id != self._own_id:
            self._failed.pop(peer_info.peer_id)
            self._responsive.put(peer_info)

    def mark_failed(self, peer_id: PeerId) -> None:
        """The peer did not answer. It may be behind a partition that heals."""
        peer_info = self._responsive.pop(peer_id)
        if peer_info is not None:
            self._failed.put(peer_info)

    def forgive(self) -> None:
        """Dials fail because of this machine, which says nothing about the others."""
        for peer_info in self._failed.sample(len(self._failed)):
            self.mark_alive(peer_info)

    def drop(self, peer_id: PeerId) -> None:
        """The peer left, or another one has its address now."""
        self._responsive.pop(peer_id)
        self._failed.pop(peer_id)

    def sample(self, count: int) -> tuple[PeerInfo, ...]:
        """Random peers to name to another one, without those that failed."""
        return tuple(self._responsive.sample(count))

    def sample_for_newcomer(self, count: int) -> tuple[PeerInfo, ...]:
        """The same, filled up with peers that failed: the newcomer inherits the way back to them."""
        sample = self._responsive.sample(count)
        return *sample, *self._failed.sample(count - len(sample))

    def pick(self, excluded: Collection[PeerId] = ()) -> PeerInfo | None:
        """A random peer that is not excluded; one that failed only if there is no other."""
        return self._responsive.pick(excluded) or self._failed.pick(excluded)

    def pick_for_probe(self, excluded: Collection[PeerId]) -> PeerInfo | None:
        """The same, but often one that failed, if there are any: it may be back."""
        if len(self._failed) and self._random.random() < RETRY_SHARE:
            return self._failed.pick(excluded) or self._responsive.pick(excluded)
        return self.pick(excluded)
