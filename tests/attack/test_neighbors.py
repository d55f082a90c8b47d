"""Hostile neighbors: they do not read, request endlessly, invent peers and addresses, or close the channel."""

import asyncio
from typing import Any

from broadloom import ChannelSettings, PeerState
from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.protocol import Tuning
from broadloom.transport.connection import TRANSPORT_HIGH_WATER_BYTES
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire import Address, Broadcast, PeerInfo
from broadloom.wire.exchange_messages import LinkRequest, LinkResponse, Reject
from broadloom.wire.link_messages import (
    CloseChannel,
    Credential,
    DiameterEstimate,
    Digest,
    LastKnown,
    Leave,
    RandomWalk,
    SlotSearch,
    Unlink,
    Want,
)
from broadloom.wire.types import AuthorState
from tests.attack.attacker import Attacker
from tests.attack.harness import AttackHarness, all_modes, attack_harness, signed_modes, tls_modes
from tests.support import eventually

SMALL = TcpTuning(send_queue_bytes_max=1 << 20, limits=Limits(high_water_bytes=128 << 10, stall_timeout_s=0.3))
INVENTED_PEERS = 150
WANTS = 3000
HOSTS = ("", "a..b", "a" * 255, "ü" * 100, "127.0.0.1", "::1", ".", "%", "[", "127.0.0.1:80", "\n", "\x7f", "0")


async def stalled_neighbor(harness: AttackHarness) -> Attacker:
    """A neighbor that stops reading while the victim sends much."""
    attacker = await harness.hostile_neighbor()
    attacker.pause_reading()
    for _ in range(240):
        harness.sent[harness.victim.peer_id] = await harness.victim.broadcast(bytes(FRAGMENT_BYTES))
    return attacker


@all_modes
async def test_stalled_neighbor_is_dropped(mode: dict[str, Any]) -> None:
    async with attack_harness(settings=SMALL, **mode) as harness:
        attacker = await stalled_neighbor(harness)
        await eventually(lambda: harness.counter_total("slow_neighbors_dropped") == 1)
        assert not harness.is_neighbor(attacker)


@signed_modes
async def test_credentials_of_invented_peers_are_bounded(mode: dict[str, Any]) -> None:
    """Any member can invent peers, with the shared key or as sessions of its ticket, but no peer remembers more of them
    than the limit."""
    settings = Tuning(authors_max=INVENTED_PEERS // 3)
    async with attack_harness(settings=settings, **mode) as harness:
        attacker = await harness.hostile_neighbor()
        for number in range(INVENTED_PEERS):
            invented = harness.member_credentials()
            attacker.send(Credential(invented.peer_id, invented.signer.credential))
            attacker.send(Credential(number, invented.signer.credential), Credential(number, b"nothing at all"))
            if number % 20 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: harness.counter_total("bad_credentials") == 2 * INVENTED_PEERS)
        verifier = harness.victim._node.peer.broadcaster.verifier
        assert verifier is not None
        assert len(verifier._verified) <= settings.authors_max


@signed_modes
async def test_endless_wants_do_not_block_the_loop(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        await eventually(lambda: min(harness.sent.values()) > 20)
        attacker = await harness.hostile_neighbor()
        wants = [Want(harness.channels[index % 3].peer_id, 1, 4096) for index in range(WANTS)]
        attacker.send(*wants)
        await eventually(lambda: attacker.read_bytes > 1 << 20 or attacker.is_closed)
        assert harness.lag_s < 2


@tls_modes
async def test_neighbor_that_requests_without_reading_is_dropped(mode: dict[str, Any]) -> None:
    async with attack_harness(settings=SMALL, **mode) as harness:
        for _ in range(13):
            harness.sent[harness.victim.peer_id] = await harness.victim.broadcast(bytes(FRAGMENT_BYTES))
        attacker = await harness.hostile_neighbor()
        attacker.pause_reading()
        attacker.send(*[Want(harness.victim.peer_id, 1, 4096)] * WANTS)
        queued_max = 0

        def is_dropped() -> bool:
            nonlocal queued_max
            queued = [
                each.send_queue_bytes for each in harness.victim.status().neighbors if each.peer_id == attacker.peer_id
            ]
            queued_max = max(queued_max, *queued, 0)
            if queued:
                attacker.send(
                    *[Want(harness.victim.peer_id, 1, 4096)] * 10
                )  # answered as long as the kernel buffers the responses
            return harness.counter_total("slow_neighbors_dropped") == 1

        await eventually(is_dropped)
        assert not harness.is_neighbor(attacker)
        assert queued_max <= SMALL.limits.high_water_bytes + TRANSPORT_HIGH_WATER_BYTES + 4 * FRAGMENT_BYTES


@signed_modes
async def test_channel_close_of_an_attacker_is_ignored(mode: dict[str, Any]) -> None:
    async with attack_harness(settings=ChannelSettings(accept_channel_close=False), **mode) as harness:
        attacker = await harness.hostile_neighbor()
        behind = attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"behind it",)))
        attacker.send(CloseChannel(attacker.peer_id, 1, 1), attacker.credential(), behind)
        await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))
        assert all(channel.is_connected for channel in harness.channels)


