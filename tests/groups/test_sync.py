"""The synchronous twin, over real sockets."""

import threading

import pytest

import broadloom.sync
from broadloom.groups import GroupDiscovered, GroupNotFoundError, MemberStatus
from broadloom.groups.sync import Groups
from tests.channel.joined import QUICK, unique_name
from tests.groups.group_bus import QUICK_GROUPS
from tests.support import wait_until


def test_sync_groups_hold_conversation() -> None:
    name = unique_name()
    events: list[object] = []
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as one,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as two,
        Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
        Groups(two, "Ben", settings=QUICK_GROUPS) as ben,
    ):
        unsubscribe = ben.on_event(events.append)
        club = anna.create("club")
        question = club.send_text("Ready?")
        wait_until(lambda: any(isinstance(event, GroupDiscovered) for event in events))
        unsubscribe()
        at_ben = ben.join(ben.list_groups()[0])
        assert ben.joined == {club.id: at_ben}
        assert ben.find("CLUB").id == club.id
        message = at_ben.receive(timeout_s=20)
        assert message.text == "Ready?"
        at_ben.send(b"Yes", reply_to=message)
        wait_until(lambda: len(club.history()) == 2)
        assert [(depth, message.text) for depth, message in club.thread(question)] == [(0, "Ready?"), (1, "Yes")]
        assert club.get(question.id) == question
        answer = club.receive_nowait()
        assert answer is not None
        assert answer.text == "Yes", "a program does not receive its own messages"
        assert club.receive_nowait() is None
        with pytest.raises(TimeoutError, match="no message in group"):
            club.receive(timeout_s=0.01)
        with pytest.raises(TypeError, match="use send_text"):
            club.send("text")  # type: ignore[arg-type]
        wait_until(lambda: list(club.members().values()) == [MemberStatus.ONLINE] * 2)
        assert club.description == at_ben.description == "club"
        wait_until(lambda: not at_ben.is_catching_up)
        club.send_text("Last")
        wait_until(lambda: at_ben.unread_count == 1)
        at_ben.leave()
        assert [each.text for each in at_ben] == ["Last"], "unread messages can still be read"
        with pytest.raises(GroupNotFoundError):
            at_ben.send(b"too late")
        heard = ben.listen(club.id)
        assert (ben.joined, ben.stored_count(club.id)) == ({}, 3)
        heard.leave()


def test_sync_events_end_when_groups_are_closed() -> None:
    name = unique_name()
    seen: list[object] = []
    with (
        broadloom.sync.connect(name, tls=False, settings=QUICK) as one,
        broadloom.sync.connect(name, tls=False, settings=QUICK) as two,
        Groups(one, "Anna", settings=QUICK_GROUPS) as anna,
    ):
        anna.create("club")
        with Groups(two, "Ben", settings=QUICK_GROUPS) as ben:
            assert ben.wait_until_synced(20)
            assert len(ben.list_groups()) == 1
            events = ben.events()
            reader = threading.Thread(target=lambda: seen.extend(events))
            reader.start()
            anna.create("another club")
            wait_until(lambda: any(isinstance(event, GroupDiscovered) for event in seen))
        reader.join(20)
        assert not reader.is_alive()
