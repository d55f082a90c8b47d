"""The coordinator's side of a lab's processes: orders out, answers and news in, every wait with a deadline.

The asynchronous counterpart of `trial.crew`: a lab lives in the event loop of a page.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from broadloom.errors import BroadloomError
from broadloom.testing.processes.control_protocol import LINE_BYTES_MAX, decode_line, encode_line
from broadloom.testing.processes.forkserver import ForkServerProcess
from broadloom.testing.processes.worker import WorkerConfig

START_TIMEOUT_S = 30.0
"""For the nursery to load; on a busy machine that has not done so lately, this takes seconds."""
REPLY_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 15.0
"""For all processes to finish their tapes."""


class ClusterError(BroadloomError):
    """The lab cannot go on; says why."""


class WorkerHandle:
    """One process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        """0 until the nursery has told."""
        self.peers: set[int] = set()
        """Numbers of the peers that were ever started in it and have not gone."""
        self.is_paused = False
        self.exited = asyncio.Event()
        self.is_expected_to_exit = False
        self._writer: asyncio.StreamWriter | None = None
        self._queued: list[bytes] = []
        """Orders from before it could be reached."""

    @property
    def is_responsive(self) -> bool:
        return not self.exited.is_set() and not self.is_paused

    def send(self, **content: Any) -> None:
        if self._writer is None:
            self._queued.append(encode_line(content))
        elif not self.exited.is_set():
            self._writer.write(encode_line(content))

    def on_connected(self, writer: asyncio.StreamWriter, config: WorkerConfig) -> None:
        self._writer = writer
        writer.write(encode_line(asdict(config)))
        writer.writelines(self._queued)
        self._queued.clear()

    def close(self) -> None:
        self.exited.set()
        if self._writer is not None:
            self._writer.close()


class WorkerPool:
    """`told` is given everything that processes tell unasked; `died` those that ended without being told to."""

    def __init__(
        self,
        config: WorkerConfig,
        on_report: Callable[[WorkerHandle, dict[str, Any]], None],
        on_death: Callable[[WorkerHandle], None],
    ) -> None:
        self.workers: list[WorkerHandle] = []
        self._config = config
        self._on_report = on_report
        self._on_death = on_death
        self._forkserver = ForkServerProcess(config.channel, tape=bool(config.tape))
        self._ready = asyncio.Event()
        self._forkserver_exited = False
        self._last_request_id = 0
        self._replies: dict[int, dict[int, dict[str, Any]]] = {}
        self._changed = asyncio.Event()
        self._readers: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._forkserver.control_socket.fileno(), self._on_forkserver_message)

    @property
    def responsive(self) -> list[WorkerHandle]:
        """Those that can be asked."""
        return [hand for hand in self.workers if hand.is_responsive]

    async def wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._ready.wait()
        except TimeoutError:
            raise ClusterError(f"the processes of the lab were not ready after {START_TIMEOUT_S:g} s") from None
        if self._forkserver_exited:
            raise ClusterError("the process that starts the peers has ended; what it said is above")

    def _on_forkserver_message(self) -> None:
        while (message := self._forkserver.receive()) is not None:
            if not message:
                self._forkserver_exited = True
                self._loop.remove_reader(self._forkserver.control_socket.fileno())
                self._ready.set()
                return
            if "ready" in message:
                self._ready.set()
            elif "forked" in message:
                self.workers[message["forked"]].pid = message["pid"]

    # -- processes

    async def start_worker(self) -> WorkerHandle:
        """One more process."""
        worker = WorkerHandle(len(self.workers))
        self.workers.append(worker)
        ours = self._forkserver.fork(worker.number)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
        worker.on_connected(writer, self._config)
        task = self._loop.create_task(self._read(worker, reader))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)
        return worker

    async def _read(self, worker: WorkerHandle, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                self._on_message(worker, decode_line(line))
        worker.close()
        self._changed.set()
        if not worker.is_expected_to_exit:
            self._on_death(worker)

    def _on_message(self, worker: WorkerHandle, content: dict[str, Any]) -> None:
        number = content.get("answer")
        if number is None:
            self._on_report(worker, content)
        elif number in self._replies:
            self._replies[number][worker.number] = content
            self._changed.set()

    def kill(self, worker: WorkerHandle) -> None:
        """SIGKILL: it is gone before it knows."""
        worker.is_expected_to_exit = True
        self._forkserver.signal(worker.number, "kill")

    def pause(self, worker: WorkerHandle) -> None:
        """SIGSTOP: it does nothing at all, and its sockets stay open."""
        worker.is_paused = True
        self._forkserver.signal(worker.number, "stop")

    def resume(self, worker: WorkerHandle) -> None:
        worker.is_paused = False
        self._forkserver.signal(worker.number, "continue")

    def send_all(self, **content: Any) -> None:
        """Those that are frozen will read it when they are thawed."""
        for worker in self.workers:
            worker.send(**content)

    async def request(
        self, workers: Iterable[WorkerHandle], timeout_s: float = REPLY_TIMEOUT_S, **content: Any
    ) -> list[dict[str, Any]]:
        """The answers of all of these that live, and are not frozen, until they have answered; of those that have by
        then, if some have not."""
        targets = list(workers)
        self._last_request_id += 1
        number = self._last_request_id
        replies = self._replies[number] = {}
        for hand in targets:
            hand.send(ask=number, **content)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(hand.number not in replies for hand in targets if hand.is_responsive):
                    self._changed.clear()
                    await self._changed.wait()
        del self._replies[number]
        return list(replies.values())

    # -- the end

    async def close(self) -> None:
        """All end in good order, and finish their tapes; whoever does not is killed. Leaves no process behind."""
        try:
            for worker in self.workers:
                worker.is_expected_to_exit = True
                if worker.is_paused:
                    self.resume(worker)
                worker.send(do="end")
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    for worker in self.workers:
                        await worker.exited.wait()
        finally:
            for task in list(self._readers):
                task.cancel()
            for worker in self.workers:
                worker.close()
            if not self._forkserver_exited:
                self._loop.remove_reader(self._forkserver.control_socket.fileno())
            self._forkserver.close()
