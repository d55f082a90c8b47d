"""Each attack succeeds when its protection is removed, so the other tests prove something."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broadloom.protocol.broadcast.signing import MessageVerifier
from broadloom.protocol.exchange import Exchange
from broadloom.protocol.owner.owner import Owner
from broadloom.security import certificates, verification
from broadloom.security.keys import peer_id_of
from broadloom.security.verification import CertificateVerifier, SessionSigner, VerifiedPeer
from broadloom.transport.admission_control import AdmissionControl
from broadloom.transport.connection import TcpConnection
from broadloom.wire import PeerId
from tests import support
from tests.attack import attacker, harness, test_admission, test_crowds, test_members, test_neighbors


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conditions of these attacks are not met, so do not wait for them as long as elsewhere."""
    monkeypatch.setattr(attacker, "RESPONSE_TIMEOUT_S", 0.7)
    monkeypatch.setattr(support, "TIMEOUT_S", 0.7)


def assert_attack_succeeds(attack: Coroutine[Any, Any, None]) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        asyncio.run(attack)


def test_forgeries_succeed_without_signature_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageVerifier, "verify", lambda *_: True)
    for mode in ("signed", "tickets"):
        assert_attack_succeeds(test_members.test_altered_payload_is_dropped(mode=harness.MODES[mode]))
    assert_attack_succeeds(test_members.test_hand_made_frames_of_a_consumer_are_dropped())


def test_foreign_peer_id_succeeds_without_hello_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchange, "_hello_error", lambda *_: None)
    for mode in ("signed", "tickets"):
        assert_attack_succeeds(test_members.test_exchange_with_foreign_peer_id_is_rejected(mode=harness.MODES[mode]))


def test_connection_floods_succeed_without_admission_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdmissionControl, "admit", lambda *_: True)
    assert_attack_succeeds(test_crowds.test_newcomer_joins_despite_thousands_of_half_open_handshakes())
    assert_attack_succeeds(test_crowds.test_connection_rate_per_address_is_limited())


def test_stalled_neighbor_stays_without_send_queue_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TcpConnection, "_on_send_overflow", lambda *_: None)
    assert_attack_succeeds(test_neighbors.test_stalled_neighbor_is_dropped(mode=harness.MODES["plain"]))


def test_revoked_neighbor_stays_without_recheck(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SessionSigner, "recheck", lambda *_: None)
    monkeypatch.setattr(Owner, "exclusion_of", lambda *_: None)
    assert_attack_succeeds(test_admission.test_neighbor_is_dropped_when_its_ticket_is_revoked(tmp_path))


def test_expired_certificate_mutes_an_author_if_it_is_taken_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    verify = CertificateVerifier._verify

    def verify_with_dates(verifier: CertificateVerifier, der: bytes, peer_id: PeerId | None) -> VerifiedPeer:
        for each in verifier._verify_chain(der, peer_id)[1]:
            verifier._check_time(each)
        return verify(verifier, der, peer_id)

    monkeypatch.setattr(CertificateVerifier, "_verify", verify_with_dates)
    attack = test_members.test_expired_certificate_that_a_member_made_for_an_author_does_not_mute_it
    assert_attack_succeeds(attack(mode=harness.MODES["signed"], monkeypatch=monkeypatch))


def test_session_key_with_two_tickets_divides_members_if_the_peer_id_ignores_the_ticket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (certificates, verification):
        monkeypatch.setattr(module, "peer_id_of", lambda key, _ticket=None: peer_id_of(key))
    assert_attack_succeeds(test_members.test_session_key_with_two_tickets_breaks_no_honest_link())
