"""Gap repair: missing messages are requested, and reported as missed when no neighbor can send them."""

import pytest

from broadloom.protocol import Tuning
from broadloom.protocol.broadcast.gap_repair import NEVER_HELD_TIMEOUT_S
from broadloom.protocol.events import Missed
from broadloom.wire.link_messages import Unavailable, UnavailableReason, Want
from tests.protocol.broadcast.harness import HELD, SHORT_RETENTION, A, B, holder, wants
from tests.protocol.fake_runtime import (
    NO_TIMEOUT,
    FakeRuntime,
    broadcast_of,
    creator,
    digest,
    digest_of,
    link,
    seeker,
)


def test_gaps_are_requested_together_after_delay() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3, 4)]
    connections[0].remote_sends(broadcast_of(A, 1), broadcast_of(A, 4), broadcast_of(A, 6))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s - 0.01)
    connections[0].remote_sends(broadcast_of(A, 8))
    assert wants(*connections) == []
    runtime.advance(0.02)
    (asked,) = [each for each in connections if wants(each)]
    assert wants(asked) == [Want(A, 2, 3), Want(A, 5, 5)], "the gap before 8 has only just opened"


def test_next_neighbor_is_asked_at_once_if_one_does_not_have_the_messages() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3, 4)]
    connections[0].remote_sends(broadcast_of(A, 1), broadcast_of(A, 3))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    for count in (1, 2, 3, 3):  # not a second round at once
        asked = [each for each in connections if wants(each)]
        assert len(asked) == count
        assert all(wants(each) == [Want(A, 2, 2)] for each in asked)
        for each in asked:
            each.remote_sends(Unavailable(A, 2, 2, UnavailableReason.PENDING))


def test_gap_that_closes_by_itself_is_not_requested() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connection = link(peer, 2)
    connection.remote_sends(broadcast_of(A, 2))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s / 2)
    connection.remote_sends(broadcast_of(A, 1))
    runtime.advance(10 * NO_TIMEOUT.gap_repair_delay_s)
    assert wants(connection) == []
    # The next gap is noticed too.
    connection.remote_sends(broadcast_of(A, 4))
    runtime.advance(2 * NO_TIMEOUT.gap_repair_delay_s)
    assert Want(A, 3, 3) in wants(connection)


def test_requested_messages_close_the_gap() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connection = link(peer, 2)
    connection.remote_sends(broadcast_of(A, 3))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    (want,) = wants(connection)
    connection.remote_sends(*(broadcast_of(A, sequence) for sequence in range(want.first, want.last + 1)))
    assert runtime.delivered_ids() == [(A, 1), (A, 2), (A, 3)]
    runtime.advance(10 * NO_TIMEOUT.gap_repair_delay_s)
    assert wants(connection) == [want]


def test_each_neighbor_is_asked_once_when_message_is_expired() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3, 4)]
    connections[0].remote_sends(broadcast_of(A, 3))
    asked = []
    for _ in connections:
        runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
        (connection,) = [connection for connection in connections if connection not in asked and wants(connection)]
        asked.append(connection)
        connection.remote_sends(Unavailable(A, 1, 2, UnavailableReason.DROPPED))
    assert [len(wants(connection)) for connection in connections] == [1, 1, 1]


def test_others_are_asked_again_while_one_neighbor_does_not_answer() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    first, second, silent = (link(peer, name) for name in (2, 3, 4))
    first.remote_sends(broadcast_of(A, 2))
    for connection in (first, second):
        connection.remote_sends(Unavailable(A, 1, 1000, UnavailableReason.PENDING))
    runtime.advance(6 * NO_TIMEOUT.gap_repair_delay_s)
    assert wants(silent)
    assert wants(first)
    assert wants(second)


def test_neighbor_that_names_ranges_out_of_order_is_not_asked_for_them() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    honest, liar = link(peer, 2), link(peer, 3)
    honest.remote_sends(broadcast_of(A, 2))
    for first in (30, 40, 1):
        liar.remote_sends(Unavailable(A, first, first + 1, UnavailableReason.DROPPED))
    runtime.advance(4 * NO_TIMEOUT.gap_repair_delay_s)
    assert wants(liar) == []
    assert wants(honest)


