"""Hostile neighbours: they do not read, ask without end, make up peers and places, or want to close the channel."""

import asyncio
from typing import Any

from broadloom import ChannelSettings, PeerState
from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.protocol import ChannelName, Tuning
from broadloom.security import PeerCredentials
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
from tests.attack.harness import AttackHarness, async_test, attack_harness, both_modes, wait_until

SMALL = TcpTuning(send_queue_bytes_max=1 << 20, limits=Limits(high_water_bytes=128 << 10, stall_timeout_s=0.3))
MADE_UP = 150
WANTS = 3000
HOSTS = ("", "a..b", "a" * 255, "ü" * 100, "127.0.0.1", "::1", ".", "%", "[", "127.0.0.1:80", "\n", "\x7f", "0")


async def stalled_neighbor(harness: AttackHarness) -> Attacker:
    """A neighbour takes nothing from its line any more, while the victim says much."""
    attacker = await harness.hostile_neighbor()
    attacker.pause_reading()
    for _ in range(240):
        harness.sent[harness.victim.peer_id] = await harness.victim.broadcast(bytes(FRAGMENT_BYTES))
    return attacker


@both_modes
@async_test
async def test_a_neighbour_that_never_reads(mode: dict[str, Any]) -> None:
    async with attack_harness(settings=SMALL, **mode) as of:
        attacker = await stalled_neighbor(of)
        await wait_until(lambda: of.counter_total("slow_neighbors_dropped") == 1)
        assert not of.is_neighbor(attacker)


@async_test
async def test_credentials_of_made_up_peers() -> None:
    """With a shared key anybody may make peers up; but nobody has to remember more of them than the limit."""
    settings = Tuning(authors_max=MADE_UP // 3)
    async with attack_harness(signed=True, settings=settings) as of:
        attacker = await of.hostile_neighbor()
        channel = ChannelName.parse(of.name)
        for number in range(MADE_UP):
            made_up = PeerCredentials.from_key(channel, of.options["key"])
            attacker.send(Credential(made_up.peer_id, made_up.signer.credential))
            attacker.send(Credential(number, made_up.signer.credential), Credential(number, b"nothing at all"))
            if number % 20 == 0:
                await asyncio.sleep(0)
        await wait_until(lambda: of.counter_total("bad_credentials") == 2 * MADE_UP)
        signing = of.victim._node.peer.broadcaster.verifier
        assert signing is not None
        assert len(signing._verified) <= settings.authors_max


@async_test
async def test_questions_without_end() -> None:
    async with attack_harness(signed=True) as of:
        await wait_until(lambda: min(of.sent.values()) > 20)
        attacker = await of.hostile_neighbor()
        wants = [Want(of.channels[index % 3].peer_id, 1, 4096) for index in range(WANTS)]
        attacker.send(*wants)
        await wait_until(lambda: attacker.read_bytes > 1 << 20 or attacker.is_closed)
        assert of.lag_s < 2


@async_test
async def test_questions_of_one_who_does_not_read_the_answers() -> None:
    async with attack_harness(settings=SMALL) as of:
        for _ in range(13):
            of.sent[of.victim.peer_id] = await of.victim.broadcast(bytes(FRAGMENT_BYTES))
        attacker = await of.hostile_neighbor()
        attacker.pause_reading()
        attacker.send(*[Want(of.victim.peer_id, 1, 4096)] * WANTS)
        most = 0

        def is_given_up() -> bool:
            nonlocal most
            queued = [
                each.send_queue_bytes
                for each in of.victim.status().neighbors
                if each.peer_id == attacker.peer_id
            ]
            most = max(most, *queued, 0)
            if queued:
                attacker.send(
                    *[Want(of.victim.peer_id, 1, 4096)] * 10
                )  # answered as long as the kernel takes the answers
            return of.counter_total("slow_neighbors_dropped") == 1

        await wait_until(is_given_up)
        assert not of.is_neighbor(attacker)
        assert most <= SMALL.limits.high_water_bytes + TRANSPORT_HIGH_WATER_BYTES + 4 * FRAGMENT_BYTES


@async_test
async def test_a_shutdown_that_is_not_obeyed() -> None:
    async with attack_harness(signed=True, settings=ChannelSettings(accept_channel_close=False)) as of:
        attacker = await of.hostile_neighbor()
        attacker.send(CloseChannel(attacker.peer_id, 1, 1), DiameterEstimate(attacker.peer_id, 2, 1, 5))
        await wait_until(
            lambda: all(channel.status().diameter_estimate >= 5 for channel in of.channels)
        )  # all had heard it
        assert all(channel.is_connected for channel in of.channels)


@async_test
async def test_nobody_can_be_told_absurd_numbers() -> None:
    async with attack_harness(signed=True) as of:
        attacker = await of.hostile_neighbor()
        honest = of.channels[1].peer_id
        attacker.send(
            LastKnown((AuthorState(honest, 1, (1 << 64) - 1, 0), AuthorState(honest, 0, 0, (1 << 64) - 1))),
            DiameterEstimate(attacker.peer_id, 1, 1, (1 << 32) - 1),
        )
        await wait_until(lambda: of.counter_total("claims_rejected") >= 1)


async def send_unlink(harness: AttackHarness, index: int, peer_info: PeerInfo) -> None:
    """A neighbour that sends the victim to such a place. While the victim calls others it may have no room for one."""
    for _ in range(20):
        other = await harness.attack(harness.member_credentials() if harness.options.get("tls", True) else None)
        other.peer_id += 0 if harness.options.get("tls", True) else index
        other.send(other.hello(signed=harness.options.get("tls", True)), LinkRequest())
        if isinstance(await other.until((LinkResponse, Reject)), LinkResponse):
            other.send(Digest(False, False, (), ()), Unlink(dial=peer_info, await_dial=None))
            await other.until_closed()
            return
        await asyncio.sleep(0.05)


@both_modes
@async_test
async def test_contacts_that_are_nowhere(mode: dict[str, Any]) -> None:
    """They get into caches, are passed on, and are dialled; all that may come of it is that nobody answers."""
    places = [PeerInfo(1000 + index, Address(host, port)) for index, host in enumerate(HOSTS) for port in (0, 1)]
    eager = Tuning(
        probe_interval_s=0.1,
        probe_interval_alert_s=0.1,
        repair_backoff_s=0.05,
        repair_backoff_alert_s_max=0.1,
        tick_s=0.05,
    )
    async with attack_harness(settings=eager, **mode) as of:
        attacker = await of.hostile_neighbor(digest=Digest(False, True, (), tuple(places)))
        for index, place in enumerate(places):
            attacker.send(
                RandomWalk(index, place, None, (), (), True, 3, 3), RandomWalk(index, place, place, (), (), False, 0, 0)
            )
            attacker.send(SlotSearch(place.peer_id, 1, 1, place))
        await of.wait_for_traffic(25)
        attacker.send(Leave((places[0], PeerInfo(of.victim.peer_id, Address("127.0.0.1", 1)), *places[1:])))
        for index in range(8):
            await send_unlink(of, index, places[index])
        await of.wait_for_traffic(15)
        assert of.victim._node.peer.state is PeerState.CONNECTED


@async_test
async def test_a_message_that_an_author_could_not_have_numbered() -> None:
    """Signed by its author, who skipped 2^62 numbers: an absurd gap, but its own."""
    async with attack_harness(signed=True) as of:
        attacker = await of.hostile_neighbor()
        far = Broadcast(attacker.peer_id, 1 << 62, 1 << 62, (b"far",))
        attacker.send(attacker.credential(), attacker.signed(far))
        await attacker.until(Want)
        assert of.foreign_messages == []
