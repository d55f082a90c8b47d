"""Adds peers to a cluster: in which process each is started, and how many join at a time."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from broadloom.testing.errors import ClusterError
from broadloom.testing.processes.control_protocol import CONNECT_TIMEOUT_S
from broadloom.testing.processes.coordinator import joins_allowed
from broadloom.testing.processes.pool import WorkerHandle

if TYPE_CHECKING:
    from broadloom.testing.cluster.supervisor import Supervisor

DEDICATED_PEERS = 4
"""The first peers have their own processes even if the others share, so that they can be paused individually."""
ATTEMPTS_MAX = 2
ADD_TIMEOUT_S = ATTEMPTS_MAX * CONNECT_TIMEOUT_S
"""Until then a worker has reported that a peer is connected, or that its last attempt failed."""
ADD_TIMEOUT_PER_PEER_S = 2.0


class Growth:
    def __init__(self, supervisor: "Supervisor") -> None:
        self._supervisor = supervisor
        self._last_number = 0
        self._waiting: deque[int] = deque()
        self._starting: dict[int, int] = {}
        """Numbers of joining peers, and their attempts so far."""
        self._futures: dict[int, asyncio.Future[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> list[int]:
        return [*self._starting, *self._waiting]

    async def add(self, count: int) -> list[int]:
        """Add peers and return their ids once all are connected."""
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
            raise ClusterError(f"after {timeout_s:g} s, {len(pending)} of {count} new peers are not connected")
        errors = [error for future in done.values() if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in done.values()]

    def _start_next(self) -> None:
        room = joins_allowed(len(self._supervisor.connected), len(self._starting))
        for _ in range(min(room, len(self._waiting))):
            self._start(self._waiting.popleft(), 1)

    def _start(self, number: int, attempt: int) -> None:
        self._starting[number] = attempt
        task = asyncio.get_running_loop().create_task(self._start_peer(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start_peer(self, number: int) -> None:
        try:
            worker = self._shared_worker() or await self._new_worker()
        except (OSError, ClusterError) as error:
            self.on_failed(number, f"no process could be started: {error}")
            return
        supervisor = self._supervisor
        chatting = sum(record.chats for record in supervisor.peers.values())
        chats = chatting < supervisor.config.chatting_peers_max
        supervisor.start_peers(worker, [number], supervisor.bootstrap(), chats=chats)

    async def _new_worker(self) -> WorkerHandle:
        worker = await self._supervisor.pool.start_worker()
        self._supervisor.initialize_worker(worker)
        return worker

    def _shared_worker(self) -> WorkerHandle | None:
        """Return the least loaded process; None if another one may be started."""
        workers = self._supervisor.pool.responsive
        if len(workers) < self._supervisor.config.processes_max:
            return None
        return min(workers[DEDICATED_PEERS:] or workers, key=lambda worker: len(worker.peers))

    # -- reports of workers

    def on_connected(self, number: int, peer_id: int) -> None:
        self._starting.pop(number, None)
        if number in self._futures and not self._futures[number].done():
            self._futures[number].set_result(peer_id)
        self._start_next()

    def on_failed(self, number: int, text: str) -> None:
        attempt = self._starting.pop(number, None)
        if attempt is None:
            return  # it was connected
        if attempt < ATTEMPTS_MAX:
            self._start(number, attempt + 1)
            return
        if number in self._futures and not self._futures[number].done():
            self._futures[number].set_exception(ClusterError(f"peer {number} could not connect: {text}"))
        self._start_next()
