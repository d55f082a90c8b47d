"""What goes on in a lab by itself: hearing its processes, sharing the traffic out, looking whether all is well.

`lab.py` is what people do to it.
"""

import asyncio
import time
from dataclasses import asdict
from random import Random
from typing import Any

from broadloom.testing.checks.guarantees import PeerView, find_convergence_problems, find_overfull
from broadloom.testing.checks.live_guarantees import LiveGuarantees
from broadloom.testing.checks.recovery import RecoveryTracker
from broadloom.testing.cluster.cluster_state import ClusterState, PeerRecord
from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig, TrafficRates
from broadloom.testing.cluster.growth import Growth
from broadloom.testing.cluster.metrics import MetricsSampler
from broadloom.testing.cluster.timeline import MessageHop, MessageSent, MessagesMissed
from broadloom.testing.cluster.words import describe_count, describe_peers, format_seconds
from broadloom.testing.processes.pool import WorkerHandle, WorkerPool
from broadloom.testing.processes.worker import WorkerConfig

CONNECT_TIMEOUT_S = 60.0
"""For one newcomer."""
POLL_S = 0.1
"""How often it is looked whether the fabric is whole again."""
IDLE_POLLS_PER_CHECK = 10
"""While nothing has been done to it, only one look of so many is a thorough one."""
SAMPLED_PER_S = 3.0
SAMPLED_HOPS_PER_S = 600.0
"""So many messages a second are followed on their way, and so many hops of them told at most."""
SAMPLING_WINDOW_S = 5
"""How much is said is averaged over so long."""
COMPARE_S = 1.0
COMPARE_PEERS = 100
"""What everyone has is compared this often, with more peers more rarely: each has to be compared with each."""
BOOTSTRAP_COUNT = 4
"""Peers whose addresses a newcomer is given."""


