"""Peers that are rejected: wrong key, other channel, other mode, expired or revoked tickets."""

import asyncio
import ssl
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
    SEND_INTERVAL_S,
    AttackHarness,
    attack_harness,
    issue_tickets,
    unique_name,
)
from tests.support import TIMEOUT_S, eventually

DAY = timedelta(days=1)


async def assert_rejected(
    harness: AttackHarness, text: str, *, at: str = "", name: str = "", **options: object
) -> None:
    """An honest program with the wrong credentials gets a helpful error, long before its own timeout."""
    bootstrap = [at] if at else []
    with pytest.raises(broadloom.RejectedError, match=text):
        async with asyncio.timeout(TIMEOUT_S):
            await broadloom.connect(name or harness.name, bootstrap=bootstrap, timeout_s=10 * TIMEOUT_S, **options)  # type: ignore[call-overload]


async def test_wrong_key_is_rejected() -> None:
    async with attack_harness() as harness:
        await assert_rejected(harness, "another key", key="a guess")
        await assert_rejected(harness, "another key", key="a guess", at=harness.address)
        await assert_rejected(harness, "another key")  # the default key, derived from the name
        await assert_rejected(harness, "another key", key="a guess", signed=True)
        assert harness.counter_total("rejected_wrong_key") >= 4
        # None of them created a second channel on another port.
        assert len(harness.links()) == 3


async def test_peer_of_another_channel_is_rejected() -> None:
    async with attack_harness() as harness:
        await assert_rejected(harness, "another channel", at=harness.address, name=unique_name(), key="of the other")
        await assert_rejected(harness, "another channel", at=harness.address, name=unique_name())
        assert harness.counter_total("rejected_handshakes") >= 2


async def test_peer_of_another_channel_is_rejected_without_tls() -> None:
    async with attack_harness(tls=False) as harness:
        await assert_rejected(harness, "another channel", at=harness.address, name=unique_name(), tls=False)
        assert harness.counter_total("foreign_connections") >= 1


async def test_plain_peer_is_rejected_by_peer_with_tls() -> None:
    async with attack_harness() as harness:
        await assert_rejected(harness, "plain", at=harness.address, tls=False)
        assert harness.counter_total("rejected_handshakes") >= 1


async def test_peer_with_tls_is_rejected_by_plain_peer() -> None:
    async with attack_harness(tls=False) as harness:
        await assert_rejected(harness, "plain", at=harness.address, key="any")
        assert harness.counter_total("malformed_frames") >= 1


async def test_peer_without_tls_does_not_create_a_second_channel() -> None:
    async with attack_harness() as harness:
        await assert_rejected(harness, "is on this channel, but uses plain TCP", tls=False)


async def test_peer_with_tls_does_not_create_a_second_channel_beside_a_plain_one() -> None:
    async with attack_harness(tls=False) as harness:
        await assert_rejected(harness, "is on this channel, but uses plain TCP")
        await assert_rejected(harness, "is on this channel, but uses plain TCP", key="any", signed=True)


async def test_unsigned_peer_is_rejected_by_signed_channel() -> None:
    async with attack_harness(signed=True) as harness:
        await assert_rejected(harness, "signs its messages", at=harness.address, key=harness.options["key"])
        assert harness.counter_total("foreign_connections") >= 1


async def test_unsigned_peer_is_rejected_when_search_finds_signed_channel() -> None:
    """The rejecting peer certainly belongs to this channel, so no second one is created."""
    async with attack_harness(signed=True) as harness:
        await assert_rejected(harness, "signs its messages", key=harness.options["key"])


async def test_signed_peer_is_rejected_by_unsigned_channel() -> None:
    async with attack_harness() as harness:
        await assert_rejected(
            harness, "signs its messages", at=harness.address, key=harness.options["key"], signed=True
        )
        assert harness.counter_total("foreign_connections") >= 1


# -- tickets


def expired_ticket(owner: Authority) -> Ticket:
    """A ticket that expired a minute ago."""
    then = datetime.now(UTC) - DAY
    return owner.issue_ticket("late", Role.PRODUCER, datetime.now(UTC) - timedelta(minutes=1), now=lambda: then)


async def test_expired_ticket_is_rejected_locally() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        await assert_rejected(harness, "expired", ticket=expired_ticket(owner))


def credentials_with_old_clock(harness: AttackHarness, ticket: Ticket) -> PeerCredentials:
    then = datetime.now(UTC) - DAY / 2
    return PeerCredentials.from_ticket(ChannelName.parse(harness.name), ticket, now=lambda: then)


