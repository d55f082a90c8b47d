"""The state of a cluster: peers, their processes and links, and the log of all changes."""

import time
from collections.abc import Sequence

from broadloom.testing.checks.guarantees import PeerView
from broadloom.testing.cluster.timeline import (
    Annotation,
    ChangeLog,
    LinkAdded,
    LinkRemoved,
    PeerAdded,
    PeerRemoved,
    PeerSnapshot,
)
from broadloom.testing.errors import PeerNotFoundError
from broadloom.testing.processes.pool import PeerRecord

NAMED_MAX = 12
PASSIVE_EVENTS = ("killed", "paused", "resumed")


class ClusterState:
    def __init__(self) -> None:
        self.log = ChangeLog()
        self.peers: dict[int, PeerRecord] = {}
        """By number: running or starting peers."""
        self.views: dict[int, PeerView] = {}
        """By id: connected peers."""
        self.peers_by_id: dict[int, PeerRecord] = {}
        self.departed: dict[int, str] = {}
        """Ids of former peers, with the reason they are gone."""
        self._links: dict[tuple[int, int], set[int]] = {}
        """Pairs of linked peers, and which of the two reported the link."""

    # -- queries

    def get(self, peer_id: int) -> PeerRecord:
        record = self.peers_by_id.get(peer_id)
        if record is None:
            reason = self.departed.get(peer_id)
            if reason is None:
                raise PeerNotFoundError(f"the cluster has no peer {peer_id:016x}")
            raise PeerNotFoundError(f"peer {peer_id:016x} {'was ' if reason in PASSIVE_EVENTS else ''}{reason}")
        return record

    @property
    def connected(self) -> list[PeerRecord]:
        return [record for record in self.peers.values() if record.peer_id and not record.is_leaving]

    @property
    def active(self) -> list[PeerRecord]:
        """Peers that are neither paused nor leaving."""
        return [record for record in self.connected if not record.worker.is_paused]

    @property
    def members(self) -> dict[int, PeerView]:
        """Views of the active peers, by id."""
        return {record.peer_id: self.views[record.peer_id] for record in self.active}

    @property
    def absent(self) -> list[int]:
        """Ids of peers that should have no links any more."""
        inactive = [
            record.peer_id
            for record in self.peers.values()
            if record.peer_id and (record.worker.is_paused or record.is_leaving)
        ]
        return [*self.departed, *inactive]

    def now(self) -> dict[int, PeerSnapshot]:
        snapshots = {}
        for peer, view in self.views.items():
            record = self.peers_by_id[peer]
            snapshots[peer] = PeerSnapshot(
                peer,
                str(record.number),
                view.state,
                tuple(view.neighbors),
                view.free_slots,
                view.diameter_estimate,
                view.is_full_mesh,
                record.worker.is_paused,
            )
        return snapshots

    # -- changes

    def annotate(self, text: str) -> None:
        self.log.add(Annotation(time.time(), text))

    def add_peer(self, record: PeerRecord, peer_id: int, port: int) -> None:
        record.peer_id, record.port = peer_id, port
        self.peers_by_id[peer_id] = record
        self.log.add(PeerAdded(time.time(), peer_id, str(record.number)))

    def update_view(self, view: PeerView) -> None:
        before = self.views.get(view.peer_id)
        self.views[view.peer_id] = view
        old, new = set(before.neighbors if before else ()), set(view.neighbors)
        for other in new - old:
            self._link(view.peer_id, other)
        for other in old - new:
            self._unlink(view.peer_id, other)

    def update_diameters(self, diameters: list[list[int]]) -> None:
        """Diameter estimates change without link changes."""
        for peer, diameter in diameters:
            view = self.views.get(peer)
            if view is not None and view.diameter_estimate != diameter:
                self.views[peer] = view._replace(diameter_estimate=diameter)

    def remove_peer(self, record: PeerRecord, reason: str) -> None:
        self.peers.pop(record.number, None)
        record.worker.peers.discard(record.number)
        if not record.peer_id:
            return
        view = self.views.pop(record.peer_id, None)
        self.peers_by_id.pop(record.peer_id, None)
        self.departed[record.peer_id] = reason
        for other in view.neighbors if view is not None else ():
            self._unlink(record.peer_id, other)
            self._unlink(other, record.peer_id)
        self.log.add(PeerRemoved(time.time(), record.peer_id, reason))

    def _link(self, peer: int, other: int) -> None:
        if other in self.departed:
            return  # the reporting peer has not noticed yet
        pair = (peer, other) if peer < other else (other, peer)
        if pair not in self._links:
            self._links[pair] = set()
            self.log.add(LinkAdded(time.time(), *pair))
        self._links[pair].add(peer)

    def _unlink(self, peer: int, other: int) -> None:
        pair = (peer, other) if peer < other else (other, peer)
        ends = self._links.get(pair)
        if ends is None:
            return
        ends.discard(peer)
        if not ends:
            del self._links[pair]
            self.log.add(LinkRemoved(time.time(), *pair))


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
