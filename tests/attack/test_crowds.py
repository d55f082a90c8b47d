"""Very many and very slow connections: newcomers still join, and the fabric is not affected."""

import asyncio
import socket
import ssl
import time
from contextlib import suppress

import broadloom
from broadloom import ChannelSettings
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import encode
from tests.attack.harness import AttackHarness, attack_harness, wait_until

HALF_OPEN = 2000
SILENT_CONNECTIONS = 300
JOIN_S = 4.0


async def join_time_s(harness: AttackHarness, at: str = "") -> float:
    """How long a newcomer takes to join through the victim."""
    started_at = time.monotonic()
    options = {name: each for name, each in harness.options.items() if name != "settings"}
    newcomer = await broadloom.connect(harness.name, bootstrap=[at or harness.address], timeout_s=JOIN_S, **options)
    duration_s = time.monotonic() - started_at
    await newcomer.leave()
    return duration_s


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
    async with attack_harness() as harness:
        crowd = await half_open(harness, HALF_OPEN // 2)
        try:
            rest = asyncio.get_running_loop().create_task(half_open(harness, HALF_OPEN // 2))
            assert await join_time_s(harness) < JOIN_S
            crowd += await rest
            assert await join_time_s(harness) < JOIN_S
            assert harness.victim.status().counters["handshakes_evicted"] > HALF_OPEN // 2
        finally:
            for sock in crowd:
                sock.close()


async def test_newcomer_joins_despite_thousands_of_silent_connections() -> None:
    async with attack_harness(tls=False) as harness:
        crowd = await half_open(harness, HALF_OPEN)
        try:
            assert await join_time_s(harness) < JOIN_S
            assert harness.victim.status().counters["exchanges_rejected"] > HALF_OPEN // 2
        finally:
            for sock in crowd:
                sock.close()


async def send_slowly(harness: AttackHarness, data: bytes, pause_s: float) -> float:
    """Send byte by byte until the victim closes; returns after how long."""
    host, _, port = harness.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    started_at = time.monotonic()

    async def send() -> None:
        for byte in data:
            writer.write(bytes([byte]))
            await asyncio.sleep(pause_s)

    sending = asyncio.get_running_loop().create_task(send())
    try:
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    finally:
        sending.cancel()
        writer.transport.abort()
    return time.monotonic() - started_at


async def test_slow_handshake_times_out() -> None:
    async with attack_harness(settings=TcpTuning(limits=Limits(handshake_timeout_s=0.6))) as harness:
        member = harness.member_credentials()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = member.client_context.wrap_bio(incoming, outgoing, server_hostname=member.server_name)
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        client_hello = outgoing.read()
        durations = await asyncio.gather(*(send_slowly(harness, client_hello, 0.05) for _ in range(20)))
        assert all(0.4 < duration_s < 2 for duration_s in durations)
        assert harness.counter_total("rejected_handshakes") == 20


async def test_slow_hello_times_out() -> None:
    async with attack_harness(tls=False, settings=ChannelSettings(exchange_timeout_s=0.6)) as harness:
        hello = encode((await harness.attack()).hello())
        durations = await asyncio.gather(*(send_slowly(harness, hello, 0.1) for _ in range(20)))
        assert all(0.4 < duration_s < 2 for duration_s in durations)


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
        await wait_until(lambda: harness.victim.status().counters["connections_denied"] >= 200)
        await join_time_s(harness)  # from another address