def test_messages_expired_at_all_neighbors_are_missed_and_delivery_continues() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3)]
    connections[0].remote_sends(broadcast_of(A, 1), broadcast_of(A, 5), broadcast_of(A, 6))
    connections[0].remote_sends(Unavailable(A, 2, 4, UnavailableReason.DROPPED))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert runtime.reported_missed == []
    connections[1].remote_sends(Unavailable(A, 2, 4, UnavailableReason.DROPPED))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert runtime.reported_missed == [Missed(A, 2, 4)]
    assert runtime.delivered_ids() == [(A, 1), (A, 5), (A, 6)]
    assert peer.counters.missed == 3
    # A message that was given up is not delivered after later ones.
    connections[0].remote_sends(broadcast_of(A, 3), broadcast_of(A, 7))
    assert runtime.delivered_ids()[3:] == [(A, 7)]


def test_only_range_expired_at_all_neighbors_is_given_up() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, name) for name in (2, 3)]
    connections[0].remote_sends(broadcast_of(A, 6))
    connections[0].remote_sends(Unavailable(A, 1, 5, UnavailableReason.DROPPED))
    connections[1].remote_sends(Unavailable(A, 1, 3, UnavailableReason.DROPPED))
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert runtime.reported_missed == [Missed(A, 1, 3)]
    runtime.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert set(wants(*connections)) == {Want(A, 4, 5)}


def test_pending_gap_is_given_up_only_after_retention() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    connections = [link(peer, name) for name in (2, 3)]
    connections[0].remote_sends(broadcast_of(A, 2))
    while runtime.time < SHORT_RETENTION.retention_s - SHORT_RETENTION.gap_repair_delay_s:
        runtime.advance(SHORT_RETENTION.gap_repair_delay_s)
        for connection in connections:
            connection.remote_sends(Unavailable(A, 1, 1, UnavailableReason.PENDING))
    assert (runtime.reported_missed, runtime.delivered) == ([], [])
    runtime.advance(2 * SHORT_RETENTION.gap_repair_delay_s + 0.01)
    assert runtime.reported_missed == [Missed(A, 1, 1)]
    assert runtime.delivered_ids() == [(A, 2)]


def test_later_gap_is_not_given_up_with_earlier_one() -> None:
    # Message 1 never arrives; message 3 has been missing only briefly when message 1 is given up.
    runtime = FakeRuntime()
    connection = link(creator(runtime, SHORT_RETENTION), 2)
    connection.remote_sends(broadcast_of(A, 2))
    runtime.advance(SHORT_RETENTION.retention_s)
    connection.remote_sends(broadcast_of(A, 4))
    runtime.advance(4 * SHORT_RETENTION.gap_repair_delay_s)
    assert runtime.reported_missed == [Missed(A, 1, 1)]
    connection.remote_sends(broadcast_of(A, 3))
    assert runtime.delivered_ids() == [(A, 2), (A, 3), (A, 4)]


def test_active_author_does_not_keep_gap_open_forever() -> None:
    runtime = FakeRuntime()
    connections = [link(peer, name) for peer in [creator(runtime, SHORT_RETENTION)] for name in (2, 3)]
    sequence = 2
    while runtime.time < 2 * SHORT_RETENTION.retention_s:
        connections[0].remote_sends(broadcast_of(A, sequence))
        for connection in connections:
            connection.remote_sends(Unavailable(A, 1, 1, UnavailableReason.PENDING))
        runtime.advance(SHORT_RETENTION.gap_repair_delay_s)
        sequence += 1
    assert runtime.reported_missed == [Missed(A, 1, 1)]
    assert runtime.delivered_ids() == [(A, each) for each in range(2, sequence)]


