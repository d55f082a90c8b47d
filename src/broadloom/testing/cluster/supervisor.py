"""Everything a cluster does on its own: handle reports, distribute traffic, check the guarantees."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import asdict
from random import Random
from typing import Any

from broadloom.testing.checks.audit import encode_heads
from broadloom.testing.checks.guarantees import (
    PeerView,
    component_sizes,
    find_convergence_problems,
    find_overfull,
    report_adjacency,
)
from broadloom.testing.checks.live_guarantees import LiveGuarantees
from broadloom.testing.checks.recovery import RecoveryTracker
from broadloom.testing.checks.settling import FabricState, format_seconds
from broadloom.testing.cluster.cluster_state import (
    ClusterState,
    describe_count,
    describe_peers,
)
from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig, TrafficRates
from broadloom.testing.cluster.growth import Growth
from broadloom.testing.cluster.metrics import MetricsSampler
from broadloom.testing.cluster.timeline import MessageHop, MessageSent, MessagesMissed
from broadloom.testing.processes.control_protocol import WorkerConfig
from broadloom.testing.processes.pool import PeerRecord, WorkerHandle, WorkerPool
from broadloom.topology import free_slots

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


class Supervisor:
    def __init__(self, config: ClusterConfig, channel: str) -> None:
        self.config = config
        self.random = Random()
        self.metrics = MetricsSampler()
        self.guarantees = LiveGuarantees(config.settle_s)
        self.recoveries = RecoveryTracker()
        self.state = ClusterState()
        tape = str(config.tape.absolute()) if config.tape is not None else ""
        worker_config = WorkerConfig(channel, degree=config.degree, tape=tape, file_duration_s=config.file_duration_s)
        self.pool = WorkerPool(WORKER, worker_config, self._on_report, self._on_worker_death)
        self.growth = Growth(config, self.pool, self.state, self.bootstrap, self._initialize_worker)
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

    def bootstrap(self) -> list[str]:
        """Addresses of some active peers on the near side."""
        active = [record for record in self.state.active if record.peer_id not in self.far_side]
        some = self.random.sample(active, min(BOOTSTRAP_COUNT, len(active)))
        return [f"127.0.0.1:{record.port}" for record in some] or ["127.0.0.1"]

    def _initialize_worker(self, worker: WorkerHandle) -> None:
        worker.send("sample", one_in=self._one_in)
        worker.send("partition", peers=list(self.far_side), ports=list(self.far_side.values()))

    def set_traffic(self, rates: TrafficRates) -> None:
        self.rates = rates
        self.distribute_traffic()

    def on_departed(self, peer: PeerRecord, reason: str) -> None:
        if peer.peer_id and reason != "left":
            self.guarantees.on_departed(peer.peer_id, left_gracefully=False)
        self.state.remove_peer(peer, reason)
        self._traffic_is_stale = True
        if peer.peer_id in self.departures:
            self.departures[peer.peer_id].set()
        if not peer.worker.peers:
            self.metrics.forget_worker(peer.worker.number)

    # -- reports of workers

    def _on_report(self, worker: WorkerHandle, report: dict[str, Any]) -> None:
        match report["report"]:
            case "counts":
                self._on_counts(worker, report)
            case "views":
                for row in report["views"]:
                    self._on_view(PeerView(*row))
            case "connected":
                view = PeerView(*report["view"])
                self.growth.on_connected(view.number, view.peer_id, report["port"])
                self._on_view(view)
                self._traffic_is_stale = True
            case "failed":
                self.growth.on_failed(report["number"], report["text"])
            case "left":
                peer = self.state.peers.get(report["number"])
                if peer is not None:
                    self.guarantees.on_departed(peer.peer_id, left_gracefully=True, **report["departed"])
                    self.on_departed(peer, "left")
            case "violation":
                self.guarantees.violations.append(f"guarantee {report['guarantee']}: {report['text']}")
                self.state.annotate(f"guarantee violated: {report['text']}")
            case "error":
                self.guarantees.record_error(f"process {worker.number}: {report['text']}")

    def _on_counts(self, worker: WorkerHandle, counts: dict[str, Any]) -> None:
        self.metrics.on_counts(worker.number, counts)
        self.guarantees.on_counts(worker.number, counts)
        self.dropped_rows[worker.number] = counts["dropped_rows"]
        log = self.state.log
        for sent in counts.get("sampled_sent", ()):
            log.add(MessageSent(*sent))
        for hop in counts.get("sampled_hops", ()):
            log.add(MessageHop(*hop))
        at_s = time.time()
        for missed in counts["missed_ranges"]:
            log.add(MessagesMissed(at_s, *missed))
        self.state.update_diameters(counts["diameters"])

    def _on_view(self, view: PeerView) -> None:
        if view.peer_id in self.state.peers_by_id:
            self.state.update_view(view)

    def _on_worker_death(self, worker: WorkerHandle) -> None:
        peers = [record for record in self.state.peers.values() if record.worker is worker]
        self.guarantees.record_error(f"process {worker.number} exited unexpectedly: {worker.exit_status}")
        if peers:
            self.recoveries.disturb(describe_count(len(peers), "crashed"))
            self.state.annotate(describe_peers(peers, "crashed"))
        for record in peers:
            self.growth.on_failed(record.number, "its process exited")
            self.on_departed(record, "crashed")

    # -- periodic work

    async def _every_second(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            sample = self.metrics.tick(len(self.state.connected))
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
        active = self.state.active
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
            views = self.state.members.values()
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
                self.state.annotate(f"repaired in {format_seconds(recovery.duration_s)}: {recovery.cause}")

    def find_convergence_problems(self) -> str | None:
        if self.far_side:
            return "the fabric is partitioned: heal it first"
        if joining := self.growth.pending:
            return f"peer {joining[0]} is not connected yet"
        return find_convergence_problems(self.state.members.values(), self.config.degree, self.state.absent)

    def fabric_state(self) -> FabricState:
        """How far the repair is."""
        graph = report_adjacency(self.state.members.values())
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
            await asyncio.sleep(COMPARE_S * max(1.0, len(self.state.connected) / COMPARE_PEERS))
            heads = await self.pool.request("author_heads", departed=self.guarantees.departed)
            if expected := self.guarantees.expected_by_now(heads.values()):
                replies = await self.pool.request("find_missing", expected=encode_heads(expected))
                self.guarantees.on_compared(replies.values())
            if self.guarantees.missing_count and (expected := self.guarantees.expected_if_settled(self.fabric_state())):
                replies = await self.pool.request("find_missing", expected=encode_heads(expected))
                if self.fabric_state().is_settled:
                    self.guarantees.on_settled(replies.values())
