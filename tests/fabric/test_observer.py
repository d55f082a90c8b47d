"""Whoever records is told what happens, when it happens."""

from typing import Any

import pytest

from tests.fabric.fake_world import CHANNEL, ME, NOTHING, PATIENT, FakeWorld, contact, has, link, said
from weft.fabric import Peer, Settings, State
from weft.fabric.events import Batch, LinkDown, LinkUp, Message, Missed, Note, StateChanged, Why
from weft.wire.links import Gone, Lack


class Recorder:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *said: self.told.append((name, *said))

    def delivered(self, batch: Batch) -> None:
        self.told.extend(("delivered", message) for message in batch)

    def all(self, name: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.told if each[0] == name]


def recorded(world: FakeWorld, settings: Settings = PATIENT) -> tuple[Peer, Recorder]:
    recorder = Recorder()
    peer = Peer(world, contact(ME), CHANNEL, (), settings, observer=recorder)
    peer.start()
    peer.found_channel()
    return peer, recorder


def test_what_is_sent_is_told_once_however_many_hear_it() -> None:
    peer, recorder = recorded(FakeWorld())
    link(peer, 2)
    link(peer, 3)
    peer.broadcast(b"one")
    peer.broadcast(b"two")
    assert recorder.all("sent") == [(1, b"one"), (2, b"two")]
    assert recorder.all("delivered") == recorder.all("received") == []


def test_the_first_copy_is_told_with_the_neighbour_that_brought_it() -> None:
    world = FakeWorld()
    peer, recorder = recorded(world)
    first, second = link(peer, 2), link(peer, 3)
    second.says(said(9, 1))
    first.says(said(9, 1), said(9, 2))
    second.says(said(9, 2))
    assert recorder.all("received") == [(said(9, 1), 3), (said(9, 2), 2)]
    assert recorder.all("delivered") == [(message,) for message in world.delivered]
    assert [message.sequence for (message,) in recorder.all("delivered")] == [1, 2]


def test_received_comes_before_delivered_and_delivery_is_in_order() -> None:
    peer, recorder = recorded(FakeWorld())
    neighbour = link(peer, 2)
    neighbour.says(said(9, 2), said(9, 1))
    told = [(name, each[0].sequence) for name, *each in recorder.told if name in ("received", "delivered")]
    assert told == [("received", 2), ("received", 1), ("delivered", 1), ("delivered", 2)]
    assert recorder.all("delivered")[0] == (Message(9, 1, b"1", 2),)


def test_what_is_missed_is_told() -> None:
    world = FakeWorld()
    peer, recorder = recorded(world)
    neighbour = link(peer, 2)
    neighbour.says(said(9, 1), said(9, 5))
    world.run(1)
    neighbour.says(Gone(9, 2, 4, Lack.NO_MORE))
    world.run(2)
    assert recorder.all("missed") == [(each,) for each in world.told_missed] == [(Missed(9, 2, 4),)]
    assert [message.sequence for (message,) in recorder.all("delivered")] == [1, 5]


def test_what_happens_to_state_and_neighbours_is_told_and_notes_are_not() -> None:
    world = FakeWorld()
    peer, recorder = recorded(world)
    neighbour = link(peer, 2, NOTHING)
    neighbour.says(b"\0\0\0\x04\0\0\0\x15")  # a broadcast that ends too early
    peer.leave()
    world.run(10)
    told = [event for (event,) in recorder.all("happened")]
    assert told == [event for event in world.events if not isinstance(event, Note)]
    assert told == [
        StateChanged(State.CONNECTED),
        LinkUp(contact(2)),
        LinkDown(contact(2), Why.PROTOCOL),
        StateChanged(State.LEAVING),
        StateChanged(State.LEFT),
    ]
    assert any(isinstance(event, Note) for event in world.events)


def test_further_copies_are_counted_together_now_and_then() -> None:
    world = FakeWorld()
    peer, recorder = recorded(world)
    first, second = link(peer, 2), link(peer, 3)
    for sequence in range(1, 6):
        first.says(said(9, sequence))
        second.says(said(9, sequence))
    assert recorder.all("duplicates") == []
    world.run(2)
    assert recorder.all("duplicates") == [(5,)]
    world.run(5)
    assert recorder.all("duplicates") == [(5,)], "nothing, if there were none"
    second.says(said(9, 5))
    world.run(2)
    assert recorder.all("duplicates") == [(5,), (1,)]


@pytest.mark.parametrize("how", ["leave", "shut_down"])
def test_what_was_not_yet_told_of_copies_is_told_at_the_end(how: str) -> None:
    peer, recorder = recorded(FakeWorld())
    first, second = link(peer, 2), link(peer, 3)
    first.says(said(9, 1))
    second.says(said(9, 1))
    getattr(peer, how)()
    first.hangs_up()
    second.hangs_up()
    assert peer.state is State.LEFT
    assert recorder.all("duplicates") == [(1,)]
    assert recorder.told[-1] == ("happened", StateChanged(State.LEFT)), "and that it left is the last word"


def test_what_a_new_neighbour_brings_is_told_like_any_other() -> None:
    peer, recorder = recorded(FakeWorld())
    late = link(peer, 2, has((9, 1, 2)))
    late.says(said(9, 1), said(9, 2))
    assert [neighbour for _, neighbour in recorder.all("received")] == [2, 2]