class Supervisor:
    def __init__(self, config: ClusterConfig, channel: str) -> None:
        self.config = config
        self.random = Random()
        self.metrics = MetricsSampler()
        self.guarantees = LiveGuarantees()
        self.recoveries = RecoveryTracker()
        self.state = ClusterState()
        tape = str(config.tape.absolute()) if config.tape is not None else ""
        self.pool = WorkerPool(
            WorkerConfig(channel, config.degree, tape, config.file_duration_s, CONNECT_TIMEOUT_S),
            self._on_report,
            self._on_worker_death,
        )
        self.growth = Growth(config, self.pool, self.state, self.bootstrap, self._initialize_worker)
        self.rates = NO_TRAFFIC
        self.far_side: dict[int, int] = {}
        """In a split: ids and ports of the far side."""
        self.dropped_rows: dict[int, int] = {}
        """Of each process: what its recorder lost."""
        self.departures: dict[int, asyncio.Event] = {}
        """Set when a peer that was told to leave has."""
        self._traffic_is_stale = True
        """Who is there has changed: the traffic has to be shared anew."""
        self._one_in = 1
        """One message of so many is followed on its way."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.pool.wait_until_ready()
        for work in (self._watch_convergence(), self._every_second(), self._compare()):
            self.spawn(work)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.pool.close()

    def spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def bootstrap(self) -> list[str]:
        """Addresses of some that are awake, and of the near side."""
        active = [known for known in self.state.active if known.peer_id not in self.far_side]
        some = self.random.sample(active, min(BOOTSTRAP_COUNT, len(active)))
        return [f"127.0.0.1:{known.port}" for known in some] or ["127.0.0.1"]

    def _initialize_worker(self, worker: WorkerHandle) -> None:
        worker.send(do="follow", one_of=self._one_in)
        worker.send(do="border", peers=list(self.far_side), ports=list(self.far_side.values()))

    def set_traffic(self, rates: TrafficRates) -> None:
        self.rates = rates
        self.distribute_traffic()

    def on_departed(self, peer: PeerRecord, reason: str) -> None:
        """It is no more. How one that left had fared is told by itself."""
        if peer.peer_id and reason != "left":
            self.guarantees.on_departed(peer.peer_id, left_gracefully=False)
        self.state.remove_peer(peer, reason)
        self._traffic_is_stale = True
        if peer.peer_id in self.departures:
            self.departures[peer.peer_id].set()
        if not peer.worker.peers:
            self.metrics.forget_worker(peer.worker.number)

    # -- told by processes

    def _on_report(self, worker: WorkerHandle, report: dict[str, Any]) -> None:
        match report["tell"]:
            case "counts":
                self._on_counts(worker, report)
            case "views":
                for view in report["views"]:
                    self._on_view(view)
            case "connected":
                self.growth.on_connected(report["number"], report["view"][1], report["port"])
                self._on_view(report["view"])
                self._traffic_is_stale = True
            case "failed":
                self.growth.on_failed(report["number"], report["text"])
            case "left":
                peer = self.state.peers_by_id.get(report["peer"])
                if peer is not None:
                    self.guarantees.on_departed(
                        peer.peer_id, left_gracefully=True, sent_count=report["sent"], last_sent_ns=report["sent_ns"]
                    )
                    self.on_departed(peer, "left")
            case "broken":
                self.guarantees.violations.append(f"promise {report['promise']}: {report['text']}")
                self.state.annotate(f"a promise was broken: {report['text']}")
            case "fault":
                self.guarantees.record_error(f"process {worker.number}: {report['text']}")

    def _on_counts(self, worker: WorkerHandle, counts: dict[str, Any]) -> None:
        self.metrics.on_counts(worker.number, counts)
        self.guarantees.on_counts(worker.number, counts)
        self.dropped_rows[worker.number] = counts["lost_rows"]
        log = self.state.log
        for sent in counts.get("said", ()):
            log.add(MessageSent(*sent))
        for hop in counts.get("hops_seen", ()):
            log.add(MessageHop(*hop))
        at_s = time.time()
        for missed in counts["missed_ranges"]:
            log.add(MessagesMissed(at_s, *missed))
        self.state.update_diameters(counts["diameters"])

    def _on_view(self, row: list[Any]) -> None:
        number, peer, state, changed_ns, neighbors, free_slots, diameter, is_full_mesh = row
        if peer in self.state.peers_by_id:
            view = PeerView(number, peer, state, changed_ns, tuple(neighbors), free_slots, diameter, is_full_mesh)
            self.state.update_view(view)

    def _on_worker_death(self, worker: WorkerHandle) -> None:
        peers = [known for known in self.state.peers.values() if known.worker is worker]
        self.guarantees.record_error(f"process {worker.number} ended, and nobody had told it to")
        if peers:
            self.recoveries.disturb(describe_count(len(peers), "died"))
            self.state.annotate(describe_peers(peers, "died"))
        for known in peers:
            self.growth.on_failed(known.number, "its process ended")
            self.on_departed(known, "died")

    # -- what goes on by itself

    async def _every_second(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            sample = self.metrics.tick(len(self.state.connected))
            if self._traffic_is_stale:
                self.distribute_traffic()
            recent = list(self.metrics.samples)[-SAMPLING_WINDOW_S:]
            sent_per_s = sum(each.sent_per_s for each in recent) / len(recent)
            per_s = min(SAMPLED_PER_S, SAMPLED_HOPS_PER_S / max(1, sample.peers))
            self._adjust_sampling(sent_per_s / per_s)

    def _adjust_sampling(self, wanted: float) -> None:
        """Told only if it has changed by much: in that moment not all follow the same, and those that are frozen read
        nothing, so it would pile up for them."""
        if not self._one_in / 2 <= max(1.0, wanted) <= self._one_in * 2:
            self._one_in = max(1, round(wanted))
            self.pool.send_all(do="follow", one_of=self._one_in)

    def distribute_traffic(self) -> None:
        self._traffic_is_stale = False
        active = self.state.active
        chatting = sum(known.chats for known in active)
        for worker in self.pool.workers:
            peers = [known for known in active if known.worker is worker]
            fraction = len(peers) / len(active) if active else 0.0
            chat = sum(known.chats for known in peers) / chatting if chatting else 0.0
            rates = asdict(self.rates.scaled(fraction)) | {"chat_per_s": self.rates.chat_per_s * chat}
            worker.send(do="rates", rates=rates)

    async def _watch_convergence(self) -> None:
        """Whether the fabric is whole again."""
        polls = 0
        while True:
            await asyncio.sleep(POLL_S)
            members = self.state.members
            if over := find_overfull(members, self.config.degree):
                self.guarantees.overfull_count += 1
                self.guarantees.violations.append(
                    f"promise 4: peer {over[0].number} has {len(over[0].neighbors)} links"
                )
            polls += 1
            if not members or not (self.recoveries.is_disturbed or polls % IDLE_POLLS_PER_CHECK == 0):
                continue
            if self.find_convergence_problems() is not None:
                self.recoveries.on_unconverged()
                continue
            recovery = self.recoveries.on_converged(max(view.changed_ns for view in members.values()))
            if recovery is not None:
                after = f"{format_seconds(recovery.duration_s)} after: {recovery.cause}"
                self.state.annotate(f"one fabric, everyone with its links, {after}")

    def find_convergence_problems(self) -> str | None:
        if self.far_side:
            return "the fabric is split on purpose: heal it first"
        if joiners := self.growth.pending:
            return f"peer {joiners[0]} is not connected yet"
        return find_convergence_problems(self.state.members, self.config.degree, self.state.absent)

    async def _compare(self) -> None:
        """Whether everyone has what was said."""
        while True:
            await asyncio.sleep(COMPARE_S * max(1.0, len(self.state.connected) / COMPARE_PEERS))
            heads = await self.pool.request(self.pool.responsive, do="heads", gone=self.guarantees.departed)
            expected = self.guarantees.expected_by_now(heads)
            if expected:
                replies = await self.pool.request(self.pool.responsive, do="check", roll=expected)
                any_paused = any(hand.is_paused and not hand.exited.is_set() for hand in self.pool.workers)
                self.guarantees.on_compared(
                    replies, is_stable=not (self.recoveries.is_disturbed or self.far_side or any_paused)
                )
