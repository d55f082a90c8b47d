"""How a lab grows: in which process a newcomer is started, and how many at a time."""

import asyncio
from collections import deque
from collections.abc import Callable

from broadloom.testing.cluster.cluster_state import ClusterState, PeerRecord
from broadloom.testing.cluster.config import ClusterConfig
from broadloom.testing.processes.pool import ClusterError, WorkerHandle, WorkerPool

CONCURRENT_JOINS_MAX = 8
"""Newcomers under way at a time: on few cores, more would only wait for each other."""
DEDICATED_PEERS = 4
"""If processes are shared, the first so many peers still have one each: they can be frozen by themselves."""
ATTEMPTS_MAX = 2
ADD_TIMEOUT_S = 30.0
ADD_TIMEOUT_PER_PEER_S = 2.0
"""Adding is given up after `ADD_S`, and so much for each newcomer."""


class Growth:
    """`portals` tells where newcomers shall look for the channel; `brief` tells a new process how things stand."""

    def __init__(
        self,
        config: ClusterConfig,
        pool: WorkerPool,
        state: ClusterState,
        bootstrap: Callable[[], list[str]],
        initialize_worker: Callable[[WorkerHandle], None],
    ) -> None:
        self._config = config
        self._pool = pool
        self._state = state
        self._bootstrap = bootstrap
        self._initialize_worker = initialize_worker
        self._last_number = 0
        self._waiting: deque[int] = deque()
        self._starting: dict[int, int] = {}
        """Numbers of those under way, and how often they were tried."""
        self._futures: dict[int, asyncio.Future[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> list[int]:
        return [*self._starting, *self._waiting]

    async def add(self, count: int) -> list[int]:
        """The ids of so many newcomers, when all are connected."""
        loop = asyncio.get_running_loop()
        numbers = range(self._last_number + 1, self._last_number + count + 1)
        self._last_number += count
        done = {number: loop.create_future() for number in numbers}
        self._futures.update(done)
        self._waiting.extend(numbers)
        self._start_next()
        timeout_s = ADD_TIMEOUT_S + ADD_TIMEOUT_PER_PEER_S * count
        try:
            _, pending = await asyncio.wait(done.values(), timeout=timeout_s)
        finally:
            for number in numbers:
                self._futures.pop(number, None)
        if pending:
            raise ClusterError(f"after {timeout_s:g} s, {len(pending)} of {count} newcomers are not connected")
        problems = [problem for future in done.values() if (problem := future.exception()) is not None]
        if problems:
            raise problems[0]
        return [future.result() for future in done.values()]

    def _start_next(self) -> None:
        there = len(self._state.connected)
        room = max(1, min(CONCURRENT_JOINS_MAX, there // 4)) - len(self._starting)
        for _ in range(min(room, len(self._waiting))):
            self._start(self._waiting.popleft(), 1)

    def _start(self, number: int, tries: int) -> None:
        self._starting[number] = tries
        task = asyncio.get_running_loop().create_task(self._start_peer(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start_peer(self, number: int) -> None:
        try:
            worker = self._shared_worker() or await self._new_worker()
        except OSError as problem:
            self.on_failed(number, f"no process could be started: {problem}")
            return
        chats = sum(known.chats for known in self._state.peers.values()) < self._config.chatting_peers_max
        self._state.peers[number] = PeerRecord(number, worker, chats)
        worker.peers.add(number)
        worker.send(do="start", number=number, portals=self._bootstrap(), talks=chats)

    async def _new_worker(self) -> WorkerHandle:
        worker = await self._pool.start_worker()
        self._initialize_worker(worker)
        return worker

    def _shared_worker(self) -> WorkerHandle | None:
        """A process that has room; None if there shall be one more."""
        living = self._pool.responsive
        if len(living) < self._config.processes_max:
            return None
        others = living[DEDICATED_PEERS:] or living
        return min(others, key=lambda hand: len(hand.peers))

    # -- told by processes

    def on_connected(self, number: int, peer_id: int, port: int) -> None:
        self._starting.pop(number, None)
        self._state.add_peer(self._state.peers[number], peer_id, port)
        if number in self._futures and not self._futures[number].done():
            self._futures[number].set_result(peer_id)
        self._start_next()

    def on_failed(self, number: int, text: str) -> None:
        tries = self._starting.pop(number, None)
        if tries is None:
            return  # it had been connected
        peer = self._state.peers.pop(number, None)
        if peer is not None:
            peer.worker.peers.discard(number)
        if tries < ATTEMPTS_MAX:
            self._start(number, tries + 1)
            return
        if number in self._futures and not self._futures[number].done():
            self._futures[number].set_exception(ClusterError(f"peer {number} could not connect: {text}"))
        self._start_next()