def test_continuous_reordering_loses_no_message() -> None:
    # There is always some gap, but each closes soon, so none is given up.
    runtime = FakeRuntime()
    connection = link(creator(runtime, SHORT_RETENTION), 2)
    connection.remote_sends(broadcast_of(A, 2))
    sequence = 2
    while runtime.time < 3 * SHORT_RETENTION.retention_s:
        runtime.advance(0.1)
        connection.remote_sends(broadcast_of(A, sequence + 2), broadcast_of(A, sequence - 1))
        sequence += 2
    connection.remote_sends(broadcast_of(A, sequence - 1))
    assert runtime.reported_missed == []
    assert runtime.delivered_ids() == [(A, each) for each in range(1, sequence + 1)]


def test_gap_is_reported_after_long_isolation() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, SHORT_RETENTION)
    connection = link(peer, 2)
    connection.remote_sends(broadcast_of(A, 1), broadcast_of(A, 3))
    connection.remote_closes()
    runtime.advance(2 * SHORT_RETENTION.author_eviction_s)
    assert (runtime.delivered_ids(), runtime.reported_missed) == ([(A, 1)], [])
    link(peer, 3)
    runtime.advance(2 * SHORT_RETENTION.gap_repair_delay_s)
    assert runtime.reported_missed == [Missed(A, 2, 2)]
    assert runtime.delivered_ids() == [(A, 1), (A, 3)]


def test_messages_no_neighbor_ever_held_are_missed_after_timeout() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    connections = [link(peer, 2, digest_of()), link(peer, 3, digest())]
    peer.on_enough_links()
    connections[0].remote_sends(broadcast_of(A, 3))
    while runtime.time < NEVER_HELD_TIMEOUT_S - 1:
        runtime.advance(0.5)
        for connection in connections:
            connection.remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
    assert (runtime.reported_missed, runtime.delivered) == ([], [])
    while runtime.time < NEVER_HELD_TIMEOUT_S + 5:
        runtime.advance(0.5)
        for connection in connections:
            connection.remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
    assert runtime.reported_missed == [Missed(A, 1, 2)]
    assert runtime.delivered_ids() == [(A, 3)]


def test_newcomer_that_got_messages_of_an_author_skips_no_later_ones_silently() -> None:
    """Ages are understated: the first message seems to have been sent after this peer joined, the third one before."""
    runtime = FakeRuntime()
    runtime.time = 10.0
    peer = seeker(runtime)
    connection = link(peer, 2, digest_of())
    peer.on_enough_links()
    connection.remote_sends(broadcast_of(A, 1), broadcast_of(A, 3, age_ms=5000))
    while runtime.time < 10 + NEVER_HELD_TIMEOUT_S + 5:
        runtime.advance(0.5)
        connection.remote_sends(Unavailable(A, 2, 2, UnavailableReason.NEVER_HELD))
    assert runtime.reported_missed == [Missed(A, 2, 2)]
    assert runtime.delivered_ids() == [(A, 1), (A, 3)]


def test_messages_no_neighbor_ever_held_are_not_missed_on_alert() -> None:
    """A member that has them may be in another partition."""
    runtime = FakeRuntime()
    peer = seeker(runtime)
    connection = link(peer, 2, digest_of())
    peer.on_enough_links()
    connection.remote_sends(broadcast_of(A, 3))
    peer.partition_merge.alert()
    alert_until = runtime.time + peer.settings.alert_s
    while runtime.time < alert_until - 1:
        runtime.advance(0.5)
        connection.remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
    assert (runtime.reported_missed, runtime.delivered) == ([], [])
    while runtime.time < alert_until + 2:
        runtime.advance(0.5)
        connection.remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
    assert runtime.reported_missed == [Missed(A, 1, 2)]


def test_gap_stays_open_while_one_neighbor_may_receive_it() -> None:
    runtime = FakeRuntime()
    peer = seeker(runtime)
    connections = [link(peer, 2, digest_of()), link(peer, 3, digest())]
    connections[0].remote_sends(broadcast_of(A, 3))
    while runtime.time < 3 * NEVER_HELD_TIMEOUT_S:
        runtime.advance(0.5)
        connections[0].remote_sends(Unavailable(A, 1, 2, UnavailableReason.NEVER_HELD))
        connections[1].remote_sends(Unavailable(A, 1, 2, UnavailableReason.PENDING))
    assert (runtime.reported_missed, runtime.delivered) == ([], [])