async def connect_with(harness: AttackHarness, credentials: PeerCredentials) -> Attacker | None:
    """Go as far as possible: in TLS 1.3 the handshake of a client ends before the server checks its certificate."""
    try:
        attacker = await harness.attack(credentials)
    except ssl.SSLError:
        return None
    attacker.send(attacker.hello(signed=True), LinkRequest())
    await attacker.until_closed()
    return attacker


async def test_expired_ticket_is_rejected_by_others_when_holder_ignores_expiry() -> None:
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        attacker = await connect_with(harness, credentials_with_old_clock(harness, expired_ticket(owner)))
        assert harness.counter_total("rejected_expired") == 1
        assert attacker is None or not harness.is_neighbor(attacker)


@pytest.mark.parametrize("signed_by", ["owner", "member"])
async def test_expired_ticket_with_prolonged_certificate_is_rejected(signed_by: str) -> None:
    """The peer certificate is made by the member, which can put anything into it, even a prolonged ticket."""
    owner = Authority.generate()
    async with attack_harness(tickets=issue_tickets(owner)) as harness:
        ticket = expired_ticket(owner)
        prolonged = _prolonged(ticket)
        certificate = Ticket(prolonged, ticket.key, ticket.authority).issue_certificate()
        certificate = PeerCertificate(
            certificate.key, (certificate.certificate, ticket.certificate if signed_by == "owner" else prolonged)
        )
        # The library itself rejects such a certificate, so it is used only for the handshake.
        credentials = credentials_with_old_clock(harness, ticket)
        _, credentials.client_context = make_contexts(ticket.authority, certificate, credentials.server_name)
        await connect_with(harness, credentials)
        expected = "rejected_expired" if signed_by == "owner" else "rejected_wrong_key"
        assert harness.counter_total(expected) == 1


def _prolonged(ticket: Ticket) -> Certificate:
    """The same certificate with a later end, signed by the member instead of the owner."""
    original = ticket.certificate
    span = original.not_valid_before_utc, datetime.now(UTC) + DAY
    return build_certificate(
        original.subject, ticket.key.public_key(), original.issuer, ticket.key, span, serial=7, path_length=0
    )


def revoked_ticket(owner: Authority, at: Path) -> tuple[Ticket, Path]:
    """A ticket and the list that revokes it."""
    path = at / "revoked.pem"
    ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + DAY)
    revoke_tickets(owner, path, [ticket.serial])
    return ticket, path


async def test_revoked_ticket_is_rejected(tmp_path: Path) -> None:
    owner = Authority.generate()
    ticket, path = revoked_ticket(owner, tmp_path)
    async with attack_harness(tickets=issue_tickets(owner), revocation_list=path) as harness:
        await assert_rejected(harness, "revoked", ticket=ticket)
        attacker = await connect_with(harness, PeerCredentials.from_ticket(ChannelName.parse(harness.name), ticket))
        assert attacker is not None
        assert (await attacker.until(Reject)).reason is RejectReason.TICKET_REVOKED
        assert harness.counter_total("rejected_revoked") >= 2


async def test_neighbor_is_dropped_when_its_ticket_is_revoked(tmp_path: Path) -> None:
    owner, path = Authority.generate(), tmp_path / "revoked.pem"
    revoke_tickets(owner, path, [])
    check_s = 0.4
    async with attack_harness(
        tickets=issue_tickets(owner),
        revocation_list=path,
        settings=TcpTuning(limits=Limits(credential_check_s=check_s)),
    ) as harness:
        ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + DAY)
        attacker = await harness.hostile_neighbor(PeerCredentials.from_ticket(ChannelName.parse(harness.name), ticket))
        await harness.wait_for_traffic(round(1.2 * check_s / SEND_INTERVAL_S))
        assert harness.is_neighbor(attacker)
        revoke_tickets(owner, path, [ticket.serial])
        await attacker.until_closed()
        assert harness.counter_total("rejected_revoked") >= 1
        await eventually(lambda: not harness.is_neighbor(attacker))


async def test_corrupt_revocation_list_keeps_revoked_tickets_rejected(tmp_path: Path) -> None:
    owner = Authority.generate()
    ticket, path = revoked_ticket(owner, tmp_path)
    async with attack_harness(
        tickets=issue_tickets(owner), revocation_list=path, settings=TcpTuning(limits=Limits(credential_check_s=0.1))
    ) as harness:
        path.write_bytes(b"garbage")
        await eventually(lambda: harness.victim._node._revocation_list_failed)
        await assert_rejected(harness, "revoked", ticket=ticket)
