"""Tickets: what is written on one, and what becomes of a file that is not whole."""

import stat
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol.identity import Role
from broadloom.security import Authority, InvalidKeyFileError, Ticket
from broadloom.security.authority import NAME_BYTES_MAX
from broadloom.security.pem import encode_pem
from tests.security.tls_handshake import DAY, TODAY, make_ticket

OWNER = Authority.generate()
TICKET = make_ticket(OWNER)
TEXT = TICKET.to_pem()
names = st.text(min_size=1, max_size=NAME_BYTES_MAX).filter(
    lambda text: bool(text.strip()) and text.isprintable() and len(text.encode()) <= NAME_BYTES_MAX
)


@settings(deadline=None, max_examples=50)
@given(names, st.sampled_from(Role), st.integers(min_value=1, max_value=10**9))
def test_ticket_fields_survive_encoding(name: str, role: Role, lasts_s: int) -> None:
    expires = TODAY + DAY + timedelta(seconds=lasts_s)
    made = OWNER.issue_ticket(name, role, expires)
    found = Ticket.load(made.to_pem())
    assert (found.name, found.role, found.expires_at) == (name, role, expires)
    assert found.serial == made.serial
    assert found.certificate == made.certificate
    assert found.authority == OWNER.certificate


def test_saved_ticket_loads_unchanged(tmp_path: Path) -> None:
    made = make_ticket(OWNER)
    made.save(tmp_path / "ada.pem")
    for source in (tmp_path / "ada.pem", str(tmp_path / "ada.pem")):
        assert Ticket.load(source).certificate == made.certificate


def test_ticket_file_is_private(tmp_path: Path) -> None:
    make_ticket(OWNER).save(tmp_path / "ada.pem")
    assert stat.S_IMODE((tmp_path / "ada.pem").stat().st_mode) == 0o600


def test_save_does_not_overwrite_authority_file(tmp_path: Path) -> None:
    OWNER.save(tmp_path / "owner.pem")
    with pytest.raises(InvalidKeyFileError, match="not overwritten"):
        make_ticket(OWNER).save(tmp_path / "owner.pem")


def test_ticket_with_crlf_line_ends_loads() -> None:
    made = make_ticket(OWNER)
    assert Ticket.load(made.to_pem().replace("\n", "\r\n")).serial == made.serial


def test_ticket_expires_at_its_expiry() -> None:
    ticket = make_ticket(OWNER, days=7)
    assert not ticket.is_expired(TODAY)
    assert not ticket.is_expired(TODAY + 7 * DAY)
    assert ticket.is_expired(TODAY + 7 * DAY + timedelta(seconds=1))


def test_ticket_serials_differ() -> None:
    assert len({make_ticket(OWNER).serial for _ in range(20)}) == 20


@settings(deadline=None, max_examples=60)
@given(st.integers(min_value=len("-----BEGIN"), max_value=len(TEXT) - len("-----\n")))
def test_truncated_ticket_is_rejected(length: int) -> None:
    with pytest.raises(InvalidKeyFileError, match="ask the channel's owner") as caught:
        Ticket.load(TEXT[:length])
    assert not any(line in str(caught.value) for line in TEXT.splitlines())


@settings(deadline=None, max_examples=200)
@given(st.integers(min_value=0, max_value=len(TEXT) - 1), st.sampled_from("Aa0/+-\n"))
def test_modified_ticket_is_rejected_or_means_the_same(place: int, letter: str) -> None:
    try:
        found = Ticket.load(TEXT[:place] + letter + TEXT[place + 1 :])
    except InvalidKeyFileError:
        return
    assert found.certificate == TICKET.certificate
    assert found.key.public_key() == TICKET.key.public_key()


def test_error_of_invalid_ticket_does_not_quote_it() -> None:
    secret = "\n".join(TEXT.splitlines()[1:3])
    with pytest.raises(InvalidKeyFileError) as caught:
        Ticket.load(secret)
    assert secret not in str(caught.value)


def test_load_rejects_authority_file(tmp_path: Path) -> None:
    OWNER.save(tmp_path / "owner.pem")
    with pytest.raises(InvalidKeyFileError, match=r"owner\.pem is incomplete"):
        Ticket.load(tmp_path / "owner.pem")


def test_ticket_with_key_of_another_ticket_is_rejected() -> None:
    one, other = make_ticket(OWNER), make_ticket(OWNER)
    with pytest.raises(InvalidKeyFileError, match="private key of another ticket"):
        Ticket.load(encode_pem(one.certificate, other.key, one.authority).decode())


def test_ticket_with_another_authority_is_rejected() -> None:
    ticket = make_ticket(OWNER)
    with pytest.raises(InvalidKeyFileError, match="not signed by the authority"):
        Ticket.load(encode_pem(ticket.certificate, ticket.key, Authority.generate().certificate).decode())


def test_load_rejects_peer_certificate() -> None:
    peer_certificate = OWNER.issue_certificate()
    with pytest.raises(InvalidKeyFileError):
        Ticket.load(encode_pem(peer_certificate.certificate, peer_certificate.key, OWNER.certificate).decode())


def test_load_error_names_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeyFileError, match=r"cannot read the ticket .*ada\.pem: No such file"):
        Ticket.load(tmp_path / "ada.pem")
    with pytest.raises(InvalidKeyFileError, match="cannot read the ticket"):
        Ticket.load(tmp_path)
    (tmp_path / "noise.pem").write_bytes(bytes(range(256)))
    with pytest.raises(InvalidKeyFileError, match=r"noise\.pem is incomplete"):
        Ticket.load(tmp_path / "noise.pem")
