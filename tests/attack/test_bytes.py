"""Malformed bytes: garbage, invalid lengths, truncated frames. Each costs its sender the connection and no more."""

import random
from typing import Any

import pytest

from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.protocol import Tuning
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import encode
from broadloom.wire.exchange_messages import DiscoverRequest, LinkRequest, Reject, RejectReason
from broadloom.wire.link_messages import Beacon, Heartbeat, Want
from tests.attack.attacker import Attacker
from tests.attack.harness import AttackHarness, attack_harness, both_modes
from tests.support import eventually

LENGTHS = {
    "empty": bytes(4),
    "empty, many times": bytes(4000),
    "too short for a number": (3).to_bytes(4, "big") + b"abc",
    "one byte too large": (1 << 20).to_bytes(4, "big"),
    "largest possible": b"\xff" * 4,
    "text": b"GET / HTTP/1.1\r\nHost: broadloom\r\n\r\n",
}


async def open_connection(harness: AttackHarness) -> Attacker:
    """An attacker that can send frames: any on a plain channel, else a member."""
    return await harness.attack(harness.member_credentials() if harness.options.get("tls", True) else None)


@both_modes
@pytest.mark.parametrize("data", LENGTHS.values(), ids=LENGTHS)
async def test_invalid_frame_length_closes_connection(data: bytes, mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        on_exchange = await open_connection(harness)
        on_exchange.send(data)
        await on_exchange.until_closed()
        assert harness.counter_total("malformed_frames") == 1
        neighbor = await harness.hostile_neighbor()
        neighbor.send(data)
        await neighbor.until_closed()
        assert harness.counter_total("malformed_frames") == 2
        await eventually(lambda: not harness.is_neighbor(neighbor))


@both_modes
async def test_random_bytes_close_connection(mode: dict[str, Any]) -> None:
    random_source = random.Random(1)
    async with attack_harness(**mode) as harness:
        for _ in range(20):
            below, above = await harness.attack(), await open_connection(harness)
            below.send_raw(random_source.randbytes(300) + b"\xff" * 8)
            above.send(b"\xff" + random_source.randbytes(300))
            await below.until_closed()
            await above.until_closed()
        counter = "rejected_handshakes" if mode.get("tls", True) else "malformed_frames"
        assert harness.counter_total(counter) >= 20
        assert harness.counter_total("malformed_frames") >= 20


async def test_garbage_below_tls_closes_link() -> None:
    async with attack_harness(signed=True) as harness:
        neighbor = await harness.hostile_neighbor()
        neighbor.send_raw(b"\x17\x03\x03\x00\x20" + bytes(32))
        await neighbor.until_closed()
        await eventually(lambda: not harness.is_neighbor(neighbor))
        assert harness.victim.status().counters["rejected_handshakes"] == 1


async def test_garbage_below_tls_closes_link_with_full_send_queue() -> None:
    """Queued frames of a broken connection cannot be encrypted any more, which must not be attempted."""
    async with attack_harness(settings=TcpTuning(limits=Limits(stall_timeout_s=0.2))) as harness:
        neighbor = await harness.hostile_neighbor()
        neighbor.pause_reading()
        for _ in range(160):
            harness.sent[harness.victim.peer_id] = await harness.victim.broadcast(bytes(FRAGMENT_BYTES))
        neighbor.send_raw(b"\x17\x03\x03\x00\x20" + bytes(32))
        await eventually(lambda: not harness.is_neighbor(neighbor))
        neighbor.resume_reading()
        await neighbor.until_closed()


@both_modes
async def test_truncated_frame_times_out(mode: dict[str, Any]) -> None:
    settings = Tuning(exchange_timeout_s=2.0, heartbeat_s=0.2, heartbeat_timeout_s=5.0, tick_s=0.1)
    async with attack_harness(settings=settings, **mode) as harness:
        half = encode(Want(1, 1, 1))[:-5]
        on_exchange, neighbor = await open_connection(harness), await harness.hostile_neighbor()
        on_exchange.send(half)
        neighbor.send(half)
        await on_exchange.until_closed()
        await neighbor.until_closed()
        await eventually(lambda: not harness.is_neighbor(neighbor))


@both_modes
async def test_unfinished_frame_does_not_count_as_heartbeat(mode: dict[str, Any]) -> None:
    # The timeout is long enough for the honest peers on a busy machine.
    settings = Tuning(heartbeat_s=0.2, heartbeat_timeout_s=5.0, tick_s=0.1)
    async with attack_harness(settings=settings, **mode) as harness:
        neighbor = await harness.hostile_neighbor()
        neighbor.send((1 << 19).to_bytes(4, "big"))

        def trickle() -> bool:
            if not neighbor.is_closed:
                neighbor.send(b"x")
            return neighbor.is_closed

        await eventually(trickle)
        assert not harness.is_neighbor(neighbor)


@both_modes
async def test_misplaced_message_is_rejected(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        signed = mode.get("tls", True)
        without_hello = await open_connection(harness)
        without_hello.send(LinkRequest())
        assert (await without_hello.until(Reject)).reason is RejectReason.MALFORMED_MESSAGE
        without_request = await open_connection(harness)
        without_request.send(without_request.hello(signed=signed), Heartbeat())
        assert (await without_request.until(Reject)).reason is RejectReason.MALFORMED_MESSAGE
        neighbor = await harness.hostile_neighbor()
        neighbor.send(DiscoverRequest(is_connected=True, search_depth=1, seekers=()))
        await neighbor.until_closed()
        assert harness.counter_total("malformed_frames") == 3


async def test_unknown_message_is_skipped_on_a_link() -> None:
    async with attack_harness(signed=True) as harness:
        neighbor = await harness.hostile_neighbor()
        neighbor.send(b"\0\0\0\x08\0\1\0\0what", Beacon(77, 1, 1))
        await eventually(lambda: harness.counter_total("unknown_messages") == 1)
        assert harness.is_neighbor(neighbor)
