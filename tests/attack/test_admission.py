"""Who is not let in: wrong key, other channel, other mode, tickets that are expired or withdrawn."""

import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509 import Certificate

import broadloom
from broadloom.protocol import ChannelName
from broadloom.protocol.identity import Role
from broadloom.security import Authority, PeerCredentials, Ticket, revoke_tickets
from broadloom.security.certificates import PeerCertificate, build_certificate
from broadloom.security.tls_context import make_contexts
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.wire.exchange_messages import LinkRequest, Reject, RejectReason
from tests.attack.attacker import Attacker
from tests.attack.harness import (
    DEADLINE_S,
    SEND_INTERVAL_S,
    AttackHarness,
    async_test,
    attack_harness,
    unique_name,
    wait_until,
)
from tests.attack.test_members import issue_tickets

QUICK_S = 3.0
DAY = timedelta(days=1)


async def assert_rejected(
    harness: AttackHarness, text: str, *, at: str = "", name: str = "", **options: object
) -> None:
    """An honest program with the wrong papers: told soon, and in words that help."""
    began = time.monotonic()
    bootstrap = [at] if at else []
    with pytest.raises(broadloom.RejectedError, match=text):
        await broadloom.connect(name or harness.name, bootstrap=bootstrap, timeout_s=DEADLINE_S, **options)  # type: ignore[arg-type]
    assert time.monotonic() - began < QUICK_S


@async_test
async def test_a_wrong_key() -> None:
    async with attack_harness() as of:
        await assert_rejected(of, "another key", key="a guess")
        await assert_rejected(of, "another key", key="a guess", at=of.address)
        await assert_rejected(of, "another key")  # none: the one that is derived from the name
        await assert_rejected(of, "another key", key="a guess", signed=True)
        assert of.counter_total("rejected_wrong_key") >= 4
        # Not even one by itself, on another port of the channel's order.
        assert len(of.links()) == 3


@async_test
async def test_another_channel_at_the_same_port() -> None:
    async with attack_harness() as of:
        await assert_rejected(of, "another channel", at=of.address, name=unique_name(), key="of the other")
        await assert_rejected(of, "another channel", at=of.address, name=unique_name())
        assert of.counter_total("rejected_handshakes") >= 2


@async_test
async def test_another_channel_at_a_plain_port() -> None:
    async with attack_harness(tls=False) as of:
        await assert_rejected(of, "another channel", at=of.address, name=unique_name(), tls=False)
        assert of.counter_total("foreign_connections") >= 1


@async_test
async def test_plain_at_a_peer_with_tls() -> None:
    async with attack_harness() as of:
        await assert_rejected(of, "plain", at=of.address, tls=False)
        assert of.counter_total("rejected_handshakes") >= 1


@async_test
async def test_tls_at_a_plain_peer() -> None:
    async with attack_harness(tls=False) as of:
        await assert_rejected(of, "plain", at=of.address, key="any")
        assert of.counter_total("malformed_frames") >= 1


@async_test
async def test_unsigned_at_a_signed_channel() -> None:
    async with attack_harness(signed=True) as of:
        await assert_rejected(of, "signs its messages", at=of.address, key=of.options["key"])
        assert of.counter_total("foreign_connections") >= 1


@async_test
async def test_unsigned_at_a_signed_channel_that_is_found_by_search() -> None:
    """Whoever says so is of this channel for certain: to found a second one would be in nobody's interest."""
    async with attack_harness(signed=True) as of:
        await assert_rejected(of, "signs its messages", key=of.options["key"])


@async_test
async def test_signed_at_an_unsigned_channel() -> None:
    async with attack_harness() as of:
        await assert_rejected(of, "signs its messages", at=of.address, key=of.options["key"], signed=True)
        assert of.counter_total("foreign_connections") >= 1


# -- tickets


def expired_ticket(owner: Authority) -> Ticket:
    """It ended a minute ago."""
    then = datetime.now(UTC) - DAY
    return owner.issue_ticket("late", Role.PRODUCER, datetime.now(UTC) - timedelta(minutes=1), now=lambda: then)


@async_test
async def test_an_expired_ticket_is_of_no_use_to_its_holder() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as of:
        await assert_rejected(of, "expired", ticket=expired_ticket(owner))


def credentials_with_old_clock(harness: AttackHarness, ticket: Ticket) -> PeerCredentials:
    then = datetime.now(UTC) - DAY / 2
    return PeerCredentials.from_ticket(ChannelName.parse(harness.name), ticket, now=lambda: then)


