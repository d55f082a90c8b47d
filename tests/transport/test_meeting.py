"""What two ends that do not fit tell each other; and addresses at which nobody can be met."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from broadloom.protocol import ChannelName, Tuning
from broadloom.protocol.exchange import OutgoingExchange
from broadloom.transport import TcpNode
from broadloom.wire import Address
from broadloom.wire.exchange_messages import RejectReason, SeekerJoined
from tests.transport.connections import (
    PeerlessNode,
    RecordingHandler,
    each_loop,
    ignore,
    nodes,
    raw_connection,
    run_test,
    until,
)

CONNECTIONS = 20


async def reject_reasons(
    here: PeerlessNode, address: Address, connections: int = CONNECTIONS
) -> list[RejectReason | None]:
    """What so many callers at once are told in the end. Each says something as soon as it may, as callers do."""

    class Caller(RecordingHandler):
        def on_open(self) -> None:
            super().on_open()
            connection.send((100).to_bytes(4, "big") + bytes(100))

    handlers = []
    for _ in range(connections):
        handlers.append(Caller())
        connection = here.dial(address, handlers[-1])
    await until(lambda: all(ear.disconnects for ear in handlers))
    return [refusal for ear in handlers for refusal in ear.disconnects]


@each_loop
def test_a_wrong_key_is_told_to_every_caller(loop: str) -> None:
    async def main() -> None:
        channel = ChannelName("test", uuid4().hex)
        here, there = PeerlessNode(channel, tls=True), PeerlessNode(channel, tls=True, key="another key")
        await there.listen()
        assert await reject_reasons(here, there.address) == [RejectReason.WRONG_KEY] * CONNECTIONS
        assert not there.accepted
        await until(lambda: there.admission_control.pending_count == 0)
        assert there.handshake_counters.wrong_key + there.handshake_counters.handshakes == CONNECTIONS
        here.abort()
        there.abort()

    run_test(main, loop)


@each_loop
@pytest.mark.parametrize("tls", [False, True], ids=["plain calls TLS", "TLS calls plain"])
def test_plain_and_tls_tell_each_other_so(tls: bool, loop: str) -> None:
    async def main() -> None:
        channel = ChannelName("test", uuid4().hex)
        here, there = PeerlessNode(channel, tls=tls), PeerlessNode(channel, tls=not tls)
        await there.listen()
        if tls:
            assert await reject_reasons(here, there.address) == [RejectReason.TLS_MISMATCH] * CONNECTIONS
        else:
            ear = RecordingHandler()
            line = here.dial(there.address, ear)
            await until(lambda: ear.open_count)
            line.send((100).to_bytes(4, "big") + bytes(100))
            await until(lambda: ear.disconnects)  # in words: the fabric reads them
            assert ear.frames or ear.disconnects == [RejectReason.TLS_MISMATCH]
        here.abort()
        there.abort()

    run_test(main, loop)


@each_loop
def test_another_program_at_the_address_is_recognised(loop: str) -> None:
    async def main() -> None:
        def greets(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
            writer.close()

        async with nodes(1, tls=False) as (node,):
            other = await asyncio.start_server(greets, "127.0.0.1", 0)
            address = Address("127.0.0.1", other.sockets[0].getsockname()[1])
            told = await reject_reasons(node, address, 1)
            other.close()
            assert told == [RejectReason.WRONG_PROTOCOL]

    run_test(main, loop)


INVALID_HOSTS = [
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
            ears = [RecordingHandler() for _ in range(2 * len(INVALID_HOSTS) + 1)]
            for host, ear in zip(INVALID_HOSTS, ears, strict=False):
                node.dial(Address(host, node.address.port), ear)
            node.dial(Address("127.0.0.1", 0), ears[len(INVALID_HOSTS)])
            hung_up_on = ears[len(INVALID_HOSTS) + 1 :]
            for host, ear in zip(INVALID_HOSTS, hung_up_on, strict=True):
                line = node.dial(Address(host, 5), ear)
                await asyncio.sleep(0)
                line.close()
            lost_before = [list(ear.disconnects) for ear in hung_up_on]
            tried = ears[: len(INVALID_HOSTS) + 1]
            await until(lambda: all(ear.disconnects for ear in tried))
            assert all(ear.disconnects == [None] for ear in tried)
            assert [ear.disconnects for ear in hung_up_on] == lost_before

    run_test(main, loop)


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
        node = TcpNode(
            ChannelName("test", uuid4().hex),
            advertise_host="127.0.0.1",
            bootstrap=(),
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
            await until(lambda: len(failures) == len(calls), 5)
            assert failures == [None] * len(calls)
            await until(lambda: all(task.cancelled() for task in tasks), 2)
            assert not node._connections
        await node.close()

    run_test(main, loop)


@each_loop
def test_callers_that_hang_up_at_once_are_forgotten(loop: str) -> None:
    async def main() -> None:
        async with nodes(1, tls=True) as (node,):
            for _ in range(20):
                async with raw_connection(node.address) as (_, writer):
                    writer.write(b"\x16\x03")
            await until(lambda: node.admission_control.pending_count == 0 and not node.connections)

    run_test(main, loop)
