"""Bytes that are no messages: garbage, absurd lengths, halves of frames. Each costs its sender the line, no more."""

import random
from typing import Any

import pytest

from tests.attack.attacker import Attacker
from tests.attack.stage import Stage, both_modes, eventually, over_sockets, stage
from weft import Limits, Settings
from weft.channel.large import PART_BYTES
from weft.wire import encode
from weft.wire.calls import PortRequest, Refusal, Refuse, Seek
from weft.wire.links import Beacon, Heartbeat, Want

LENGTHS = {
    "empty": bytes(4),
    "empty, many times": bytes(4000),
    "too short for a number": (3).to_bytes(4, "big") + b"abc",
    "one byte too large": (1 << 20).to_bytes(4, "big"),
    "as large as can be said": b"\xff" * 4,
    "text": b"GET / HTTP/1.1\r\nHost: weft\r\n\r\n",
}


async def caller(of: Stage) -> Attacker:
    """Somebody who may speak: on a plain channel anybody, else a member."""
    return await of.attack(None if of.options.get("plain") else of.member())


@both_modes
@pytest.mark.parametrize("said", LENGTHS.values(), ids=LENGTHS)
@over_sockets
async def test_lengths_that_cannot_be(said: bytes, mode: dict[str, Any]) -> None:
    async with stage(**mode) as of:
        on_call = await caller(of)
        on_call.send(said)
        await on_call.until_closed()
        assert of.counted("malformed") == 1
        neighbour = await of.neighbour()
        neighbour.send(said)
        await neighbour.until_closed()
        assert of.counted("malformed") == 2
        await eventually(lambda: not of.is_neighbour(neighbour))


@both_modes
@over_sockets
async def test_random_bytes(mode: dict[str, Any]) -> None:
    chance = random.Random(1)
    async with stage(**mode) as of:
        for _ in range(20):
            below, above = await of.attack(), await caller(of)
            below.raw(chance.randbytes(300) + b"\xff" * 8)
            above.send(b"\xff" + chance.randbytes(300))
            await below.until_closed()
            await above.until_closed()
        refused = "malformed" if mode.get("plain") else "refused_handshakes"
        assert of.counted(refused) >= 20
        assert of.counted("malformed") >= 20


@over_sockets
async def test_garbage_below_tls() -> None:
    async with stage(signed=True) as of:
        neighbour = await of.neighbour()
        neighbour.raw(b"\x17\x03\x03\x00\x20" + bytes(32))
        await neighbour.until_closed()
        await eventually(lambda: not of.is_neighbour(neighbour))
        assert of.victim.status().counters["refused_handshakes"] == 1


@over_sockets
async def test_garbage_below_tls_while_much_waits_to_be_sent() -> None:
    """What waits for a line that is broken cannot be encrypted any more, and must not be tried."""
    async with stage(limits=Limits(stall_s=0.2)) as of:
        neighbour = await of.neighbour()
        neighbour.pause_reading()
        for _ in range(160):
            of.said[of.victim.peer] = await of.victim.broadcast(bytes(PART_BYTES))
        neighbour.raw(b"\x17\x03\x03\x00\x20" + bytes(32))
        await eventually(lambda: not of.is_neighbour(neighbour))
        neighbour.resume_reading()
        await neighbour.until_closed()


@both_modes
@over_sockets
async def test_half_a_frame_and_then_silence(mode: dict[str, Any]) -> None:
    settings = Settings(call_s=0.4, heartbeat_s=0.2, silence_s=0.8, tick_s=0.1)
    async with stage(settings=settings, **mode) as of:
        half = encode(Want(1, 1, 1))[:-5]
        on_call, neighbour = await caller(of), await of.neighbour()
        on_call.send(half)
        neighbour.send(half)
        await on_call.until_closed(2)
        await neighbour.until_closed(3)
        await eventually(lambda: not of.is_neighbour(neighbour))


@both_modes
@over_sockets
async def test_a_frame_that_never_ends_does_not_count_as_a_sign_of_life(mode: dict[str, Any]) -> None:
    settings = Settings(heartbeat_s=0.2, silence_s=0.8, tick_s=0.1)
    async with stage(settings=settings, **mode) as of:
        neighbour = await of.neighbour()
        neighbour.send((1 << 19).to_bytes(4, "big"))

        def trickles() -> bool:
            if not neighbour.is_closed:
                neighbour.send(b"x")
            return neighbour.is_closed

        await eventually(trickles, 3)
        assert not of.is_neighbour(neighbour)


@both_modes
@over_sockets
async def test_messages_in_the_wrong_place(mode: dict[str, Any]) -> None:
    async with stage(**mode) as of:
        signed = not mode.get("plain")
        speaks_first = await caller(of)
        speaks_first.send(PortRequest())
        assert (await speaks_first.until(Refuse)).reason is Refusal.BAD_MESSAGE
        no_question = await caller(of)
        no_question.send(no_question.hello(signed=signed), Heartbeat())
        assert (await no_question.until(Refuse)).reason is Refusal.BAD_MESSAGE
        neighbour = await of.neighbour()
        neighbour.send(Seek(connected=True, depth=1, fellows=()))
        await neighbour.until_closed()
        assert of.counted("malformed") == 3


@over_sockets
async def test_messages_that_nobody_knows_are_passed_over() -> None:
    async with stage(signed=True) as of:
        neighbour = await of.neighbour()
        neighbour.send(b"\0\0\0\x08\0\1\0\0what", Beacon(77, 1, 1))
        await eventually(lambda: of.counted("unknown") == 1)
        assert of.is_neighbour(neighbour)
