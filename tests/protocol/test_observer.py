"""Whoever records is told what happens, when it happens."""

from typing import Any

import pytest

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.protocol.events import Batch, LinkDown, LinkDownReason, LinkUp, Message, Missed, StateChanged, TraceEvent
from broadloom.wire.link_messages import Unavailable, UnavailableReason
from tests.protocol.fake_runtime import (
    CHANNEL,
    EMPTY_DIGEST,
    ME,
    NO_TIMEOUT,
    FakeRuntime,
    broadcast_of,
    digest_of,
    link,
    peer_info,
)


class Recorder:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *said: self.told.append((name, *said))

    def delivered(self, batch: Batch) -> None:
        self.told.extend(("delivered", message) for message in batch)

    def all(self, name: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.told if each[0] == name]


def recorded(world: FakeRuntime, settings: Tuning = NO_TIMEOUT) -> tuple[Peer, Recorder]:
    recorder = Recorder()
    peer = Peer(world, peer_info(ME), CHANNEL, (), settings, observer=recorder)
    peer.start()
    peer.found_channel()
    return peer, recorder


def test_what_is_sent_is_told_once_however_many_hear_it() -> None:
    peer, recorder = recorded(FakeRuntime())
    link(peer, 2)
    link(peer, 3)
    peer.broadcast(b"one")
    peer.broadcast(b"two")
    assert recorder.all("sent") == [(1, b"one"), (2, b"two")]
    assert recorder.all("delivered") == recorder.all("received") == []


def test_the_first_copy_is_told_with_the_neighbour_that_brought_it() -> None:
    world = FakeRuntime()
    peer, recorder = recorded(world)
    first, second = link(peer, 2), link(peer, 3)
    second.remote_sends(broadcast_of(9, 1))
    first.remote_sends(broadcast_of(9, 1), broadcast_of(9, 2))
    second.remote_sends(broadcast_of(9, 2))
    assert recorder.all("received") == [(broadcast_of(9, 1), 3), (broadcast_of(9, 2), 2)]
    assert recorder.all("delivered") == [(message,) for message in world.delivered]
    assert [message.sequence for (message,) in recorder.all("delivered")] == [1, 2]


def test_received_comes_before_delivered_and_delivery_is_in_order() -> None:
    peer, recorder = recorded(FakeRuntime())
    neighbour = link(peer, 2)
    neighbour.remote_sends(broadcast_of(9, 2), broadcast_of(9, 1))
    told = [(name, each[0].sequence) for name, *each in recorder.told if name in ("received", "delivered")]
    assert told == [("received", 2), ("received", 1), ("delivered", 1), ("delivered", 2)]
    assert recorder.all("delivered")[0] == (Message(9, 1, b"1", 2),)


def test_what_is_missed_is_told() -> None:
    world = FakeRuntime()
    peer, recorder = recorded(world)
    neighbour = link(peer, 2)
    neighbour.remote_sends(broadcast_of(9, 1), broadcast_of(9, 5))
    world.advance(1)
    neighbour.remote_sends(Unavailable(9, 2, 4, UnavailableReason.EXPIRED))
    world.advance(2)
    assert recorder.all("missed") == [(each,) for each in world.reported_missed] == [(Missed(9, 2, 4),)]
    assert [message.sequence for (message,) in recorder.all("delivered")] == [1, 5]


def test_what_happens_to_state_and_neighbours_is_told_and_notes_are_not() -> None:
    world = FakeRuntime()
    peer, recorder = recorded(world)
    neighbour = link(peer, 2, EMPTY_DIGEST)
    neighbour.remote_sends(b"\0\0\0\x04\0\0\0\x15")  # a broadcast that ends too early
    peer.leave()
    world.advance(10)
    told = [event for (event,) in recorder.all("on_event")]
    assert told == [event for event in world.events if not isinstance(event, TraceEvent)]
    assert told == [
        StateChanged(PeerState.CONNECTED),
        LinkUp(peer_info(2)),
        LinkDown(peer_info(2), LinkDownReason.PROTOCOL_ERROR),
        StateChanged(PeerState.LEAVING),
        StateChanged(PeerState.LEFT),
    ]
    assert any(isinstance(event, TraceEvent) for event in world.events)


def test_further_copies_are_counted_together_now_and_then() -> None:
    world = FakeRuntime()
    peer, recorder = recorded(world)
    first, second = link(peer, 2), link(peer, 3)
    for sequence in range(1, 6):
        first.remote_sends(broadcast_of(9, sequence))
        second.remote_sends(broadcast_of(9, sequence))
    assert recorder.all("duplicates") == []
    world.advance(2)
    assert recorder.all("duplicates") == [(5,)]
    world.advance(5)
    assert recorder.all("duplicates") == [(5,)], "nothing, if there were none"
    second.remote_sends(broadcast_of(9, 5))
    world.advance(2)
    assert recorder.all("duplicates") == [(5,), (1,)]


@pytest.mark.parametrize("how", ["leave", "close_channel"])
def test_what_was_not_yet_told_of_copies_is_told_at_the_end(how: str) -> None:
    peer, recorder = recorded(FakeRuntime())
    first, second = link(peer, 2), link(peer, 3)
    first.remote_sends(broadcast_of(9, 1))
    second.remote_sends(broadcast_of(9, 1))
    getattr(peer, how)()
    first.remote_closes()
    second.remote_closes()
    assert peer.state is PeerState.LEFT
    assert recorder.all("duplicates") == [(1,)]
    assert recorder.told[-1] == ("on_event", StateChanged(PeerState.LEFT)), "and that it left is the last word"


def test_what_a_new_neighbour_brings_is_told_like_any_other() -> None:
    peer, recorder = recorded(FakeRuntime())
    late = link(peer, 2, digest_of((9, 1, 2)))
    late.remote_sends(broadcast_of(9, 1), broadcast_of(9, 2))
    assert [neighbour for _, neighbour in recorder.all("received")] == [2, 2]
