"""Bytes that are no messages: garbage, absurd lengths, halves of frames. Each costs its sender the line, no more."""

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
from tests.attack.harness import AttackHarness, async_test, attack_harness, both_modes, wait_until

LENGTHS = {
    "empty": bytes(4),
    "empty, many times": bytes(4000),
    "too short for a number": (3).to_bytes(4, "big") + b"abc",
    "one byte too large": (1 << 20).to_bytes(4, "big"),
    "as large as can be said": b"\xff" * 4,
    "text": b"GET / HTTP/1.1\r\nHost: broadloom\r\n\r\n",
}


async def open_connection(harness: AttackHarness) -> Attacker:
    """Somebody who may speak: on a plain channel anybody, else a member."""
    return await harness.attack(harness.member_credentials() if harness.options.get("tls", True) else None)


@both_modes
@pytest.mark.parametrize("said", LENGTHS.values(), ids=LENGTHS)
@async_test
async def test_lengths_that_cannot_be(said: bytes, mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as of:
        on_call = await open_connection(of)
        on_call.send(said)
        await on_call.until_closed()
        assert of.counter_total("malformed_frames") == 1
        neighbour = await of.hostile_neighbor()
        neighbour.send(said)
        await neighbour.until_closed()
        assert of.counter_total("malformed_frames") == 2
        await wait_until(lambda: not of.is_neighbor(neighbour))


@both_modes
@async_test
async def test_random_bytes(mode: dict[str, Any]) -> None:
    chance = random.Random(1)
    async with attack_harness(**mode) as of:
        for _ in range(20):
            below, above = await of.attack(), await open_connection(of)
            below.send_raw(chance.randbytes(300) + b"\xff" * 8)
            above.send(b"\xff" + chance.randbytes(300))
            await below.until_closed()
            await above.until_closed()
        refused = "rejected_handshakes" if mode.get("tls", True) else "malformed_frames"
        assert of.counter_total(refused) >= 20
        assert of.counter_total("malformed_frames") >= 20


@async_test
async def test_garbage_below_tls() -> None:
    async with attack_harness(signed=True) as of:
        neighbour = await of.hostile_neighbor()
        neighbour.send_raw(b"\x17\x03\x03\x00\x20" + bytes(32))
        await neighbour.until_closed()
        await wait_until(lambda: not of.is_neighbor(neighbour))
        assert of.victim.status().counters["rejected_handshakes"] == 1


@async_test
async def test_garbage_below_tls_while_much_waits_to_be_sent() -> None:
    """What waits for a line that is broken cannot be encrypted any more, and must not be tried."""
    async with attack_harness(settings=TcpTuning(limits=Limits(stall_timeout_s=0.2))) as of:
        neighbour = await of.hostile_neighbor()
        neighbour.pause_reading()
        for _ in range(160):
            of.sent[of.victim.peer_id] = await of.victim.broadcast(bytes(FRAGMENT_BYTES))
        neighbour.send_raw(b"\x17\x03\x03\x00\x20" + bytes(32))
        await wait_until(lambda: not of.is_neighbor(neighbour))
        neighbour.resume_reading()
        await neighbour.until_closed()


@both_modes
@async_test
async def test_half_a_frame_and_then_silence(mode: dict[str, Any]) -> None:
    settings = Tuning(exchange_timeout_s=0.4, heartbeat_s=0.2, heartbeat_timeout_s=0.8, tick_s=0.1)
    async with attack_harness(settings=settings, **mode) as of:
        half = encode(Want(1, 1, 1))[:-5]
        on_call, neighbour = await open_connection(of), await of.hostile_neighbor()
        on_call.send(half)
        neighbour.send(half)
        await on_call.until_closed(2)
        await neighbour.until_closed(3)
        await wait_until(lambda: not of.is_neighbor(neighbour))


@both_modes
@async_test
async def test_a_frame_that_never_ends_does_not_count_as_a_sign_of_life(mode: dict[str, Any]) -> None:
    settings = Tuning(heartbeat_s=0.2, heartbeat_timeout_s=0.8, tick_s=0.1)
    async with attack_harness(settings=settings, **mode) as of:
        neighbour = await of.hostile_neighbor()
        neighbour.send((1 << 19).to_bytes(4, "big"))

        def trickles() -> bool:
            if not neighbour.is_closed:
                neighbour.send(b"x")
            return neighbour.is_closed

        await wait_until(trickles, 3)
        assert not of.is_neighbor(neighbour)


@both_modes
@async_test
async def test_messages_in_the_wrong_place(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as of:
        signed = mode.get("tls", True)
        speaks_first = await open_connection(of)
        speaks_first.send(LinkRequest())
        assert (await speaks_first.until(Reject)).reason is RejectReason.MALFORMED_MESSAGE
        no_question = await open_connection(of)
        no_question.send(no_question.hello(signed=signed), Heartbeat())
        assert (await no_question.until(Reject)).reason is RejectReason.MALFORMED_MESSAGE
        neighbour = await of.hostile_neighbor()
        neighbour.send(DiscoverRequest(is_connected=True, search_depth=1, seekers=()))
        await neighbour.until_closed()
        assert of.counter_total("malformed_frames") == 3


@async_test
async def test_messages_that_nobody_knows_are_passed_over() -> None:
    async with attack_harness(signed=True) as of:
        neighbour = await of.hostile_neighbor()
        neighbour.send(b"\0\0\0\x08\0\1\0\0what", Beacon(77, 1, 1))
        await wait_until(lambda: of.counter_total("unknown_messages") == 1)
        assert of.is_neighbor(neighbour)
