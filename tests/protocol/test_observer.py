"""The observer is called for everything that happens, at the moment it happens."""

from typing import Any

import pytest

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.protocol.events import Batch, LinkDown, LinkDownReason, LinkUp, Message, Missed, StateChanged, TraceEvent
from broadloom.wire.link_messages import Unavailable, UnavailableReason
from broadloom.wire.payload_kind import PayloadKind
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


class RecordingObserver:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))

    def delivered(self, batch: Batch) -> None:
        self.calls.extend(("delivered", message) for message in batch)

    def all(self, name: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.calls if each[0] == name]


def observed_peer(runtime: FakeRuntime, settings: Tuning = NO_TIMEOUT) -> tuple[Peer, RecordingObserver]:
    observer = RecordingObserver()
    peer = Peer(runtime, peer_info(ME), CHANNEL, (), settings, observer=observer)
    peer.start()
    peer.create_channel()
    return peer, observer


def test_observer_gets_sent_once_per_message() -> None:
    peer, observer = observed_peer(FakeRuntime())
    link(peer, 2)
    link(peer, 3)
    peer.broadcast(b"one")
    peer.broadcast(b"two")
    assert observer.all("sent") == [(1, b"one", PayloadKind.DATA), (2, b"two", PayloadKind.DATA)]
    assert observer.all("delivered") == observer.all("received") == []


def test_observer_gets_first_copy_with_its_neighbor() -> None:
    runtime = FakeRuntime()
    peer, observer = observed_peer(runtime)
    first, second = link(peer, 2), link(peer, 3)
    second.remote_sends(broadcast_of(9, 1))
    first.remote_sends(broadcast_of(9, 1), broadcast_of(9, 2))
    second.remote_sends(broadcast_of(9, 2))
    assert observer.all("received") == [(broadcast_of(9, 1), 3), (broadcast_of(9, 2), 2)]
    assert observer.all("delivered") == [(message,) for message in runtime.delivered]
    assert [message.sequence for (message,) in observer.all("delivered")] == [1, 2]


def test_observer_gets_received_before_delivered_in_order() -> None:
    peer, observer = observed_peer(FakeRuntime())
    neighbor = link(peer, 2)
    neighbor.remote_sends(broadcast_of(9, 2), broadcast_of(9, 1))
    calls = [(name, each[0].sequence) for name, *each in observer.calls if name in ("received", "delivered")]
    assert calls == [("received", 2), ("received", 1), ("delivered", 1), ("delivered", 2)]
    assert observer.all("delivered")[0] == (Message(9, 1, b"1", 2),)


def test_observer_gets_missed_messages() -> None:
    runtime = FakeRuntime()
    peer, observer = observed_peer(runtime)
    neighbor = link(peer, 2)
    neighbor.remote_sends(broadcast_of(9, 1), broadcast_of(9, 5))
    runtime.advance(1)
    neighbor.remote_sends(Unavailable(9, 2, 4, UnavailableReason.DROPPED))
    runtime.advance(2)
    assert observer.all("missed") == [(each,) for each in runtime.reported_missed] == [(Missed(9, 2, 4),)]
    assert [message.sequence for (message,) in observer.all("delivered")] == [1, 5]


def test_observer_gets_state_and_link_events_but_no_trace() -> None:
    runtime = FakeRuntime()
    peer, observer = observed_peer(runtime)
    neighbor = link(peer, 2, EMPTY_DIGEST)
    neighbor.remote_sends(b"\0\0\0\x04\0\0\0\x15")  # a truncated broadcast
    peer.leave()
    runtime.advance(10)
    calls = [event for (event,) in observer.all("on_event")]
    assert calls == [event for event in runtime.events if not isinstance(event, TraceEvent)]
    assert calls == [
        StateChanged(PeerState.CONNECTED),
        LinkUp(peer_info(2)),
        LinkDown(peer_info(2), LinkDownReason.PROTOCOL_ERROR),
        StateChanged(PeerState.LEAVING),
        StateChanged(PeerState.LEFT),
    ]
    assert any(isinstance(event, TraceEvent) for event in runtime.events)


def test_observer_gets_duplicates_summed_per_second() -> None:
    runtime = FakeRuntime()
    peer, observer = observed_peer(runtime)
    first, second = link(peer, 2), link(peer, 3)
    for sequence in range(1, 6):
        first.remote_sends(broadcast_of(9, sequence))
        second.remote_sends(broadcast_of(9, sequence))
    assert observer.all("duplicates") == []
    runtime.advance(2)
    assert observer.all("duplicates") == [(5,)]
    runtime.advance(5)
    assert observer.all("duplicates") == [(5,)], "no call without duplicates"
    second.remote_sends(broadcast_of(9, 5))
    runtime.advance(2)
    assert observer.all("duplicates") == [(5,), (1,)]


@pytest.mark.parametrize("method", ["leave", "close_channel"])
def test_observer_gets_remaining_duplicates_before_left(method: str) -> None:
    peer, observer = observed_peer(FakeRuntime())
    first, second = link(peer, 2), link(peer, 3)
    first.remote_sends(broadcast_of(9, 1))
    second.remote_sends(broadcast_of(9, 1))
    getattr(peer, method)()
    first.remote_closes()
    second.remote_closes()
    assert peer.state is PeerState.LEFT
    assert observer.all("duplicates") == [(1,)]
    assert observer.calls[-1] == ("on_event", StateChanged(PeerState.LEFT)), "LEFT is the last event"


def test_observer_gets_messages_of_a_new_neighbor() -> None:
    peer, observer = observed_peer(FakeRuntime())
    late = link(peer, 2, digest_of((9, 1, 2)))
    late.remote_sends(broadcast_of(9, 1), broadcast_of(9, 2))
    assert [neighbor for _, neighbor in observer.all("received")] == [2, 2]
