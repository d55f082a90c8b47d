"""TLS between two members in memory: accepted and rejected credentials."""

import os
import ssl
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol import ChannelName
from broadloom.protocol.identity import CredentialError, Role
from broadloom.security import Authority, PeerCredentials, RevocationList, generate_key, revoke_tickets
from broadloom.security.keys import server_name_of
from broadloom.wire.exchange_messages import RejectReason
from tests.security.tls_handshake import (
    CLUB,
    DAY,
    OTHER,
    TODAY,
    HandshakeResult,
    clock_at,
    handshake,
    make_expired_ticket,
    make_ticket,
)

KEY = generate_key()
OWNER = Authority.generate()


@pytest.mark.parametrize(
    "key", [KEY, "correct horse", b"\xff\xfe", None], ids=["generated", "passphrase", "bytes", "from the name"]
)
def test_peers_with_same_key_identify_each_other(key: str | bytes | None) -> None:
    caller, called = PeerCredentials.from_key(CLUB, key), PeerCredentials.from_key(CLUB, key)
    assert handshake(caller, called) == (HandshakeResult(called.identity, None), HandshakeResult(caller.identity, None))
    assert caller.identity.role is Role.PRODUCER
    assert (caller.identity.name, caller.identity.ticket_serial, caller.identity.expires_at) == ("", "", None)


@pytest.mark.parametrize(
    ("one", "other"),
    [(KEY, generate_key()), (KEY, None), ("correct horse", "battery staple")],
    ids=["generated", "from the name", "passphrases"],
)
def test_peers_with_different_keys_report_wrong_key(one: str, other: str | None) -> None:
    refused = HandshakeResult(None, RejectReason.WRONG_KEY)
    assert handshake(PeerCredentials.from_key(CLUB, one), PeerCredentials.from_key(CLUB, other)) == (refused, refused)


@pytest.mark.parametrize("key", [KEY, None], ids=["generated", "from the name"])
def test_peers_of_different_channels_report_wrong_channel(key: str | None) -> None:
    caller, called = PeerCredentials.from_key(CLUB, key), PeerCredentials.from_key(OTHER, key)
    refused = HandshakeResult(None, RejectReason.WRONG_CHANNEL)
    assert handshake(caller, called) == (refused, refused)


def test_peer_id_is_new_for_each_credentials() -> None:
    assert PeerCredentials.from_key(CLUB, KEY).peer_id != PeerCredentials.from_key(CLUB, KEY).peer_id
    ticket = make_ticket(OWNER)
    assert PeerCredentials.from_ticket(CLUB, ticket).peer_id != PeerCredentials.from_ticket(CLUB, ticket).peer_id


@pytest.mark.parametrize("role", Role)
def test_peers_with_tickets_learn_name_and_role(role: Role) -> None:
    ada, bob = make_ticket(OWNER, "ada", role), make_ticket(OWNER, "bob")
    caller, called = PeerCredentials.from_ticket(CLUB, ada), PeerCredentials.from_ticket(CLUB, bob)
    assert handshake(caller, called) == (HandshakeResult(called.identity, None), HandshakeResult(caller.identity, None))
    seen = called.identify(caller.signer.credential)
    assert seen == (caller.peer_id, "ada", role, ada.serial, ada.expires_at.timestamp())


def test_ticket_of_another_owner_is_rejected() -> None:
    mine, theirs = (PeerCredentials.from_ticket(CLUB, make_ticket(owner)) for owner in (OWNER, Authority.generate()))
    refused = HandshakeResult(None, RejectReason.WRONG_KEY)
    assert handshake(mine, theirs) == (refused, refused)


def test_key_holder_is_rejected_on_channel_with_tickets() -> None:
    refused = HandshakeResult(None, RejectReason.WRONG_KEY)
    assert handshake(PeerCredentials.from_key(CLUB, KEY), PeerCredentials.from_ticket(CLUB, make_ticket(OWNER))) == (
        refused,
        refused,
    )


def test_expired_ticket_is_rejected_in_both_directions() -> None:
    member = PeerCredentials.from_ticket(CLUB, make_ticket(OWNER))
    late = PeerCredentials.from_ticket(CLUB, make_expired_ticket(OWNER), now=clock_at(TODAY - 2 * DAY))
    refused = HandshakeResult(None, RejectReason.TICKET_EXPIRED)
    assert handshake(late, member) == (refused, refused)
    assert handshake(member, late) == (refused, refused)


def test_ticket_that_is_not_valid_yet_is_rejected() -> None:
    member = PeerCredentials.from_ticket(CLUB, make_ticket(OWNER))
    tomorrow = clock_at(TODAY + DAY)
    ticket = OWNER.issue_ticket("ada", Role.PRODUCER, TODAY + 7 * DAY, now=tomorrow)
    early = PeerCredentials.from_ticket(CLUB, ticket, now=tomorrow)
    refused = HandshakeResult(None, RejectReason.TICKET_EXPIRED)
    assert handshake(early, member) == (refused, refused)
    assert handshake(member, early) == (refused, refused)
    with pytest.raises(CredentialError, match="check the clocks") as caught:
        PeerCredentials.from_ticket(CLUB, ticket)
    assert caught.value.reason is RejectReason.TICKET_EXPIRED


