"""A worker process: runs managed peers, executes the coordinator's commands and reports what happens.

Chaos runs, local clusters and benchmarks each have a subclass with their own commands. A worker ends on the command
`stop`, or when the coordinator's end of the socket closes.
"""

import asyncio
import socket
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import broadloom
from broadloom.testing.checks import audit
from broadloom.testing.processes import process_stats
from broadloom.testing.processes.control_protocol import LINE_BYTES_MAX, WorkerConfig, decode_line, encode_line
from broadloom.testing.processes.managed_peer import ManagedPeer
from broadloom.testing.processes.peer_observer import PeerObserver

if TYPE_CHECKING:
    from broadloom.channel import PendingConnection
    from broadloom.record import Tape

VIEW_DELAY_S = 0.1
"""Link changes within this time are reported together."""
VIOLATIONS_REPORTED_MAX = 20
"""Violations reported with their text; the rest are only counted."""
STOP_TIMEOUT_S = 2.0

PeerType = TypeVar("PeerType", bound=ManagedPeer)


class Worker(Generic[PeerType]):
    """Methods `do_<command>` are the commands (`control_protocol.py`); a command that is a coroutine runs as a task."""

    peer_class: type[PeerType]
    config: WorkerConfig
    _loop: asyncio.AbstractEventLoop
    _writer: asyncio.StreamWriter

    def __init__(self) -> None:
        self.random = Random()
        self.peers: dict[int, PeerType] = {}
        """By number."""
        self.tape: Tape | None = None
        self.violation_count = 0
        self.warnings: dict[str, int] = {}
        self._changed_peers: dict[ManagedPeer, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def run(cls, control_socket: socket.socket) -> None:
        """Run in a forked process until it ends."""
        from broadloom.transport.event_loop import run

        run(cls()._main(control_socket))

    async def _main(self, control_socket: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_exception)
        process_stats.LogCollector(self._on_warning, self.report_error).attach()
        reader, self._writer = await asyncio.open_connection(sock=control_socket, limit=LINE_BYTES_MAX)
        self.config = WorkerConfig(**decode_line(await reader.readline()))
        if self.config.tape:
            from broadloom.record import Tape, TapeSettings

            settings = TapeSettings(file_duration_s=self.config.file_duration_s)
            self.tape = Tape(Path(self.config.tape), settings=settings)
        try:
            self.on_started()
            while line := await reader.readline():
                request = decode_line(line)
                if request["do"] == "stop":
                    break
                self._execute(request)
        except Exception:
            self.report_error(traceback.format_exc())
            raise
        finally:
            await self._stop()

    def _execute(self, request: dict[str, Any]) -> None:
        request_id = request.pop("id", None)
        result = getattr(self, f"do_{request.pop('do')}")(**request)
        if request_id is not None:
            self._write({"reply": request_id, **result})
        elif result is not None:
            self.spawn(result)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for peer in self.peers.values():
            peer.channel.abort()
        if self.tape is not None:
            self.tape.close()
        self.on_stopped()
        with suppress(OSError, TimeoutError):  # the coordinator may be gone
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._writer.drain()
        self._writer.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- for subclasses

    def on_started(self) -> None: ...

    def on_stopped(self) -> None: ...

    def on_removed(self, peer: PeerType) -> None:
        """A peer was asked to leave or was killed."""

    def make_observer(self, number: int) -> PeerObserver | None:
        return PeerObserver(self.tape)

    async def prepare(self, peer: PeerType, **options: Any) -> dict[str, Any]:
        """Prepare a connected peer; returns further fields of its `connected` report."""
        return {}

    # -- reports

    def report(self, kind: str, **content: Any) -> None:
        self._write({"report": kind, **content})

    def _write(self, content: dict[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_line(content))

    def report_violation(self, guarantee: int, text: str) -> None:
        self.violation_count += 1
        if self.violation_count <= VIOLATIONS_REPORTED_MAX:
            self.report("violation", guarantee=guarantee, text=text)

    def report_error(self, text: str) -> None:
        """Report a bug in Broadloom or in this worker: an uncaught exception or a logged error."""
        self.report("error", text=text)

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        self.report_error(f"{context.get('message', '')}\n{text}".strip())

    def _on_warning(self, text: str) -> None:
        self.warnings[text] = self.warnings.get(text, 0) + 1

    def on_change(self, peer: ManagedPeer) -> None:
        if not self._changed_peers:
            self._loop.call_later(VIEW_DELAY_S, self._report_views)
        self._changed_peers[peer] = None

    def _report_views(self) -> None:
        changed, self._changed_peers = self._changed_peers, {}
        if views := [peer.view() for peer in changed if peer.number in self.peers]:
            self.report("views", views=views)

    # -- commands

    def do_start(self, *, numbers: list[int], bootstrap: list[str], at_ns: int = 0, **options: Any) -> None:
        """Connect peers, at a common moment of the monotonic clock if one is given."""
        for number in numbers:
            self.spawn(self._start(number, bootstrap, at_ns, options))

    async def _start(self, number: int, bootstrap: list[str], at_ns: int, options: dict[str, Any]) -> None:
        await asyncio.sleep(max(0.0, at_ns / 1e9 - time.monotonic()))
        observer = self.make_observer(number)
        began_ns = time.monotonic_ns()
        try:
            channel = await self.connect(self._connect_options(number, bootstrap, observer))
        except broadloom.BroadloomError as error:
            self.report("failed", number=number, text=str(error))
            return
        peer = self.peer_class(self, number, channel, observer)
        peer.attach()
        self.peers[number] = peer
        details = await self.prepare(peer, began_ns=began_ns, **options)
        took_s = (peer.connected_ns - began_ns) / 1e9
        # The view comes with it: a connected peer without a view would be overlooked by the convergence check.
        self.report("connected", number=number, took_s=took_s, port=peer.port, view=peer.view(), **details)

    def connect(self, options: broadloom.ConnectOptions) -> "PendingConnection":
        return broadloom.connect(self.config.channel, options=options)

    def member_name(self, number: int) -> str:
        """The name of a peer for the other members; empty for none."""
        return ""

    def _connect_options(
        self, number: int, bootstrap: list[str], observer: PeerObserver | None
    ) -> broadloom.ConnectOptions:
        config = self.config
        return broadloom.ConnectOptions(
            bootstrap=bootstrap,
            key=config.key,
            tls=config.tls,
            signed=config.signed or None,
            timeout_s=config.connect_timeout_s,
            name=self.member_name(number),
            tape=observer,
            settings=broadloom.ChannelSettings(degree=config.degree),
        )

    def remove(self, numbers: list[int]) -> list[PeerType]:
        removed = [self.peers.pop(number) for number in numbers if number in self.peers]
        for peer in removed:
            self.on_removed(peer)
        return removed

    def do_leave(self, *, numbers: list[int]) -> None:
        for peer in self.remove(numbers):
            self.spawn(self._leave(peer))

    async def _leave(self, peer: PeerType) -> None:
        await peer.leave()
        departed = {"sent_count": peer.sent_count, "last_sent_ns": peer.last_sent_ns, "at_ns": time.monotonic_ns()}
        self.report("left", number=peer.number, departed=departed)

    def do_author_heads(self, *, departed: list[int]) -> dict[str, Any]:
        return audit.author_heads(self.peers.values(), departed)

    def do_find_missing(self, *, expected: list[list[int]]) -> dict[str, Any]:
        return audit.find_missing(self.peers.values(), expected)

    def do_find_unsent(self, *, expected: list[list[int]]) -> dict[str, Any]:
        return {"unsent": audit.find_unsent(self.peers.values(), expected)}

    def do_missed_ranges(self) -> dict[str, Any]:
        peers = self.peers.values()
        return {"missed": [(peer.number, *missed) for peer in peers for missed in peer.delivery_log.missed_ranges()]}

    def do_find_held(self, *, ranges: list[list[int]]) -> dict[str, Any]:
        return {"held": audit.find_held(self.peers.values(), ranges)}

    def do_usage(self) -> dict[str, Any]:
        return process_stats.usage()

    # -- traffic

    async def send_at_random(self, per_s: float, send: Callable[[PeerType], Coroutine[Any, Any, object]]) -> None:
        """Send from random peers at random moments (a Poisson process), until canceled between two messages."""
        while True:
            await asyncio.sleep(self.random.expovariate(per_s))
            if self.peers:
                peer = self.random.choice(list(self.peers.values()))
                await asyncio.shield(self._loop.create_task(send(peer)))
