"""The fast path: what is usual, what ends it, and that it does exactly what the receiver does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.broadcast.acks import UPDATE_BYTES
from broadloom.protocol.broadcast.fast_path import FastPath
from broadloom.protocol.broadcast.signing import MessageVerifier
from broadloom.protocol.events import Batch, Missed
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import Dissemination, Priority, encode_broadcast, single_layout
from broadloom.wire.link_messages import (
    Ack,
    CredentialRequest,
    Graft,
    IHave,
    LastKnown,
    Leave,
    Prune,
    Unavailable,
    Want,
)
from broadloom.wire.payload_kind import WANTS_RECEIPT
from broadloom.wire.types import AuthorState, TreePosition
from tests.protocol import signed_runtime
from tests.protocol.broadcast.harness import A, B
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime, Sendable, creator, link, peer_info

SETTINGS = Tuning(heartbeat_timeout_s=1e9)
PARENT, CHILD, LAZY, NEW = 2, 3, 4, 5
SINGLE = single_layout(0)
STREAM_OFFSET_AT = 32
SIGNATURE_SIZE_AT = SINGLE.size - 16
SIGNED_SINGLE = single_layout(len(signed_runtime.signed(A, 1).signature))


def tree_frame(sequence: int, data: bytes = b"moves", author: int = A, **changes: Any) -> Broadcast:
    return Broadcast(author, sequence, 1, (data,), 2, dissemination=Dissemination.TREE)._replace(**changes)


class Relay:
    """A peer between its parent and a child, with a third link that is lazy. A has sent two messages: the second one
    taught the fast path its route."""

    def __init__(self, tuning: Tuning = SETTINGS) -> None:
        self.runtime = FakeRuntime()
        self.peer = creator(self.runtime, tuning)
        self.parent, self.child, self.lazy = (link(self.peer, peer_id) for peer_id in (PARENT, CHILD, LAZY))
        self.send(tree_frame(1))
        self.lazy.remote_sends(Prune(A))
        self.send(tree_frame(2))

    def send(self, *frames: Sendable) -> None:
        self.parent.remote_sends(*frames)

    @property
    def last(self) -> int:
        return self.peer.broadcaster.receiver.windows[A].last_contiguous


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each broadcast frame, whether the fast path took it."""
    results: list[bool] = []
    take = FastPath.take

    def recorded(self: FastPath, link: Any, frame: bytes) -> bool:
        results.append(take(self, link, frame))
        return results[-1]

    monkeypatch.setattr(FastPath, "take", recorded)
    return results


def test_single_message_from_parent_is_relayed_delivered_and_retained(taken: list[bool]) -> None:
    relay = Relay()
    relay.send(tree_frame(3, b"e4", age_ms=7))
    assert taken == [False, False, True]
    assert relay.runtime.delivered[-1].data == b"e4"
    assert relay.child.broadcasts()[-1] == tree_frame(3, b"e4", age_ms=7, hops=3)
    assert relay.lazy.broadcast_ids() == [(A, 1)]
    relay.lazy.remote_sends(Want(A, 3, 3))
    assert relay.lazy.broadcasts()[-1].messages == (b"e4",)
    relay.runtime.advance(SETTINGS.ihave_interval_s)
    assert relay.lazy.sent_messages(IHave)[-1].positions == (TreePosition(A, 1, 3, 2),)


@pytest.mark.parametrize("size", range(9))
def test_every_size_is_taken(size: int, taken: list[bool]) -> None:
    relay = Relay()
    relay.send(tree_frame(3, bytes(size)))
    assert taken[-1]
    assert relay.runtime.delivered[-1].data == bytes(size)


class _AdmitAll:
    def admit(self, *_: object) -> bool:
        return True