def test_own_expired_ticket_is_rejected_before_connecting() -> None:
    with pytest.raises(CredentialError, match=r"expired at .* ask the channel's owner") as caught:
        PeerCredentials.from_ticket(CLUB, make_expired_ticket(OWNER))
    assert caught.value.reason is RejectReason.TICKET_EXPIRED


def test_recheck_rejects_ticket_that_expired_meanwhile() -> None:
    clock = [TODAY]
    member = PeerCredentials.from_ticket(CLUB, make_ticket(OWNER, days=30), now=lambda: clock[0])
    guest = PeerCredentials.from_ticket(CLUB, make_ticket(OWNER, "bob", days=7))
    identity, _ = member.signer.verify_credential(guest.peer_id, guest.signer.credential)
    clock[0] += 7 * DAY
    member.signer.recheck(identity)
    clock[0] += timedelta(seconds=1)
    for attempt in (lambda: member.signer.recheck(identity), lambda: member.identify(guest.signer.credential)):
        with pytest.raises(CredentialError) as caught:
            attempt()
        assert caught.value.reason is RejectReason.TICKET_EXPIRED


def test_recheck_accepts_key_holder_forever() -> None:
    member = PeerCredentials.from_key(CLUB, KEY, now=clock_at(TODAY + 300 * DAY))
    member.signer.recheck(PeerCredentials.from_key(CLUB, KEY).identity)


def test_key_holders_tolerate_clock_skew_of_hours() -> None:
    caller = PeerCredentials.from_key(CLUB, KEY, now=clock_at(TODAY + timedelta(hours=23)))
    called = PeerCredentials.from_key(CLUB, KEY, now=clock_at(TODAY - timedelta(hours=23)))
    assert handshake(caller, PeerCredentials.from_key(CLUB, KEY))[1].reason is None
    assert handshake(PeerCredentials.from_key(CLUB, KEY), called)[0].reason is None


def test_revoked_ticket_is_rejected_by_holders_of_the_list(tmp_path: Path) -> None:
    ada, bob = make_ticket(OWNER, "ada"), make_ticket(OWNER, "bob")
    revoke_tickets(OWNER, tmp_path / "revoked.pem", [ada.serial])
    member = PeerCredentials.from_ticket(CLUB, bob, RevocationList(tmp_path / "revoked.pem", OWNER.certificate))
    revoked_member = PeerCredentials.from_ticket(CLUB, ada)
    # TLS does not know the list: the revoked member is rejected by the first frame.
    assert handshake(revoked_member, member) == (
        HandshakeResult(member.identity, None),
        HandshakeResult(None, RejectReason.TICKET_REVOKED),
    )
    assert handshake(member, revoked_member) == (
        HandshakeResult(None, RejectReason.TICKET_REVOKED),
        HandshakeResult(member.identity, None),
    )


def test_authority_of_one_channel_is_rejected_on_another() -> None:
    ticket = make_ticket(Authority.generate(CLUB.id))
    assert PeerCredentials.from_ticket(CLUB, ticket).identity.name == "ada"
    with pytest.raises(CredentialError, match="another channel") as caught:
        PeerCredentials.from_ticket(OTHER, ticket)
    assert caught.value.reason is RejectReason.WRONG_CHANNEL


def test_tls_sessions_are_not_resumed_and_old_versions_are_disabled() -> None:
    member = PeerCredentials.from_key(CLUB, KEY)
    for context in (member.server_context, member.client_context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
    assert member.server_context.num_tickets == 0


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_server_name_is_valid_for_any_channel(kind: str, instance: str) -> None:
    channel = ChannelName(kind, instance)
    asked = server_name_of(channel.id)
    assert all(label.isalnum() and label.islower() and len(label) <= 63 for label in asked.split("."))
    assert channel.id.hex() not in asked


@pytest.mark.parametrize("in_memory", [True, False])
def test_session_key_leaves_no_file_behind(in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    open_before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    member = PeerCredentials.from_key(CLUB, KEY)
    assert os.listdir(tmp_path) == []
    if open_before:
        assert len(os.listdir("/proc/self/fd")) == open_before
    assert handshake(member, PeerCredentials.from_key(CLUB, KEY))[0].reason is None


def test_repr_of_credentials_shows_no_secret() -> None:
    member = PeerCredentials.from_key(CLUB, "correct horse")
    assert repr(member) == f"PeerCredentials({member.peer_id:016x})"
    assert repr(member.signer) == "SessionSigner()"
