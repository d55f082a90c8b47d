"""Members of a channel with a shared key: all know the key, so none can have a verified name."""

from datetime import UTC, datetime, timedelta

import pytest

import broadloom
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Role
from broadloom.security import Authority, PeerCredentials
from broadloom.security.keys import derive_authority_seed
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.link_messages import Credential
from tests.attack.attacker import Attacker
from tests.attack.harness import KEY, AttackHarness, attack_harness, issue_tickets
from tests.support import eventually


def minted_credentials(harness: AttackHarness) -> PeerCredentials:
    """Every member can derive the authority's key, and sign a ticket with any name."""
    channel = ChannelName.parse(harness.name)
    authority = Authority.from_seed(derive_authority_seed(KEY, channel.id), channel.id)
    ticket = authority.issue_ticket("the owner", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1))
    return PeerCredentials.from_ticket(channel, ticket)


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
async def test_minted_ticket_is_rejected_in_the_handshake(signed: bool) -> None:
    async with attack_harness(signed=signed) as harness:
        attacker = await harness.attack(minted_credentials(harness))
        attacker.send(attacker.hello(signed=signed), LinkRequest())
        await attacker.until_closed()
        assert harness.counter_total("rejected_wrong_key") == 1
        assert not harness.is_neighbor(attacker)


async def test_minted_ticket_does_not_name_an_author() -> None:
    async with attack_harness(signed=True) as harness:
        relay = await harness.hostile_neighbor()
        minted = minted_credentials(harness)
        message = Attacker.signed(await harness.attack(minted), Broadcast(minted.peer_id, 1, 1, (b"I own this",)))
        relay.send(Credential(minted.peer_id, minted.signer.credential), message)
        await eventually(lambda: harness.victim.status().counters["bad_credentials"] >= 1)
        assert harness.victim.identity(minted.peer_id) is None
        assert harness.foreign_messages == []


async def test_equivocating_author_is_reported_by_every_member() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        reported: dict[int, broadloom.AuthorWarning] = {}
        for channel in harness.channels:

            def on_event(event: object, peer: int = channel.peer_id) -> None:
                if isinstance(event, broadloom.AuthorWarning):
                    reported[peer] = event

            channel.on_event(on_event)
        channel_name = ChannelName.parse(harness.name)
        credentials = PeerCredentials.from_ticket(channel_name, issue_tickets(owner, 1)[0])
        first = await harness.hostile_neighbor(credentials)
        second = await Attacker.dial(harness.channels[1].status().address, credentials, channel_id=harness.channel_id)
        harness.attackers.append(second)
        await second.become_neighbor(signed=True)
        for attacker, text in ((first, b"yes"), (second, b"no")):
            attacker.send(attacker.credential(), attacker.signed(Broadcast(attacker.peer_id, 1, 1, (text,))))
        await eventually(lambda: len(reported) == len(harness.channels), lambda: str(reported))
        assert {event.reason for event in reported.values()} == {broadloom.AuthorWarningReason.EQUIVOCATION}
        assert {event.author for event in reported.values()} == {credentials.peer_id}
        assert len(harness.foreign_messages) == len(harness.channels)  # each member has one of the two
