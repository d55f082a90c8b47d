"""Hostile members of a signed channel: forgeries, replays, altered copies, other names, and who may only listen."""

from datetime import UTC, datetime, timedelta

import pytest

import broadloom
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Role
from broadloom.protocol.membership.control_flood import ESTIMATE_MAX
from broadloom.security import Authority, PeerCredentials, Ticket
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import DiscoverRequest, LinkRequest, Reject, RejectReason
from broadloom.wire.link_messages import Credential
from tests.attack.attacker import Attacker
from tests.attack.harness import AttackHarness, async_test, attack_harness, wait_until

UINT_MAX = (1 << 32) - 1
REPLAYS = 200


async def send_forgery(harness: AttackHarness) -> Attacker:
    """A member says something in another's name, signed by itself."""
    attacker = await harness.hostile_neighbor()
    author = harness.channels[1].peer_id
    attacker.send(attacker.signed(Broadcast(author, harness.sent[author] + 10_000, 1, (b"forged",))))
    await attacker.until_closed()
    return attacker


@async_test
async def test_a_forged_message_dies_at_its_first_hop() -> None:
    async with attack_harness(signed=True) as of:
        await wait_until(lambda: all(of.sent.values()))
        attacker = await send_forgery(of)
        assert of.counter_total("bad_signatures") == 1
        assert not of.is_neighbor(attacker)


@async_test
async def test_a_message_without_a_signature_is_a_forgery() -> None:
    async with attack_harness(signed=True) as of:
        attacker = await of.hostile_neighbor()
        attacker.send(attacker.credential(), Broadcast(attacker.peer_id, 1, 1, (b"not signed",)))
        await attacker.until_closed()
        assert of.counter_total("bad_signatures") == 1
        assert of.foreign_messages == []


@async_test
async def test_a_payload_that_was_altered_on_its_way_is_a_forgery() -> None:
    async with attack_harness(signed=True) as of:
        relay = await of.hostile_neighbor()
        author = of.member_credentials()
        genuine = Attacker.signed(await of.attack(author), Broadcast(author.peer_id, 1, 1, (b"genuine",)))
        relay.send(Credential(author.peer_id, author.signer.credential), genuine._replace(messages=(b"altered",)))
        await relay.until_closed()
        assert of.counter_total("bad_signatures") == 1
        assert of.foreign_messages == []


@async_test
async def test_a_message_of_one_run_cannot_be_moved_to_another_place() -> None:
    async with attack_harness(signed=True) as of:
        attacker = await of.hostile_neighbor()
        message = attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"one",)))
        attacker.send(attacker.credential(), message, message._replace(sequence=2))
        await attacker.until_closed()
        assert of.counter_total("bad_signatures") == 1
        await wait_until(lambda: len(of.foreign_messages) == len(of.channels))  # the genuine one


@async_test
async def test_replays_are_duplicates() -> None:
    async with attack_harness(signed=True) as of:
        attacker = await of.hostile_neighbor()
        honest = await attacker.until(Broadcast)
        before = of.victim.status().counters["duplicates"]
        attacker.send(*[honest] * REPLAYS)
        await wait_until(lambda: of.victim.status().counters["duplicates"] >= before + REPLAYS)
        assert of.is_neighbor(attacker)


@async_test
async def test_absurd_ways_and_ages() -> None:
    async with attack_harness(signed=True) as of:
        attacker = await of.hostile_neighbor()
        mine = attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"far",)))
        attacker.send(attacker.credential(), mine._replace(age_ms=UINT_MAX))
        await wait_until(lambda: of.victim.status().counters["expired_copies"] == 1)
        assert of.foreign_messages == []
        attacker.send(mine._replace(hops=UINT_MAX))
        await wait_until(lambda: len(of.foreign_messages) == len(of.channels))
        assert all(channel.status().diameter_estimate <= ESTIMATE_MAX for channel in of.channels)


@async_test
async def test_a_call_in_the_name_of_another() -> None:
    async with attack_harness(signed=True) as of:
        attacker = await of.attack(of.member_credentials())
        attacker.send(attacker.hello(peer_id=of.channels[1].peer_id, signed=True), LinkRequest())
        refuse = await attacker.until(Reject)
        assert refuse.reason is RejectReason.PEER_ID_MISMATCH
        await attacker.until_closed()
        assert of.counter_total("peer_id_mismatches") == 1


@async_test
async def test_a_call_in_the_name_of_another_without_signatures() -> None:
    async with attack_harness() as of:
        attacker = await of.attack(of.member_credentials())
        attacker.send(
            attacker.hello(peer_id=of.channels[1].peer_id),
            DiscoverRequest(is_connected=True, search_depth=0, seekers=()),
        )
        assert (await attacker.until(Reject)).reason is RejectReason.PEER_ID_MISMATCH
        assert of.counter_total("peer_id_mismatches") == 1


# -- who may only listen


async def broadcast_as_consumer(harness: AttackHarness, owner: Authority) -> Attacker:
    """By hand-made frames: the library itself would not."""
    ticket = owner.issue_ticket("eve", Role.CONSUMER, datetime.now(UTC) + timedelta(days=1))
    attacker = await harness.hostile_neighbor(PeerCredentials.from_ticket(ChannelName.parse(harness.name), ticket))
    attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"I may not",))))
    await attacker.until_closed()
    return attacker


def issue_tickets(owner: Authority, count: int = 3) -> list[Ticket]:
    end = datetime.now(UTC) + timedelta(days=1)
    return [owner.issue_ticket(f"member {index}", Role.PRODUCER, end) for index in range(count)]


@async_test
async def test_a_consumer_cannot_speak_by_the_library() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as of:
        ticket = owner.issue_ticket("eve", Role.CONSUMER, datetime.now(UTC) + timedelta(days=1))
        async with broadloom.connect(of.name, ticket=ticket) as listener:
            with pytest.raises(broadloom.NotPermittedError, match="consumer"):
                await listener.broadcast(b"I may not")
            assert (await listener.receive(5)).author in of.received  # but it may listen


@async_test
async def test_a_consumer_cannot_speak_by_hand_made_frames() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as of:
        attacker = await broadcast_as_consumer(of, owner)
        assert of.counter_total("role_violations") == 1
        assert of.foreign_messages == []
        assert not of.is_neighbor(attacker)