UNUSUAL_FRAMES = {
    "a bundle": tree_frame(3, messages=(b"a", b"b")),
    "another priority": tree_frame(3, priority=Priority.HIGH),
    "a TTL": tree_frame(3, ttl_ms=1000),
    "a receipt": tree_frame(3, kind=WANTS_RECEIPT),
    "a signature": tree_frame(3, signature=bytes(64)),
    "a flood": tree_frame(3, dissemination=Dissemination.FLOOD),
    "another distance": tree_frame(3, hops=3),
    "a new stream": tree_frame(3, stream_start=3),
    "a gap": tree_frame(4),
    "a duplicate": tree_frame(2),
    "an expired copy": tree_frame(3, age_ms=int(SETTINGS.retention_s * 1000) + 1),
    "a large frame": tree_frame(3, bytes(8 << 10)),
    "an unknown author": tree_frame(1, author=B),
}


def pull(relay: Relay) -> None:
    """The child has a message that the parent does not send."""
    relay.child.remote_sends(IHave((TreePosition(A, 1, 3, 2),)))
    relay.runtime.advance(2 * SETTINGS.gap_repair_delay_s)
    assert relay.child.sent_messages(Graft)


def switch(relay: Relay) -> None:
    """The author is far away, and much closer over a link that was pruned."""
    relay.send(tree_frame(3, hops=9))
    relay.child.remote_sends(tree_frame(3, hops=9))
    relay.send(tree_frame(4, hops=9))
    assert relay.child.sent_messages(Prune)
    relay.child.remote_sends(IHave((TreePosition(A, 1, 4, 2),)))
    assert relay.child.sent_messages(Graft)


EVENTS: dict[str, Callable[[Relay], object]] = {
    "prune": lambda relay: relay.child.remote_sends(Prune(A)),
    "graft": lambda relay: relay.lazy.remote_sends(Graft(A, 2)),
    "new link": lambda relay: link(relay.peer, NEW),
    "lost link": lambda relay: relay.lazy.remote_closes(),
    "second copy": lambda relay: relay.child.remote_sends(tree_frame(2)),
    "copy from another link": lambda relay: relay.child.remote_sends(tree_frame(3)),
    "gap": lambda relay: relay.send(tree_frame(4)),
    "pull over another link": pull,
    "switch to a closer parent": switch,
    "unresolved claim": lambda relay: setattr(relay.peer.broadcaster.receiver.windows[A], "claimed_through", 9),
    "quotas": lambda relay: setattr(relay.peer.broadcaster, "quotas", _AdmitAll()),
    "leaving parent": lambda relay: relay.send(Leave((peer_info(ME), peer_info(PARENT)))),
    "second peer in this process": lambda relay: relay.peer.broadcaster.in_process_links.append(
        next(iter(relay.peer.links))
    ),
    "window that has not started": lambda relay: setattr(
        relay.peer.broadcaster.receiver.windows[A], "has_started", False
    ),
}


@pytest.mark.parametrize("frame", UNUSUAL_FRAMES.values(), ids=UNUSUAL_FRAMES.keys())
def test_receiver_handles_unusual_frame(frame: Broadcast, taken: list[bool]) -> None:
    Relay().send(frame)
    assert taken == [False, False, False]


@pytest.mark.parametrize("event", EVENTS)
def test_receiver_handles_frame_after(event: str, taken: list[bool]) -> None:
    relay = Relay()
    EVENTS[event](relay)
    relay.send(tree_frame(relay.last + 1, hops=relay.peer.broadcaster.receiver.windows[A].tree.first_copy_hops))
    assert not taken[-1]


@pytest.mark.parametrize("event", ["prune", "graft", "new link", "lost link", "second copy"])
def test_usual_frames_return_with_the_next_one(event: str, taken: list[bool]) -> None:
    relay = Relay()
    EVENTS[event](relay)
    relay.send(tree_frame(3), tree_frame(4))
    assert taken[-2:] == [False, True]
    assert relay.last == 4


def test_malformed_padding_closes_link(taken: list[bool]) -> None:
    relay = Relay()
    frame = encode_broadcast(tree_frame(3, b"abc"))
    relay.send(frame[:-1] + b"x")
    assert not any(taken)
    assert relay.parent.closed


