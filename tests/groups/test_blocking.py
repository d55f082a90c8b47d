"""The blocking twin, over real sockets."""

import time
from collections.abc import Callable

import pytest

import weft.blocking
from tests.channel.joined import QUICK, a_name
from weft.groups import GroupOffered, Here, NoSuchGroup, Settings

SOON = Settings(answer_s=0.2, hold_s=0.4, presence_s=0.5, suspect_s=0.4, ask_after_s=0.2)


def until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_conversation_without_await() -> None:
    name = a_name()
    events: list[object] = []
    with (
        weft.blocking.connect(name, plain=True, settings=QUICK) as one,
        weft.blocking.connect(name, plain=True, settings=QUICK) as two,
        one.groups("Anna", settings=SOON) as anna,
        two.groups("Ben", settings=SOON) as ben,
    ):
        end = ben.on_event(events.append)
        club = anna.create("club")
        question = club.send_text("Ready?")
        until(lambda: any(isinstance(event, GroupOffered) for event in events))
        end()
        at_ben = ben.join(ben.known()[0])
        assert ben.joined == {club.id: at_ben}
        assert ben.find("CLUB").id == club.id
        message = at_ben.receive(timeout_s=20)
        assert message is not None
        assert message.text == "Ready?"
        at_ben.send(b"Yes", reply_to=message)
        until(lambda: len(club.history()) == 2)
        assert [(line.depth, line.message.text) for line in club.thread(question)] == [(0, "Ready?"), (1, "Yes")]
        assert club.message(question.id) == question
        assert [each.text for each in (club.acquire(), club.acquire()) if each is not None] == ["Ready?", "Yes"]
        assert club.acquire() is None
        assert club.receive(timeout_s=0.01) is None
        until(lambda: list(club.members().values()) == [Here.PRESENT] * 2)
        assert club.description == at_ben.description == "club"
        until(lambda: not at_ben.is_catching_up)
        at_ben.leave()
        assert [each.text for each in at_ben] == ["Yes"]
        with pytest.raises(NoSuchGroup):
            at_ben.send(b"too late")
        heard = ben.listen(club.id)
        assert (ben.joined, ben.held(club.id)) == ({}, 2)
        heard.leave()
    with (
        weft.blocking.connect(name, plain=True, settings=QUICK) as one,
        weft.blocking.connect(name, plain=True, settings=QUICK) as two,
        one.groups("Anna", settings=SOON) as anna,
    ):
        anna.create("club")
        with two.groups("Ben", settings=SOON) as ben:
            assert ben.greeted(20)
            assert len(ben.known()) == 1
