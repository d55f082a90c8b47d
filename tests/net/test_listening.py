"""Where a peer listens."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from uuid import uuid4

import pytest

from tests.net.lines import each_loop, ignore, play, until
from weft.fabric import ChannelName, State
from weft.fabric.events import Message
from weft.fabric.port_order import PortOrder
from weft.net import CannotListen, Limits, Node
from weft.security import Membership
from weft.wire import Address


def a_node(
    channel: ChannelName, host: str = "127.0.0.1", *, port: int = 0, tls: bool = False, limits: Limits | None = None
) -> Node:
    membership = Membership.from_key(channel, "a key") if tls else None
    portals = (Address(host, port),)
    node = Node(channel, host=host, port=port, portals=portals, membership=membership, limits=limits)
    node.deliver, node.missed, node.observe = 3 * (ignore,)
    return node


@contextmanager
def taken(port: int) -> Iterator[None]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def a_channel(free_ports: int = 5) -> ChannelName:
    """One whose first ports are free, and not among those that the kernel gives to callers: other programs of this
    machine, and connections of other tests, may hold any port."""
    while True:
        channel = ChannelName("test", uuid4().hex)
        order = PortOrder(channel.id)
        with suppress(OSError):
            for place in range(free_ports):
                if order[place] >= 32768:
                    break
                with taken(order[place]):
                    pass
            else:
                return channel


@each_loop
def test_the_first_free_port_of_the_channels_order_is_taken(loop: str) -> None:
    async def main() -> None:
        channel = a_channel()
        order = PortOrder(channel.id)
        with taken(order[0]), taken(order[2]):
            nodes = [a_node(channel) for _ in range(3)]
            for node in nodes:
                await node.start()
            assert [node.peer.me.address.port for node in nodes] == [order[1], order[3], order[4]]
            for node in nodes:
                await node.close()
        again = a_node(channel)
        await again.start()
        assert again.peer.me.address.port == order[0], "what was closed is free again"
        again.vanish()

    play(main, loop)


@each_loop
def test_a_given_port_that_is_taken_is_told(loop: str) -> None:
    async def main() -> None:
        port = free_port()
        with taken(port):
            node = a_node(a_channel(), port=port)
            with pytest.raises(CannotListen, match=rf"cannot listen on 127\.0\.0\.1, port {port}: .*in use"):
                await node.start()
            node.vanish()

    play(main, loop)


@each_loop
def test_an_order_without_a_free_port_is_told(loop: str) -> None:
    async def main() -> None:
        channel = a_channel()
        with taken(PortOrder(channel.id)[0]):
            node = a_node(channel, limits=Limits(ports_tried=1))
            with pytest.raises(CannotListen, match=r"cannot listen on 127\.0\.0\.1: .*in use"):
                await node.start()
            node.vanish()

    play(main, loop)


@each_loop
def test_a_host_that_cannot_be_listened_on_is_told(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Any address may be reachable by way of a router, so only one that cannot be bound at all is a mistake.
    monkeypatch.setattr("weft.net.node.bind_host", lambda host: host)

    async def main() -> None:
        node = a_node(a_channel(), "203.0.113.7")
        with pytest.raises(CannotListen, match=r"cannot listen on 203\.0\.113\.7: Cannot assign"):
            await node.start()
        node.vanish()

    play(main, loop)


@each_loop
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("host", ["::1", "localhost", "127.0.0.1"])
def test_two_meet_at_any_kind_of_host(host: str, tls: bool, loop: str) -> None:
    async def main() -> None:
        channel, heard = a_channel(), list[Message]()
        first, second = a_node(channel, host, tls=tls), a_node(channel, host, tls=tls)
        second.deliver = heard.extend
        await first.start()
        await until(lambda: first.peer.state is State.CONNECTED)
        await second.start()
        await until(lambda: second.peer.state is State.CONNECTED)
        first.peer.broadcast(b"hello")
        await until(lambda: [message.data for message in heard] == [b"hello"])
        assert first.peer.me.address.host == host
        second.peer.leave()
        await until(lambda: second.peer.state is State.LEFT)
        await second.close()
        first.vanish()

    play(main, loop)


@each_loop
def test_those_who_call_while_a_node_closes_are_hung_up_on(loop: str) -> None:
    """None of their sockets is left to the garbage collector, whose warning would fail this test."""

    async def main() -> None:
        for turns in range(12):
            node = a_node(a_channel(1))
            await node.start()
            callers = [socket.socket() for _ in range(20)]
            for caller in callers:
                caller.setblocking(False)
                caller.connect_ex(tuple(node.peer.me.address))
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(node.vanish)
            for caller in callers:
                await until(partial(is_hung_up_on, caller), 5)
                caller.close()

    play(main, loop)


def is_hung_up_on(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@each_loop
def test_a_node_that_never_started_can_be_closed(loop: str) -> None:
    async def main() -> None:
        node = a_node(a_channel())
        node.vanish()
        other = a_node(a_channel())
        await other.close()

    play(main, loop)
