"""The log of a cluster: every change of its peers and links, and sentences that describe them."""

import time
from collections.abc import Collection, Sequence

from broadloom.testing.cluster.timeline import Annotation, ChangeLog, LinkAdded, LinkRemoved, PeerAdded, PeerRemoved
from broadloom.testing.processes.coordinator import PeerRecord

NAMED_MAX = 12
PASSIVE_EVENTS = ("killed", "paused", "resumed")


class ClusterLog(ChangeLog):
    def __init__(self) -> None:
        super().__init__()
        self.departed: dict[int, str] = {}
        """Ids of former peers, with the reason they are gone."""
        self._links: dict[tuple[int, int], set[int]] = {}
        """Pairs of linked peers, and which of the two reported the link."""

    def annotate(self, text: str) -> None:
        self.add(Annotation(time.time(), text))

    def add_peer(self, record: PeerRecord) -> None:
        self.add(PeerAdded(time.time(), record.peer_id, str(record.number)))

    def update_links(self, peer_id: int, before: Collection[int], now: Collection[int]) -> None:
        for other in set(now) - set(before):
            self._link(peer_id, other)
        for other in set(before) - set(now):
            self._unlink(peer_id, other)

    def remove_peer(self, record: PeerRecord, reason: str) -> None:
        self.departed[record.peer_id] = reason
        for other in record.view.neighbors if record.view is not None else ():
            self._unlink(record.peer_id, other)
            self._unlink(other, record.peer_id)
        self.add(PeerRemoved(time.time(), record.peer_id, reason))

    def _link(self, peer: int, other: int) -> None:
        if other in self.departed:
            return  # the reporting peer has not noticed yet
        pair = (peer, other) if peer < other else (other, peer)
        if pair not in self._links:
            self._links[pair] = set()
            self.add(LinkAdded(time.time(), *pair))
        self._links[pair].add(peer)

    def _unlink(self, peer: int, other: int) -> None:
        pair = (peer, other) if peer < other else (other, peer)
        ends = self._links.get(pair)
        if ends is None:
            return
        ends.discard(peer)
        if not ends:
            del self._links[pair]
            self.add(LinkRemoved(time.time(), *pair))


# -- sentences for annotations


def describe_count(count: int, event: str) -> str:
    """ "1 peer was killed", "8 peers joined"."""
    if event in PASSIVE_EVENTS:
        event = f"{'was' if count == 1 else 'were'} {event}"
    return f"1 peer {event}" if count == 1 else f"{count} peers {event}"


def describe_peers(peers: Sequence[PeerRecord], event: str) -> str:
    """ "peer 7 was killed", "2 peers joined: 8, 9"."""
    if len(peers) == 1:
        return f"peer {peers[0].number} {'was ' if event in PASSIVE_EVENTS else ''}{event}"
    numbers = ", ".join(map(str, sorted(record.number for record in peers)[:NAMED_MAX]))
    more = f" and {len(peers) - NAMED_MAX} more" if len(peers) > NAMED_MAX else ""
    return f"{describe_count(len(peers), event)}: {numbers}{more}"
