"""Hostile members on direct connections: beyond the limits, endless, silent, garbage. The victim answers others on."""

import asyncio
from typing import Any

import pytest

import broadloom
from broadloom import DirectRequest, PeerId
from broadloom.protocol import Tuning
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import Address, encode
from broadloom.wire.codec import WireMessage
from broadloom.wire.direct_messages import (
    MORE,
    Cancel,
    DirectAccept,
    DirectOpen,
    Reply,
    Request,
    RequestStatus,
    Tell,
)
from broadloom.wire.exchange_messages import Hello, Reject, RejectReason
from tests.attack.attacker import Attacker
from tests.attack.harness import AttackHarness, attack_harness, both_modes
from tests.support import eventually

KIB = 1 << 10
MIB = 1 << 20
OPEN = DirectOpen(1, 128, 4 * MIB)
STALLED = TcpTuning(limits=Limits(high_water_bytes=128 << 10, stall_timeout_s=0.3))


async def open_direct(harness: AttackHarness, **options: Any) -> Attacker:
    """A direct connection to the victim."""
    tls = harness.options.get("tls", True)
    attacker = await harness.attack(harness.member_credentials() if tls else None, **options)
    attacker.send(attacker.hello(signed=harness.options.get("signed", False)), OPEN)
    await attacker.until(DirectAccept)
    return attacker


async def check_still_answers(harness: AttackHarness) -> None:
    reply = await harness.channels[1].request(harness.victim.peer_id, b"still there?", timeout_s=30)
    assert reply.data == b"still there?"


def echo(request: DirectRequest) -> bytes:
    return request.data


BAD: dict[str, list[WireMessage | bytes]] = {
    "id twice": [Request(1, MORE, 999, 0, b""), Request(2, 0, 999, 0, b"x"), Request(2, 0, 999, 0, b"x")],
    "too many": [Request(number, MORE, 999, 0, b"") for number in range(1, 140)],
    "too large": [Request(1, MORE, 999, 0, bytes(64 * KIB))] * 65,
    "reply to nothing": [Reply(1, RequestStatus.OK, 0, b"")],
    "message of a link": [encode(OPEN)],
    "garbage": [b"\0\0\0\x10\0\0\0\x10garbage!!!!!"],
    "not a frame": [b"\xff" * 64],
    "wrong padding": [b"\0\0\0\x1c\0\0\0\x10" + bytes(15) + b"\1" + b"\0\0\0\1" + b"abcd"],
}


@both_modes
@pytest.mark.parametrize("messages", BAD.values(), ids=BAD)
async def test_member_that_breaks_the_protocol_is_disconnected(
    mode: dict[str, Any], messages: list[WireMessage | bytes]
) -> None:
    async with attack_harness(**mode) as harness:
        harness.victim.on_request(echo)
        attacker = await open_direct(harness)
        before = harness.counter_total("malformed_frames")
        attacker.send(*messages)
        await attacker.until_closed()
        assert harness.counter_total("malformed_frames") == before + 1
        await check_still_answers(harness)
        assert harness.victim._node.peer.requests.held_bytes == 0


async def test_member_cannot_ask_in_the_name_of_another() -> None:
    async with attack_harness(signed=True) as harness:
        attacker = await harness.attack(harness.member_credentials())
        attacker.send(attacker.hello(peer_id=harness.channels[1].peer_id, signed=True), OPEN)
        reject = await attacker.until(Reject)
        assert reject.reason is RejectReason.PEER_ID_MISMATCH


async def test_outsider_gets_no_direct_connection() -> None:
    async with attack_harness(signed=True) as harness:
        attacker = await harness.attack()
        attacker.send(attacker.hello(signed=True), OPEN)
        await attacker.until_closed()
        assert not any(isinstance(each, DirectAccept) for each in attacker.received)


@both_modes
async def test_member_that_does_not_read_its_replies_is_dropped_and_memory_stays_bounded(mode: dict[str, Any]) -> None:
    async with attack_harness(settings=STALLED, **mode) as harness:
        harness.victim.on_request(lambda request: bytes(4 * MIB) if request.data == b"large" else request.data)
        attacker = await open_direct(harness)
        attacker.pause_reading()
        attacker.send(*(Request(number, 0, 60_000, 0, b"large") for number in range(1, 101)))
        requests = harness.victim._node.peer.requests
        held = 0

        def is_dropped() -> bool:
            nonlocal held
            held = max(held, requests.held_bytes)
            return harness.counter_total("slow_neighbors_dropped") == 1

        await eventually(is_dropped, "the slow reader is dropped")
        assert held <= requests._peer.settings.direct_bytes_max
        await eventually(lambda: requests.held_bytes == 0)
        await check_still_answers(harness)


async def test_flood_of_one_way_messages_is_not_read_faster_than_it_is_handled() -> None:
    release = asyncio.Event()

    async def handler(request: DirectRequest) -> bytes:
        if not request.expects_reply:
            await release.wait()
        return request.data

    async with attack_harness(tls=False) as harness:
        harness.victim.on_request(handler)
        attacker = await open_direct(harness)
        requests = harness.victim._node.peer.requests
        for _ in range(40):
            attacker.send(*(Tell(0, 0, bytes(10 * KIB)) for _ in range(100)))
        await eventually(lambda: any(each.is_paused for each in requests._connections), "the flood is not read")
        assert requests.held_bytes < 8 * MIB
        assert harness.victim.status().counters["requests_received"] < 4000
        release.set()
        await eventually(lambda: harness.victim.status().counters["requests_received"] >= 4000, "all were handled")
        await check_still_answers(harness)


