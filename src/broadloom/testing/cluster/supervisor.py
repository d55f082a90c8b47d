"""Everything a cluster does on its own: handle reports, distribute traffic, check the guarantees."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from broadloom.testing.checks.audit import encode_heads
from broadloom.testing.checks.guarantees import PeerView, component_sizes, find_overfull, report_adjacency
from broadloom.testing.checks.live_guarantees import LiveGuarantees
from broadloom.testing.checks.recovery import RecoveryTracker
from broadloom.testing.checks.settling import FabricState, format_seconds
from broadloom.testing.cluster.cluster_log import (
    PASSIVE_EVENTS,
    ClusterLog,
    describe_count,
    describe_peers,
)
from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig, TrafficRates
from broadloom.testing.cluster.growth import Growth
from broadloom.testing.cluster.metrics import MetricsSampler
from broadloom.testing.cluster.timeline import MessageHop, MessageSent, MessagesMissed, PeerSnapshot
from broadloom.testing.errors import PeerNotFoundError
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.coordinator import Coordinator, PeerRecord
from broadloom.testing.processes.pool import WorkerHandle
from broadloom.topology import free_slots
from broadloom.transport.addresses import LOOPBACK

WORKER = "broadloom.testing.cluster.worker:ClusterWorker"
POLL_S = 0.1
"""Interval of the convergence check after a disturbance."""
IDLE_POLLS_PER_CHECK = 10
"""Without a disturbance, only one poll in this many checks thoroughly."""
SAMPLED_PER_S = 3.0
SAMPLED_HOPS_PER_S = 600.0
"""Limits on the messages that are followed hop by hop."""
SAMPLING_WINDOW_S = 5
"""Window over which the message rate is averaged."""
COMPARE_S = 1.0
COMPARE_PEERS = 100
"""Interval of the comparison between peers, up to this number of peers; it grows with more, as every pair is
compared."""
BOOTSTRAP_COUNT = 4
"""Addresses that a joining peer gets."""


class Supervisor(Coordinator):
    def __init__(self, config: ClusterConfig, channel: str) -> None:
        tape = str(config.tape.absolute()) if config.tape is not None else ""
        worker_config = WorkerConfig(channel, degree=config.degree, tape=tape, file_duration_s=config.file_duration_s)
        super().__init__(WORKER, worker_config)
        self.config = config
        self.metrics = MetricsSampler()
        self.guarantees = LiveGuarantees(config.settle_s)
        self.recoveries = RecoveryTracker()
        self.log = ClusterLog()
        self.growth = Growth(self)
        self.rates = NO_TRAFFIC
        self.far_side: dict[int, int] = {}
        """During a partition: peer ids and ports of the far side."""
        self.dropped_rows: dict[int, int] = {}
        """By worker number."""
        self.departures: dict[int, asyncio.Event] = {}
        """Set when a leaving peer has left."""
        self._traffic_is_stale = True
        """The set of peers has changed since traffic was distributed."""
        self._one_in = 1
        """One message in this many is followed hop by hop."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.pool.start()
        for work in (self._watch_convergence(), self._every_second(), self._compare()):
            self.spawn(work)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pool.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def get(self, peer_id: int) -> PeerRecord:
        for record in self.peers.values():
            if record.peer_id == peer_id:
                return record
        reason = self.log.departed.get(peer_id)
        if reason is None:
            raise PeerNotFoundError(f"the cluster has no peer {peer_id:016x}")
        raise PeerNotFoundError(f"peer {peer_id:016x} {'was ' if reason in PASSIVE_EVENTS else ''}{reason}")

    @property
    def absent(self) -> list[int]:
        active = self.members
        inactive = (record.peer_id for record in self.peers.values() if record.peer_id not in active)
        return [*self.log.departed, *filter(None, inactive)]

    def now(self) -> dict[int, PeerSnapshot]:
        return {
            record.peer_id: PeerSnapshot(
                record.peer_id,
                str(record.number),
                view.state,
                tuple(view.neighbors),
                view.free_slots,
                view.diameter_estimate,
                view.is_full_mesh,
                record.worker.is_paused,
            )
            for record in self.peers.values()
            if (view := record.view) is not None
        }

    def bootstrap(self) -> list[str]:
        """Addresses of some active peers on the near side."""
        active = [record for record in self.active if record.peer_id not in self.far_side]
        some = self.random.sample(active, min(BOOTSTRAP_COUNT, len(active)))
        return [f"{LOOPBACK}:{record.port}" for record in some] or [LOOPBACK]

    def initialize_worker(self, worker: WorkerHandle) -> None:
        """Send the current settings to a new worker."""
        worker.send("sample", one_in=self._one_in)
        worker.send("partition", peers=list(self.far_side), ports=list(self.far_side.values()))

    def set_traffic(self, rates: TrafficRates) -> None:
        self.rates = rates
        self.distribute_traffic()

    # -- reports of workers

    def on_report(self, worker: WorkerHandle, report: dict[str, Any]) -> None:
        if report["report"] == "counts":
            self._on_counts(worker, report)
        else:
            super().on_report(worker, report)

    def _on_counts(self, worker: WorkerHandle, counts: dict[str, Any]) -> None:
        self.metrics.on_counts(worker.number, counts)
        self.guarantees.on_counts(worker.number, counts)
        self.dropped_rows[worker.number] = counts["dropped_rows"]
        for sent in counts.get("sampled_sent", ()):
            self.log.add(MessageSent(*sent))
        for hop in counts.get("sampled_hops", ()):
            self.log.add(MessageHop(*hop))
        at_s = time.time()
        for missed in counts["missed_ranges"]:
            self.log.add(MessagesMissed(at_s, *missed))
        diameters = dict(counts["diameters"])  # they change without link changes
        for record in map(self.peers.get, worker.peers):
            if record is not None and record.view is not None and record.peer_id in diameters:
                record.view = record.view._replace(diameter_estimate=diameters[record.peer_id])

    def on_connected(self, record: PeerRecord) -> None:
        self.log.add_peer(record)
        self.growth.on_connected(record.number, record.peer_id)
        self._traffic_is_stale = True

    def on_view(self, record: PeerRecord, view: PeerView) -> None:
        before = record.view.neighbors if record.view is not None else ()
        super().on_view(record, view)
        self.log.update_links(record.peer_id, before, view.neighbors)

    def on_failed(self, number: int, text: str) -> None:
        self.growth.on_failed(number, text)

    def on_departed(self, record: PeerRecord, reason: str, departed: dict[str, int]) -> None:
        self.guarantees.on_departed(record.peer_id, left_gracefully=reason == "left", **departed)
        self.log.remove_peer(record, reason)
        self._traffic_is_stale = True
        if record.peer_id in self.departures:
            self.departures[record.peer_id].set()
        if not record.worker.peers:
            self.metrics.forget_worker(record.worker.number)

    def on_crashed(self, records: list[PeerRecord]) -> None:
        self.recoveries.disturb(describe_count(len(records), "crashed"))
        self.log.annotate(describe_peers(records, "crashed"))

    def on_violation(self, text: str) -> None:
        self.guarantees.violations.append(text)
        self.log.annotate(f"violated {text}")

    def on_error(self, text: str) -> None:
        self.guarantees.record_error(text)

    # -- periodic work

    async def _every_second(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            sample = self.metrics.tick(len(self.connected))
            if self._traffic_is_stale:
                self.distribute_traffic()
            recent = list(self.metrics.samples)[-SAMPLING_WINDOW_S:]
            sent_per_s = sum(each.sent_per_s for each in recent) / len(recent)
            sampled_per_s = min(SAMPLED_PER_S, SAMPLED_HOPS_PER_S / max(1, sample.peers))
            self._adjust_sampling(sent_per_s / sampled_per_s)

    def _adjust_sampling(self, one_in: float) -> None:
        """Change only by a factor of two or more: during a change the workers' samples differ, and commands to paused
        workers pile up."""
        if not self._one_in / 2 <= max(1.0, one_in) <= self._one_in * 2:
            self._one_in = max(1, round(one_in))
            self.pool.send_all("sample", one_in=self._one_in)

    def distribute_traffic(self) -> None:
        self._traffic_is_stale = False
        active = self.active
        chatting = sum(record.chats for record in active)
        for worker in self.pool.workers:
            peers = [record for record in active if record.worker is worker]
            fraction = len(peers) / len(active) if active else 0.0
            chat_fraction = sum(record.chats for record in peers) / chatting if chatting else 0.0
            rates = asdict(self.rates.scaled(fraction)) | {"chat_per_s": self.rates.chat_per_s * chat_fraction}
            worker.send("set_rates", rates=rates)

    async def _watch_convergence(self) -> None:
        polls = 0
        while True:
            await asyncio.sleep(POLL_S)
            views = self.members.values()
            if overfull := find_overfull(views, self.config.degree):
                self.guarantees.overfull_count += 1
                text = f"guarantee 4: peer {overfull[0].number} has {len(overfull[0].neighbors)} links"
                self.guarantees.violations.append(text)
            polls += 1
            if not views or not (self.recoveries.is_disturbed or polls % IDLE_POLLS_PER_CHECK == 0):
                continue
            if self.find_convergence_problems() is not None:
                self.recoveries.on_unconverged()
                continue
            recovery = self.recoveries.on_converged(max(view.changed_ns for view in views))
            if recovery is not None:
                self.log.annotate(f"repaired in {format_seconds(recovery.duration_s)}: {recovery.cause}")

    def find_convergence_problems(self) -> str | None:
        if self.far_side:
            return "the fabric is partitioned: heal it first"
        if joining := self.growth.pending:
            return f"peer {joining[0]} is not connected yet"
        return super().find_convergence_problems()

    def fabric_state(self) -> FabricState:
        """How far the repair is."""
        graph = report_adjacency(self.members.values())
        paused = sum(len(each.peers) for each in self.pool.workers if each.is_paused and not each.exited.is_set())
        missing = sum(free_slots(graph, self.config.degree).values())
        is_whole = not (self.recoveries.is_disturbed or self.far_side or missing)
        return FabricState(
            len(component_sizes(graph)),
            missing,
            paused,
            None if is_whole else self.recoveries.repairing_s,
            self.recoveries.repaired_s,
            self.config.settle_s,
        )

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_S * max(1.0, len(self.connected) / COMPARE_PEERS))
            heads = await self.pool.request("author_heads", departed=self.guarantees.departed)
            if expected := self.guarantees.expected_by_now(heads.values()):
                replies = await self.pool.request("find_missing", expected=encode_heads(expected))
                self.guarantees.on_compared(replies.values())
            if self.guarantees.missing_count and (expected := self.guarantees.expected_if_settled(self.fabric_state())):
                replies = await self.pool.request("find_missing", expected=encode_heads(expected))
                if self.fabric_state().is_settled:
                    self.guarantees.on_settled(replies.values())
