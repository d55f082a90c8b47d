"""Shared keys: what is one, and what grows from it."""

import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol.identity import Role
from broadloom.security import Authority, InvalidKeyError, Ticket, generate_key, keys
from broadloom.security.keys import derive_authority_seed, key_from_name
from tests.security.tls_handshake import CLUB, OTHER

GENERATED = "broadloom-" + "abcdefgh" * 6 + "abca"


def test_generated_key_has_only_letters_and_digits() -> None:
    assert re.fullmatch(r"broadloom-[a-z2-7]{52}", generate_key())


def test_generated_keys_differ() -> None:
    assert len({generate_key() for _ in range(100)}) == 100


def test_generated_key_is_not_stretched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(keys, "Scrypt")
    for _ in range(50):
        assert len(derive_authority_seed(generate_key(), CLUB.id)) == keys.SEED_BYTES


@pytest.mark.parametrize(
    "almost", ["broadloom-", GENERATED[:-1], GENERATED + "a", GENERATED[:-1] + "b", "w" + GENERATED]
)
def test_key_that_resembles_generated_key_is_stretched(almost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(keys, "HKDF")
    assert len(derive_authority_seed(almost, CLUB.id)) == keys.SEED_BYTES


def test_key_from_name_is_not_stretched(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its first use would delay every `connect`, and the name can be guessed faster by the hash in a handshake.
    monkeypatch.delattr(keys, "Scrypt")
    assert len(derive_authority_seed(key_from_name(CLUB), CLUB.id)) == keys.SEED_BYTES


def test_seed_of_key_is_stable_across_versions() -> None:
    # Peers of different versions must understand each other: another derivation is another protocol.
    assert derive_authority_seed(GENERATED, CLUB.id).hex().startswith("caa6d14020309c7d")
    assert derive_authority_seed("correct horse", CLUB.id).hex().startswith("0d05518a1d054db9")
    assert derive_authority_seed(key_from_name(CLUB), CLUB.id).hex().startswith("bf34c2227de904e2")


@pytest.mark.parametrize("key", [GENERATED, "correct horse"])
def test_seed_of_key_differs_between_channels(key: str) -> None:
    assert derive_authority_seed(key, CLUB.id) != derive_authority_seed(key, OTHER.id)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (GENERATED, f" {GENERATED}\n"),
        (GENERATED, GENERATED.upper()),
        (GENERATED, GENERATED.encode()),
        ("correct horse", b"correct horse\r\n"),
        ("caf\u00e9", "cafe\u0301"),
    ],
)
def test_key_is_normalized(one: str, same: str | bytes) -> None:
    assert derive_authority_seed(one, CLUB.id) == derive_authority_seed(same, CLUB.id)


def test_passphrase_is_case_sensitive() -> None:
    assert derive_authority_seed("Correct horse", CLUB.id) != derive_authority_seed("correct horse", CLUB.id)


def test_key_may_be_any_bytes() -> None:
    assert derive_authority_seed(b"\xff\xfe", CLUB.id) != derive_authority_seed(b"\xff\xfd", CLUB.id)


@pytest.mark.parametrize("nothing", ["", " \n", b"", b"\n"])
def test_empty_key_raises_invalid_key_error(nothing: str | bytes) -> None:
    with pytest.raises(InvalidKeyError, match="empty"):
        derive_authority_seed(nothing, CLUB.id)


def test_key_with_surrogate_is_rejected_without_quoting_it() -> None:
    with pytest.raises(InvalidKeyError, match="not valid Unicode") as caught:
        derive_authority_seed("secret\ud800", CLUB.id)
    assert "secret" not in str(caught.value)


def test_channel_name_as_key_differs_from_default_key() -> None:
    assert derive_authority_seed(key_from_name(CLUB), CLUB.id) != derive_authority_seed(str(CLUB), CLUB.id)


@settings(deadline=None, max_examples=20)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_any_text_is_a_deterministic_key(key: str) -> None:
    first = derive_authority_seed(key, CLUB.id)
    keys._derive_seed.cache_clear()
    assert derive_authority_seed(key, CLUB.id) == first


def test_files_that_other_users_can_read_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    owner, file, ticket_file = Authority.generate(), tmp_path / "club.authority", tmp_path / "ada.ticket"
    owner.save(file)
    owner.issue_ticket("ada", Role.PRODUCER, datetime.now(UTC) + timedelta(days=1)).save(ticket_file)
    for path, load in ((file, Authority.load), (ticket_file, Ticket.load)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        load(path)
        assert not caplog.records
        path.chmod(0o644)
        load(path)
        assert f"chmod 600 {path}" in caplog.text
        caplog.clear()