async def test_many_connections_are_bounded_and_idle_ones_make_room() -> None:
    settings = Tuning(direct_in_max=8)
    async with attack_harness(tls=False, settings=settings) as harness:
        harness.victim.on_request(echo)
        for number in range(20):
            attacker = await harness.attack()
            attacker.peer_id = 1000 + number
            attacker.send(attacker.hello(), OPEN)
            await attacker.until((DirectAccept, Reject))
            assert harness.victim._node.peer.requests.accepted_count <= 8
        await check_still_answers(harness)


async def test_requests_that_are_cancelled_at_once_leave_nothing_behind() -> None:
    running = 0

    async def handler(request: DirectRequest) -> bytes:
        nonlocal running
        running += 1
        try:
            await asyncio.sleep(60 if request.data == b"slow" else 0)
        finally:
            running -= 1
        return request.data

    async with attack_harness(tls=False) as harness:
        harness.victim.on_request(handler)
        attacker = await open_direct(harness)
        for number in range(1, 2001):
            attacker.send(Request(number, 0, 60_000, 0, b"slow"), Cancel(number))
            if not number % 100:
                await attacker.drain()
                await asyncio.sleep(0)
        await eventually(lambda: harness.victim.status().counters["requests_received"] >= 2000)
        await check_still_answers(harness)
        await eventually(lambda: running == 0 and harness.victim._node.peer.requests.handlers.running == 0)


async def hostile_callee(harness: AttackHarness) -> "HostileCallee":
    """A listener whose address the victim takes for that of a member."""
    callee = HostileCallee(harness)
    callee.server = await asyncio.start_server(callee.on_connection, "127.0.0.1", 0)
    address = Address("127.0.0.1", callee.server.sockets[0].getsockname()[1])
    requests = harness.victim._node.peer.requests
    known = requests.address_of
    requests.address_of = lambda peer: address if peer == HostileCallee.ID else known(peer)
    return callee


class HostileCallee:
    """Accepts a direct connection and answers the first request with what the test says."""

    ID = PeerId(0xBAD)

    def __init__(self, harness: AttackHarness) -> None:
        self._harness = harness
        self.server: asyncio.Server
        self.answer: list[WireMessage | bytes] = []
        self.accept: WireMessage = DirectAccept(1, 128, 4 * MIB)
        self._writers: list[asyncio.StreamWriter] = []

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await reader.read(KIB)
        hello = (await self._hello(), self.accept)
        writer.write(b"".join(map(encode, hello)))
        await reader.read(KIB)
        writer.write(b"".join(each if isinstance(each, bytes) else encode(each) for each in self.answer))

    async def _hello(self) -> Hello:
        attacker = await self._harness.attack()
        return attacker.hello(peer_id=self.ID)

    def close(self) -> None:
        self.server.close()
        for writer in self._writers:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ([Reply(9, RequestStatus.OK, 0, b"")], broadloom.PeerGoneError),
        ([Reply(1, RequestStatus.OK, MORE, bytes(64 * KIB))] * 70, broadloom.PeerGoneError),
        ([b"\xff" * 40], broadloom.PeerGoneError),
        ([], broadloom.NoAnswerError),
        ([Cancel(1)], broadloom.NoAnswerError),
        ([Reply(1, RequestStatus.REFUSED, 0, b"\xff\xfe" * 1000)], broadloom.RefusedError),
    ],
    ids=["other id", "endless", "garbage", "silent", "cancel", "strange text"],
)
async def test_hostile_callee_fails_only_the_request(
    answer: list[WireMessage | bytes], kind: type[broadloom.RequestError]
) -> None:
    async with attack_harness(tls=False) as harness:
        callee = await hostile_callee(harness)
        callee.answer = answer
        with pytest.raises(kind):
            await harness.victim.request(HostileCallee.ID, b"?", timeout_s=1.0)
        harness.channels[1].on_request(echo)
        assert (await harness.victim.request(harness.channels[1].peer_id, b"!")).data == b"!"
        callee.close()


async def test_second_reply_of_a_callee_is_ignored() -> None:
    async with attack_harness(tls=False) as harness:
        callee = await hostile_callee(harness)
        callee.answer = [Reply(1, RequestStatus.OK, 0, b"first"), Reply(1, RequestStatus.OK, 0, b"second")]
        assert (await harness.victim.request(HostileCallee.ID, b"?")).data == b"first"
        await eventually(lambda: harness.victim.status().counters["late_replies"] == 1)
        callee.close()


async def test_callee_that_allows_nothing_gets_nothing() -> None:
    async with attack_harness(tls=False) as harness:
        callee = await hostile_callee(harness)
        callee.accept = DirectAccept(1, 0, 0)
        with pytest.raises(broadloom.RefusedError) as refused:
            await harness.victim.request(HostileCallee.ID, b"?", timeout_s=0.5)
        assert refused.value.status == "too_large"
        with pytest.raises(broadloom.NoAnswerError) as silent:
            await harness.victim.request(HostileCallee.ID, b"", timeout_s=0.5)
        assert not silent.value.sent
        callee.close()
