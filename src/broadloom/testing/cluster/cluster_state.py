"""Who lives in a lab: peers by number and by id, the processes they are in, their links; and the log of all changes."""

import time
from dataclasses import dataclass, field, replace

from broadloom.errors import BroadloomError
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
from broadloom.testing.processes.pool import WorkerHandle
from broadloom.testing.workloads.feed import member_name


class PeerNotFoundError(BroadloomError):
    """It is not there, or not any more."""


@dataclass(slots=True, eq=False)
class PeerRecord:
    """One peer, as far as the coordinator knows it."""

    number: int
    worker: WorkerHandle
    chats: bool
    peer_id: int = 0
    """0 before it was connected."""
    port: int = 0
    is_leaving: bool = False
    """Told to leave."""

    @property
    def name(self) -> str:
        """What its neighbours in a conversation call it."""
        return member_name(self.number)


@dataclass(slots=True)
class _LinkRecord:
    ends: set[int] = field(default_factory=set)
    """Who of the two says that there is one."""


class ClusterState:
    def __init__(self) -> None:
        self.log = ChangeLog()
        self.peers: dict[int, PeerRecord] = {}
        """By number: those that live, or are about to."""
        self.views: dict[int, PeerView] = {}
        """By id: those that are connected."""
        self.peers_by_id: dict[int, PeerRecord] = {}
        self.departed: dict[int, str] = {}
        """Ids of those that were, and how they went."""
        self._links: dict[tuple[int, int], _LinkRecord] = {}

    # -- looking

    def get(self, peer_id: int) -> PeerRecord:
        record = self.peers_by_id.get(peer_id)
        if record is None:
            reason = self.departed.get(peer_id)
            text = (
                f"peer {peer_id:016x} was {reason}"
                if reason == "killed"
                else f"peer {peer_id:016x} {reason}"
                if reason
                else ""
            )
            raise PeerNotFoundError(text or f"there is no peer {peer_id:016x} in this lab")
        return record

    @property
    def connected(self) -> list[PeerRecord]:
        return [known for known in self.peers.values() if known.peer_id and not known.is_leaving]

    @property
    def active(self) -> list[PeerRecord]:
        """Those that can do something: not frozen, not about to leave."""
        return [known for known in self.connected if not known.worker.is_paused]

    @property
    def members(self) -> dict[int, PeerView]:
        """Views of those that live, are awake and were not told to leave."""
        return {known.peer_id: self.views[known.peer_id] for known in self.active}

    @property
    def absent(self) -> list[int]:
        """Ids of those that no link should lead to any more."""
        inactive = [
            known.peer_id
            for known in self.peers.values()
            if known.peer_id and (known.worker.is_paused or known.is_leaving)
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
                view.neighbors,
                view.free_slots,
                view.diameter_estimate,
                view.is_full_mesh,
                record.worker.is_paused,
            )
        return snapshots

    # -- what happens

    def annotate(self, text: str) -> None:
        """A sentence for people."""
        self.log.add(Annotation(time.time(), text))

    def add_peer(self, record: PeerRecord, peer_id: int, port: int) -> None:
        record.peer_id, record.port = peer_id, port
        self.peers_by_id[peer_id] = record
        self.log.add(PeerAdded(time.time(), peer_id, str(record.number)))

    def update_view(self, view: PeerView) -> None:
        """A peer told of itself."""
        before = self.views.get(view.peer_id)
        self.views[view.peer_id] = view
        old, new = set(before.neighbors if before else ()), set(view.neighbors)
        for other in new - old:
            self._link(view.peer_id, other)
        for other in old - new:
            self._unlink(view.peer_id, other)

    def update_diameters(self, diameters: list[list[int]]) -> None:
        """What peers believe of the fabric's diameter changes without any change of their links."""
        for peer, diameter in diameters:
            view = self.views.get(peer)
            if view is not None and view.diameter_estimate != diameter:
                self.views[peer] = replace(view, diameter_estimate=diameter)

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
            return  # said by one that has not noticed yet
        pair = (peer, other) if peer < other else (other, peer)
        link = self._links.get(pair)
        if link is None:
            link = self._links[pair] = _LinkRecord()
            self.log.add(LinkAdded(time.time(), *pair))
        link.ends.add(peer)

    def _unlink(self, peer: int, other: int) -> None:
        pair = (peer, other) if peer < other else (other, peer)
        link = self._links.get(pair)
        if link is None:
            return
        link.ends.discard(peer)
        if not link.ends:
            del self._links[pair]
            self.log.add(LinkRemoved(time.time(), *pair))
