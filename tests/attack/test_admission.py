"""Who is not let in: wrong key, other channel, other mode, tickets that are expired or withdrawn."""

import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509 import Certificate

import weft
from tests.attack.attacker import Attacker
from tests.attack.stage import DEADLINE_S, TALK_S, Stage, eventually, over_sockets, stage, unique_name
from tests.attack.test_members import tickets_of
from weft.fabric import ChannelName
from weft.fabric.seal import Role
from weft.security import Authority, Membership, Ticket, revoke
from weft.security.certificates import certify
from weft.security.leaf import Leaf
from weft.security.tls import make_contexts
from weft.wire.calls import PortRequest, Refusal, Refuse

QUICK_S = 3.0
DAY = timedelta(days=1)


async def refused(of: Stage, text: str, *, at: str = "", name: str = "", **options: object) -> None:
    """An honest program with the wrong papers: told soon, and in words that help."""
    began = time.monotonic()
    portals = [at] if at else []
    with pytest.raises(weft.NotAdmitted, match=text):
        await weft.connect(name or of.name, portals=portals, timeout_s=DEADLINE_S, **options)  # type: ignore[arg-type]
    assert time.monotonic() - began < QUICK_S


@over_sockets
async def test_a_wrong_key() -> None:
    async with stage() as of:
        await refused(of, "another key", key="a guess")
        await refused(of, "another key", key="a guess", at=of.address)
        await refused(of, "another key")  # none: the one that is derived from the name
        await refused(of, "another key", key="a guess", signed=True)
        assert of.counted("refused_wrong_key") >= 4
        # Not even one by itself, on another port of the channel's order.
        assert len(of.links()) == 3


@over_sockets
async def test_another_channel_at_the_same_port() -> None:
    async with stage() as of:
        await refused(of, "another channel", at=of.address, name=unique_name(), key="of the other")
        await refused(of, "another channel", at=of.address, name=unique_name())
        assert of.counted("refused_handshakes") >= 2


@over_sockets
async def test_another_channel_at_a_plain_port() -> None:
    async with stage(plain=True) as of:
        await refused(of, "another channel", at=of.address, name=unique_name(), plain=True)
        assert of.counted("strangers") >= 1


@over_sockets
async def test_plain_at_a_peer_with_tls() -> None:
    async with stage() as of:
        await refused(of, "plain", at=of.address, plain=True)
        assert of.counted("refused_handshakes") >= 1


@over_sockets
async def test_tls_at_a_plain_peer() -> None:
    async with stage(plain=True) as of:
        await refused(of, "plain", at=of.address, key="any")
        assert of.counted("malformed") >= 1


@over_sockets
async def test_unsigned_at_a_signed_channel() -> None:
    async with stage(signed=True) as of:
        await refused(of, "signs its messages", at=of.address, key=of.options["key"])
        assert of.counted("strangers") >= 1


@over_sockets
async def test_unsigned_at_a_signed_channel_that_is_found_by_search() -> None:
    """Whoever says so is of this channel for certain: to found a second one would be in nobody's interest."""
    async with stage(signed=True) as of:
        await refused(of, "signs its messages", key=of.options["key"])


@over_sockets
async def test_signed_at_an_unsigned_channel() -> None:
    async with stage() as of:
        await refused(of, "signs its messages", at=of.address, key=of.options["key"], signed=True)
        assert of.counted("strangers") >= 1


# -- tickets


def short_lived(owner: Authority) -> Ticket:
    """It ended a minute ago."""
    then = datetime.now(UTC) - DAY
    return owner.issue_ticket("late", Role.PRODUCER, datetime.now(UTC) - timedelta(minutes=1), now=lambda: then)


@over_sockets
async def test_an_expired_ticket_is_of_no_use_to_its_holder() -> None:
    owner = Authority.new()
    async with stage(tickets=tickets_of(owner)) as of:
        await refused(of, "expired", ticket=short_lived(owner))


def ignores_the_clock(of: Stage, ticket: Ticket) -> Membership:
    then = datetime.now(UTC) - DAY / 2
    return Membership.from_ticket(ChannelName.parse(of.name), ticket, now=lambda: then)


