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
from tests.security.tls_handshake import CLUB, make_ticket

OWNER = Authority.generate()
A, B, C = "00000000000000aa", "00000000000000bb", "7fffffffffffffff"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "revoked.pem"


def test_revoke_adds_to_existing_list(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    revoke_tickets(OWNER, path, [A, B])
    found = RevocationList(path, OWNER.certificate)
    assert [found.is_revoked(each) for each in (A, B, C)] == [True, True, False]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sets(st.integers(min_value=1, max_value=(1 << 63) - 1), max_size=5), max_size=4))
def test_list_contains_every_revoked_ticket(tmp_path_factory: pytest.TempPathFactory, rounds: list[set[int]]) -> None:
    path = tmp_path_factory.mktemp("lists") / "revoked.pem"
    revoke_tickets(OWNER, path, [])
    for serials in rounds:
        revoke_tickets(OWNER, path, [f"{each:016X}" for each in serials])
    found = RevocationList(path, OWNER.certificate)
    assert all(found.is_revoked(f"{each:016x}") for serials in rounds for each in serials)


def test_revoke_without_tickets_creates_empty_list(path: Path) -> None:
    revoke_tickets(OWNER, path, [])
    assert not RevocationList(path, OWNER.certificate).is_revoked(A)


def test_list_file_is_public_and_leaves_no_temporary_file(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("text", ["", "ada", "0", "-1", A[1:], A + "a", "0x" + A[2:]])
def test_revoke_rejects_invalid_serial_number(text: str, path: Path) -> None:
    with pytest.raises(ValueError, match="not a ticket serial number"):
        revoke_tickets(OWNER, path, [A, text])
    assert not path.exists()


def test_revoke_requires_private_key(path: Path) -> None:
    with pytest.raises(InvalidKeyError, match="only the channel's owner has"):
        revoke_tickets(Authority(OWNER.certificate), path, [A])


def test_list_of_another_owner_is_rejected(path: Path) -> None:
    revoke_tickets(Authority.generate(), path, [A])
    with pytest.raises(InvalidKeyFileError, match="not signed by the channel's owner"):
        RevocationList(path, OWNER.certificate)


def test_list_with_forged_issuer_name_is_rejected(path: Path) -> None:
    revoke_tickets(Authority(OWNER.certificate, Authority.generate().key), path, [A])
    with pytest.raises(InvalidKeyFileError, match="not signed by the channel's owner"):
        RevocationList(path, OWNER.certificate)


def test_revoke_does_not_overwrite_list_of_another_owner(path: Path) -> None:
    revoke_tickets(Authority.generate(), path, [A])
    before = path.read_bytes()
    with pytest.raises(InvalidKeyFileError, match="not signed by the channel's owner"):
        revoke_tickets(OWNER, path, [B])
    assert path.read_bytes() == before


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_modified_list_is_rejected_or_means_the_same(
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
def test_error_of_invalid_list_names_remedy(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidKeyFileError, match=r"revoked\.pem is damaged: get it again"):
        RevocationList(path, OWNER.certificate)


def test_missing_list_raises_error(path: Path) -> None:
    with pytest.raises(InvalidKeyFileError, match=r"cannot read .*revoked\.pem: No such file"):
        RevocationList(path, OWNER.certificate)


def test_reload_if_changed_reads_new_list(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    found = RevocationList(path, OWNER.certificate)
    assert not found.reload_if_changed()
    revoke_tickets(OWNER, path, [B])
    assert found.reload_if_changed()
    assert found.is_revoked(B)
    assert not found.reload_if_changed()


def test_old_list_stays_in_force_while_new_file_is_invalid(path: Path) -> None:
    revoke_tickets(OWNER, path, [A])
    found = RevocationList(path, OWNER.certificate)
    good = path.read_bytes()
    path.write_bytes(good[:100])
    for _ in range(2):  # raised each time
        with pytest.raises(InvalidKeyFileError, match="damaged"):
            found.reload_if_changed()
    path.unlink()
    with pytest.raises(InvalidKeyFileError, match="No such file"):
        found.reload_if_changed()
    assert found.is_revoked(A)
    revoke_tickets(OWNER, path, [B, A])
    assert found.reload_if_changed()
    assert found.is_revoked(B)


def test_recheck_rejects_ticket_revoked_meanwhile(path: Path) -> None:
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


def test_own_revoked_ticket_is_rejected_before_connecting(path: Path) -> None:
    ticket = make_ticket(OWNER)
    revoke_tickets(OWNER, path, [ticket.serial])
    with pytest.raises(CredentialError, match="was revoked") as caught:
        PeerCredentials.from_ticket(CLUB, ticket, RevocationList(path, OWNER.certificate))
    assert caught.value.reason is RejectReason.TICKET_REVOKED


def test_list_and_ticket_of_different_owners_are_rejected(path: Path) -> None:
    revoke_tickets(OWNER, path, [])
    with pytest.raises(InvalidKeyFileError, match="different owners"):
        PeerCredentials.from_ticket(CLUB, make_ticket(Authority.generate()), RevocationList(path, OWNER.certificate))
