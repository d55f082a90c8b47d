"""What two ends that do not fit tell each other; and addresses at which nobody can be met."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from tests.net.lines import Ear, LineNode, each_loop, ignore, nodes, play, raw, until
from weft.fabric import ChannelName, Settings
from weft.fabric.calls import Outgoing
from weft.net import Node
from weft.wire import Address
from weft.wire.calls import Connected, Refusal

CALLS = 20


async def refusals_at(here: LineNode, address: Address, calls: int = CALLS) -> list[Refusal | None]:
    """What so many callers at once are told in the end. Each says something as soon as it may, as callers do."""

    class Caller(Ear):
        def on_open(self) -> None:
            super().on_open()
            line.send((100).to_bytes(4, "big") + bytes(100))

    ears = []
    for _ in range(calls):
        ears.append(Caller())
        line = here.dial(address, ears[-1])
    await until(lambda: all(ear.lost for ear in ears))
    return [refusal for ear in ears for refusal in ear.lost]


@each_loop
def test_a_wrong_key_is_told_to_every_caller(loop: str) -> None:
    async def main() -> None:
        channel = ChannelName("test", uuid4().hex)
        here, there = LineNode(channel, tls=True), LineNode(channel, tls=True, key="another key")
        await there.listen()
        assert await refusals_at(here, there.address) == [Refusal.WRONG_KEY] * CALLS
        assert not there.calls
        await until(lambda: there.doorman.pending == 0)
        assert there.refusals.wrong_key + there.refusals.handshakes == CALLS
        here.vanish()
        there.vanish()

    play(main, loop)


@each_loop
@pytest.mark.parametrize("tls", [False, True], ids=["plain calls TLS", "TLS calls plain"])
def test_plain_and_tls_tell_each_other_so(tls: bool, loop: str) -> None:
    async def main() -> None:
        channel = ChannelName("test", uuid4().hex)
        here, there = LineNode(channel, tls=tls), LineNode(channel, tls=not tls)
        await there.listen()
        if tls:
            assert await refusals_at(here, there.address) == [Refusal.WRONG_MODE] * CALLS
        else:
            ear = Ear()
            line = here.dial(there.address, ear)
            await until(lambda: ear.opened)
            line.send((100).to_bytes(4, "big") + bytes(100))
            await until(lambda: ear.lost)  # in words: the fabric reads them
            assert ear.frames or ear.lost == [Refusal.WRONG_MODE]
        here.vanish()
        there.vanish()

    play(main, loop)


@each_loop
def test_another_program_at_the_address_is_recognised(loop: str) -> None:
    async def main() -> None:
        def greets(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
            writer.close()

        async with nodes(1, tls=False) as (node,):
            other = await asyncio.start_server(greets, "127.0.0.1", 0)
            address = Address("127.0.0.1", other.sockets[0].getsockname()[1])
            told = await refusals_at(node, address, 1)
            other.close()
            assert told == [Refusal.NOT_WEFT]

    play(main, loop)


NONSENSE = [
    "",
    ".",
    "a..b",
    "x" * 255,
    "nobody.invalid",
    "256.256.256.256",
    "a\0b",
    "ü\u2028",
    "-",
    "::zz",
    "%",
    "[::1]",
]


@each_loop
def test_addresses_of_nobody_are_lost_and_no_more(loop: str) -> None:
    async def main() -> None:
        async with nodes(1, tls=True) as (node,):
            ears = [Ear() for _ in range(2 * len(NONSENSE) + 1)]
            for host, ear in zip(NONSENSE, ears, strict=False):
                node.dial(Address(host, node.address.port), ear)
            node.dial(Address("127.0.0.1", 0), ears[len(NONSENSE)])
            hung_up_on = ears[len(NONSENSE) + 1 :]
            for host, ear in zip(NONSENSE, hung_up_on, strict=True):
                line = node.dial(Address(host, 5), ear)
                await asyncio.sleep(0)
                line.close()
            lost_before = [list(ear.lost) for ear in hung_up_on]
            tried = ears[: len(NONSENSE) + 1]
            await until(lambda: all(ear.lost for ear in tried))
            assert all(ear.lost == [None] for ear in tried)
            assert [ear.lost for ear in hung_up_on] == lost_before

    play(main, loop)


@contextmanager
def silent_host() -> Iterator[Address]:
    """Takes no calls and refuses none: its backlog is full, so the kernel drops what comes."""
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
def test_a_host_that_never_answers_is_given_up_by_the_deadline_of_the_call(loop: str) -> None:
    async def main() -> None:
        node = Node(
            ChannelName("test", uuid4().hex),
            host="127.0.0.1",
            portals=(),
            membership=None,
            settings=Settings(call_s=0.2, seek_wait_s=60),
        )
        node.deliver, node.missed, node.observe = 3 * (ignore,)
        await node.start()
        failures: list[Refusal | None] = []
        with silent_host() as address:
            calls = [
                Outgoing(node.peer, address, Connected(), lambda _call, _answer: None, failures.append)
                for _ in range(5)
            ]
            tasks = [call.line.connecting for call in calls]  # type: ignore[attr-defined]
            await until(lambda: len(failures) == len(calls), 5)
            assert failures == [None] * len(calls)
            await until(lambda: all(task.cancelled() for task in tasks), 2)
            assert not node._lines
        await node.close()

    play(main, loop)


@each_loop
def test_callers_that_hang_up_at_once_are_forgotten(loop: str) -> None:
    async def main() -> None:
        async with nodes(1, tls=True) as (node,):
            for _ in range(20):
                async with raw(node.address) as (_, writer):
                    writer.write(b"\x16\x03")
            await until(lambda: node.doorman.pending == 0 and not node.lines)

    play(main, loop)
