"""Joining and leaving, also when something fails half way: nothing is left behind (`no_leaks`)."""

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest

import broadloom
from broadloom import Channel
from broadloom.transport import ListenError, TcpNode
from broadloom.transport.limits import Limits, TcpTuning
from tests.channel.joined import QUICK, connected_channels, receive_texts, unique_name
from tests.support import eventually
from tests.transport.connections import each_loop, free_port, open_sockets

PLAIN: dict[str, Any] = {"tls": False, "settings": QUICK}


@each_loop
@pytest.mark.parametrize(
    "options", [{"tls": False}, {}, {"key": "a key"}, {"signed": True}], ids=["plain", "TLS", "key", "signed"]
)
async def test_async_with_joins_and_leaves(options: dict[str, Any]) -> None:
    name = unique_name()
    async with (
        broadloom.connect(name, settings=QUICK, **options) as first,
        broadloom.connect(name, settings=QUICK, **options) as second,
    ):
        assert first.is_connected
        assert second.is_connected
        assert first.name == name
        assert await first.broadcast(b"one") == 1
        assert await first.broadcast(b"two") == 2
        assert await receive_texts(second, 2) == ["one", "two"]
    assert first.status().state == second.status().state == "left"
    assert not second.is_connected


async def test_full_mesh_size_is_known_only_in_full_mesh() -> None:
    async with connected_channels(6) as members:
        await eventually(lambda: not any(member.status().is_full_mesh for member in members))
    async with connected_channels(3) as members:
        await eventually(lambda: [member._full_mesh_size for member in members] == [3, 3, 3])


@each_loop
async def test_await_joins_without_leaving() -> None:
    channel = await broadloom.connect(unique_name(), **PLAIN)
    assert channel.is_connected
    async with channel:
        pass
    assert channel.status().state == "left"
    await channel.leave()


@each_loop
async def test_exception_in_body_leaves_channel() -> None:
    async with connected_channels(1) as (other,):
        with pytest.raises(ZeroDivisionError):
            async with broadloom.connect(other.name, **PLAIN) as channel:
                raise ZeroDivisionError
        assert channel.status().state == "left"
        await eventually(lambda: not other.status().neighbors)


@each_loop
async def test_cancellation_in_body_leaves_channel() -> None:
    entered: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

    async def body(name: str) -> None:
        async with broadloom.connect(name, **PLAIN) as channel:
            entered.set_result(channel)
            await channel.receive()

    async with connected_channels(1) as (other,):
        task = asyncio.ensure_future(body(other.name))
        channel = await entered
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert channel.status().state == "left"
        await eventually(lambda: not other.status().neighbors)


@each_loop
@pytest.mark.parametrize("peers", [1, 3])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_cancellation_while_joining_leaves_no_socket_open(tls: bool, peers: int) -> None:
    options: dict[str, Any] = {"settings": QUICK, "tls": tls}
    async with connected_channels(1, **options) as (other,):
        before = open_sockets()
        for turns in [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50]:
            task = asyncio.ensure_future(_join(other.name, local_peers=peers, **options))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result().abort()
        await eventually(lambda: open_sockets() <= before, timeout_s=10)


async def _join(name: str, **options: Any) -> Channel:
    return await broadloom.connect(name, **options)


@each_loop
@pytest.mark.parametrize("peers", [1, 2])
async def test_connect_timeout_names_hosts_and_remedy(peers: int) -> None:
    connecting = broadloom.connect(unique_name(), bootstrap=["127.0.0.1:9"], timeout_s=0.3, local_peers=peers, **PLAIN)
    with pytest.raises(broadloom.ConnectError, match=r"no peer .* answered at 127\.0\.0\.1:9 within 0\.3 s"):
        await connecting


