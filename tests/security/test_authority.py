"""The channel's authority: grown from a key, or kept by an owner."""

import hashlib
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.meeting import CLUB, DAY, OTHER, TODAY, a_ticket
from weft.fabric.seal import Role
from weft.security import Authority, BadKey, BadKeyFile
from weft.security.pem_files import pem

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
    assert made.startswith("2da5a84909cc39ea")


@settings(deadline=None, max_examples=30)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_authorities_of_different_seeds_have_different_names(one: bytes, other: bytes) -> None:
    names = [Authority.from_seed(seed, CLUB.id).certificate.subject for seed in (one, other)]
    assert (names[0] == names[1]) == (one == other)


def test_an_owner_has_one_of_its_own() -> None:
    assert der(Authority.new()) != der(Authority.new())


def test_it_can_be_saved_and_loaded(tmp_path: Path) -> None:
    made = Authority.new()
    made.save(tmp_path / "owner.pem")
    found = Authority.load(tmp_path / "owner.pem")
    assert found.certificate == made.certificate
    assert found.secret().private_bytes_raw() == made.secret().private_bytes_raw()


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    Authority.new().save(tmp_path / "owner.pem")
    assert stat.S_IMODE((tmp_path / "owner.pem").stat().st_mode) == 0o600


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "owner.pem"
    Authority.new().save(path)
    before = path.read_bytes()
    with pytest.raises(BadKeyFile, match="exists and is not written over"):
        Authority.new().save(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadKeyFile, match=r"cannot write .*nowhere.*No such file"):
        Authority.new().save(tmp_path / "nowhere" / "owner.pem")


def test_who_knows_only_the_certificate_cannot_issue(tmp_path: Path) -> None:
    (tmp_path / "public.pem").write_bytes(pem(Authority.new().certificate))
    found = Authority.load(tmp_path / "public.pem")
    assert found.key is None
    for attempt in (found.issue_leaf, lambda: a_ticket(found), lambda: found.save(tmp_path / "new.pem")):
        with pytest.raises(BadKey, match="only the channel's owner"):
            attempt()
    assert not (tmp_path / "new.pem").exists()


def test_a_ticket_is_not_an_authority(tmp_path: Path) -> None:
    a_ticket(Authority.new()).save(tmp_path / "ada.pem")
    with pytest.raises(BadKeyFile, match="is a ticket and not an authority"):
        Authority.load(tmp_path / "ada.pem")


def test_a_key_of_another_authority_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "mixed.pem").write_bytes(pem(Authority.new().certificate, Authority.new().secret()))
    with pytest.raises(BadKeyFile, match="do not belong together"):
        Authority.load(tmp_path / "mixed.pem")


def test_a_leaf_is_not_an_authority(tmp_path: Path) -> None:
    leaf = Authority.new().issue_leaf()
    (tmp_path / "leaf.pem").write_bytes(pem(leaf.certificate, leaf.key))
    with pytest.raises(BadKeyFile, match="damaged"):
        Authority.load(tmp_path / "leaf.pem")


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_authority_says_what_to_do(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "owner.pem").write_bytes(content)
    with pytest.raises(BadKeyFile, match=r"owner\.pem.*make a new authority"):
        Authority.load(tmp_path / "owner.pem")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadKeyFile, match=r"cannot read the authority .*owner\.pem: No such file"):
        Authority.load(tmp_path / "owner.pem")


def test_a_ticket_needs_a_name_that_can_be_printed() -> None:
    for bad in ("", " ", "x" * 65, "ä" * 33, "two\nlines", "\ud800"):
        with pytest.raises(ValueError, match="a member's name"):
            Authority.new().issue_ticket(bad, Role.PRODUCER, TODAY + DAY)


def test_a_ticket_needs_an_expiry_to_come() -> None:
    with pytest.raises(ValueError, match="in the past"):
        Authority.new().issue_ticket("ada", Role.PRODUCER, TODAY - DAY)
    with pytest.raises(ValueError, match="time zone"):
        Authority.new().issue_ticket("ada", Role.PRODUCER, (TODAY + DAY).replace(tzinfo=None))


def test_no_secret_is_shown() -> None:
    owner = Authority.from_seed(SEED, CLUB.id)
    shown = repr(owner) + repr(a_ticket(owner)) + repr(owner.issue_leaf())
    assert SEED.hex() not in shown
    assert "PrivateKey" not in shown
