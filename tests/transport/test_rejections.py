"""Rejections between incompatible ends, and addresses without a peer."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from broadloom.protocol import ChannelName, Tuning
from broadloom.protocol.exchange import OutgoingExchange
from broadloom.transport import BootstrapHosts, TcpNode
from broadloom.wire import Address
from broadloom.wire.exchange_messages import RejectReason, SeekerJoined
from tests.support import eventually
from tests.transport.connections import PeerlessNode, RecordingHandler, each_loop, ignore, nodes, raw_connection

CONNECTIONS = 20


async def reject_reasons(
    here: PeerlessNode, address: Address, connections: int = CONNECTIONS
) -> list[RejectReason | None]:
    """The reasons that this many simultaneous initiators get. Each sends a frame as soon as it can."""

    class Caller(RecordingHandler):
        def on_open(self) -> None:
            super().on_open()
            connection.send((100).to_bytes(4, "big") + bytes(100))

    handlers = []
    for _ in range(connections):
        handlers.append(Caller())
        connection = here.dial(address, handlers[-1])
    await eventually(lambda: all(handler.disconnects for handler in handlers))
    return [reason for handler in handlers for reason in handler.disconnects]


@each_loop
async def test_every_initiator_learns_of_wrong_key() -> None:
    channel = ChannelName("test", uuid4().hex)
    here, there = PeerlessNode(channel, tls=True), PeerlessNode(channel, tls=True, key="another key")
    await there.listen()
    assert await reject_reasons(here, there.address) == [RejectReason.WRONG_KEY] * CONNECTIONS
    assert not there.accepted
    await eventually(lambda: there.admission_control.pending_count == 0)
    assert there.handshake_counters.wrong_key + there.handshake_counters.handshakes == CONNECTIONS
    here.abort()
    there.abort()


@each_loop
@pytest.mark.parametrize("tls", [False, True], ids=["plain calls TLS", "TLS calls plain"])
async def test_plain_and_tls_peers_report_tls_mismatch(tls: bool) -> None:
    channel = ChannelName("test", uuid4().hex)
    here, there = PeerlessNode(channel, tls=tls), PeerlessNode(channel, tls=not tls)
    await there.listen()
    if tls:
        assert await reject_reasons(here, there.address) == [RejectReason.CHANNEL_TLS_MISMATCH] * CONNECTIONS
        elsewhere = PeerlessNode(ChannelName("test", uuid4().hex), tls=True)
        assert await reject_reasons(elsewhere, there.address) == [RejectReason.TLS_MISMATCH] * CONNECTIONS
        elsewhere.abort()
    else:
        handler = RecordingHandler()
        connection = here.dial(there.address, handler)
        await eventually(lambda: handler.open_count)
        connection.send((100).to_bytes(4, "big") + bytes(100))
        await eventually(lambda: handler.disconnects)  # the reason is in a frame
        assert handler.frames or handler.disconnects == [RejectReason.TLS_MISMATCH]
    here.abort()
    there.abort()


@each_loop
async def test_other_program_at_address_is_reported_as_wrong_protocol() -> None:
    def greets(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    async with nodes(1, tls=False) as (node,):
        other = await asyncio.start_server(greets, "127.0.0.1", 0)
        address = Address("127.0.0.1", other.sockets[0].getsockname()[1])
        reasons = await reject_reasons(node, address, 1)
        other.close()
        assert reasons == [RejectReason.WRONG_PROTOCOL]


INVALID_HOSTS = [
    "",
    ".",
    "a..b",
    "x" * 255,
    "unknown.invalid",
    "256.256.256.256",
    "a\0b",
    "ü\u2028",
    "-",
    "::zz",
    "%",
    "[::1]",
]


@each_loop
async def test_unreachable_addresses_report_disconnect() -> None:
    async with nodes(1, tls=True) as (node,):
        handlers = [RecordingHandler() for _ in range(2 * len(INVALID_HOSTS) + 1)]
        for host, handler in zip(INVALID_HOSTS, handlers, strict=False):
            node.dial(Address(host, node.address.port), handler)
        node.dial(Address("127.0.0.1", 0), handlers[len(INVALID_HOSTS)])
        closed = handlers[len(INVALID_HOSTS) + 1 :]
        for host, handler in zip(INVALID_HOSTS, closed, strict=True):
            connection = node.dial(Address(host, 5), handler)
            await asyncio.sleep(0)
            connection.close()
        lost_before = [list(handler.disconnects) for handler in closed]
        tried = handlers[: len(INVALID_HOSTS) + 1]
        await eventually(lambda: all(handler.disconnects for handler in tried))
        assert all(handler.disconnects == [None] for handler in tried)
        assert [handler.disconnects for handler in closed] == lost_before


@contextmanager
def silent_host() -> Iterator[Address]:
    """Neither accepts nor refuses connections: its backlog is full, so the kernel drops them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        callers = [socket.socket() for _ in range(4)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        try:
            yield Address(*listener.getsockname())
        finally:
            for caller in callers:
                caller.close()


@each_loop
async def test_silent_host_is_abandoned_after_exchange_timeout() -> None:
    node = TcpNode(
        ChannelName("test", uuid4().hex),
        advertise_host="127.0.0.1",
        bootstrap=BootstrapHosts(),
        credentials=None,
        settings=Tuning(exchange_timeout_s=0.2, discovery_retry_s=60),
    )
    node.deliver, node.report_missed, node.emit = 3 * (ignore,)
    await node.start()
    failures: list[RejectReason | None] = []
    with silent_host() as address:
        calls = [
            OutgoingExchange(node.peer, address, SeekerJoined(), lambda _call, _answer: None, failures.append)
            for _ in range(5)
        ]
        tasks = [call.connection.connect_task for call in calls]  # type: ignore[attr-defined]
        await eventually(lambda: len(failures) == len(calls), timeout_s=5)
        assert failures == [None] * len(calls)
        await eventually(lambda: all(task.cancelled() for task in tasks), timeout_s=2)
        assert not node._connections
    await node.close()


@each_loop
async def test_clients_that_close_at_once_are_forgotten() -> None:
    async with nodes(1, tls=True) as (node,):
        for _ in range(20):
            async with raw_connection(node.address) as (_, writer):
                writer.write(b"\x16\x03")
        await eventually(lambda: node.admission_control.pending_count == 0 and not node.connections)
