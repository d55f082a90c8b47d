"""Hostile members of a signed channel: forgeries, replays, altered copies, foreign ids, sending consumers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

import broadloom
from broadloom.protocol import ChannelName
from broadloom.protocol.broadcast import signing
from broadloom.protocol.identity import Role
from broadloom.protocol.membership.control_flood import ESTIMATE_MAX
from broadloom.security import Authority, PeerCredentials, Ticket
from broadloom.security.certificates import PeerCertificate, build_certificate, x509_name
from broadloom.security.keys import derive_authority_seed
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import DiscoverRequest, LinkRequest, Reject, RejectReason
from broadloom.wire.link_messages import Credential
from tests.attack.attacker import Attacker
from tests.attack.harness import KEY, AttackHarness, attack_harness, issue_ticket, issue_tickets, signed_modes
from tests.support import eventually

DAY = timedelta(days=1)
NEVER_S = 1e9
UINT_MAX = (1 << 32) - 1
REPLAYS = 200


async def send_forgery(harness: AttackHarness) -> Attacker:
    """A member sends a message of another author, signed by itself."""
    attacker = await harness.hostile_neighbor()
    author = harness.channels[1].peer_id
    attacker.send(attacker.signed(Broadcast(author, harness.sent[author] + 10_000, 1, (b"forged",))))
    await attacker.until_closed()
    return attacker


@signed_modes
async def test_forged_message_is_dropped_at_first_hop(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        await eventually(lambda: all(harness.sent.values()))
        attacker = await send_forgery(harness)
        assert harness.counter_total("bad_signatures") == 1
        assert not harness.is_neighbor(attacker)


@signed_modes
async def test_unsigned_message_is_dropped(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        attacker.send(attacker.credential(), Broadcast(attacker.peer_id, 1, 1, (b"not signed",)))
        await attacker.until_closed()
        assert harness.counter_total("bad_signatures") == 1
        assert harness.foreign_messages == []


@signed_modes
async def test_altered_payload_is_dropped(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        relay = await harness.hostile_neighbor()
        author = harness.member_credentials()
        genuine = Attacker.signed(await harness.attack(author), Broadcast(author.peer_id, 1, 1, (b"genuine",)))
        relay.send(Credential(author.peer_id, author.signer.credential), genuine._replace(messages=(b"altered",)))
        await relay.until_closed()
        assert harness.counter_total("bad_signatures") == 1
        assert harness.foreign_messages == []


@signed_modes
async def test_message_with_changed_sequence_is_dropped(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        message = attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"one",)))
        attacker.send(attacker.credential(), message, message._replace(sequence=2))
        await attacker.until_closed()
        assert harness.counter_total("bad_signatures") == 1
        await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))  # the genuine one


@signed_modes
async def test_replayed_messages_count_as_duplicates(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        honest = await attacker.until(Broadcast)
        before = harness.victim.status().counters["duplicates"]
        attacker.send(*[honest] * REPLAYS)
        await eventually(lambda: harness.victim.status().counters["duplicates"] >= before + REPLAYS)
        assert harness.is_neighbor(attacker)


@signed_modes
async def test_implausible_hops_and_age_are_bounded(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.hostile_neighbor()
        old = attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"old",)))
        attacker.send(attacker.credential(), old._replace(age_ms=UINT_MAX))
        await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))
        far = attacker.signed(Broadcast(attacker.peer_id, 2, 1, (b"far",)))
        attacker.send(far._replace(hops=UINT_MAX))
        await eventually(lambda: len(harness.foreign_messages) == 2 * len(harness.channels))
        assert all(channel.status().diameter_estimate <= ESTIMATE_MAX for channel in harness.channels)


@signed_modes
async def test_exchange_with_foreign_peer_id_is_rejected(mode: dict[str, Any]) -> None:
    async with attack_harness(**mode) as harness:
        attacker = await harness.attack(harness.member_credentials())
        attacker.send(attacker.hello(peer_id=harness.channels[1].peer_id, signed=True), LinkRequest())
        reject = await attacker.until(Reject)
        assert reject.reason is RejectReason.PEER_ID_MISMATCH
        await attacker.until_closed()
        assert harness.counter_total("peer_id_mismatches") == 1


async def test_exchange_with_foreign_peer_id_is_rejected_without_signatures() -> None:
    async with attack_harness() as harness:
        attacker = await harness.attack(harness.member_credentials())
        attacker.send(
            attacker.hello(peer_id=harness.channels[1].peer_id),
            DiscoverRequest(is_connected=True, search_depth=0, seekers=()),
        )
        assert (await attacker.until(Reject)).reason is RejectReason.PEER_ID_MISMATCH
        assert harness.counter_total("peer_id_mismatches") == 1


# -- consumers


async def broadcast_as_consumer(harness: AttackHarness, owner: Authority) -> Attacker:
    """With hand-made frames, because the library refuses."""
    ticket = issue_ticket(owner, "eve", Role.CONSUMER)
    attacker = await harness.hostile_neighbor(PeerCredentials.from_ticket(ChannelName.parse(harness.name), ticket))
    attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer_id, 1, 1, (b"I may not",))))
    await attacker.until_closed()
    return attacker


async def test_consumer_broadcast_raises_not_permitted_error() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        ticket = issue_ticket(owner, "eve", Role.CONSUMER)
        async with broadloom.connect(harness.name, ticket=ticket) as consumer:
            for _ in range(2):  # the first attempt grants nothing to the second
                with pytest.raises(broadloom.NotPermittedError, match="consumer"):
                    await consumer.broadcast(b"I may not")
            with pytest.raises(broadloom.NotPermittedError, match="consumer"):
                consumer.broadcast_nowait(b"I may not")
            assert (await consumer.receive(5)).author in harness.received  # but it may receive


async def test_hand_made_frames_of_a_consumer_are_dropped() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        attacker = await broadcast_as_consumer(harness, owner)
        assert harness.counter_total("role_violations") == 1
        assert harness.foreign_messages == []
        assert not harness.is_neighbor(attacker)


# -- hand-made certificates


def certify(harness: AttackHarness, key: Ed25519PublicKey, ticket: Ticket | None, end: datetime) -> x509.Certificate:
    """A certificate for any session key, signed with this ticket; without one, with the shared key."""
    if ticket is not None:
        issuer, issuer_key = ticket.certificate, ticket.key
    else:
        authority = Authority.from_seed(derive_authority_seed(KEY, harness.channel_id), harness.channel_id)
        issuer, issuer_key = authority.certificate, authority.private_key()
    embedded = issuer if ticket is not None else None
    return build_certificate(
        x509_name("eve"), key, issuer.subject, issuer_key, (end - DAY, end), serial=7, ticket=embedded
    )


@signed_modes
async def test_expired_certificate_that_a_member_made_for_an_author_does_not_mute_it(
    mode: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "REJECTED_AUTHOR_S", NEVER_S)
    async with (
        attack_harness(2, **mode) as harness,
        broadloom.connect(harness.name, **harness.newcomer_options()) as author,
    ):
        credentials = author._node.credentials
        assert credentials is not None
        key = x509.load_der_x509_certificate(credentials.signer.credential).public_key()
        assert isinstance(key, Ed25519PublicKey)
        expired = certify(harness, key, harness.hostile_ticket, datetime.now(UTC) - DAY)
        attacker = await harness.hostile_neighbor()
        attacker.send(Credential(author.peer_id, expired.public_bytes(Encoding.DER)))
        verifier = harness.victim._node.peer.broadcaster.verifier
        assert verifier is not None
        await eventually(
            lambda: (
                verifier.can_send_credential(author.peer_id) or harness.victim.status().counters["bad_credentials"] == 1
            )
        )
        await author.broadcast(b"hello")
        await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))


def credentials_for(harness: AttackHarness, key: Ed25519PrivateKey, ticket: Ticket, end: datetime) -> PeerCredentials:
    certificate = certify(harness, key.public_key(), ticket, end)
    peer_certificate = PeerCertificate(key, (certificate, ticket.certificate))
    return PeerCredentials(ChannelName.parse(harness.name), ticket.authority, peer_certificate)


async def hostile_neighbors(harness: AttackHarness, *credentials: PeerCredentials) -> list[Attacker]:
    """One connection to each honest member."""
    attackers = []
    for channel, each in zip(harness.channels, credentials, strict=True):
        attacker = await Attacker.dial(channel.status().address, each, channel_id=harness.channel_id)
        harness.attackers.append(attacker)
        await attacker.become_neighbor(signed=True)
        attackers.append(attacker)
    return attackers


async def test_session_key_with_two_tickets_breaks_no_honest_link() -> None:
    """One member is shown the ticket of a producer, the other one that of a consumer."""
    async with attack_harness(2, has_tickets=True) as harness:
        assert harness.owner is not None
        key, end = Ed25519PrivateKey.generate(), datetime.now(UTC) + DAY / 2
        tickets = issue_ticket(harness.owner, "eve"), issue_ticket(harness.owner, "mallory", Role.CONSUMER)
        producer, consumer = await hostile_neighbors(
            harness, *(credentials_for(harness, key, each, end) for each in tickets)
        )
        other = harness.channels[1]
        consumer.send(Credential(producer.peer_id, consumer.credential().credential))
        await eventually(lambda: other.status().counters["bad_credentials"] or other.identity(producer.peer_id))
        producer.send(producer.credential(), producer.signed(Broadcast(producer.peer_id, 1, 1, (b"as a producer",))))
        await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))
        for channel in harness.channels:
            identity = channel.identity(producer.peer_id)
            assert identity is not None
            assert (identity.name, identity.role) == ("eve", Role.PRODUCER)
        consumer.send(consumer.credential(), consumer.signed(Broadcast(consumer.peer_id, 1, 1, (b"as a consumer",))))
        await consumer.until_closed()
        await harness.wait_for_traffic(10)
        assert harness.counter_total("role_violations") == 1  # at the neighbor of the consumer, which relays nothing
        assert harness.counter_total("bad_signatures") == 0
        assert [each.data for each in harness.foreign_messages] == [b"as a producer"] * len(harness.channels)
        assert harness.is_neighbor(producer)


async def test_session_key_with_two_certificates_breaks_no_honest_link() -> None:
    """Each member is shown another certificate of one ticket, under one peer id. They relay to each other what its key
    has signed."""
    async with attack_harness(2, has_tickets=True) as harness:
        assert harness.owner is not None
        key, ticket = Ed25519PrivateKey.generate(), issue_ticket(harness.owner, "eve")
        ends = [datetime.now(UTC) + DAY / 2, datetime.now(UTC) + DAY / 3]
        credentials = [credentials_for(harness, key, ticket, each) for each in ends]
        attackers = await hostile_neighbors(harness, *credentials)
        first, second = attackers
        assert first.peer_id == second.peer_id
        assert first.credential() != second.credential()
        for attacker in attackers:
            attacker.send(attacker.credential())
        first.send(first.signed(Broadcast(first.peer_id, 1, 1, (b"one",))))
        await eventually(lambda: len(harness.foreign_messages) == len(harness.channels))
        second.send(second.signed(Broadcast(second.peer_id, 2, 1, (b"two",))))
        await eventually(lambda: len(harness.foreign_messages) == 2 * len(harness.channels))
        await harness.wait_for_traffic(10)
        assert harness.counter_total("bad_signatures") == harness.counter_total("bad_credentials") == 0
        assert {channel.identity(first.peer_id) for channel in harness.channels} == {credentials[0].identity}
        assert all(harness.is_neighbor(first, channel) for channel in harness.channels)