@signed_modes
async def test_implausible_numbers_are_rejected(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        honest = harness.channels[1].peer_id
        attacker.send(
            LastKnown((AuthorState(honest, 1, (1 << 64) - 1, 0), AuthorState(honest, 0, 0, (1 << 64) - 1))),
            DiameterEstimate(attacker.peer_id, 1, 1, (1 << 32) - 1),
        )
        await eventually(lambda: harness.counter_total("claims_rejected") >= 1)


async def send_unlink(harness: AttackHarness, index: int, peer_info: PeerInfo) -> None:
    """A neighbor that makes the victim dial this address. Retried while the victim has no free slot."""
    for _ in range(50):
        other = await harness.attack(harness.member_credentials() if harness.options.get("tls", True) else None)
        other.peer_id += 0 if harness.options.get("tls", True) else index
        other.send(other.hello(signed=harness.is_signed), LinkRequest())
        if isinstance(await other.until((LinkResponse, Reject)), LinkResponse):
            other.send(Digest(False, False, (), ()), Unlink(dial=peer_info, await_dial=None))
            await other.until_closed()
            return
        await harness.wait_for_traffic(1)
    raise AssertionError("the victim had no free slot")


@all_modes
async def test_unreachable_addresses_do_no_harm(mode: dict[str, Any]) -> None:
    """They are cached, passed on and dialed; all that happens is that nothing answers."""
    peer_infos = [PeerInfo(1000 + index, Address(host, port)) for index, host in enumerate(HOSTS) for port in (0, 1)]
    eager = Tuning(
        probe_interval_s=0.1,
        probe_interval_alert_s=0.1,
        repair_backoff_s=0.05,
        repair_backoff_alert_s_max=0.1,
        tick_s=0.05,
    )
    async with attack_harness(settings=eager, **mode) as harness:
        attacker = await harness.hostile_neighbor(digest=Digest(False, True, (), tuple(peer_infos)))
        for index, peer_info in enumerate(peer_infos):
            attacker.send(
                RandomWalk(index, peer_info, None, (), (), True, 3, 3),
                RandomWalk(index, peer_info, peer_info, (), (), False, 0, 0),
            )
            attacker.send(SlotSearch(peer_info.peer_id, 1, 1, peer_info))
        await harness.wait_for_traffic(25)
        attacker.send(
            Leave((peer_infos[0], PeerInfo(harness.victim.peer_id, Address("127.0.0.1", 1)), *peer_infos[1:]))
        )
        for index in range(8):
            await send_unlink(harness, index, peer_infos[index])
        await harness.wait_for_traffic(15)
        assert harness.victim._node.peer.state is PeerState.CONNECTED


@signed_modes
async def test_huge_sequence_gap_is_not_delivered(mode: dict[str, Any]) -> None:
    """The author itself skipped 2^62 numbers."""
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        message = Broadcast(attacker.peer_id, 1 << 62, 1 << 62, (b"far",))
        attacker.send(attacker.credential(), attacker.signed(message))
        await attacker.until(Want)
        assert harness.foreign_messages == []
