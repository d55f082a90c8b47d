"""The address cache: peers that this one has heard of, for the day when all its neighbours die.

It should be a fair sample of the living fabric, so it is refreshed from arrivals, walks, greetings and probes. An
address that does not answer is not dropped at once: after a network split it is the way back.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from broadloom.wire import PeerId, PeerInfo

if TYPE_CHECKING:
    from random import Random

MESSAGE_SHARE = 8
"""One message brings at most this fraction of the cache."""
FAILURES_MAX = 6
"""An address that failed so often in a row is forgotten."""


class PeerCache:
    """Bounded; what failed is replaced first, then a random entry."""

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
        """Heard of this one, second hand."""
        peer_id = peer_info.peer_id
        if peer_id in self._position or peer_id == self._own_id:
            return
        if len(self._entries) >= self._max:
            self.drop(self._eviction_candidate())
        self._position[peer_id] = len(self._entries)
        self._entries.append(peer_info)

    def add_all(self, peer_infos: Sequence[PeerInfo]) -> None:
        """What another peer told us; so much of it that nobody can replace all that we know in one go."""
        for peer_info in peer_infos[: self._max // MESSAGE_SHARE]:
            self.add(peer_info)

    def mark_alive(self, peer_info: PeerInfo) -> None:
        """Spoke with this one."""
        self._failures.pop(peer_info.peer_id, None)
        position = self._position.get(peer_info.peer_id)
        if position is None:
            self.add(peer_info)
        else:
            self._entries[position] = peer_info  # it knows its own address best

    def mark_failed(self, peer_id: PeerId) -> None:
        """Did not answer. Kept for a while: it may be behind a split that heals."""
        if peer_id in self._position:
            count = self._failures.get(peer_id, 0) + 1
            self._failures[peer_id] = count
            if count >= FAILURES_MAX:
                self.drop(peer_id)

    def drop(self, peer_id: PeerId) -> None:
        """Left, or another peer answers there now."""
        position = self._position.pop(peer_id, None)
        if position is None:
            return
        self._failures.pop(peer_id, None)
        last = self._entries.pop()
        if last.peer_id != peer_id:
            self._entries[position] = last
            self._position[last.peer_id] = position

    def sample(self, count: int) -> tuple[PeerInfo, ...]:
        """Random entries to tell to another peer; those that failed us are not passed on."""
        if count >= len(self._entries):
            chosen = list(self._entries)
        else:
            chosen = self._random.sample(self._entries, count)
        if self._failures:
            chosen = [each for each in chosen if each.peer_id not in self._failures]
        return tuple(chosen)

    def pick(self, excluded: Iterable[PeerId] = (), *, prefer_responsive: bool = False) -> PeerInfo | None:
        """A random entry that is not in `avoid`; `hopeful`: one that has not failed us, if there is any."""
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
