"""Hostile members of a signed channel: forgeries, replays, altered copies, other names, and who may only listen."""

from datetime import UTC, datetime, timedelta

import pytest

import weft
from tests.attack.attacker import Attacker
from tests.attack.stage import Stage, eventually, over_sockets, stage
from weft.fabric import ChannelName
from weft.fabric.diameter import ESTIMATE_MAX
from weft.fabric.seal import Role
from weft.security import Authority, Membership, Ticket
from weft.wire import Broadcast
from weft.wire.calls import PortRequest, Refusal, Refuse, Seek
from weft.wire.links import Credential

UINT_MAX = (1 << 32) - 1
REPLAYS = 200


async def forge(of: Stage) -> Attacker:
    """A member says something in another's name, signed by itself."""
    attacker = await of.neighbour()
    author = of.channels[1].peer
    attacker.send(attacker.signed(Broadcast(author, of.said[author] + 10_000, 1, (b"forged",))))
    await attacker.until_closed()
    return attacker


@over_sockets
async def test_a_forged_message_dies_at_its_first_hop() -> None:
    async with stage(signed=True) as of:
        await eventually(lambda: all(of.said.values()))
        attacker = await forge(of)
        assert of.counted("forged") == 1
        assert not of.is_neighbour(attacker)


@over_sockets
async def test_a_message_without_a_signature_is_a_forgery() -> None:
    async with stage(signed=True) as of:
        attacker = await of.neighbour()
        attacker.send(attacker.credential(), Broadcast(attacker.peer, 1, 1, (b"not signed",)))
        await attacker.until_closed()
        assert of.counted("forged") == 1
        assert of.strangers_heard == []


@over_sockets
async def test_a_payload_that_was_altered_on_its_way_is_a_forgery() -> None:
    async with stage(signed=True) as of:
        relay = await of.neighbour()
        author = of.member()
        genuine = Attacker.signed(await of.attack(author), Broadcast(author.peer, 1, 1, (b"genuine",)))
        relay.send(Credential(author.peer, author.seal.credential), genuine._replace(messages=(b"altered",)))
        await relay.until_closed()
        assert of.counted("forged") == 1
        assert of.strangers_heard == []


@over_sockets
async def test_a_message_of_one_run_cannot_be_moved_to_another_place() -> None:
    async with stage(signed=True) as of:
        attacker = await of.neighbour()
        message = attacker.signed(Broadcast(attacker.peer, 1, 1, (b"one",)))
        attacker.send(attacker.credential(), message, message._replace(sequence=2))
        await attacker.until_closed()
        assert of.counted("forged") == 1
        await eventually(lambda: len(of.strangers_heard) == len(of.channels))  # the genuine one


@over_sockets
async def test_replays_are_duplicates() -> None:
    async with stage(signed=True) as of:
        attacker = await of.neighbour()
        honest = await attacker.until(Broadcast)
        before = of.victim.status().counters["duplicates"]
        attacker.send(*[honest] * REPLAYS)
        await eventually(lambda: of.victim.status().counters["duplicates"] >= before + REPLAYS)
        assert of.is_neighbour(attacker)


@over_sockets
async def test_absurd_ways_and_ages() -> None:
    async with stage(signed=True) as of:
        attacker = await of.neighbour()
        mine = attacker.signed(Broadcast(attacker.peer, 1, 1, (b"far",)))
        attacker.send(attacker.credential(), mine._replace(age_ms=UINT_MAX))
        await eventually(lambda: of.victim.status().counters["expired"] == 1)
        assert of.strangers_heard == []
        attacker.send(mine._replace(hops=UINT_MAX))
        await eventually(lambda: len(of.strangers_heard) == len(of.channels))
        assert all(channel.status().diameter <= ESTIMATE_MAX for channel in of.channels)


@over_sockets
async def test_a_call_in_the_name_of_another() -> None:
    async with stage(signed=True) as of:
        attacker = await of.attack(of.member())
        attacker.send(attacker.hello(peer=of.channels[1].peer, signed=True), PortRequest())
        refuse = await attacker.until(Refuse)
        assert refuse.reason is Refusal.IMPOSTOR
        await attacker.until_closed()
        assert of.counted("impostors") == 1


@over_sockets
async def test_a_call_in_the_name_of_another_without_signatures() -> None:
    async with stage() as of:
        attacker = await of.attack(of.member())
        attacker.send(attacker.hello(peer=of.channels[1].peer), Seek(connected=True, depth=0, fellows=()))
        assert (await attacker.until(Refuse)).reason is Refusal.IMPOSTOR
        assert of.counted("impostors") == 1


# -- who may only listen


async def speak_as_a_consumer(of: Stage, owner: Authority) -> Attacker:
    """By hand-made frames: the library itself would not."""
    ticket = owner.issue_ticket("eve", Role.CONSUMER, datetime.now(UTC) + timedelta(days=1))
    attacker = await of.neighbour(Membership.from_ticket(ChannelName.parse(of.name), ticket))
    attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer, 1, 1, (b"I may not",))))
    await attacker.until_closed()
    return attacker


def tickets_of(owner: Authority, count: int = 3) -> list[Ticket]:
    end = datetime.now(UTC) + timedelta(days=1)
    return [owner.issue_ticket(f"member {index}", Role.PRODUCER, end) for index in range(count)]


@over_sockets
async def test_a_consumer_cannot_speak_by_the_library() -> None:
    owner = Authority.new()
    async with stage(tickets=tickets_of(owner)) as of:
        ticket = owner.issue_ticket("eve", Role.CONSUMER, datetime.now(UTC) + timedelta(days=1))
        async with weft.connect(of.name, ticket=ticket) as listener:
            with pytest.raises(weft.NotAllowed, match="consumer"):
                await listener.broadcast(b"I may not")
            assert (await listener.receive(5)).author in of.got  # but it may listen


@over_sockets
async def test_a_consumer_cannot_speak_by_hand_made_frames() -> None:
    owner = Authority.new()
    async with stage(tickets=tickets_of(owner)) as of:
        attacker = await speak_as_a_consumer(of, owner)
        assert of.counted("forbidden") == 1
        assert of.strangers_heard == []
        assert not of.is_neighbour(attacker)
