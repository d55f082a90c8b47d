"""Very many callers, and very slow ones: newcomers still get in, and the fabric does not notice."""

import asyncio
import socket
import ssl
import time
from contextlib import suppress

import broadloom
from broadloom import ChannelSettings
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import encode
from tests.attack.harness import AttackHarness, async_test, attack_harness, wait_until

HALF_OPEN = 2000
SILENT_CONNECTIONS = 300
JOIN_S = 4.0


async def join_time_s(harness: AttackHarness, at: str = "") -> float:
    """Through the victim itself; says how long it took."""
    began = time.monotonic()
    options = {name: each for name, each in harness.options.items() if name != "settings"}
    newcomer = await broadloom.connect(harness.name, bootstrap=[at or harness.address], timeout_s=JOIN_S, **options)
    taken_s = time.monotonic() - began
    await newcomer.leave()
    return taken_s


async def half_open(harness: AttackHarness, count: int) -> list[socket.socket]:
    """TCP connections over which nothing is ever said, from many addresses."""
    host, _, port = harness.address.rpartition(":")
    loop = asyncio.get_running_loop()
    made = []
    for index in range(count):
        sock = socket.socket()
        made.append(sock)
        sock.setblocking(False)
        sock.bind((f"127.0.9.{1 + index % 40}", 0))
        await loop.sock_connect(sock, (host, int(port)))
    return made


@async_test
async def test_thousands_that_never_begin_a_handshake() -> None:
    async with attack_harness() as of:
        crowd = await half_open(of, HALF_OPEN // 2)
        try:
            rest = asyncio.get_running_loop().create_task(half_open(of, HALF_OPEN // 2))
            assert await join_time_s(of) < JOIN_S
            crowd += await rest
            assert await join_time_s(of) < JOIN_S
            assert of.victim.status().counters["handshakes_evicted"] > HALF_OPEN // 2
        finally:
            for sock in crowd:
                sock.close()


@async_test
async def test_thousands_that_say_nothing_on_a_plain_channel() -> None:
    async with attack_harness(tls=False) as of:
        crowd = await half_open(of, HALF_OPEN)
        try:
            assert await join_time_s(of) < JOIN_S
            assert of.victim.status().counters["exchanges_rejected"] > HALF_OPEN // 2
        finally:
            for sock in crowd:
                sock.close()


async def send_slowly(harness: AttackHarness, data: bytes, pause_s: float) -> float:
    """One byte after the other, until it is hung up on; says after how long."""
    host, _, port = harness.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    began = time.monotonic()

    async def talk() -> None:
        for byte in data:
            writer.write(bytes([byte]))
            await asyncio.sleep(pause_s)

    talking = asyncio.get_running_loop().create_task(talk())
    try:
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    finally:
        talking.cancel()
        writer.transport.abort()
    return time.monotonic() - began


@async_test
async def test_a_handshake_byte_by_byte() -> None:
    async with attack_harness(settings=TcpTuning(limits=Limits(handshake_timeout_s=0.6))) as of:
        member = of.member_credentials()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = member.client_context.wrap_bio(incoming, outgoing, server_hostname=member.server_name)
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        begin = outgoing.read()
        taken = await asyncio.gather(*(send_slowly(of, begin, 0.05) for _ in range(20)))
        assert all(0.4 < taken_s < 2 for taken_s in taken)
        assert of.counter_total("rejected_handshakes") == 20


@async_test
async def test_a_hello_byte_by_byte() -> None:
    async with attack_harness(tls=False, settings=ChannelSettings(exchange_timeout_s=0.6)) as of:
        hello = encode((await of.attack()).hello())
        taken = await asyncio.gather(*(send_slowly(of, hello, 0.1) for _ in range(20)))
        assert all(0.4 < taken_s < 2 for taken_s in taken)


@async_test
async def test_a_hello_byte_by_byte_of_members() -> None:
    async with attack_harness(settings=ChannelSettings(exchange_timeout_s=0.6)) as of:
        member = of.member_credentials()
        callers = [await of.attack(member) for _ in range(20)]
        hello = encode(callers[0].hello())
        for byte in hello:
            for each in callers:
                each.send(bytes([byte]))
            if all(each.is_closed for each in callers):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("nobody was hung up on")


@async_test
async def test_more_calls_than_one_address_may_make() -> None:
    async with attack_harness(settings=TcpTuning(limits=Limits(connections_per_s=5, connections_burst=50))) as of:
        host, _, port = of.address.rpartition(":")
        for _ in range(300):
            _, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.66", 0))
            writer.transport.abort()
        await wait_until(lambda: of.victim.status().counters["connections_denied"] >= 200)
        await join_time_s(of)  # it has another address
