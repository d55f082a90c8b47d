"""`LocalCluster`: start peers in their own processes, inject faults, and watch the fabric repair itself.

Up to `processes_max` peers have a process each; in larger clusters all but the first few share. The faults are real:

- **kill**: SIGKILL, if all peers of the process are to be killed. A peer that shares its process with others has its
  sockets dropped without notice, which is what the kernel does for a killed process.
- **pause**: SIGSTOP, always of a whole process with all its peers.
- **partition**: see `partition.py`.

The cluster lives in the event loop of its caller. Every wait has a deadline, and no process outlives the program
(`processes/forkserver.py`).
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from broadloom.testing.checks.audit import encode_heads
from broadloom.testing.checks.guarantees import report_adjacency
from broadloom.testing.checks.live_guarantees import GuaranteeStatus, LiveGuarantees, statuses
from broadloom.testing.checks.recovery import Recovery
from broadloom.testing.checks.settling import FabricState
from broadloom.testing.cluster.cluster_log import describe_count, describe_peers
from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig, TrafficRates
from broadloom.testing.cluster.metrics import MetricsSample, MetricsSampler
from broadloom.testing.cluster.supervisor import POLL_S, Supervisor
from broadloom.testing.cluster.timeline import Change, PeerSnapshot
from broadloom.testing.errors import ClusterError
from broadloom.testing.processes.coordinator import PeerRecord
from broadloom.testing.processes.forkserver import unsupported_reason
from broadloom.testing.workloads.feed import member_name
from broadloom.topology import diameter, mutual_links

LEAVE_TIMEOUT_S = 40.0
CONVERGENCE_TIMEOUT_S = 120.0


class LocalCluster:
    """Real peers on this machine. Create it with `LocalCluster.start`.

        async with LocalCluster.start(ClusterConfig(peers=12)) as cluster:
            await cluster.wait_until_grown()
            async with broadloom.connect(cluster.channel, bootstrap=cluster.bootstrap()) as channel:
                await cluster.kill_random(3)
                await cluster.wait_until_converged()
        assert all(guarantee.holds for guarantee in cluster.guarantees())

    It is a `Timeline`: `now` and `changes` show the fabric. Operations that cannot be done raise `ClusterError` or
    `PeerNotFoundError`, with a message for the user.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.channel = f"cluster/{secrets.token_hex(16)}"
        """Name of the channel. It cannot be guessed; join with `broadloom.connect(channel, bootstrap=bootstrap())`."""
        self.tape: Path | None = config.tape
        self.kill_count = 0
        self._supervisor = Supervisor(config, self.channel)
        self._log, self._pool = self._supervisor.log, self._supervisor.pool
        self.recoveries = self._supervisor.recoveries
        self.totals: MetricsSampler = self._supervisor.metrics
        """Counts since the start."""
        self.guarantee_checks: LiveGuarantees = self._supervisor.guarantees
        """All violations and errors, with descriptions."""
        self._grown = asyncio.Event()
        self._growth_error: Exception | None = None

    @classmethod
    @asynccontextmanager
    async def start(cls, config: ClusterConfig) -> AsyncIterator["LocalCluster"]:
        """Start a cluster. Peers keep joining inside the block (`wait_until_grown`); its end stops all processes and
        completes the tapes."""
        if reason := unsupported_reason():
            raise ClusterError(reason)
        cluster = cls(config)
        try:
            await cluster._supervisor.start()
            cluster._supervisor.spawn(cluster._grow())
            yield cluster
        finally:
            await cluster._supervisor.close()

    async def _grow(self) -> None:
        try:
            await self.add(self.config.peers)
        except ClusterError as error:
            self._log.annotate(str(error))
            self._growth_error = error
        rates = self.config.rates
        self.set_traffic(TrafficRates.default_for(self.config.peers) if rates is None else rates)
        self._grown.set()

    async def wait_until_grown(self, timeout_s: float = CONVERGENCE_TIMEOUT_S) -> None:
        """Wait until all configured peers form one regular fabric."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._grown.wait()
        except TimeoutError:
            count = len(self._supervisor.connected)
            raise ClusterError(f"after {timeout_s:g} s, {count} of {self.config.peers} peers are connected") from None
        if self._growth_error is not None:
            raise self._growth_error
        await self.wait_until_converged(timeout_s)

    # -- observation

    def now(self) -> dict[int, PeerSnapshot]:
        """Return the connected peers, by id."""
        return self._supervisor.now()

    def changes(self, since: int) -> tuple[int, list[Change]]:
        return self._log.since(since)

    def samples(self) -> list[MetricsSample]:
        """Return one sample per second, for the last hour."""
        return list(self.totals.samples)

    def guarantees(self) -> list[GuaranteeStatus]:
        return statuses(
            self.guarantee_checks,
            self.totals,
            self._supervisor.members.values(),
            self.fabric_state(),
            self.config.degree,
            is_partitioned=self.is_partitioned,
        )

    def fabric_state(self) -> FabricState:
        """Return how far the repair of the fabric is."""
        return self._supervisor.fabric_state()

    def bootstrap(self) -> list[str]:
        """Return addresses of some peers, for `broadloom.connect`."""
        return self._supervisor.bootstrap()

    def diameter(self) -> int:
        """Return the exact diameter, in hops. (Peers only estimate it.)"""
        return diameter(mutual_links(report_adjacency(self._supervisor.members.values())))

    def display_name(self, peer_id: int) -> str:
        """Return the name of a peer in chat groups."""
        return member_name(self._supervisor.get(peer_id).number)

    @property
    def dropped_rows(self) -> int:
        """Rows that the recorders dropped."""
        return sum(self._supervisor.dropped_rows.values())

    @property
    def process_count(self) -> int:
        return sum(not worker.exited.is_set() for worker in self._pool.workers)

    @property
    def is_partitioned(self) -> bool:
        return bool(self._supervisor.far_side)

    @property
    def rates(self) -> TrafficRates:
        return self._supervisor.rates

    # -- operations

    async def add(self, count: int) -> list[int]:
        """Add peers and return their ids once all are connected."""
        self.recoveries.disturb(describe_count(count, "joined"))
        return await self._supervisor.growth.add(count)

    async def kill(self, peer_ids: Sequence[int]) -> None:
        """Kill peers at the same moment, without warning."""
        victims = [self._supervisor.get(peer) for peer in dict.fromkeys(peer_ids)]
        if not victims:
            return
        numbers = {record.number for record in victims}
        workers = {record.worker.number: record.worker for record in victims}.values()
        self.recoveries.disturb(describe_count(len(victims), "killed"))
        for worker in workers:
            if worker.peers <= numbers:
                self._pool.kill(worker)
            else:
                worker.send("kill", numbers=[record.number for record in victims if record.worker is worker])
        self.kill_count += len(victims)
        for record in victims:
            self._supervisor.remove(record, "killed")
        self._log.annotate(describe_peers(victims, "killed"))

    async def kill_random(self, count: int) -> list[int]:
        """Kill random peers, whole processes first; returns their ids."""
        connected = self._supervisor.connected
        if count >= len(connected):
            raise ClusterError(f"cannot kill {count} of {len(connected)} peers: at least one has to survive")
        chosen: list[PeerRecord] = []
        workers = list({record.worker.number: record.worker for record in connected}.values())
        self._supervisor.random.shuffle(workers)
        by_worker = [[record for record in connected if record.worker is worker] for worker in workers]
        for group in by_worker:
            if len(group) <= count - len(chosen):
                chosen += group
        rest = [record for group in by_worker for record in group if record not in chosen]
        chosen += self._supervisor.random.sample(rest, count - len(chosen))
        peer_ids = [record.peer_id for record in chosen]
        await self.kill(peer_ids)
        return peer_ids

    async def leave(self, peer_ids: Sequence[int]) -> None:
        """Let peers leave gracefully; returns when all have left."""
        leaving = [self._supervisor.get(peer) for peer in dict.fromkeys(peer_ids)]
        if paused := [record for record in leaving if record.worker.is_paused]:
            raise ClusterError(f"peer {paused[0].number} is paused and cannot leave: resume it first, or kill it")
        self.recoveries.disturb(describe_count(len(leaving), "left"))
        for record in leaving:
            self._supervisor.departures[record.peer_id] = asyncio.Event()
            self._supervisor.leave(record)
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                for record in leaving:
                    await self._supervisor.departures[record.peer_id].wait()
        except TimeoutError:
            raise ClusterError(f"not all of {len(leaving)} peers left within {LEAVE_TIMEOUT_S:g} s") from None
        finally:
            for record in leaving:
                del self._supervisor.departures[record.peer_id]
        self._log.annotate(describe_peers(leaving, "left"))

    async def pause(self, peer_id: int) -> list[int]:
        """Stop the process of a peer with all its peers; returns their ids."""
        worker = self._supervisor.get(peer_id).worker
        peers = [record for record in self._supervisor.connected if record.worker is worker]
        if not worker.is_paused:
            self._pool.pause(worker)
            self._on_paused_or_resumed(peers, "paused")
        return [record.peer_id for record in peers]

    async def resume(self, peer_id: int) -> None:
        """Resume the process of a peer with all its peers."""
        worker = self._supervisor.get(peer_id).worker
        if worker.is_paused:
            peers = [record for record in self._supervisor.connected if record.worker is worker]
            self._pool.resume(worker)
            self._on_paused_or_resumed(peers, "resumed")

    def _on_paused_or_resumed(self, peers: list[PeerRecord], event: str) -> None:
        self.recoveries.disturb(describe_count(len(peers), event))
        self._log.annotate(describe_peers(peers, event))
        self._supervisor.distribute_traffic()

    async def partition(self) -> None:
        """Cut the network between two random halves. Peers that join later are on the near side."""
        connected = self._supervisor.connected
        if self.is_partitioned:
            raise ClusterError("the fabric is already partitioned: heal it first")
        if len(connected) < 2:
            raise ClusterError("a partition needs at least two peers")
        far_side = self._supervisor.random.sample(connected, len(connected) // 2)
        self._set_far_side({record.peer_id: record.port for record in far_side})
        self.recoveries.disturb("the fabric was partitioned")
        sizes = f"{len(connected) - len(far_side)} and {len(far_side)} peers"
        self._log.annotate(f"the fabric was partitioned into {sizes}")

    async def heal(self) -> None:
        """Restore the network. The two halves have to find each other again."""
        if not self.is_partitioned:
            raise ClusterError("the fabric is not partitioned")
        self._set_far_side({})
        self.recoveries.clear()  # measure the merge only
        self.recoveries.disturb("the partition was healed")
        self._log.annotate("the partition was healed")

    def _set_far_side(self, far_side: dict[int, int]) -> None:
        self._supervisor.far_side = far_side
        self._pool.send_all("partition", peers=list(far_side), ports=list(far_side.values()))

    def set_traffic(self, rates: TrafficRates) -> None:
        self._supervisor.set_traffic(rates)

    async def suppress_deliveries(self, peer_id: int, count: int = 1) -> None:
        """Withhold the next batches from a peer: an injected bug, to verify that the checks detect it."""
        record = self._supervisor.get(peer_id)
        record.worker.send("suppress", number=record.number, count=count)

    # -- waiting

    async def wait_until_converged(self, timeout_s: float = CONVERGENCE_TIMEOUT_S) -> Recovery | None:
        """Wait until all active peers form one regular fabric; returns the recovery if it was disturbed."""
        count = self.recoveries.completed_count
        try:
            async with asyncio.timeout(timeout_s):
                while self.recoveries.is_disturbed:  # noqa: ASYNC110  (the supervisor polls as often)
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            problem = self._supervisor.find_convergence_problems()
            raise ClusterError(f"the fabric has not converged after {timeout_s:g} s: {problem}") from None
        return self.recoveries.completed[-1] if self.recoveries.completed_count > count else None

    async def wait_until_delivered(self, timeout_s: float = CONVERGENCE_TIMEOUT_S) -> None:
        """Stop the traffic and wait until every peer has every message that is due to it."""
        self.set_traffic(NO_TRAFFIC)
        checks, deadline = self.guarantee_checks, time.monotonic() + timeout_s
        while True:
            heads = await self._pool.request("author_heads", departed=checks.departed)
            replies = await self._pool.request("find_missing", expected=encode_heads(checks.expected(heads.values())))
            checks.on_compared(replies.values())
            if not checks.missing_count and len(replies) == len(self._pool.responsive):
                return
            if time.monotonic() > deadline:
                raise ClusterError(f"after {timeout_s:g} s: {'; '.join(checks.missing_descriptions[:3])}")
            await asyncio.sleep(POLL_S)
