"""A lab: one object that starts peers in processes of their own, does things to them, and watches.

Up to `processes_max` peers have a process each; of more, all but the first few share processes. What is done to them is
real:

- **kill**: SIGKILL, if the process is the peer's alone or all its peers are to die. One that shares its process with
  others that shall live has its sockets dropped without a word, which is what the kernel does for a dead process.
- **freeze**: SIGSTOP, always of a process, with all the peers in it.
- **split**: see `border.py`.

It lives in the event loop of its caller. Everything that takes time has a deadline; nothing is left behind when it
ends, however that happens (`nursery.py`).
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from broadloom.testing.chaos.processes import unsupported_reason
from broadloom.testing.checks.guarantees import report_adjacency
from broadloom.testing.checks.live_guarantees import GuaranteeStatus, LiveGuarantees, statuses
from broadloom.testing.checks.recovery import Recovery
from broadloom.testing.cluster.cluster_state import PeerRecord
from broadloom.testing.cluster.config import NO_TRAFFIC, ClusterConfig, TrafficRates
from broadloom.testing.cluster.metrics import MetricsSample, MetricsSampler
from broadloom.testing.cluster.supervisor import POLL_S, Supervisor
from broadloom.testing.cluster.timeline import Change, PeerSnapshot
from broadloom.testing.cluster.words import describe_count, describe_peers
from broadloom.testing.processes.pool import ClusterError
from broadloom.topology import diameter, mutual_links

LEAVE_TIMEOUT_S = 20.0
CONVERGENCE_TIMEOUT_S = 120.0


class LocalCluster:
    """Made by `Lab.start`. A story (`story.py`): `now` and `changes` are what pages are drawn from."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.channel = f"lab/{secrets.token_hex(16)}"
        """Whoever knows it can join, with `broadloom.connect(cluster.channel, bootstrap=cluster.bootstrap())`; nobody
        can guess it."""
        self.tape: Path | None = config.tape
        self.kill_count = 0
        self._supervisor = Supervisor(config, self.channel)
        self._state, self._pool = self._supervisor.state, self._supervisor.pool
        self.recoveries = self._supervisor.recoveries
        self.totals: MetricsSampler = self._supervisor.metrics
        """Counts since the beginning."""
        self.guarantee_checks: LiveGuarantees = self._supervisor.guarantees
        """All that was found wrong, in words."""
        self._grown = asyncio.Event()
        self._growth_error: Exception | None = None

    @classmethod
    @asynccontextmanager
    async def start(cls, config: ClusterConfig) -> AsyncIterator["LocalCluster"]:
        """The first process is there when this is entered; the peers come one after the other, which `grown` waits for.
        At the end everybody is gone, and the tapes are whole."""
        if problem := unsupported_reason():
            raise ClusterError(problem.replace("trials need", "a lab needs"))
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
        except ClusterError as problem:
            self._state.annotate(str(problem))
            self._growth_error = problem
        self.set_traffic(
            TrafficRates.default_for(self.config.peers) if self.config.rates is None else self.config.rates
        )
        self._grown.set()

    async def wait_until_grown(self, timeout_s: float = CONVERGENCE_TIMEOUT_S) -> None:
        """Wait until all peers of the plan are there, in one regular fabric."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._grown.wait()
        except TimeoutError:
            count = len(self._state.connected)
            raise ClusterError(f"after {timeout_s:g} s only {count} of {self.config.peers} peers are there") from None
        if self._growth_error is not None:
            raise self._growth_error
        await self.wait_until_converged(timeout_s)

    # -- the story

    def now(self) -> dict[int, PeerSnapshot]:
        return self._state.now()

    def changes(self, since: int) -> tuple[int, list[Change]]:
        return self._state.log.since(since)

    def samples(self) -> list[MetricsSample]:
        """One sample a second, the last hour."""
        return list(self.totals.samples)

    def guarantees(self) -> list[GuaranteeStatus]:
        return statuses(
            self.guarantee_checks,
            self.totals,
            self._state,
            self.recoveries,
            self.config.degree,
            is_partitioned=self.is_partitioned,
        )

    def bootstrap(self) -> list[str]:
        """Addresses of some peers, for whoever wants to take part too."""
        return self._supervisor.bootstrap()

    def diameter(self) -> int:
        """The true one, in links; what each peer believes is in its view."""
        return diameter(mutual_links(report_adjacency(self._state.members)))

    def display_name(self, peer_id: int) -> str:
        """What the members of conversations call a peer."""
        return self._state.get(peer_id).name

    @property
    def dropped_rows(self) -> int:
        """Rows that recorders lost."""
        return sum(self._supervisor.dropped_rows.values())

    @property
    def process_count(self) -> int:
        return sum(not hand.exited.is_set() for hand in self._pool.workers)

    @property
    def is_partitioned(self) -> bool:
        return bool(self._supervisor.far_side)

    @property
    def rates(self) -> TrafficRates:
        return self._supervisor.rates

    # -- what can be done to it

    async def add(self, count: int) -> list[int]:
        """So many newcomers; their ids, when all are connected."""
        self.recoveries.disturb(describe_count(count, "came"))
        return await self._supervisor.growth.add(count)

    async def kill(self, peer_ids: Sequence[int]) -> None:
        """Without warning, all at the same moment."""
        victims = [self._state.get(peer) for peer in dict.fromkeys(peer_ids)]
        if not victims:
            return
        numbers = {known.number for known in victims}
        workers = {known.worker.number: known.worker for known in victims}
        whole_workers = [hand for hand in workers.values() if hand.peers <= numbers]
        self.recoveries.disturb(describe_count(len(victims), "killed"))
        for hand in whole_workers:
            self._pool.kill(hand)
        for hand in workers.values():
            if hand not in whole_workers:
                hand.send(do="kill", peers=[known.peer_id for known in victims if known.worker is hand])
        self.kill_count += len(victims)
        for known in victims:
            self._supervisor.on_departed(known, "killed")
        self._state.annotate(describe_peers(victims, "killed"))

    async def kill_random(self, count: int) -> list[int]:
        """So many, at random: whole processes as long as they fit."""
        connected = self._state.connected
        if count >= len(connected):
            raise ClusterError(
                f"there are {len(connected)} peers: kill fewer, so that somebody is left to repair the fabric"
            )
        chosen: list[PeerRecord] = []
        workers = list({known.worker.number: known.worker for known in connected}.values())
        self._supervisor.random.shuffle(workers)
        by_worker = [[known for known in connected if known.worker is hand] for hand in workers]
        for group in by_worker:
            if len(group) <= count - len(chosen):
                chosen += group
        rest = [known for group in by_worker for known in group if known not in chosen]
        chosen += self._supervisor.random.sample(rest, count - len(chosen))
        peer_ids = [known.peer_id for known in chosen]
        await self.kill(peer_ids)
        return peer_ids

    async def leave(self, peer_ids: Sequence[int]) -> None:
        """In good order; returns when all have."""
        leaving = [self._state.get(peer) for peer in dict.fromkeys(peer_ids)]
        if paused := [known for known in leaving if known.worker.is_paused]:
            raise ClusterError(f"peer {paused[0].number} is frozen and cannot leave: thaw it first, or kill it")
        self.recoveries.disturb(describe_count(len(leaving), "left"))
        for known in leaving:
            known.is_leaving = True
            self._supervisor.departures[known.peer_id] = asyncio.Event()
            known.worker.send(do="leave", peers=[known.peer_id])
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                for known in leaving:
                    await self._supervisor.departures[known.peer_id].wait()
        except TimeoutError:
            raise ClusterError(f"after {LEAVE_TIMEOUT_S:g} s not all of {len(leaving)} peers have left") from None
        finally:
            for known in leaving:
                del self._supervisor.departures[known.peer_id]
        self._state.annotate(describe_peers(leaving, "left"))

    async def pause(self, peer_id: int) -> list[int]:
        """Stop its process, and with it all peers in it: their ids."""
        worker = self._state.get(peer_id).worker
        peers = [known for known in self._state.connected if known.worker is worker]
        if not worker.is_paused:
            self._pool.pause(worker)
            self.recoveries.disturb(describe_count(len(peers), "frozen"))
            self._state.annotate(describe_peers(peers, "frozen"))
            self._supervisor.distribute_traffic()
        return [known.peer_id for known in peers]

    async def resume(self, peer_id: int) -> None:
        """Let it, and all that were stopped with it, go on."""
        worker = self._state.get(peer_id).worker
        if worker.is_paused:
            peers = [known for known in self._state.connected if known.worker is worker]
            self._pool.resume(worker)
            self.recoveries.disturb(describe_count(len(peers), "thawed"))
            self._state.annotate(describe_peers(peers, "thawed"))
            self._supervisor.distribute_traffic()

    async def partition(self) -> None:
        """Two halves, chosen at random, cannot reach each other any more. Newcomers are of the near one."""
        connected = self._state.connected
        if self.is_partitioned:
            raise ClusterError("the fabric is split already: heal it first")
        if len(connected) < 2:
            raise ClusterError("one peer alone cannot be split: add some")
        far_side = self._supervisor.random.sample(connected, len(connected) // 2)
        self._supervisor.far_side = {known.peer_id: known.port for known in far_side}
        self.recoveries.disturb("the fabric was split")
        self._pool.send_all(
            do="border", peers=list(self._supervisor.far_side), ports=list(self._supervisor.far_side.values())
        )
        self._state.annotate(
            f"the fabric was split: {len(connected) - len(far_side)} peers here, {len(far_side)} there"
        )

    async def heal(self) -> None:
        """Both sides can reach each other again. That they find each other is their own business."""
        if not self.is_partitioned:
            raise ClusterError("the fabric is not split")
        self._supervisor.far_side = {}
        self.recoveries.clear()  # so that the time is that of merging
        self.recoveries.disturb("the split was healed")
        self._pool.send_all(do="border", peers=[], ports=[])
        self._state.annotate("the split was healed: both sides can reach each other again")

    def set_traffic(self, rates: TrafficRates) -> None:
        """So much is said from now on, by all peers together."""
        self._supervisor.set_traffic(rates)

    async def suppress_deliveries(self, peer_id: int, count: int = 1) -> None:
        """A planted fault: the next deliveries to this peer never happen. To see that the checks fire."""
        self._state.get(peer_id).worker.send(do="suppress", peer=peer_id, count=count)

    # -- waiting

    async def wait_until_converged(self, timeout_s: float = CONVERGENCE_TIMEOUT_S) -> Recovery | None:
        """Wait until the fabric is one regular graph of all that are awake; how long that took, if it was not."""
        count = self.recoveries.completed_count
        try:
            async with asyncio.timeout(timeout_s):
                while self.recoveries.is_disturbed:  # noqa: ASYNC110  (looked at as often as it is found out)
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ClusterError(
                f"after {timeout_s:g} s the fabric is not whole: {self._supervisor.find_convergence_problems()}"
            ) from None
        return self.recoveries.completed[-1] if self.recoveries.completed_count > count else None

    async def wait_until_delivered(self, timeout_s: float = CONVERGENCE_TIMEOUT_S) -> None:
        """Stop the traffic, and wait until everyone has everything that was said."""
        self.set_traffic(NO_TRAFFIC)
        deadline = time.monotonic() + timeout_s
        while True:
            heads = await self._pool.request(self._pool.responsive, do="heads", gone=self.guarantee_checks.departed)
            expected = self.guarantee_checks.expected_exactly(heads)
            replies = await self._pool.request(self._pool.responsive, do="check", roll=expected)
            self.guarantee_checks.on_compared(replies, is_stable=False)
            if not self.guarantee_checks.missing_count and len(replies) == len(self._pool.responsive):
                return
            if time.monotonic() > deadline:
                self.guarantee_checks.lost_count = self.guarantee_checks.missing_count
                raise ClusterError(
                    f"after {timeout_s:g} s: {'; '.join(self.guarantee_checks.missing_descriptions[:3])}"
                )
            await asyncio.sleep(POLL_S)
