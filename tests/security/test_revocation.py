"""Withdrawn tickets: the owner's list and how a peer follows it."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol.identity import CredentialError
from broadloom.security import (
    Authority,
    InvalidKeyError,
    InvalidKeyFileError,
    PeerCredentials,
    RevocationList,
    revoke_tickets,
)
from broadloom.wire.exchange_messages import RejectReason
from tests.security.meeting import CLUB, make_ticket

OWNER = Authority.generate()
A, B, C = "00000000000000aa", "00000000000000bb", "7fffffffffffffff"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "revoked.pem"


def test_the_list_grows(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    revoke_tickets(OWNER, path, [A, B])
    found = RevocationList(path, OWNER.certificate)
    assert [found.is_revoked(each) for each in (A, B, C)] == [True, True, False]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sets(st.integers(min_value=1, max_value=(1 << 63) - 1), max_size=5), max_size=4))
def test_all_that_was_ever_revoked_is(tmp_path_factory: pytest.TempPathFactory, rounds: list[set[int]]) -> None:
    path = tmp_path_factory.mktemp("lists") / "revoked.pem"
    revoke_tickets(OWNER, path, [])
    for serials in rounds:
        revoke_tickets(OWNER, path, [f"{each:016X}" for each in serials])
    found = RevocationList(path, OWNER.certificate)
    assert all(found.is_revoked(f"{each:016x}") for serials in rounds for each in serials)


def test_an_empty_list_can_be_made(path: Path) -> None:
    revoke_tickets(OWNER, path, [])
    assert not RevocationList(path, OWNER.certificate).is_revoked(A)


def test_all_may_read_it_and_nothing_is_left_beside_it(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("text", ["", "ada", "0", "-1", A[1:], A + "a", "0x" + A[2:]])
def test_what_is_no_number_is_refused(text: str, path: Path) -> None:
    with pytest.raises(ValueError, match="no serial number"):
        revoke_tickets(OWNER, path, [A, text])
    assert not path.exists()


def test_only_the_owner_can_revoke(path: Path) -> None:
    with pytest.raises(InvalidKeyError, match="only the channel's owner"):
        revoke_tickets(Authority(OWNER.certificate), path, [A])


def test_the_list_of_another_owner_is_not_taken(path: Path) -> None:
    revoke_tickets(Authority.generate(), path, [A])
    with pytest.raises(InvalidKeyFileError, match="not signed by the channel's owner"):
        RevocationList(path, OWNER.certificate)


def test_the_owners_name_under_the_list_is_not_enough(path: Path) -> None:
    revoke_tickets(Authority(OWNER.certificate, Authority.generate().key), path, [A])
    with pytest.raises(InvalidKeyFileError, match="not signed by the channel's owner"):
        RevocationList(path, OWNER.certificate)


def test_an_owner_does_not_write_over_the_list_of_another(path: Path) -> None:
    revoke_tickets(Authority.generate(), path, [A])
    before = path.read_bytes()
    with pytest.raises(InvalidKeyFileError, match="not signed by the channel's owner"):
        revoke_tickets(OWNER, path, [B])
    assert path.read_bytes() == before


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_changed_list_is_refused_or_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lists") / "revoked.pem"
    revoke_tickets(OWNER, path, [A, B])
    text = path.read_text()
    place = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    path.write_text(text[:place] + data.draw(st.sampled_from("Aa0/+-\n")) + text[place + 1 :])
    try:
        found = RevocationList(path, OWNER.certificate)
    except InvalidKeyFileError:
        return
    assert [found.is_revoked(each) for each in (A, B, C)] == [True, True, False]


@pytest.mark.parametrize("content", [b"", b"hello", bytes(range(256))])
def test_what_is_no_list_says_what_to_do(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidKeyFileError, match=r"revoked\.pem is damaged: fetch it again"):
        RevocationList(path, OWNER.certificate)


def test_a_missing_list_is_not_an_empty_one(path: Path) -> None:
    with pytest.raises(InvalidKeyFileError, match=r"cannot read .*revoked\.pem: No such file"):
        RevocationList(path, OWNER.certificate)


def test_a_change_is_noticed(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    found = RevocationList(path, OWNER.certificate)
    assert not found.reload_if_changed()
    revoke_tickets(OWNER, path, [B])
    assert found.reload_if_changed()
    assert found.is_revoked(B)
    assert not found.reload_if_changed()


def test_the_old_list_stays_in_force_while_the_new_one_is_not_good(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    found = RevocationList(path, OWNER.certificate)
    good = path.read_bytes()
    path.write_bytes(good[:100])
    for _ in range(2):  # it is said each time, not once
        with pytest.raises(InvalidKeyFileError, match="damaged"):
            found.reload_if_changed()
    path.unlink()
    with pytest.raises(InvalidKeyFileError, match="No such file"):
        found.reload_if_changed()
    assert found.is_revoked(A)
    revoke_tickets(OWNER, path, [B, A])
    assert found.reload_if_changed()
    assert found.is_revoked(B)


def test_one_who_was_admitted_is_no_longer(path: Path) -> None:
    revoke_tickets(OWNER, path, [])
    ada, bob = make_ticket(OWNER), make_ticket(OWNER, "bob")
    known = RevocationList(path, OWNER.certificate)
    member = PeerCredentials.from_ticket(CLUB, bob, known)
    guest = PeerCredentials.from_ticket(CLUB, ada)
    identity, _ = member.signer.verify_credential(guest.peer_id, guest.signer.credential)
    member.signer.recheck(identity)
    revoke_tickets(OWNER, path, [ada.serial])
    known.reload_if_changed()
    with pytest.raises(CredentialError, match=ada.serial) as caught:
        member.signer.recheck(identity)
    assert caught.value.reason is RejectReason.TICKET_REVOKED
    member.signer.recheck(member.identity)


def test_whose_own_ticket_was_withdrawn_is_told_before_it_connects(path: Path) -> None:
    ticket = make_ticket(OWNER)
    revoke_tickets(OWNER, path, [ticket.serial])
    with pytest.raises(CredentialError, match="withdrawn") as caught:
        PeerCredentials.from_ticket(CLUB, ticket, RevocationList(path, OWNER.certificate))
    assert caught.value.reason is RejectReason.TICKET_REVOKED


def test_the_list_must_be_of_the_tickets_owner(path: Path) -> None:
    revoke_tickets(OWNER, path, [])
    with pytest.raises(InvalidKeyFileError, match="another owner"):
        PeerCredentials.from_ticket(CLUB, make_ticket(Authority.generate()), RevocationList(path, OWNER.certificate))
