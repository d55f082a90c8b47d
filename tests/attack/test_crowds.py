"""Very many and very slow connections: newcomers still join, and the fabric is not affected."""

import asyncio
import socket
import ssl
from contextlib import suppress

import broadloom
from broadloom import ChannelSettings
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import encode
from tests.attack.harness import AttackHarness, attack_harness
from tests.support import TIMEOUT_S, eventually

HALF_OPEN = 2000
SILENT_CONNECTIONS = 300
JOIN_TIMEOUT_S = 30.0
PATIENT = TcpTuning(exchange_timeout_s=120.0, limits=Limits(handshake_timeout_s=120.0))
"""Silent connections do not time out during the test, so only admission control can make room for a newcomer."""


async def assert_newcomer_joins(harness: AttackHarness) -> None:
    """Through the victim."""
    options = harness.newcomer_options()
    newcomer = await broadloom.connect(harness.name, bootstrap=[harness.address], timeout_s=JOIN_TIMEOUT_S, **options)
    await newcomer.leave()


async def half_open(harness: AttackHarness, count: int) -> list[socket.socket]:
    """Silent TCP connections from many addresses."""
    host, _, port = harness.address.rpartition(":")
    loop = asyncio.get_running_loop()
    sockets = []
    for index in range(count):
        sock = socket.socket()
        sockets.append(sock)
        sock.setblocking(False)
        sock.bind((f"127.0.9.{1 + index % 40}", 0))
        await loop.sock_connect(sock, (host, int(port)))
    return sockets


async def test_newcomer_joins_despite_thousands_of_half_open_handshakes() -> None:
    async with attack_harness(settings=PATIENT) as harness:
        crowd = await half_open(harness, HALF_OPEN // 2)
        try:
            rest = asyncio.get_running_loop().create_task(half_open(harness, HALF_OPEN // 2))
            await assert_newcomer_joins(harness)
            crowd += await rest
            await assert_newcomer_joins(harness)
            assert harness.victim.status().counters["handshakes_evicted"] > HALF_OPEN // 2
        finally:
            for sock in crowd:
                sock.close()


async def test_newcomer_joins_despite_thousands_of_silent_connections() -> None:
    async with attack_harness(tls=False, settings=PATIENT) as harness:
        crowd = await half_open(harness, HALF_OPEN)
        try:
            await assert_newcomer_joins(harness)
            assert harness.victim.status().counters["exchanges_rejected"] > HALF_OPEN // 2
        finally:
            for sock in crowd:
                sock.close()


async def send_slowly(harness: AttackHarness, data: bytes, pause_s: float) -> int:
    """Send byte by byte until the victim closes, without a word; returns how many bytes were sent by then."""
    host, _, port = harness.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    sent = 0

    async def send() -> None:
        nonlocal sent
        for byte in data:
            writer.write(bytes([byte]))
            sent += 1
            await asyncio.sleep(pause_s)

    sending = asyncio.get_running_loop().create_task(send())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    finally:
        sending.cancel()
        writer.transport.abort()
    return sent


async def test_slow_handshake_times_out() -> None:
    # Long enough for honest handshakes, too.
    async with attack_harness(settings=TcpTuning(limits=Limits(handshake_timeout_s=5.0))) as harness:
        member = harness.member_credentials()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = member.client_context.wrap_bio(incoming, outgoing, server_hostname=member.server_name)
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        client_hello = outgoing.read()
        sent = await asyncio.gather(*(send_slowly(harness, client_hello, 0.05) for _ in range(20)))
        assert all(1 < each < len(client_hello) for each in sent)
        assert harness.victim.status().counters["rejected_handshakes"] >= 20  # on a busy machine, honest ones as well


async def test_slow_hello_times_out() -> None:
    async with attack_harness(tls=False, settings=ChannelSettings(exchange_timeout_s=0.6)) as harness:
        hello = encode((await harness.attack()).hello())
        sent = await asyncio.gather(*(send_slowly(harness, hello, 0.1) for _ in range(20)))
        assert all(1 < each < len(hello) for each in sent)


async def test_slow_hello_of_members_times_out() -> None:
    async with attack_harness(settings=ChannelSettings(exchange_timeout_s=0.6)) as harness:
        member = harness.member_credentials()
        attackers = [await harness.attack(member) for _ in range(20)]
        hello = encode(attackers[0].hello())
        for byte in hello:
            for each in attackers:
                each.send(bytes([byte]))
            if all(each.is_closed for each in attackers):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("no connection was closed")


async def test_connection_rate_per_address_is_limited() -> None:
    async with attack_harness(settings=TcpTuning(limits=Limits(connections_per_s=5, connections_burst=50))) as harness:
        host, _, port = harness.address.rpartition(":")
        for _ in range(300):
            _, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.66", 0))
            writer.transport.abort()
        await eventually(lambda: harness.victim.status().counters["connections_denied"] >= 200)
        await assert_newcomer_joins(harness)  # from another address