@pytest.mark.parametrize("size", [0, 4, 12, 1000])
def test_message_that_ends_elsewhere_than_its_frame_closes_link(size: int, taken: list[bool]) -> None:
    relay = Relay()
    frame = bytearray(encode_broadcast(tree_frame(3, bytes(8))))
    frame[SINGLE.size - 8 : SINGLE.size] = 2 * size.to_bytes(4, "big")
    relay.send(bytes(frame))
    assert not any(taken)
    assert relay.parent.closed
    assert relay.last == 2


def test_congested_child_gets_frames_in_order_when_writable_again(taken: list[bool]) -> None:
    relay = Relay()
    relay.child.is_congested = True
    relay.send(tree_frame(3), tree_frame(4))
    assert relay.child.broadcast_ids()[-1] == (A, 2)
    relay.child.is_congested = False
    relay.child.handler.on_writable()
    assert relay.child.broadcast_ids()[-2:] == [(A, 3), (A, 4)]
    relay.send(tree_frame(5))
    assert relay.child.broadcast_ids()[-1] == (A, 5)
    assert taken[2:] == [True] * 3


def test_congested_child_gets_a_report_instead_of_a_frame_that_was_dropped(taken: list[bool]) -> None:
    relay = Relay(replace(SETTINGS, retention_bytes_max=0))
    relay.child.is_congested = True
    relay.send(tree_frame(3))
    assert taken[-1]
    relay.child.is_congested = False
    relay.child.handler.on_writable()
    assert relay.child.sent_messages(Unavailable)[-1].first == 3


def test_callback_that_broadcasts_keeps_everything_in_order(taken: list[bool]) -> None:
    relay = Relay()
    deliver = relay.runtime.deliver

    def reply(batch: Batch) -> None:
        deliver(batch)
        relay.peer.broadcast(b"re: %d" % batch.first_sequence)

    relay.runtime.deliver = reply  # type: ignore[method-assign]
    relay.send(tree_frame(3), tree_frame(4))
    assert taken[-2:] == [True, True]
    assert [each for each in relay.child.broadcast_ids() if each[0] == A] == [(A, 1), (A, 2), (A, 3), (A, 4)]
    assert [each for each in relay.child.broadcast_ids() if each[0] == ME] == [(ME, 1), (ME, 2)]


def test_frames_are_acknowledged(taken: list[bool]) -> None:
    relay = Relay()
    count = 200 * UPDATE_BYTES // 4096
    relay.send(*(tree_frame(sequence, bytes(4096)) for sequence in range(3, 3 + count)))
    assert all(taken[2:])
    assert relay.parent.sent_messages(Ack)


def test_frame_of_stream_that_starts_at_zero_closes_link(taken: list[bool]) -> None:
    """As everywhere else, although a neighbor claimed that it does."""
    relay = Relay()
    relay.lazy.remote_sends(LastKnown((AuthorState(B, 0, 2, 0),)))
    relay.send(tree_frame(1, author=B), tree_frame(2, author=B))
    frame = bytearray(encode_broadcast(tree_frame(3, author=B)))
    frame[STREAM_OFFSET_AT : STREAM_OFFSET_AT + 4] = (3).to_bytes(4, "big")
    relay.send(bytes(frame))
    assert not taken[-1]
    assert relay.parent.closed
    assert relay.runtime.delivered_ids()[-1] == relay.child.broadcast_ids()[-1] == (B, 2)


def test_observer_sees_every_frame() -> None:
    seen: list[tuple[str, int]] = []

    class _Observer:
        def received(self, message: Broadcast, neighbor: int) -> None:
            seen.append((f"received from {neighbor}", message.sequence))

        def delivered(self, batch: Batch) -> None:
            seen.append(("delivered", batch.first_sequence))

        def missed(self, missed: Missed) -> None: ...
        def sent(self, sequence: int, data: bytes, kind: int) -> None: ...
        def on_event(self, event: object) -> None: ...
        def duplicates(self, count: int) -> None: ...

    relay = Relay()
    relay.peer.observer = _Observer()
    relay.send(tree_frame(3))
    assert seen == [(f"received from {PARENT}", 3), ("delivered", 3)]


