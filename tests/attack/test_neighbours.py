"""Hostile neighbours: they do not read, ask without end, make up peers and places, or want to close the channel."""

import asyncio
from typing import Any

from tests.attack.attacker import Attacker
from tests.attack.stage import Stage, both_modes, eventually, over_sockets, stage
from weft import Limits, Settings, State
from weft.channel.large import PART_BYTES
from weft.fabric import ChannelName
from weft.net.line import TRANSPORT_HIGH_BYTES
from weft.security import Membership
from weft.wire import Address, Broadcast, Contact
from weft.wire.calls import PortAnswer, PortRequest, Refuse
from weft.wire.links import Credential, Cut, DiameterEstimate, Greeting, Known, Leave, PortSearch, Shutdown, Walk, Want
from weft.wire.types import Have

SMALL = Limits(queue_bytes_max=1 << 20, congested_bytes=128 << 10, stall_s=0.3)
MADE_UP = 150
WANTS = 3000
HOSTS = ("", "a..b", "a" * 255, "ü" * 100, "127.0.0.1", "::1", ".", "%", "[", "127.0.0.1:80", "\n", "\x7f", "0")


async def does_not_read(of: Stage) -> Attacker:
    """A neighbour takes nothing from its line any more, while the victim says much."""
    attacker = await of.neighbour()
    attacker.pause_reading()
    for _ in range(240):
        of.said[of.victim.peer] = await of.victim.broadcast(bytes(PART_BYTES))
    return attacker


@both_modes
@over_sockets
async def test_a_neighbour_that_never_reads(mode: dict[str, Any]) -> None:
    async with stage(limits=SMALL, **mode) as of:
        attacker = await does_not_read(of)
        await eventually(lambda: of.counted("choked") == 1)
        assert not of.is_neighbour(attacker)


@over_sockets
async def test_credentials_of_made_up_peers() -> None:
    """With a shared key anybody may make peers up; but nobody has to remember more of them than the limit."""
    settings = Settings(authors_max=MADE_UP // 3)
    async with stage(signed=True, settings=settings) as of:
        attacker = await of.neighbour()
        channel = ChannelName.parse(of.name)
        for number in range(MADE_UP):
            made_up = Membership.from_key(channel, of.options["key"])
            attacker.send(Credential(made_up.peer, made_up.seal.credential))
            attacker.send(Credential(number, made_up.seal.credential), Credential(number, b"nothing at all"))
            if number % 20 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: of.counted("unproven") == 2 * MADE_UP)
        signing = of.victim._node.peer.stream.signing
        assert signing is not None
        assert len(signing._known) <= settings.authors_max


@over_sockets
async def test_questions_without_end() -> None:
    async with stage(signed=True) as of:
        await eventually(lambda: min(of.said.values()) > 20)
        attacker = await of.neighbour()
        wants = [Want(of.channels[index % 3].peer, 1, 4096) for index in range(WANTS)]
        attacker.send(*wants)
        await eventually(lambda: attacker.read_bytes > 1 << 20 or attacker.is_closed)
        assert of.lag_s < 2


@over_sockets
async def test_questions_of_one_who_does_not_read_the_answers() -> None:
    async with stage(limits=SMALL) as of:
        for _ in range(13):
            of.said[of.victim.peer] = await of.victim.broadcast(bytes(PART_BYTES))
        attacker = await of.neighbour()
        attacker.pause_reading()
        attacker.send(*[Want(of.victim.peer, 1, 4096)] * WANTS)
        most = 0

        def is_given_up() -> bool:
            nonlocal most
            queued = [
                each.queued_bytes for each in of.victim.status().neighbours if each.peer == f"{attacker.peer:016x}"
            ]
            most = max(most, *queued, 0)
            if queued:
                attacker.send(*[Want(of.victim.peer, 1, 4096)] * 10)  # answered as long as the kernel takes the answers
            return of.counted("choked") == 1

        await eventually(is_given_up)
        assert not of.is_neighbour(attacker)
        assert most <= SMALL.congested_bytes + TRANSPORT_HIGH_BYTES + 4 * PART_BYTES


@over_sockets
async def test_a_shutdown_that_is_not_obeyed() -> None:
    async with stage(signed=True, settings=Settings(obey_shutdown=False)) as of:
        attacker = await of.neighbour()
        attacker.send(Shutdown(attacker.peer, 1, 1), DiameterEstimate(attacker.peer, 2, 1, 5))
        await eventually(lambda: all(channel.status().diameter >= 5 for channel in of.channels))  # all had heard it
        assert all(channel.is_connected for channel in of.channels)


@over_sockets
async def test_nobody_can_be_told_absurd_numbers() -> None:
    async with stage(signed=True) as of:
        attacker = await of.neighbour()
        honest = of.channels[1].peer
        attacker.send(
            Known((Have(honest, 1, (1 << 64) - 1, 0), Have(honest, 0, 0, (1 << 64) - 1))),
            DiameterEstimate(attacker.peer, 1, 1, (1 << 32) - 1),
        )
        await eventually(lambda: of.counted("hearsay_refused") >= 1)


async def cut_to(of: Stage, index: int, place: Contact) -> None:
    """A neighbour that sends the victim to such a place. While the victim calls others it may have no room for one."""
    for _ in range(20):
        other = await of.attack(None if of.options.get("plain") else of.member())
        other.peer += index if of.options.get("plain") else 0
        other.send(other.hello(signed=not of.options.get("plain")), PortRequest())
        if isinstance(await other.until((PortAnswer, Refuse)), PortAnswer):
            other.send(Greeting(False, False, (), ()), Cut(call=place, expect=None))
            await other.until_closed()
            return
        await asyncio.sleep(0.05)


@both_modes
@over_sockets
async def test_contacts_that_are_nowhere(mode: dict[str, Any]) -> None:
    """They get into caches, are passed on, and are dialled; all that may come of it is that nobody answers."""
    places = [Contact(1000 + index, Address(host, port)) for index, host in enumerate(HOSTS) for port in (0, 1)]
    eager = Settings(probe_s=0.1, probe_alarmed_s=0.1, repair_wait_s=0.05, repair_alarmed_s=0.1, tick_s=0.05)
    async with stage(settings=eager, **mode) as of:
        attacker = await of.neighbour(greeting=Greeting(False, True, (), tuple(places)))
        for index, place in enumerate(places):
            attacker.send(Walk(index, place, None, (), (), True, 3, 3), Walk(index, place, place, (), (), False, 0, 0))
            attacker.send(PortSearch(place.peer, 1, 1, place))
        await of.talk_goes_on(25)
        attacker.send(Leave((places[0], Contact(of.victim.peer, Address("127.0.0.1", 1)), *places[1:])))
        for index in range(8):
            await cut_to(of, index, places[index])
        await of.talk_goes_on(15)
        assert of.victim._node.peer.state is State.CONNECTED


@over_sockets
async def test_a_message_that_an_author_could_not_have_numbered() -> None:
    """Signed by its author, who skipped 2^62 numbers: an absurd gap, but its own."""
    async with stage(signed=True) as of:
        attacker = await of.neighbour()
        far = Broadcast(attacker.peer, 1 << 62, 1 << 62, (b"far",))
        attacker.send(attacker.credential(), attacker.signed(far))
        await attacker.until(Want)
        assert of.strangers_heard == []
