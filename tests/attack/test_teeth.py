"""The attacks succeed where a protection is taken away; so the other tests show something."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attack import attacker, stage, test_admission, test_crowds, test_members, test_neighbours
from weft.fabric.calls import Call
from weft.fabric.signing import Signing
from weft.net.doorman import Doorman
from weft.net.line import TcpLine
from weft.security.sealing import SessionSeal


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not happen here shall not be waited for as long as elsewhere."""
    monkeypatch.setattr(attacker, "ANSWER_S", 0.7)
    monkeypatch.setattr(stage, "DEADLINE_S", 0.7)


def succeeds(attack: Callable[[], None]) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        attack()


def test_without_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Signing, "vouches", lambda *_: True)
    succeeds(test_members.test_a_payload_that_was_altered_on_its_way_is_a_forgery)
    succeeds(test_members.test_a_consumer_cannot_speak_by_hand_made_frames)


def test_without_a_look_at_who_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Call, "_objection", lambda *_: None)
    succeeds(test_members.test_a_call_in_the_name_of_another)


def test_without_limits_on_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doorman, "admits", lambda *_: True)
    succeeds(test_crowds.test_thousands_that_never_begin_a_handshake)
    succeeds(test_crowds.test_more_calls_than_one_address_may_make)


def test_without_a_limit_on_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TcpLine, "_choke", lambda *_: None)
    succeeds(lambda: test_neighbours.test_a_neighbour_that_never_reads(mode=stage.MODES["plain"]))


def test_without_a_second_look_at_tickets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SessionSeal, "still_admits", lambda *_: None)
    succeeds(lambda: test_admission.test_a_ticket_that_is_withdrawn_while_its_holder_is_a_neighbour(tmp_path))