async def calls_with(of: Stage, membership: Membership) -> Attacker | None:
    """As far as it gets. (In TLS 1.3 a caller's handshake ends before the other side has looked at its certificate.)"""
    try:
        attacker = await of.attack(membership)
    except ssl.SSLError:
        return None
    attacker.send(attacker.hello(signed=True), PortRequest())
    await attacker.until_closed()
    return attacker


@over_sockets
async def test_an_expired_ticket_in_the_hands_of_one_who_ignores_that() -> None:
    owner = Authority.new()
    async with stage(tickets=tickets_of(owner)) as of:
        attacker = await calls_with(of, ignores_the_clock(of, short_lived(owner)))
        assert of.counted("refused_expired") == 1
        assert attacker is None or not of.is_neighbour(attacker)


@pytest.mark.parametrize("shown", ["the owner's", "the member's own"])
@over_sockets
async def test_an_expired_ticket_with_a_leaf_that_is_not(shown: str) -> None:
    """The leaf is made by the member, who may write into it what it likes, even a ticket with another end."""
    owner = Authority.new()
    async with stage(tickets=tickets_of(owner)) as of:
        ticket = short_lived(owner)
        prolonged = _prolonged(ticket)
        leaf = Ticket(prolonged, ticket.key, ticket.authority).issue_leaf()
        leaf = Leaf(leaf.key, (leaf.certificate, ticket.certificate if shown == "the owner's" else prolonged))
        # Its own library would not take such a leaf, so only the handshake is done with it.
        membership = ignores_the_clock(of, ticket)
        _, membership.client_context = make_contexts(ticket.authority, leaf, membership.server_name)
        await calls_with(of, membership)
        expected = "refused_expired" if shown == "the owner's" else "refused_wrong_key"
        assert of.counted(expected) == 1


def _prolonged(ticket: Ticket) -> Certificate:
    """The same certificate with another end, signed by the member itself instead of the owner."""
    was = ticket.certificate
    span = was.not_valid_before_utc, datetime.now(UTC) + DAY
    return certify(was.subject, ticket.key.public_key(), was.issuer, ticket.key, span, serial=7, signs=0)


def withdrawn(owner: Authority, at: Path) -> tuple[Ticket, Path]:
    """A ticket, and the list on which it stands."""
    path = at / "withdrawn.pem"
    ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + DAY)
    revoke(owner, path, [ticket.serial])
    return ticket, path


@over_sockets
async def test_a_withdrawn_ticket(tmp_path: Path) -> None:
    owner = Authority.new()
    ticket, path = withdrawn(owner, tmp_path)
    async with stage(tickets=tickets_of(owner), revoked=path) as of:
        await refused(of, "revoked", ticket=ticket)
        attacker = await calls_with(of, Membership.from_ticket(ChannelName.parse(of.name), ticket))
        assert attacker is not None
        assert (await attacker.until(Refuse)).reason is Refusal.REVOKED
        assert of.counted("refused_revoked") >= 2


@over_sockets
async def test_a_ticket_that_is_withdrawn_while_its_holder_is_a_neighbour(tmp_path: Path) -> None:
    owner, path = Authority.new(), tmp_path / "withdrawn.pem"
    revoke(owner, path, [])
    admission_s = 0.4
    async with stage(tickets=tickets_of(owner), revoked=path, limits=weft.Limits(admission_s=admission_s)) as of:
        ticket = owner.issue_ticket("eve", Role.PRODUCER, datetime.now(UTC) + DAY)
        attacker = await of.neighbour(Membership.from_ticket(ChannelName.parse(of.name), ticket))
        await of.talk_goes_on(round(1.2 * admission_s / TALK_S))
        assert of.is_neighbour(attacker)
        revoke(owner, path, [ticket.serial])
        await attacker.until_closed(admission_s + 0.5)
        assert of.counted("refused_revoked") >= 1
        await eventually(lambda: not of.is_neighbour(attacker))


@over_sockets
async def test_a_list_that_became_garbage_lets_nobody_in_again(tmp_path: Path) -> None:
    owner = Authority.new()
    ticket, path = withdrawn(owner, tmp_path)
    async with stage(tickets=tickets_of(owner), revoked=path, limits=weft.Limits(admission_s=0.1)) as of:
        path.write_bytes(b"garbage")
        await eventually(lambda: of.victim._node._list_is_bad)
        await refused(of, "revoked", ticket=ticket)
