"""The coordinator of a worker pool: the peers in its processes, as they report themselves.

Chaos runs, benchmarks and local clusters are coordinators. `Coordinator` keeps the records of the peers; subclasses
override the `on_…` methods to act on changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from broadloom.testing.checks.guarantees import PeerView, find_convergence_problems
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.pool import WorkerHandle, WorkerPool

CONCURRENT_JOINS_MAX = 8
"""On a few cores, more joining peers would only wait for each other."""


def joins_allowed(connected: int, joining: int) -> int:
    """Return how many more peers may start to join: at most a quarter of the connected ones join at a time."""
    return max(0, max(1, min(CONCURRENT_JOINS_MAX, connected // 4)) - joining)


@dataclass(slots=True, eq=False)
class PeerRecord:
    """One peer as the coordinator knows it."""

    number: int
    worker: WorkerHandle
    chats: bool = False
    """Whether it joins the chat groups of a cluster."""
    peer_id: int = 0
    """0 until it is connected."""
    port: int = 0
    view: PeerView | None = None
    """Its last report; None until it is connected."""
    connect_time_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase of `connect`, if they were measured."""
    is_leaving: bool = False


class Coordinator:
    """`worker` is the path `module:class` of a `Worker`."""

    def __init__(self, worker: str, worker_config: WorkerConfig) -> None:
        self.random = Random()
        self.degree = worker_config.degree
        self.pool = WorkerPool(worker, worker_config, self.on_report, self._on_worker_death)
        self.peers: dict[int, PeerRecord] = {}
        """By number: peers that are starting, running or leaving."""

    # -- queries

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
        return {record.peer_id: record.view for record in self.active if record.view is not None}

    @property
    def starting(self) -> list[int]:
        return [record.number for record in self.peers.values() if not record.peer_id]

    @property
    def absent(self) -> list[int] | None:
        """Ids of peers that must have no links any more; None if there are no other programs on the channel, so that
        every link to a peer that is not a member is wrong."""
        return None

    def find_convergence_problems(self) -> str | None:
        """Return why the active peers do not form one regular fabric, or None if they do."""
        if starting := self.starting:
            return f"peer {starting[0]} is not connected yet"
        return find_convergence_problems(self.members.values(), self.degree, self.absent)

    # -- changes

    def start_peers(
        self, worker: WorkerHandle, numbers: Iterable[int], bootstrap: Iterable[str], **options: Any
    ) -> None:
        chosen = list(numbers)
        for number in chosen:
            self.peers[number] = PeerRecord(number, worker, bool(options.get("chats")))
            worker.peers.add(number)
        worker.send("start", numbers=chosen, bootstrap=list(bootstrap), **options)

    def leave(self, record: PeerRecord) -> None:
        record.is_leaving = True
        record.worker.send("leave", numbers=[record.number])

    def remove(self, record: PeerRecord, reason: str, **departed: int) -> None:
        """A peer has `left`, or was `killed`, or `crashed`. `departed` is what it sent before it left."""
        self.peers.pop(record.number, None)
        record.worker.peers.discard(record.number)
        self.on_departed(record, reason, departed)

    # -- for subclasses

    def on_connected(self, record: PeerRecord) -> None: ...

    def on_view(self, record: PeerRecord, view: PeerView) -> None:
        record.view = view

    def on_failed(self, number: int, text: str) -> None:
        """A peer could not connect."""

    def on_departed(self, record: PeerRecord, reason: str, departed: dict[str, int]) -> None:
        """A peer is gone, connected or not."""

    def on_crashed(self, records: list[PeerRecord]) -> None:
        """A process exited unexpectedly with these peers."""

    def on_violation(self, text: str) -> None: ...

    def on_error(self, text: str) -> None:
        """An uncaught exception in a worker, or an unexpected exit."""

    # -- reports of workers

    def on_report(self, worker: WorkerHandle, report: dict[str, Any]) -> None:
        match report["report"]:
            case "connected":
                record = self.peers.get(report["number"])
                if record is not None:  # it was not killed meanwhile
                    view = PeerView(*report["view"])
                    record.peer_id, record.port, record.connect_time_s = view.peer_id, report["port"], report["took_s"]
                    record.phases = report.get("phases", {})
                    self.on_connected(record)
                    self.on_view(record, view)
            case "views":
                for view in (PeerView(*row) for row in report["views"]):
                    record = self.peers.get(view.number)
                    if record is not None and record.peer_id == view.peer_id:
                        self.on_view(record, view)
            case "left":
                record = self.peers.get(report["number"])
                if record is not None:
                    self.remove(record, "left", **report["departed"])
            case "failed":
                self._on_failed(report["number"], report["text"])
            case "violation":
                self.on_violation(f"guarantee {report['guarantee']}: {report['text']}")
            case "error":
                self.on_error(f"process {worker.number}: {report['text']}")

    def _on_failed(self, number: int, text: str) -> None:
        record = self.peers.pop(number, None)
        if record is not None:
            record.worker.peers.discard(number)
        self.on_failed(number, text)

    def _on_worker_death(self, worker: WorkerHandle) -> None:
        records = [record for record in self.peers.values() if record.worker is worker]
        which = f" with peers {records[0].number} to {records[-1].number}" if records else ""
        self.on_error(f"process {worker.number}{which} exited unexpectedly: {worker.exit_status}")
        if records:
            self.on_crashed(records)
        for record in records:
            if record.peer_id:
                self.remove(record, "crashed")
            else:
                self._on_failed(record.number, "its process exited")
