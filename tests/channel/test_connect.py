"""Joining and leaving, also when something goes wrong half way: nothing stays behind (`play` looks)."""

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest

import broadloom
from broadloom import Channel
from broadloom.transport import ListenError, TcpNode
from tests.channel.joined import QUICK, connected_channels, receive_texts, unique_name
from tests.transport.connections import each_loop, open_sockets, run_test, until

PLAIN: dict[str, Any] = {"tls": False, "settings": QUICK}


@each_loop
@pytest.mark.parametrize(
    "options", [{"tls": False}, {}, {"key": "a key"}, {"signed": True}], ids=["plain", "TLS", "key", "signed"]
)
def test_async_with_joins_and_leaves(options: dict[str, Any], loop: str) -> None:
    async def main() -> None:
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

    run_test(main, loop)


def test_few_are_counted_and_many_are_not() -> None:
    async def main() -> None:
        async with connected_channels(6) as members:
            await until(lambda: not any(member.status().is_full_mesh for member in members))
        async with connected_channels(3) as members:
            await until(lambda: [member._full_mesh_size for member in members] == [3, 3, 3])

    run_test(main)


@each_loop
def test_await_joins_only(loop: str) -> None:
    async def main() -> None:
        channel = await broadloom.connect(unique_name(), **PLAIN)
        assert channel.is_connected
        async with channel:
            pass
        assert channel.status().state == "left"
        await channel.leave()

    run_test(main, loop)


@each_loop
def test_an_exception_in_the_body_leaves_the_channel(loop: str) -> None:
    async def main() -> None:
        async with connected_channels(1) as (other,):
            with pytest.raises(ZeroDivisionError):
                async with broadloom.connect(other.name, **PLAIN) as channel:
                    raise ZeroDivisionError
            assert channel.status().state == "left"
            await until(lambda: not other.status().neighbors)

    run_test(main, loop)


@each_loop
def test_a_task_that_is_cancelled_in_the_body_leaves_the_channel(loop: str) -> None:
    async def main() -> None:
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
            await until(lambda: not other.status().neighbors)

    run_test(main, loop)


# In Python 3.11, a server that is closed in the very moment in which a call comes forgets to close that call's socket.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@each_loop
@pytest.mark.parametrize("peers", [1, 3])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_task_may_be_cancelled_at_any_moment_of_joining(tls: bool, peers: int, loop: str) -> None:
    async def main() -> None:
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
            await until(lambda: open_sockets() <= before, 10)

    run_test(main, loop)


async def _join(name: str, **options: Any) -> Channel:
    return await broadloom.connect(name, **options)


@each_loop
@pytest.mark.parametrize("peers", [1, 2])
def test_nobody_there_is_told_with_what_to_do(peers: int, loop: str) -> None:
    async def main() -> None:
        connecting = broadloom.connect(
            unique_name(), bootstrap=["127.0.0.1:9"], timeout_s=0.3, local_peers=peers, **PLAIN
        )
        with pytest.raises(broadloom.ConnectError, match=r"no peer .* answered at 127\.0\.0\.1:9 within 0\.3 s"):
            await connecting

    run_test(main, loop)


@each_loop
@pytest.mark.parametrize("failing", [1, 2])
def test_one_of_a_set_that_does_not_get_in_takes_all_with_it(
    failing: int, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = TcpNode.start, list[TcpNode]()

    async def fails_once(node: TcpNode, observer: Any = None) -> None:
        started.append(node)
        if len(started) > failing:
            raise ListenError("no port is left")
        await start(node, observer)

    monkeypatch.setattr(TcpNode, "start", fails_once)

    async def main() -> None:
        with pytest.raises(broadloom.ConnectError, match="no port is left"):
            await broadloom.connect(unique_name(), local_peers=3, **PLAIN)
        assert len(started) == failing + 1

    run_test(main, loop)


@each_loop
def test_a_port_that_is_taken_is_told(loop: str) -> None:
    async def main() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            with pytest.raises(broadloom.ConnectError, match=f"port {port}: .*in use"):
                await broadloom.connect(unique_name(), port=port, **PLAIN)

    run_test(main, loop)


def test_a_channel_that_is_closed_while_it_is_joined_is_told() -> None:
    async def main() -> None:
        async with connected_channels(3) as members:
            # Everyone is asked, one after the other, so there is always one that is about to close.
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

    run_test(main)


def test_a_wrong_key_is_told_and_no_second_channel_is_founded() -> None:
    async def main() -> None:
        async with connected_channels(1, tls=True, key="right") as (other,):
            for _ in range(3):
                with pytest.raises(broadloom.RejectedError, match="another key"):
                    await broadloom.connect(other.name, key="wrong", settings=QUICK)

    run_test(main)


def test_hosts_of_all_kinds() -> None:
    async def main() -> None:
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
                assert first._node._server is not None
                bound = first._node._server.sockets[0].getsockname()[0]
                assert bound == expected.strip("[]"), "this machine only"

    run_test(main)


@pytest.mark.parametrize(
    ("options", "problem", "told"),
    [
        ({"name": "chess"}, ValueError, "TYPE/INSTANCE"),
        ({"bootstrap": "10.0.0.5"}, TypeError, r"bootstrap=\['10\.0\.0\.5'\]"),
        ({"bootstrap": ["a b"]}, ValueError, "no address"),
        ({"bootstrap": ["a:99999"]}, ValueError, "a port is a number"),
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
        ({"advertise_host": "a b"}, ValueError, "no address"),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
def test_wrong_arguments_are_told_before_anything_happens(
    options: dict[str, Any], problem: type[Exception], told: str
) -> None:
    with pytest.raises(problem, match=told):
        broadloom.connect(**{"name": "chess/club-42", **options})


def test_a_jump_of_the_clock_ends_in_a_fabric_that_is_whole() -> None:
    """As after the sleep of a machine: for one of them, or for all, an hour has passed from one moment to the next."""
    hour_s = 3600.0

    async def main() -> None:
        async with connected_channels(4, settings=replace(QUICK, tick_s=0.1)) as members:
            await until(lambda: all(len(each.status().neighbors) == 3 for each in members))
            for sleepers in (members[:1], members):
                await until(
                    lambda: not any(link.received_since_tick for each in members for link in each._node.peer.links)
                )
                jumped = {each: each._node.now() + hour_s for each in sleepers}
                for each in sleepers:
                    now = each._node.now
                    each._node.now = lambda now=now: now() + hour_s  # type: ignore[method-assign,misc]

                def has_noticed(channel: Channel, jumped: dict[Channel, float] = jumped) -> bool:
                    links = list(channel._node.peer.links)
                    return len(links) == 3 and all(link._received_at >= jumped[channel] for link in links)

                await until(lambda sleepers=sleepers: all(map(has_noticed, sleepers)), 30)  # type: ignore[misc]
                await until(lambda: all(len(each.status().neighbors) == 3 for each in members), 30)
                for each in members:
                    await each.broadcast_text("awake")
                for each in members:
                    assert await receive_texts(each, 3) == ["awake"] * 3

    run_test(main)