# Signed channels.


def signed_frame(sequence: int, **changes: Any) -> Broadcast:
    return signed_runtime.sign(tree_frame(sequence, **changes))


class SignedRelay(Relay):
    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.peer, self.signer = signed_runtime.member(self.runtime, SETTINGS)
        self.parent, self.child, self.lazy = (
            signed_runtime.link(self.peer, peer_id) for peer_id in (PARENT, CHILD, LAZY)
        )
        self.send(signed_runtime.credential(A), signed_frame(1))
        self.lazy.remote_sends(Prune(A))
        self.send(signed_frame(2))

    @property
    def verifier(self) -> MessageVerifier:
        assert self.peer.broadcaster.verifier is not None
        return self.peer.broadcaster.verifier


def test_signed_message_is_verified_relayed_and_proves_its_position(taken: list[bool]) -> None:
    relay = SignedRelay()
    relay.send(signed_frame(3))
    assert taken == [False, False, True]
    assert relay.runtime.delivered_ids()[-1] == (A, 3)
    assert relay.child.broadcasts()[-1] == signed_frame(3)._replace(hops=3)
    assert relay.verifier.proven_through(A) == 3


def test_forged_message_is_not_relayed_and_closes_link() -> None:
    relay = SignedRelay()
    relay.send(signed_frame(3)._replace(messages=(b"forged",)))
    assert relay.parent.closed
    assert relay.peer.counters.bad_signatures == 1
    assert relay.child.broadcast_ids()[-1] == relay.runtime.delivered_ids()[-1] == (A, 2)


def test_message_of_author_whose_ticket_was_revoked_is_neither_relayed_nor_delivered() -> None:
    relay = SignedRelay()
    relay.signer.revoked.add(A)
    relay.verifier.recheck_all()
    relay.send(signed_frame(3))
    assert not relay.parent.closed
    assert relay.child.broadcast_ids()[-1] == relay.runtime.delivered_ids()[-1] == (A, 2)


def test_overstated_age_is_not_relayed(taken: list[bool]) -> None:
    relay = SignedRelay()
    relay.send(signed_frame(3, age_ms=60_000))
    assert taken[-1]
    assert relay.child.broadcasts()[-1].age_ms < 1000


@pytest.mark.parametrize("signed", [False, True])
def test_wrong_size_of_signature_closes_link(signed: bool, taken: list[bool]) -> None:
    relay = SignedRelay() if signed else Relay()
    frame = bytearray(encode_broadcast(signed_frame(3) if signed else tree_frame(3)))
    frame[SIGNATURE_SIZE_AT : SIGNATURE_SIZE_AT + 4] = (4).to_bytes(4, "big")
    relay.send(bytes(frame))
    assert not any(taken)
    assert relay.parent.closed
    assert relay.last == 2


def send_announced(relay: SignedRelay) -> None:
    relay.lazy.remote_sends(IHave((TreePosition(A, 1, 3, 2),)))
    relay.send(signed_frame(3))


def send_to_child_without_credential(relay: SignedRelay) -> None:
    child = next(each for each in relay.peer.links if each.peer_id == CHILD)
    child.credentials_sent.clear()
    relay.send(signed_frame(3))


SIGNED_UNUSUAL: dict[str, Callable[[SignedRelay], None]] = {
    "frame without a signature": lambda relay: relay.send(tree_frame(3)),
    "shorter signature": lambda relay: relay.send(tree_frame(3, signature=bytes(4))),
    "overstated age beyond retention": lambda relay: relay.send(signed_frame(3, age_ms=1_000_000)),
    "message that was announced": send_announced,
    "child that needs the credential": send_to_child_without_credential,
}


@pytest.mark.parametrize("event", SIGNED_UNUSUAL)
def test_receiver_handles_signed_frame(event: str, taken: list[bool]) -> None:
    SIGNED_UNUSUAL[event](SignedRelay())
    assert taken == [False, False, False]


