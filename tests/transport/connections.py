"""Real connections on loopback between nodes without peers, and a check that tests leave nothing behind."""

import asyncio
import os
import random
import socket
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from broadloom.protocol import ChannelName, PeerState
from broadloom.protocol.link import Link
from broadloom.security import PeerCredentials
from broadloom.transport import BootstrapHosts, TcpNode
from broadloom.transport.connection import TcpConnection
from broadloom.transport.event_loop import new_event_loop
from broadloom.transport.limits import TcpTuning
from broadloom.wire import Address, Frame
from broadloom.wire.exchange_messages import RejectReason
from tests.support import eventually

KEY = "a key"
WITHIN_S = 20.0
LOOPS = {"uvloop": new_event_loop, "asyncio": asyncio.new_event_loop}

each_loop = pytest.mark.asyncio(loop_factories=list(LOOPS))
each_mode = pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])


def frame(size: int, number: int = 0) -> bytes:
    """A frame of this total size; its content depends on the number."""
    return (size - 4).to_bytes(4, "big") + (b"%08d" % number * (size // 8 + 1))[: size - 4]


async def until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    await eventually(condition, timeout_s=within_s)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def open_sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


@asynccontextmanager
async def no_leaks() -> AsyncIterator[None]:
    """The block must leave no task and no open socket behind, and no exception may have reached the event loop."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: problems.append(problem))
    tasks, sockets = len(asyncio.all_tasks()), open_sockets()
    try:
        yield
    except BaseException:
        # uvloop warns about what a failed test leaves open while it closes, and an error there makes it hang.
        warnings.simplefilter("ignore", ResourceWarning)
        raise
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks, "end of all tasks")
    await eventually(lambda: open_sockets() <= sockets, "close of all sockets")
    assert not problems, problems


@pytest.fixture(autouse=True)
async def check_leaks() -> AsyncIterator[None]:
    async with no_leaks():
        yield


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on uvloop, those marked `each_loop` also on asyncio's own event loop."""
    marker = item.get_closest_marker("asyncio")
    return LOOPS if marker is not None and "loop_factories" in marker.kwargs else {"uvloop": LOOPS["uvloop"]}


def run_test(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def checked() -> None:
        async with no_leaks():
            await main()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(checked())


def ignore(_event: Any) -> None:
    """A callback that does nothing."""


class RecordingHandler(Link):
    """Records everything that happens on one connection. It is a link, so `TcpNode.pause_reading` concerns it."""

    def __init__(self) -> None:
        self.open_count = self.overflows = 0
        self.frames: list[Frame] = []
        self.disconnects: list[RejectReason | None] = []

    def on_open(self) -> None:
        self.open_count += 1

    def on_frame(self, frame: Frame) -> None:
        assert not self.disconnects, "frame after the disconnect"
        self.frames.append(frame)

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        self.disconnects.append(reason)

    def on_writable(self) -> None:
        """Not used here."""

    def on_send_overflow(self) -> None:
        self.overflows += 1


class PeerlessNode(TcpNode):
    """A node without a peer: incoming connections go to a `RecordingHandler`."""

    def __init__(self, channel: ChannelName, *, tls: bool, key: str = KEY, settings: TcpTuning | None = None) -> None:
        credentials = PeerCredentials.from_key(channel, key) if tls else None
        super().__init__(
            channel, advertise_host="127.0.0.1", bootstrap=BootstrapHosts(), credentials=credentials, settings=settings
        )
        self.accepted: list[TcpConnection] = []
        self.handlers: list[RecordingHandler] = []
        self.peer: Any = SimpleNamespace(
            on_accept=self._on_call,
            links=self._connections,
            is_paused=False,
            set_paused=lambda is_paused: setattr(self.peer, "is_paused", is_paused),
            abort=lambda: None,
            is_present=True,
            state=PeerState.CONNECTED,
            broadcaster=SimpleNamespace(acks=SimpleNamespace(is_window_full=False)),
        )

    async def listen(self) -> Address:
        self.address = self._listen()
        return self.address

    def _on_call(self, connection: TcpConnection) -> None:
        connection.handler = handler = RecordingHandler()
        self.accepted.append(connection)
        self.handlers.append(handler)

    @property
    def connections(self) -> list[TcpConnection]:
        return list(self._connections)


class Pair:
    """Two nodes and one connection between them, initiated by `near`."""

    def __init__(
        self, near: PeerlessNode, far: PeerlessNode, connection: TcpConnection, handler: RecordingHandler
    ) -> None:
        self.near_node, self.far_node = near, far
        self.near, self.near_handler = connection, handler
        self.far, self.far_handler = far.accepted[0], far.handlers[0]


@asynccontextmanager
async def nodes(count: int, *, tls: bool, settings: TcpTuning | None = None) -> AsyncIterator[list[PeerlessNode]]:
    channel = ChannelName("test", uuid4().hex)
    made = [PeerlessNode(channel, tls=tls, settings=settings) for _ in range(count)]
    for node in made:
        await node.listen()
    try:
        yield made
    finally:
        for node in made:
            node.abort()


@asynccontextmanager
async def pair(*, tls: bool, settings: TcpTuning | None = None, fragmented: bool = False) -> AsyncIterator[Pair]:
    """`fragmented`: the data is cut into pieces of random sizes on its way."""
    async with nodes(2, tls=tls, settings=settings) as (near, far):
        relay = await FragmentingProxy.start(far.address) if fragmented else None
        handler = RecordingHandler()
        connection = near.dial(relay.address if relay is not None else far.address, handler)
        await eventually(lambda: handler.open_count and far.accepted)
        try:
            yield Pair(near, far, connection, handler)
        finally:
            if relay is not None:
                await relay.close()


class FragmentingProxy:
    """A TCP proxy that forwards everything in pieces of random sizes."""

    def __init__(self, to: Address) -> None:
        self._to = to
        self._random = random.Random(5)
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    @classmethod
    async def start(cls, to: Address) -> "FragmentingProxy":
        proxy = cls(to)
        proxy._server = await asyncio.start_server(proxy._on_accept, "127.0.0.1", 0)
        proxy.address = Address("127.0.0.1", proxy._server.sockets[0].getsockname()[1])
        return proxy

    _server: asyncio.Server
    address: Address

    async def _on_accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(self._to.host, self._to.port)
        self._writers += [writer, there_writer]
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._relay(reader, there_writer)))
        self._tasks.append(loop.create_task(self._relay(there_reader, writer)))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(self._random.choice([1, 3, 17, 500, 5000, 70_000])):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def close(self) -> None:
        self._server.close()
        await asyncio.wait(self._tasks, timeout=5)
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def raw_connection(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that can send anything."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()
