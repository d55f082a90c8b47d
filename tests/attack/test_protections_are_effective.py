"""The attacks succeed where a protection is taken away; so the other tests show something."""

from collections.abc import Callable
from pathlib import Path

import pytest

from broadloom.protocol.broadcast.signing import MessageVerifier
from broadloom.protocol.exchange import Exchange
from broadloom.security.verification import SessionSigner
from broadloom.transport.admission_control import AdmissionControl
from broadloom.transport.connection import TcpConnection
from tests.attack import attacker, harness, test_admission, test_crowds, test_members, test_neighbors


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not happen here shall not be waited for as long as elsewhere."""
    monkeypatch.setattr(attacker, "RESPONSE_TIMEOUT_S", 0.7)
    monkeypatch.setattr(harness, "DEADLINE_S", 0.7)


def assert_attack_succeeds(attack: Callable[[], None]) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        attack()


def test_without_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageVerifier, "verify", lambda *_: True)
    assert_attack_succeeds(test_members.test_a_payload_that_was_altered_on_its_way_is_a_forgery)
    assert_attack_succeeds(test_members.test_a_consumer_cannot_speak_by_hand_made_frames)


def test_without_a_look_at_who_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchange, "_hello_error", lambda *_: None)
    assert_attack_succeeds(test_members.test_a_call_in_the_name_of_another)


def test_without_limits_on_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdmissionControl, "admit", lambda *_: True)
    assert_attack_succeeds(test_crowds.test_thousands_that_never_begin_a_handshake)
    assert_attack_succeeds(test_crowds.test_more_calls_than_one_address_may_make)


def test_without_a_limit_on_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TcpConnection, "_on_send_overflow", lambda *_: None)
    assert_attack_succeeds(lambda: test_neighbors.test_a_neighbour_that_never_reads(mode=harness.MODES["plain"]))


def test_without_a_second_look_at_tickets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SessionSigner, "recheck", lambda *_: None)
    assert_attack_succeeds(
        lambda: test_admission.test_a_ticket_that_is_withdrawn_while_its_holder_is_a_neighbour(tmp_path)
    )