async def connect_with(harness: AttackHarness, credentials: PeerCredentials) -> Attacker | None:
    """As far as it gets. (In TLS 1.3 a caller's handshake ends before the other side has looked at its certificate.)"""
    try:
        attacker = await harness.attack(credentials)
    except ssl.SSLError:
        return None
    attacker.send(attacker.hello(signed=True), LinkRequest())
    await attacker.until_closed()
    return attacker


@async_test
async def test_an_expired_ticket_in_the_hands_of_one_who_ignores_that() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as of:
        attacker = await connect_with(of, credentials_with_old_clock(of, expired_ticket(owner)))
        assert of.counter_total("rejected_expired") == 1
        assert attacker is None or not of.is_neighbor(attacker)


@pytest.mark.parametrize("shown", ["the owner's", "the member's own"])
@async_test
async def test_an_expired_ticket_with_a_leaf_that_is_not(shown: str) -> None:
    """The leaf is made by the member, who may write into it what it likes, even a ticket with another end."""
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as of:
        ticket = expired_ticket(owner)
        prolonged = _prolonged(ticket)
        leaf = Ticket(prolonged, ticket.key, ticket.authority).issue_certificate()
        leaf = PeerCertificate(
            leaf.key, (leaf.certificate, ticket.certificate if shown == "the owner's" else prolonged)
        )
        # Its own library would not take such a leaf, so only the handshake is done with it.
        membership = credentials_with_old_clock(of, ticket)
        _, membership.client_context = make_contexts(ticket.authority, leaf, membership.server_name)
        await connect_with(of, membership)
        expected = "rejected_expired" if shown == "the owner's" else "rejected_wrong_key"
        assert of.counter_total(expected) == 1


def _prolonged(ticket: Ticket) -> Certificate:
    """The same certificate with another end, signed by the member itself instead of the owner."""
    was = ticket.certificate
    span = was.not_valid_before_utc, datetime.now(UTC) + DAY
    return build_certificate(
        was.subject, ticket.key.public_key(), was.issuer, ticket.key, span, serial=7, path_length=0
    )


def revoked_ticket(owner: Authority, at: Path) -> tuple[Ticket, Path]:
    """A ticket, and the list on which it stands."""
    path = at / "withdrawn.pem"
    ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + DAY)
    revoke_tickets(owner, path, [ticket.serial])
    return ticket, path


@async_test
async def test_a_withdrawn_ticket(tmp_path: Path) -> None:
    owner = Authority.generate()
    ticket, path = revoked_ticket(owner, tmp_path)
    async with attack_harness(tickets=issue_tickets(owner), revocation_list=path) as of:
        await assert_rejected(of, "revoked", ticket=ticket)
        attacker = await connect_with(of, PeerCredentials.from_ticket(ChannelName.parse(of.name), ticket))
        assert attacker is not None
        assert (await attacker.until(Reject)).reason is RejectReason.TICKET_REVOKED
        assert of.counter_total("rejected_revoked") >= 2


@async_test
async def test_a_ticket_that_is_withdrawn_while_its_holder_is_a_neighbour(tmp_path: Path) -> None:
    owner, path = Authority.generate(), tmp_path / "withdrawn.pem"
    revoke_tickets(owner, path, [])
    admission_s = 0.4
    async with attack_harness(
        tickets=issue_tickets(owner),
        revocation_list=path,
        settings=TcpTuning(limits=Limits(credential_check_s=admission_s)),
    ) as of:
        ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + DAY)
        attacker = await of.hostile_neighbor(PeerCredentials.from_ticket(ChannelName.parse(of.name), ticket))
        await of.wait_for_traffic(round(1.2 * admission_s / SEND_INTERVAL_S))
        assert of.is_neighbor(attacker)
        revoke_tickets(owner, path, [ticket.serial])
        await attacker.until_closed(admission_s + 0.5)
        assert of.counter_total("rejected_revoked") >= 1
        await wait_until(lambda: not of.is_neighbor(attacker))


@async_test
async def test_a_list_that_became_garbage_lets_nobody_in_again(tmp_path: Path) -> None:
    owner = Authority.generate()
    ticket, path = revoked_ticket(owner, tmp_path)
    async with attack_harness(
        tickets=issue_tickets(owner), revocation_list=path, settings=TcpTuning(limits=Limits(credential_check_s=0.1))
    ) as of:
        path.write_bytes(b"garbage")
        await wait_until(lambda: of.victim._node._revocation_list_failed)
        await assert_rejected(of, "revoked", ticket=ticket)
