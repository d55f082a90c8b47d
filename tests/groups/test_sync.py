"""The blocking twin, over real sockets."""

import time
from collections.abc import Callable

import pytest

import broadloom.sync
from broadloom.groups import GroupDiscovered, GroupNotFoundError, GroupSettings, MemberStatus
from tests.channel.joined import QUICK, unique_name

QUICK_GROUPS = GroupSettings(
    reply_window_s=0.2, page_timeout_s=0.4, presence_interval_s=0.5, suspicion_timeout_s=0.4, parent_request_delay_s=0.2
)


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_conversation_without_await() -> None:
    name = unique_name()
    events: list[object] = []
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as one,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as two,
        one.groups("Anna", settings=QUICK_GROUPS) as anna,
        two.groups("Ben", settings=QUICK_GROUPS) as ben,
    ):
        end = ben.on_event(events.append)
        club = anna.create("club")
        question = club.send_text("Ready?")
        wait_until(lambda: any(isinstance(event, GroupDiscovered) for event in events))
        end()
        at_ben = ben.join(ben.list_groups()[0])
        assert ben.joined == {club.id: at_ben}
        assert ben.find("CLUB").id == club.id
        message = at_ben.receive(timeout_s=20)
        assert message is not None
        assert message.text == "Ready?"
        at_ben.send(b"Yes", reply_to=message)
        wait_until(lambda: len(club.history()) == 2)
        assert [(line.depth, line.message.text) for line in club.thread(question)] == [(0, "Ready?"), (1, "Yes")]
        assert club.get(question.id) == question
        assert [each.text for each in (club.receive_nowait(), club.receive_nowait()) if each is not None] == [
            "Ready?",
            "Yes",
        ]
        assert club.receive_nowait() is None
        assert club.receive(timeout_s=0.01) is None
        wait_until(lambda: list(club.members().values()) == [MemberStatus.ONLINE] * 2)
        assert club.description == at_ben.description == "club"
        wait_until(lambda: not at_ben.is_catching_up)
        at_ben.leave()
        assert [each.text for each in at_ben] == ["Yes"]
        with pytest.raises(GroupNotFoundError):
            at_ben.send(b"too late")
        heard = ben.listen(club.id)
        assert (ben.joined, ben.held_count(club.id)) == ({}, 2)
        heard.leave()
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as one,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as two,
        one.groups("Anna", settings=QUICK_GROUPS) as anna,
    ):
        anna.create("club")
        with two.groups("Ben", settings=QUICK_GROUPS) as ben:
            assert ben.wait_until_synced(20)
            assert len(ben.list_groups()) == 1
