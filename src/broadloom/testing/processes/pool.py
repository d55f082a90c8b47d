"""The coordinator's side of its worker processes: commands out, replies and reports in, every wait with a deadline.

`WorkerPool` lives in the event loop of its caller. Chaos runs, local clusters and benchmarks differ only in the worker
class and in the reports they handle.
"""

import asyncio
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from broadloom.testing.errors import ClusterError
from broadloom.testing.processes.control_protocol import LINE_BYTES_MAX, WorkerConfig, decode_line, encode_line
from broadloom.testing.processes.forkserver import ForkServerProcess

if TYPE_CHECKING:
    from types import TracebackType

START_TIMEOUT_S = 30.0
"""For the forkserver's imports, which take seconds on a busy machine with a cold disk cache."""
REPLY_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 15.0
"""For all workers to finish their tapes."""
EXIT_TIMEOUT_S = 2.0
"""For a worker that has closed its socket to exit."""


class WorkerHandle:
    """One worker process as the coordinator sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        """0 until the forkserver has reported it."""
        self.peers: set[int] = set()
        """Numbers of the peers started in this worker that are not gone."""
        self.is_paused = False
        self.is_expected_to_exit = False
        self.exited = asyncio.Event()
        self.exit_status = ""
        """How the process ended, for error messages."""
        self.cpu_s = 0.0
        """CPU time over the whole life of the process; known once it has exited."""
        self.reaped = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[bytes] = []
        """Commands sent before the worker is connected."""

    @property
    def is_responsive(self) -> bool:
        return not self.exited.is_set() and not self.is_paused

    def send(self, do: str, **arguments: Any) -> None:
        """Send a command. A worker that is starting or paused reads it later."""
        line = encode_line({"do": do, **arguments})
        if self._writer is None:
            self._unsent.append(line)
        elif not self.exited.is_set():
            self._writer.write(line)

    def on_connected(self, writer: asyncio.StreamWriter, config: WorkerConfig) -> None:
        self._writer = writer
        writer.writelines([encode_line(asdict(config)), *self._unsent])
        self._unsent.clear()

    def on_reaped(self, code: int, cpu_s: float) -> None:
        self.cpu_s = cpu_s
        self.exit_status = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self.reaped.set()

    def close(self) -> None:
        self.exited.set()
        if self._writer is not None:
            self._writer.close()


class WorkerPool:
    """Starts workers and talks to them.

    Use it with `async with`: the end of the block stops all workers, an exception kills them. `worker` is the path
    `module:class` of a `Worker`. `on_report` gets every report, `on_death` every worker that exited unexpectedly.
    """

    def __init__(
        self,
        worker: str,
        config: WorkerConfig,
        on_report: Callable[[WorkerHandle, dict[str, Any]], None],
        on_death: Callable[[WorkerHandle], None],
    ) -> None:
        self.workers: list[WorkerHandle] = []
        self._worker = worker
        self._config = config
        self._on_report = on_report
        self._on_death = on_death
        self._forkserver: ForkServerProcess | None = None
        self._ready = asyncio.Event()
        self._last_request_id = 0
        self._replies: dict[int, dict[WorkerHandle, dict[str, Any]]] = {}
        self._changed = asyncio.Event()
        self._readers: set[asyncio.Task[None]] = set()

    @property
    def responsive(self) -> list[WorkerHandle]:
        """Workers that can reply: running and not paused."""
        return [worker for worker in self.workers if worker.is_responsive]

    # -- the forkserver

    async def start(self) -> None:
        config = self._config
        self._forkserver = ForkServerProcess(self._worker, preload=["broadloom.record"] if config.tape else [])
        if config.tls and config.key is None:
            self._forkserver.derive_key(config.channel)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._forkserver.control_socket.fileno(), self._on_forkserver_readable)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._ready.wait()
        except BaseException as error:
            self.kill_all()
            if isinstance(error, TimeoutError):
                raise ClusterError(f"the forkserver was not ready after {START_TIMEOUT_S:g} s") from None
            raise
        if self._forkserver is None:
            raise ClusterError("the forkserver exited; its error output is above")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def _on_forkserver_readable(self) -> None:
        while self._forkserver is not None and (message := self._forkserver.receive()) is not None:
            if "ready" in message:
                self._ready.set()
            elif "forked" in message:
                self.workers[message["forked"]].pid = message["pid"]
            elif "exited" in message:
                self.workers[message["exited"]].on_reaped(message["code"], message["cpu_s"])
            else:  # it is gone, and so are the workers: their readers report each of them
                self._close_forkserver()
                self._ready.set()

    def _close_forkserver(self) -> None:
        if self._forkserver is not None:
            asyncio.get_running_loop().remove_reader(self._forkserver.control_socket.fileno())
            self._forkserver.close()
            self._forkserver = None

    # -- workers

    async def start_worker(self, namespace_pid: int = 0) -> WorkerHandle:
        """Fork one more worker, in the network namespace of the given process (0: in that of the coordinator)."""
        if self._forkserver is None:
            raise ClusterError("the pool is closed, or its forkserver has exited")
        worker = WorkerHandle(len(self.workers))
        self.workers.append(worker)
        ours = self._forkserver.fork(worker.number, namespace_pid)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
        worker.on_connected(writer, self._config)
        task = asyncio.get_running_loop().create_task(self._read(worker, reader))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)
        return worker

    async def _read(self, worker: WorkerHandle, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                self._on_message(worker, decode_line(line))
        if self._forkserver is not None:
            try:
                async with asyncio.timeout(EXIT_TIMEOUT_S):
                    await worker.reaped.wait()
            except TimeoutError:
                self._signal(worker, "kill")
        worker.close()
        self._changed.set()
        if not worker.is_expected_to_exit:
            self._on_death(worker)

    def _on_message(self, worker: WorkerHandle, content: dict[str, Any]) -> None:
        request_id = content.get("reply")
        if request_id is None:
            self._on_report(worker, content)
        elif request_id in self._replies:
            self._replies[request_id][worker] = content
            self._changed.set()

    def kill(self, worker: WorkerHandle) -> None:
        """SIGKILL."""
        worker.is_expected_to_exit = True
        self._signal(worker, "kill")

    def pause(self, worker: WorkerHandle) -> None:
        """SIGSTOP: the process does nothing, and its sockets stay open."""
        worker.is_paused = True
        self._signal(worker, "pause")
        self._changed.set()  # requests no longer wait for it

    def resume(self, worker: WorkerHandle) -> None:
        worker.is_paused = False
        self._signal(worker, "resume")

    def _signal(self, worker: WorkerHandle, action: str) -> None:
        if self._forkserver is not None:
            self._forkserver.signal(worker.number, action)

    def send_all(self, do: str, **arguments: Any) -> None:
        for worker in self.workers:
            worker.send(do, **arguments)

    async def request(
        self,
        do: str,
        *,
        workers: Iterable[WorkerHandle] | None = None,
        timeout_s: float = REPLY_TIMEOUT_S,
        **arguments: Any,
    ) -> dict[WorkerHandle, dict[str, Any]]:
        """Send a command to these workers (all responsive ones by default) and return their replies.

        A worker that exits, is paused, or does not reply in time is not in the result.
        """
        targets = self.responsive if workers is None else list(workers)
        self._last_request_id += 1
        request_id = self._last_request_id
        replies = self._replies[request_id] = {}
        for worker in targets:
            worker.send(do, id=request_id, **arguments)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(worker.is_responsive and worker not in replies for worker in targets):
                    self._changed.clear()
                    await self._changed.wait()
        del self._replies[request_id]
        return replies

    # -- the end

    async def close(self) -> None:
        """Stop all workers, which finish their tapes first; kill those that take too long."""
        try:
            for worker in self.workers:
                worker.is_expected_to_exit = True
                if worker.is_paused:
                    self.resume(worker)
                worker.send("stop")
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    for worker in self.workers:
                        await worker.exited.wait()
        finally:
            self.kill_all()

    def kill_all(self) -> None:
        """Kill the forkserver and all workers at once."""
        for task in self._readers:
            task.cancel()
        for worker in self.workers:
            worker.is_expected_to_exit = True
            worker.close()
        self._close_forkserver()

    async def __aexit__(
        self, error_type: type[BaseException] | None, _error: BaseException | None, _traceback: "TracebackType | None"
    ) -> None:
        if error_type is None:
            await self.close()
        else:
            self.kill_all()
