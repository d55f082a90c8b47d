"""The channel's authority: grown from a key, or kept by an owner."""

import hashlib
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol.identity import Role
from broadloom.security import Authority, InvalidKeyError, InvalidKeyFileError
from broadloom.security.pem import encode_pem
from tests.security.tls_handshake import CLUB, DAY, OTHER, TODAY, make_ticket

SEED = bytes(range(32))


def der(authority: Authority) -> bytes:
    return authority.certificate.public_bytes(Encoding.DER)


def test_same_seed_gives_same_authority() -> None:
    assert der(Authority.from_seed(SEED, CLUB.id)) == der(Authority.from_seed(SEED, CLUB.id))


def test_authority_differs_between_channels() -> None:
    assert der(Authority.from_seed(SEED, CLUB.id)) != der(Authority.from_seed(SEED, OTHER.id))


def test_authority_of_seed_is_stable_across_versions() -> None:
    # Peers of different versions must understand each other.
    made = hashlib.sha256(der(Authority.from_seed(SEED, CLUB.id))).hexdigest()
    assert made.startswith("cc28c71332581c07")


@settings(deadline=None, max_examples=30)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_authorities_of_different_seeds_have_different_names(one: bytes, other: bytes) -> None:
    names = [Authority.from_seed(seed, CLUB.id).certificate.subject for seed in (one, other)]
    assert (names[0] == names[1]) == (one == other)


def test_generated_authorities_differ() -> None:
    assert der(Authority.generate()) != der(Authority.generate())


def test_saved_authority_loads_unchanged(tmp_path: Path) -> None:
    made = Authority.generate()
    made.save(tmp_path / "owner.pem")
    found = Authority.load(tmp_path / "owner.pem")
    assert found.certificate == made.certificate
    assert found.private_key().private_bytes_raw() == made.private_key().private_bytes_raw()


def test_authority_file_is_private(tmp_path: Path) -> None:
    Authority.generate().save(tmp_path / "owner.pem")
    assert stat.S_IMODE((tmp_path / "owner.pem").stat().st_mode) == 0o600


def test_save_never_overwrites_a_file(tmp_path: Path) -> None:
    path = tmp_path / "owner.pem"
    Authority.generate().save(path)
    before = path.read_bytes()
    with pytest.raises(InvalidKeyFileError, match="already exists and is not overwritten"):
        Authority.generate().save(path)
    assert path.read_bytes() == before


def test_save_error_names_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeyFileError, match=r"cannot write .*nowhere.*No such file"):
        Authority.generate().save(tmp_path / "nowhere" / "owner.pem")


def test_authority_without_private_key_cannot_issue_tickets(tmp_path: Path) -> None:
    (tmp_path / "public.pem").write_bytes(encode_pem(Authority.generate().certificate))
    found = Authority.load(tmp_path / "public.pem")
    assert found.key is None
    for attempt in (found.issue_certificate, lambda: make_ticket(found), lambda: found.save(tmp_path / "new.pem")):
        with pytest.raises(InvalidKeyError, match="which only the channel's owner has"):
            attempt()
    assert not (tmp_path / "new.pem").exists()


def test_load_rejects_ticket_file(tmp_path: Path) -> None:
    make_ticket(Authority.generate()).save(tmp_path / "ada.pem")
    with pytest.raises(InvalidKeyFileError, match="is a ticket, not an authority file"):
        Authority.load(tmp_path / "ada.pem")


def test_load_rejects_key_of_another_authority(tmp_path: Path) -> None:
    (tmp_path / "mixed.pem").write_bytes(
        encode_pem(Authority.generate().certificate, Authority.generate().private_key())
    )
    with pytest.raises(InvalidKeyFileError, match="do not match"):
        Authority.load(tmp_path / "mixed.pem")


def test_load_rejects_peer_certificate(tmp_path: Path) -> None:
    peer_certificate = Authority.generate().issue_certificate()
    (tmp_path / "peer_certificate.pem").write_bytes(encode_pem(peer_certificate.certificate, peer_certificate.key))
    with pytest.raises(InvalidKeyFileError, match="damaged"):
        Authority.load(tmp_path / "peer_certificate.pem")


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_load_error_of_invalid_file_names_remedy(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "owner.pem").write_bytes(content)
    with pytest.raises(InvalidKeyFileError, match=r"owner\.pem.*create a new authority"):
        Authority.load(tmp_path / "owner.pem")


def test_load_error_names_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeyFileError, match=r"cannot read the authority .*owner\.pem: No such file"):
        Authority.load(tmp_path / "owner.pem")


def test_issue_ticket_rejects_unprintable_name() -> None:
    for bad in ("", " ", "x" * 65, "ä" * 33, "two\nlines", "\ud800"):
        with pytest.raises(ValueError, match="must be printable"):
            Authority.generate().issue_ticket(bad, Role.PRODUCER, TODAY + DAY)


def test_issue_ticket_rejects_expiry_in_the_past() -> None:
    with pytest.raises(ValueError, match="in the past"):
        Authority.generate().issue_ticket("ada", Role.PRODUCER, TODAY - DAY)
    with pytest.raises(ValueError, match="time zone"):
        Authority.generate().issue_ticket("ada", Role.PRODUCER, (TODAY + DAY).replace(tzinfo=None))


def test_repr_of_authority_shows_no_secret() -> None:
    owner = Authority.from_seed(SEED, CLUB.id)
    shown = repr(owner) + repr(make_ticket(owner)) + repr(owner.issue_certificate())
    assert SEED.hex() not in shown
    assert "PrivateKey" not in shown
