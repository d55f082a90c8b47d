"""Where a node listens."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from uuid import uuid4

import pytest

from broadloom.protocol import ChannelName, PeerState
from broadloom.protocol.channel_name import PortOrder
from broadloom.protocol.events import Message
from broadloom.security import PeerCredentials
from broadloom.transport import BootstrapHosts, ListenError, TcpNode
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import Address
from tests.support import eventually
from tests.transport.connections import each_loop, free_port, ignore


def make_node(
    channel: ChannelName,
    host: str = "127.0.0.1",
    *,
    port: int = 0,
    tls: bool = False,
    settings: TcpTuning | None = None,
) -> TcpNode:
    credentials = PeerCredentials.from_key(channel, "a key") if tls else None
    bootstrap = BootstrapHosts([str(Address(host, port)) if port else host])
    node = TcpNode(
        channel, advertise_host=host, port=port, bootstrap=bootstrap, credentials=credentials, settings=settings
    )
    node.deliver, node.report_missed, node.emit = 3 * (ignore,)
    return node


@contextmanager
def occupied(port: int) -> Iterator[None]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield


def channel_with_free_ports(free_ports: int = 5) -> ChannelName:
    """A channel whose first ports are free and not ephemeral: other programs and tests may use any ephemeral port."""
    while True:
        channel = ChannelName("test", uuid4().hex)
        order = PortOrder(channel.id)
        with suppress(OSError):
            for place in range(free_ports):
                if order[place] >= 32768:
                    break
                with occupied(order[place]):
                    pass
            else:
                return channel


@each_loop
async def test_node_listens_on_first_free_port_of_port_order() -> None:
    channel = channel_with_free_ports()
    order = PortOrder(channel.id)
    with occupied(order[0]), occupied(order[2]):
        nodes = [make_node(channel) for _ in range(3)]
        for node in nodes:
            await node.start()
        assert [node.peer.me.address.port for node in nodes] == [order[1], order[3], order[4]]
        for node in nodes:
            await node.close()
    again = make_node(channel)
    await again.start()
    assert again.peer.me.address.port == order[0], "what was closed is free again"
    again.abort()


@each_loop
async def test_occupied_port_raises_listen_error() -> None:
    port = free_port()
    with occupied(port):
        node = make_node(channel_with_free_ports(), port=port)
        with pytest.raises(ListenError, match=rf"cannot listen on 127\.0\.0\.1, port {port}: .*in use"):
            await node.start()
        node.abort()


@each_loop
async def test_port_order_without_free_port_raises_listen_error() -> None:
    channel = channel_with_free_ports()
    with occupied(PortOrder(channel.id)[0]):
        node = make_node(channel, settings=TcpTuning(limits=Limits(listen_ports_max=1)))
        with pytest.raises(ListenError, match=r"cannot listen on 127\.0\.0\.1: .*in use"):
            await node.start()
        node.abort()


@each_loop
async def test_host_that_cannot_be_bound_raises_listen_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # An advertised address may belong to a router: only one that cannot be bound at all is an error.
    monkeypatch.setattr("broadloom.transport.node.bind_host", lambda host: host)

    node = make_node(channel_with_free_ports(), "203.0.113.7")
    with pytest.raises(ListenError, match=r"cannot listen on 203\.0\.113\.7: Cannot assign"):
        await node.start()
    node.abort()


@each_loop
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("host", ["::1", "localhost", "127.0.0.1"])
async def test_peers_connect_at_any_kind_of_host(host: str, tls: bool) -> None:
    channel, heard = channel_with_free_ports(), list[Message]()
    first, second = make_node(channel, host, tls=tls), make_node(channel, host, tls=tls)
    second.deliver = heard.extend
    await first.start()
    await eventually(lambda: first.peer.state is PeerState.CONNECTED)
    await second.start()
    await eventually(lambda: second.peer.state is PeerState.CONNECTED)
    first.peer.broadcast(b"hello")
    await eventually(lambda: [message.data for message in heard] == [b"hello"])
    assert first.peer.me.address.host == host
    second.peer.leave()
    await eventually(lambda: second.peer.state is PeerState.LEFT)
    await second.close()
    first.abort()


@each_loop
async def test_connections_during_close_are_dropped() -> None:
    """No socket is left to the garbage collector, whose warning would fail this test."""

    for turns in range(12):
        node = make_node(channel_with_free_ports(1))
        await node.start()
        callers = [socket.socket() for _ in range(20)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(tuple(node.peer.me.address))
        for _ in range(turns % 4):
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(node.abort)
        for caller in callers:
            await eventually(partial(is_closed_by_peer, caller))
            caller.close()


def is_closed_by_peer(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@each_loop
async def test_node_that_never_started_can_be_closed() -> None:
    node = make_node(channel_with_free_ports())
    node.abort()
    other = make_node(channel_with_free_ports())
    await other.close()