# The same histories with and without the fast path.

Step = tuple[str, int, int, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["frame"] * 8
            + ["bundle", "flood", "damaged", "prune", "graft", "congest", "drain", "close", "link", "wait"]
            + ["announce", "request"]
        ),
        st.integers(0, 3),  # the connection
        st.sampled_from([0] * 6 + [-1, 1, 2]),  # sequence numbers beside the next one
        st.sampled_from([2] * 6 + [1, 3, 5]),  # hops
        st.integers(0, SIGNED_SINGLE.size // 4 - 1),  # the word that is damaged
        st.sampled_from([0] * 4 + [90, 700, 1_000_000]),  # milliseconds at relays
    ),
    max_size=60,
)


def play(steps: list[Step], *, fast_path: bool, signed: bool) -> tuple[object, ...]:
    """Everything that can be observed of a peer: what it sent over each link, and what it delivered and reported."""
    runtime = FakeRuntime()
    tuning = replace(SETTINGS, fast_path=fast_path)
    peer: Peer = signed_runtime.member(runtime, tuning)[0] if signed else creator(runtime, tuning)
    layout = SIGNED_SINGLE if signed else SINGLE

    def add_link(peer_id: int) -> FakeConnection:
        if not signed:
            return link(peer, peer_id)
        connection = signed_runtime.link(peer, peer_id)
        connection.remote_sends(signed_runtime.credential(A))
        return connection

    def finished(frame: Broadcast) -> Broadcast:
        return signed_runtime.sign(frame, sent_at=runtime.wall_time_s()) if signed else frame

    connections: list[FakeConnection] = [add_link(peer_id) for peer_id in (2, 3, 4, 5)]
    next_sequence = 1
    for action, index, offset, hops, word, age_ms in steps:
        connection = connections[index]
        sequence = max(1, next_sequence + offset)
        match action:
            case "frame" | "bundle" | "flood":
                frame = tree_frame(sequence, b"%d" % sequence, hops=hops, age_ms=age_ms)
                if action == "bundle":
                    frame = frame._replace(messages=(b"a", b"b"))
                elif action == "flood":
                    frame = frame._replace(dissemination=Dissemination.FLOOD)
                connection.remote_sends(finished(frame))
                next_sequence = max(next_sequence, sequence + len(frame.messages))
            case "damaged":
                damaged = bytearray(encode_broadcast(finished(tree_frame(sequence, bytes(8), hops=hops))))
                word %= layout.size // 4
                for each in {word, layout.size // 4 - 2 if word == layout.size // 4 - 1 else word}:
                    damaged[4 * each : 4 * each + 4] = (1000).to_bytes(4, "big")
                connection.remote_sends(bytes(damaged))
            case "prune":
                connection.remote_sends(Prune(A))
            case "graft":
                connection.remote_sends(Graft(A, sequence - 1))
            case "announce":
                connection.remote_sends(IHave((TreePosition(A, 1, sequence, hops),)))
            case "request" if signed:
                connection.remote_sends(CredentialRequest(A, max(1, sequence - 1)))
            case "congest":
                connection.is_congested = True
            case "drain":
                connection.is_congested = False
                if not connection.closed:
                    connection.handler.on_writable()
            case "close":
                connection.remote_closes()
            case "link" if connection.closed and len(peer.links) < SETTINGS.degree:
                connections[index] = add_link(10 * next_sequence + index)
            case _:
                runtime.advance(0.3)
    runtime.advance(3.0)
    retained = [list(peer.broadcaster.retention.in_range(A, 1, 1 << 32))]
    return (
        runtime.delivered_ids(),
        runtime.reported_missed,
        [each.sent for each in connections],
        retained,
        peer.counters,
    )


@settings(max_examples=600, deadline=None)
@given(STEPS, st.booleans())
def test_random_history_is_the_same_without_fast_path(steps: list[Step], signed: bool) -> None:
    assert play(steps, fast_path=True, signed=signed) == play(steps, fast_path=False, signed=signed)
