"""False claims about messages that do not exist, and what follows. On a manual clock, because some of it takes long.

Here the channel is not signed, where members are trusted. `tests/protocol/broadcast/test_proofs.py` has the same
attacks on a signed channel, where they have no effect.
"""

from broadloom.protocol import Tuning
from broadloom.wire.link_messages import Heartbeat, LastKnown
from broadloom.wire.types import AuthorState
from tests.protocol.fake_runtime import FakeConnection, FakeRuntime, broadcast_of, creator, link

A = 71
LONG_AGO_MS = 10**9


def wait(runtime: FakeRuntime, seconds: int, *connections: FakeConnection) -> None:
    """Let time pass while all neighbors send heartbeats."""
    for _ in range(seconds):
        for connection in connections:
            connection.remote_sends(Heartbeat())
        runtime.advance(1)


def with_false_claim(runtime: FakeRuntime) -> tuple[FakeConnection, FakeConnection]:
    """Two neighbors of a peer that accepted a false claim about A, long enough ago that it may have expired."""
    peer = creator(runtime, Tuning(retention_s=60))
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(broadcast_of(A, 1))
    liar.remote_sends(LastKnown((AuthorState(A, 1, 1000, LONG_AGO_MS),)))
    wait(runtime, 15, liar, honest)
    return liar, honest


def test_buffered_message_is_relayed_once_after_false_claim() -> None:
    runtime = FakeRuntime()
    other, honest = with_false_claim(runtime)
    for _ in range(10):
        honest.remote_sends(broadcast_of(A, 1003))  # 1002 is missing
    assert [each.sequence for each in other.broadcasts()].count(1003) == 1


def test_duplicate_frame_is_retained_once_after_false_claim() -> None:
    runtime = FakeRuntime()
    other, honest = with_false_claim(runtime)
    honest.remote_sends(broadcast_of(A, 1003), broadcast_of(A, 1003))
    wait(runtime, 90, other, honest)


def test_message_is_delivered_once_after_false_claim() -> None:
    runtime = FakeRuntime()
    _, honest = with_false_claim(runtime)
    honest.remote_sends(broadcast_of(A, 1001), broadcast_of(A, 5), broadcast_of(A, 1001))
    for sequence in range(6, 1002):
        honest.remote_sends(broadcast_of(A, sequence))
    assert len(set(runtime.delivered_ids())) == len(runtime.delivered_ids())


def test_author_is_delivered_right_after_false_claim() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, Tuning(retention_s=60))
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(broadcast_of(A, 1))
    liar.remote_sends(LastKnown((AuthorState(A, 1, 1000, LONG_AGO_MS),)))
    wait(runtime, 3, liar, honest)
    honest.remote_sends(broadcast_of(A, 2), broadcast_of(A, 3))
    assert runtime.delivered_ids() == [(A, 1), (A, 2), (A, 3)]
