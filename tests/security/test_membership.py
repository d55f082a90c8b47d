"""Real TLS between two members in memory: who gets in, who does not, and what each is told."""

import os
import ssl
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.meeting import CLUB, DAY, OTHER, TODAY, Outcome, a_ticket, an_old_ticket, at, meet
from weft.fabric import ChannelName
from weft.fabric.seal import Rejected, Role
from weft.security import Authority, Membership, RevocationList, new_key, revoke
from weft.security.fingerprints import server_name_of
from weft.wire.calls import Refusal

KEY = new_key()
OWNER = Authority.new()


@pytest.mark.parametrize(
    "key", [KEY, "correct horse", b"\xff\xfe", None], ids=["generated", "passphrase", "bytes", "from the name"]
)
def test_with_the_same_key_both_know_each_other(key: str | bytes | None) -> None:
    caller, called = Membership.from_key(CLUB, key), Membership.from_key(CLUB, key)
    assert meet(caller, called) == (Outcome(called.identity, None), Outcome(caller.identity, None))
    assert caller.identity.role is Role.PRODUCER
    assert (caller.identity.name, caller.identity.ticket, caller.identity.expires_at) == ("", "", None)


@pytest.mark.parametrize(
    ("one", "other"),
    [(KEY, new_key()), (KEY, None), ("correct horse", "battery staple")],
    ids=["generated", "from the name", "passphrases"],
)
def test_with_another_key_both_are_told(one: str, other: str | None) -> None:
    refused = Outcome(None, Refusal.WRONG_KEY)
    assert meet(Membership.from_key(CLUB, one), Membership.from_key(CLUB, other)) == (refused, refused)


@pytest.mark.parametrize("key", [KEY, None], ids=["generated", "from the name"])
def test_who_meets_another_channel_is_told_so(key: str | None) -> None:
    caller, called = Membership.from_key(CLUB, key), Membership.from_key(OTHER, key)
    refused = Outcome(None, Refusal.WRONG_CHANNEL)
    assert meet(caller, called) == (refused, refused)


def test_a_peer_is_another_one_at_each_connect() -> None:
    assert Membership.from_key(CLUB, KEY).peer != Membership.from_key(CLUB, KEY).peer
    ticket = a_ticket(OWNER)
    assert Membership.from_ticket(CLUB, ticket).peer != Membership.from_ticket(CLUB, ticket).peer


@pytest.mark.parametrize("role", Role)
def test_with_tickets_each_learns_the_others_name_and_role(role: Role) -> None:
    ada, bob = a_ticket(OWNER, "ada", role), a_ticket(OWNER, "bob")
    caller, called = Membership.from_ticket(CLUB, ada), Membership.from_ticket(CLUB, bob)
    assert meet(caller, called) == (Outcome(called.identity, None), Outcome(caller.identity, None))
    seen = called.identify(caller.seal.credential)
    assert seen == (caller.peer, "ada", role, ada.serial, ada.expires.timestamp())


def test_tickets_of_another_owner_do_not_count() -> None:
    mine, theirs = (Membership.from_ticket(CLUB, a_ticket(owner)) for owner in (OWNER, Authority.new()))
    refused = Outcome(None, Refusal.WRONG_KEY)
    assert meet(mine, theirs) == (refused, refused)


def test_a_key_is_no_ticket() -> None:
    refused = Outcome(None, Refusal.WRONG_KEY)
    assert meet(Membership.from_key(CLUB, KEY), Membership.from_ticket(CLUB, a_ticket(OWNER))) == (refused, refused)


def test_an_expired_ticket_ends_at_the_door_whoever_calls() -> None:
    member = Membership.from_ticket(CLUB, a_ticket(OWNER))
    late = Membership.from_ticket(CLUB, an_old_ticket(OWNER), now=at(TODAY - 2 * DAY))
    refused = Outcome(None, Refusal.EXPIRED)
    assert meet(late, member) == (refused, refused)
    assert meet(member, late) == (refused, refused)


def test_a_ticket_of_tomorrow_ends_at_the_door_too() -> None:
    member = Membership.from_ticket(CLUB, a_ticket(OWNER))
    tomorrow = at(TODAY + DAY)
    ticket = OWNER.issue_ticket("ada", Role.PRODUCER, TODAY + 7 * DAY, now=tomorrow)
    early = Membership.from_ticket(CLUB, ticket, now=tomorrow)
    refused = Outcome(None, Refusal.EXPIRED)
    assert meet(early, member) == (refused, refused)
    assert meet(member, early) == (refused, refused)
    with pytest.raises(Rejected, match="is one of the clocks wrong") as caught:
        Membership.from_ticket(CLUB, ticket)
    assert caught.value.refusal is Refusal.EXPIRED