@pytest.mark.parametrize(
    ("answering", "delay_s", "reason"),
    [
        (3, 0.0, UnavailableReason.NEVER_HELD),
        (3, 0.8, UnavailableReason.NEVER_HELD),
        (2, 0.0, UnavailableReason.PENDING),
    ],
    ids=["all answer", "all answer late", "one is silent"],
)
def test_neighbors_with_the_same_gap_do_not_wait_for_each_other_for_long(
    answering: int, delay_s: float, reason: UnavailableReason
) -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connections = [link(peer, number) for number in (2, 3, 4)]
    connections[0].remote_sends(broadcast_of(A, 1), broadcast_of(A, 3))
    answered = dict.fromkeys(connections[:answering], 0)
    while runtime.time < NO_TIMEOUT.alert_s + 5:
        runtime.advance(0.1)
        for each in answered:
            if len(wants(each)) > answered[each]:
                answered[each] = len(wants(each))
                runtime.call_later(delay_s, each.remote_sends, Unavailable(A, 2, 2, UnavailableReason.PENDING))
    connections[0].sent.clear()
    connections[0].remote_sends(Want(A, 2, 2))
    assert [each.reason for each in connections[0].sent_messages(Unavailable)] == [reason]
    assert (runtime.reported_missed, runtime.delivered[1:]) == ([], [])


# Responding to Want.


def test_want_is_answered_with_retained_messages() -> None:
    connection = link(holder(FakeRuntime(), *HELD), 3, digest_of((A, 1, 9), (B, 1, 9)))
    connection.remote_sends(Want(A, 2, 3))
    assert connection.broadcast_ids() == [(A, 2), (A, 3)]
    assert connection.sent_messages(Unavailable) == []


def test_want_for_unknown_messages_is_answered_with_pending() -> None:
    connection = link(holder(FakeRuntime(), broadcast_of(A, 1)), 3)
    connection.remote_sends(Want(A, 2, 4), Want(B, 1, 2))
    assert connection.sent_messages(Unavailable) == [
        Unavailable(A, 2, 4, UnavailableReason.PENDING),
        Unavailable(B, 1, 2, UnavailableReason.PENDING),
    ]


def test_want_for_messages_before_join_is_answered_with_never_held() -> None:
    # This peer never held it, so it cannot know whether others do.
    peer = seeker(FakeRuntime())
    link(peer, 2, digest_of((A, 1, 5)))
    connection = link(peer, 3)
    connection.remote_sends(Want(A, 2, 3))
    assert connection.sent_messages(Unavailable) == [
        Unavailable(A, 2, 5, UnavailableReason.NEVER_HELD)
    ]  # including the following ones, to save requests


def test_want_for_dropped_messages_is_answered_with_expired() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, Tuning(heartbeat_timeout_s=1e9, retention_s=10))
    source = link(peer, 2)
    source.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    runtime.advance(8)
    source.remote_sends(broadcast_of(A, 3))
    runtime.advance(4)
    connection = link(peer, 3, digest_of((A, 1, 9)))
    connection.remote_sends(Want(A, 1, 3))
    assert connection.sent_messages(Unavailable) == [Unavailable(A, 1, 2, UnavailableReason.DROPPED)]
    assert connection.broadcast_ids() == [(A, 3)]


def test_want_for_everything_is_answered_within_bounds() -> None:
    connection = link(holder(FakeRuntime(), broadcast_of(A, 1)), 3, digest_of((A, 1, 1)))
    connection.remote_sends(Want(A, 1, (1 << 64) - 1), Want(A, 5, 2))
    assert connection.broadcast_ids() == [(A, 1)]
    assert connection.sent_messages(Unavailable) == [Unavailable(A, 2, (1 << 64) - 1, UnavailableReason.PENDING)]
