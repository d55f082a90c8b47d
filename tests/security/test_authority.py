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
from tests.security.meeting import CLUB, DAY, OTHER, TODAY, make_ticket

SEED = bytes(range(32))


def der(authority: Authority) -> bytes:
    return authority.certificate.public_bytes(Encoding.DER)


def test_the_same_seed_gives_the_same_authority() -> None:
    assert der(Authority.from_seed(SEED, CLUB.id)) == der(Authority.from_seed(SEED, CLUB.id))


def test_another_channel_has_another_authority() -> None:
    assert der(Authority.from_seed(SEED, CLUB.id)) != der(Authority.from_seed(SEED, OTHER.id))


def test_the_authority_of_a_seed_never_changes() -> None:
    # Peers of different versions must understand each other.
    made = hashlib.sha256(der(Authority.from_seed(SEED, CLUB.id))).hexdigest()
    assert made.startswith("cc28c71332581c07")


@settings(deadline=None, max_examples=30)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_authorities_of_different_seeds_have_different_names(one: bytes, other: bytes) -> None:
    names = [Authority.from_seed(seed, CLUB.id).certificate.subject for seed in (one, other)]
    assert (names[0] == names[1]) == (one == other)


def test_an_owner_has_one_of_its_own() -> None:
    assert der(Authority.generate()) != der(Authority.generate())


def test_it_can_be_saved_and_loaded(tmp_path: Path) -> None:
    made = Authority.generate()
    made.save(tmp_path / "owner.pem")
    found = Authority.load(tmp_path / "owner.pem")
    assert found.certificate == made.certificate
    assert found.private_key().private_bytes_raw() == made.private_key().private_bytes_raw()


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    Authority.generate().save(tmp_path / "owner.pem")
    assert stat.S_IMODE((tmp_path / "owner.pem").stat().st_mode) == 0o600


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "owner.pem"
    Authority.generate().save(path)
    before = path.read_bytes()
    with pytest.raises(InvalidKeyFileError, match="exists and is not written over"):
        Authority.generate().save(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeyFileError, match=r"cannot write .*nowhere.*No such file"):
        Authority.generate().save(tmp_path / "nowhere" / "owner.pem")


def test_who_knows_only_the_certificate_cannot_issue(tmp_path: Path) -> None:
    (tmp_path / "public.pem").write_bytes(encode_pem(Authority.generate().certificate))
    found = Authority.load(tmp_path / "public.pem")
    assert found.key is None
    for attempt in (found.issue_certificate, lambda: make_ticket(found), lambda: found.save(tmp_path / "new.pem")):
        with pytest.raises(InvalidKeyError, match="only the channel's owner"):
            attempt()
    assert not (tmp_path / "new.pem").exists()


def test_a_ticket_is_not_an_authority(tmp_path: Path) -> None:
    make_ticket(Authority.generate()).save(tmp_path / "ada.pem")
    with pytest.raises(InvalidKeyFileError, match="is a ticket and not an authority"):
        Authority.load(tmp_path / "ada.pem")


def test_a_key_of_another_authority_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "mixed.pem").write_bytes(
        encode_pem(Authority.generate().certificate, Authority.generate().private_key())
    )
    with pytest.raises(InvalidKeyFileError, match="do not belong together"):
        Authority.load(tmp_path / "mixed.pem")


def test_a_leaf_is_not_an_authority(tmp_path: Path) -> None:
    leaf = Authority.generate().issue_certificate()
    (tmp_path / "leaf.pem").write_bytes(encode_pem(leaf.certificate, leaf.key))
    with pytest.raises(InvalidKeyFileError, match="damaged"):
        Authority.load(tmp_path / "leaf.pem")


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_authority_says_what_to_do(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "owner.pem").write_bytes(content)
    with pytest.raises(InvalidKeyFileError, match=r"owner\.pem.*make a new authority"):
        Authority.load(tmp_path / "owner.pem")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeyFileError, match=r"cannot read the authority .*owner\.pem: No such file"):
        Authority.load(tmp_path / "owner.pem")


def test_a_ticket_needs_a_name_that_can_be_printed() -> None:
    for bad in ("", " ", "x" * 65, "ä" * 33, "two\nlines", "\ud800"):
        with pytest.raises(ValueError, match="a member's name"):
            Authority.generate().issue_ticket(bad, Role.PRODUCER, TODAY + DAY)


def test_a_ticket_needs_an_expiry_to_come() -> None:
    with pytest.raises(ValueError, match="in the past"):
        Authority.generate().issue_ticket("ada", Role.PRODUCER, TODAY - DAY)
    with pytest.raises(ValueError, match="time zone"):
        Authority.generate().issue_ticket("ada", Role.PRODUCER, (TODAY + DAY).replace(tzinfo=None))


def test_no_secret_is_shown() -> None:
    owner = Authority.from_seed(SEED, CLUB.id)
    shown = repr(owner) + repr(make_ticket(owner)) + repr(owner.issue_certificate())
    assert SEED.hex() not in shown
    assert "PrivateKey" not in shown