@each_loop
@pytest.mark.parametrize("failing", [1, 2])
async def test_failure_of_one_local_peer_closes_all(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = TcpNode.start, list[TcpNode]()

    async def fails_once(node: TcpNode, observer: Any = None) -> None:
        started.append(node)
        if len(started) > failing:
            raise ListenError("no port is left")
        await start(node, observer)

    monkeypatch.setattr(TcpNode, "start", fails_once)

    with pytest.raises(broadloom.ConnectError, match="no port is left"):
        await broadloom.connect(unique_name(), local_peers=3, **PLAIN)
    assert len(started) == failing + 1


@each_loop
async def test_occupied_port_raises_connect_error() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(broadloom.ConnectError, match=f"port {port}: .*in use"):
            await broadloom.connect(unique_name(), port=port, **PLAIN)


@each_loop
async def test_first_peer_with_a_port_creates_the_channel_at_once_and_is_found() -> None:
    """It could not find itself along the port order and waited for another peer."""
    name = unique_name()
    async with (
        broadloom.connect(name, port=free_port(), timeout_s=5, **PLAIN) as first,
        broadloom.connect(name, timeout_s=5, **PLAIN) as second,
    ):
        await eventually(lambda: first.status().neighbors and second.status().neighbors, timeout_s=3)


async def test_peer_with_a_port_listens_only_there_if_all_bootstrap_hosts_have_ports() -> None:
    port = free_port()
    async with broadloom.connect(unique_name(), port=port, bootstrap=[f"127.0.0.1:{port}"], **PLAIN) as channel:
        assert channel._node.listener.ports == (port,)


async def test_member_beyond_the_search_depth_is_found_after_the_others_left() -> None:
    """A newcomer created a second channel."""
    settings = TcpTuning(discovery_ports=2, limits=Limits(listen_retry_s=0.05))
    async with connected_channels(3, settings=settings) as (first, second, third):
        searched = first._node.listener.ports + second._node.listener.ports
        await first.leave()
        await second.leave()
        await eventually(lambda: set(third._node.listener.ports) & set(searched))
        async with broadloom.connect(third.name, tls=False, settings=settings) as newcomer:
            await eventually(lambda: third.status().neighbors and newcomer.status().neighbors, timeout_s=3)


async def test_channel_closed_while_joining_raises_connect_error() -> None:
    async with connected_channels(3) as members:
        tasks = [asyncio.ensure_future(_join(members[0].name, timeout_s=20, **PLAIN)) for _ in range(3)]
        for _ in range(12):
            await asyncio.sleep(0)
        members[0]._node.peer.close_channel()
        await asyncio.wait(tasks, timeout=15)
        for task in tasks:
            assert task.done()
            problem = task.exception()
            assert problem is None or isinstance(problem, broadloom.ConnectError)
            if problem is None:
                task.result().abort()


async def test_wrong_key_raises_rejected_error_and_creates_no_channel() -> None:
    async with connected_channels(1, tls=True, key="right") as (other,):
        for _ in range(3):
            with pytest.raises(broadloom.RejectedError, match="another key"):
                await broadloom.connect(other.name, key="wrong", settings=QUICK)


async def test_peers_connect_over_ipv6_and_localhost() -> None:
    for options in (
        {"bootstrap": ["::1"]},
        {"advertise_host": "localhost"},
        {"advertise_host": "[::1]", "bootstrap": ["[::1]"]},
    ):
        async with connected_channels(2, **options) as (first, second):
            await first.broadcast_text("hello")
            assert await receive_texts(second, 1) == ["hello"]
            expected = "127.0.0.1" if options.get("advertise_host") == "localhost" else "[::1]"
            assert first.status().address.startswith(expected)
            assert first._node.listener.bound_hosts == [expected.strip("[]")], "loopback only"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"channel": "chess"}, ValueError, "TYPE/INSTANCE"),
        ({"name": "x" * 65}, ValueError, "at most 64 bytes of printable text"),
        ({"name": "a\nb"}, ValueError, "at most 64 bytes of printable text"),
        ({"name": 7}, TypeError, "name must be str"),
        ({"name": "ann", "ticket": "ticket.pem"}, ValueError, "the ticket has the name"),
        ({"bootstrap": "10.0.0.5"}, TypeError, r"bootstrap=\['10\.0\.0\.5'\]"),
        ({"bootstrap": ["a b"]}, ValueError, "not an address"),
        ({"bootstrap": ["a:99999"]}, ValueError, "the port must be from 1"),
        ({"key": "k", "tls": False}, ValueError, "exclude each other"),
        ({"tls": False, "signed": True}, ValueError, "signed=True requires a key"),
        ({"revocation_list": "list.pem"}, ValueError, "works only with a ticket"),
        ({"local_peers": 0}, ValueError, "must be 1 to 16"),
        ({"local_peers": 17}, ValueError, "must be 1 to 16"),
        ({"overflow": "later"}, ValueError, "drop_oldest, pause, leave"),
        ({"inbox_messages_max": 0}, ValueError, "must be at least 1"),
        ({"inbox_bytes_max": 0}, ValueError, "must be at least 1"),
        ({"port": 65536}, ValueError, "must be 1 to 65535"),
        ({"port": -1}, ValueError, "must be 1 to 65535"),
        ({"advertise_host": "10.0.0.5:4000"}, ValueError, "port=4000"),
        ({"advertise_host": "0.0.0.0"}, ValueError, "peers cannot dial this"),
        ({"advertise_host": "::"}, ValueError, "peers cannot dial this"),
        ({"advertise_host": "a b"}, ValueError, "not an address"),
        ({"timeout_s": float("inf")}, ValueError, "must be greater than 0 and finite"),
        ({"timeout_s": float("nan")}, ValueError, "must be greater than 0 and finite"),
        ({"timeout_s": 0}, ValueError, "must be greater than 0 and finite"),
        ({"timeout_s": True}, TypeError, "timeout_s must be int or float, not bool"),
        ({"port": True}, TypeError, "port must be int, not bool"),
        ({"local_peers": True}, TypeError, "local_peers must be int, not bool"),
        ({"inbox_messages_max": True}, TypeError, "inbox_messages_max must be int, not bool"),
        ({"inbox_bytes_max": True}, TypeError, "inbox_bytes_max must be int, not bool"),
        ({"unknown": "red"}, TypeError, "unknown"),
    ],
)
def test_invalid_option_raises_error_before_connecting(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        broadloom.connect(options.pop("channel", "chess/club-42"), **options)


async def test_fabric_recovers_after_clock_jump() -> None:
    """As after a suspend: for one peer, or for all, an hour passes at once."""
    hour_s = 3600.0

    async with connected_channels(4, settings=replace(QUICK, tick_s=0.1)) as members:
        await eventually(lambda: all(len(each.status().neighbors) == 3 for each in members))
        for sleepers in (members[:1], members):
            await eventually(
                lambda: not any(link.received_since_tick for each in members for link in each._node.peer.links)
            )
            jumped = {each: each._node.now() + hour_s for each in sleepers}
            for each in sleepers:
                now = each._node.now
                each._node.now = lambda now=now: now() + hour_s  # type: ignore[method-assign,misc]

            def has_noticed(channel: Channel, jumped: dict[Channel, float] = jumped) -> bool:
                links = list(channel._node.peer.links)
                return len(links) == 3 and all(link._received_at >= jumped[channel] for link in links)

            await eventually(lambda sleepers=sleepers: all(map(has_noticed, sleepers)), timeout_s=30)  # type: ignore[misc]
            await eventually(lambda: all(len(each.status().neighbors) == 3 for each in members), timeout_s=30)
            for each in members:
                await each.broadcast_text("awake")
            for each in members:
                assert await receive_texts(each, 3) == ["awake"] * 3


async def test_connect_accepts_prepared_options() -> None:
    options = broadloom.ConnectOptions(**PLAIN)
    name = unique_name()
    async with broadloom.connect(name, options=options) as first, broadloom.connect(name, options=options) as second:
        await first.broadcast_text("hello")
        assert await receive_texts(second, 1) == ["hello"]
    with pytest.raises(TypeError, match="pass options= or key=, not both"):
        broadloom.connect(name, options=options, key="a key")  # type: ignore[call-overload]


def test_options_accept_enum_and_its_value() -> None:
    for policy in broadloom.Overflow:
        broadloom.ConnectOptions(overflow=policy)
        broadloom.ConnectOptions(overflow=policy.value)


def test_repr_of_options_shows_no_key() -> None:
    assert "secret" not in repr(broadloom.ConnectOptions(key="secret"))