def test_whose_own_ticket_is_expired_is_told_before_it_connects() -> None:
    with pytest.raises(Rejected, match=r"expired at .* ask the channel's owner") as caught:
        Membership.from_ticket(CLUB, an_old_ticket(OWNER))
    assert caught.value.refusal is Refusal.EXPIRED


def test_a_ticket_that_ends_while_its_holder_is_connected() -> None:
    clock = [TODAY]
    member = Membership.from_ticket(CLUB, a_ticket(OWNER, days=30), now=lambda: clock[0])
    guest = Membership.from_ticket(CLUB, a_ticket(OWNER, "bob", days=7))
    identity, _ = member.seal.admit(guest.peer, guest.seal.credential)
    clock[0] += 7 * DAY
    member.seal.still_admits(identity)
    clock[0] += timedelta(seconds=1)
    for attempt in (lambda: member.seal.still_admits(identity), lambda: member.identify(guest.seal.credential)):
        with pytest.raises(Rejected) as caught:
            attempt()
        assert caught.value.refusal is Refusal.EXPIRED


def test_with_a_key_there_is_nothing_that_ends() -> None:
    member = Membership.from_key(CLUB, KEY, now=at(TODAY + 300 * DAY))
    member.seal.still_admits(Membership.from_key(CLUB, KEY).identity)


def test_clocks_may_differ_by_hours_with_a_key() -> None:
    caller = Membership.from_key(CLUB, KEY, now=at(TODAY + timedelta(hours=23)))
    called = Membership.from_key(CLUB, KEY, now=at(TODAY - timedelta(hours=23)))
    assert meet(caller, Membership.from_key(CLUB, KEY))[1].refusal is None
    assert meet(Membership.from_key(CLUB, KEY), called)[0].refusal is None


def test_a_withdrawn_ticket_is_recognised_by_those_who_have_the_list(tmp_path: Path) -> None:
    ada, bob = a_ticket(OWNER, "ada"), a_ticket(OWNER, "bob")
    revoke(OWNER, tmp_path / "revoked.pem", [ada.serial])
    member = Membership.from_ticket(CLUB, bob, RevocationList(tmp_path / "revoked.pem", OWNER.certificate))
    withdrawn = Membership.from_ticket(CLUB, ada)
    # TLS knows nothing of the list, so the one who was withdrawn hears it from the member's first words.
    assert meet(withdrawn, member) == (Outcome(member.identity, None), Outcome(None, Refusal.REVOKED))
    assert meet(member, withdrawn) == (Outcome(None, Refusal.REVOKED), Outcome(member.identity, None))


def test_an_authority_made_for_one_channel_serves_no_other() -> None:
    ticket = a_ticket(Authority.new(CLUB.id))
    assert Membership.from_ticket(CLUB, ticket).identity.name == "ada"
    with pytest.raises(Rejected, match="another channel") as caught:
        Membership.from_ticket(OTHER, ticket)
    assert caught.value.refusal is Refusal.WRONG_CHANNEL


def test_no_session_is_resumed_and_no_old_tls_is_spoken() -> None:
    member = Membership.from_key(CLUB, KEY)
    for context in (member.server_context, member.client_context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
    assert member.server_context.num_tickets == 0


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_channel_can_be_asked_for_by_name(kind: str, instance: str) -> None:
    channel = ChannelName(kind, instance)
    asked = server_name_of(channel.id)
    assert all(label.isalnum() and label.islower() and len(label) <= 63 for label in asked.split("."))
    assert channel.id.hex() not in asked


@pytest.mark.parametrize("in_memory", [True, False])
def test_no_file_with_the_session_key_is_left(in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    open_before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    member = Membership.from_key(CLUB, KEY)
    assert os.listdir(tmp_path) == []
    if open_before:
        assert len(os.listdir("/proc/self/fd")) == open_before
    assert meet(member, Membership.from_key(CLUB, KEY))[0].refusal is None


def test_no_secret_is_shown() -> None:
    member = Membership.from_key(CLUB, "correct horse")
    assert repr(member) == f"Membership({member.peer:016x})"
    assert repr(member.seal) == "SessionSeal()"
