"""Direct requests between two peers: every request has one outcome, and its handler runs at most once."""

import pytest

from broadloom.errors import AlreadyRepliedError
from broadloom.protocol.owner.card import Quota
from broadloom.protocol.requests.deadlines import Deadlines
from broadloom.protocol.requests.incoming import IncomingState
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest, RequestState
from broadloom.wire import decode
from broadloom.wire.codec import WireMessage
from broadloom.wire.direct_messages import (
    MORE,
    Cancel,
    DirectAccept,
    DirectClose,
    DirectOpen,
    Reply,
    Request,
    RequestStatus,
    Tell,
)
from broadloom.wire.exchange_messages import Reject, RejectReason
from broadloom.wire.fields import PART_BYTES_MAX
from broadloom.wire.link_messages import Heartbeat
from tests.protocol.fake_runtime import FakeRuntime, hello, open_exchange, peer_info
from tests.protocol.requests.direct_pair import CALLEE, CALLER, DirectPair

KIB = 1 << 10
MIB = 1 << 20


def kinds(outcomes: list[Outcome]) -> list[tuple[OutcomeKind, bool]]:
    return [(outcome.kind, outcome.sent) for outcome in outcomes]


# -- a request and its reply


def test_request_is_dialed_answered_and_the_connection_kept() -> None:
    pair = DirectPair()
    pair.request(b"first")
    pair.connect()
    pair.carry()
    (incoming,) = pair.started
    assert (incoming.data, incoming.peer_id, incoming.identity) == (b"first", CALLER, None)
    pair.answer(b"one")
    pair.request(b"second")
    pair.carry()
    pair.answer(b"two")
    assert [outcome.data for outcome in pair.outcomes] == [b"one", b"two"]
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)] * 2
    assert pair.dials == 1


def test_callee_sends_requests_over_the_same_connection() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request(b"back", peer=pair.callee)
    pair.carry()
    assert [(request.data, request.peer_id) for request in pair.started] == [(b"back", CALLEE)]
    pair.answer(b"reply")
    assert [outcome.data for outcome in pair.outcomes] == [b"reply"]
    assert pair.dials == 1


def test_requests_are_pipelined_up_to_the_limit_of_the_callee() -> None:
    pair = DirectPair(direct_inflight_max=3)
    pair.warm()
    for number in range(5):
        pair.request(b"%d" % number)
    pair.carry()
    assert [request.data for request in pair.started] == [b"0", b"1", b"2"]
    pair.answer(b"a")
    assert [request.data for request in pair.started] == [b"1", b"2", b"3"]
    while pair.started:
        pair.answer(b"b")
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)] * 5


def test_replies_may_come_in_any_order() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request(b"slow")
    pair.request(b"fast")
    pair.carry()
    pair.started.reverse()
    pair.answer(b"fast reply")
    pair.answer(b"slow reply")
    assert [outcome.data for outcome in pair.outcomes] == [b"fast reply", b"slow reply"]


@pytest.mark.parametrize("status", [RequestStatus.REFUSED, RequestStatus.FAILED])
def test_refusal_reaches_the_caller_with_its_text(status: RequestStatus) -> None:
    pair = DirectPair()
    pair.warm()
    pair.request()
    pair.carry()
    pair.started[0].refuse(status, "not today")
    pair.carry()
    assert pair.outcomes == [Outcome(OutcomeKind.REFUSED, text="not today", sent=True, status=status)]


def test_second_reply_raises_and_is_not_sent() -> None:
    pair = DirectPair()
    cable = pair.warm()
    pair.request()
    pair.carry()
    pair.started[0].reply(b"first")
    with pytest.raises(AlreadyRepliedError, match="already answered"):
        pair.started[0].reply(b"second")
    with pytest.raises(AlreadyRepliedError):
        pair.started[0].refuse(RequestStatus.REFUSED, "")
    pair.carry()
    assert [reply.data for reply in cable.ends[1].sent_messages(Reply)] == [b"warm", b"first"]


def test_handler_without_reply_fails_the_request() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request()
    pair.carry()
    pair.started[0].done()
    pair.carry()
    assert [outcome.status for outcome in pair.outcomes] == [RequestStatus.FAILED]


def test_peer_without_handler_refuses() -> None:
    pair = DirectPair()
    pair.warm()
    pair.callee.requests.handlers.remove(0)
    pair.request()
    pair.carry()
    assert [outcome.status for outcome in pair.outcomes] == [RequestStatus.NO_HANDLER]


# -- deadlines and cancellation


def test_sent_request_times_out_and_its_handler_is_cancelled() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request(timeout_s=2.0)
    pair.carry()
    cancelled: list[bool] = []
    pair.started[0].on_cancel = lambda: cancelled.append(True)
    pair.runtime.advance(1.9)
    assert pair.outcomes == []
    pair.runtime.advance(0.2)
    assert kinds(pair.outcomes) == [(OutcomeKind.NO_ANSWER, True)]
    pair.carry()
    assert cancelled == [True]
    pair.started[0].reply(b"too late")  # is ignored
    pair.carry()
    assert len(pair.outcomes) == 1


def test_reply_that_crosses_a_cancel_is_counted_as_late() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request(timeout_s=1.0)
    pair.carry()
    pair.started[0].reply(b"just now")
    pair.runtime.advance(1.1)
    pair.carry()
    assert kinds(pair.outcomes) == [(OutcomeKind.NO_ANSWER, True)]
    assert pair.caller.counters.late_replies == 1


def test_queued_request_times_out_without_being_sent() -> None:
    pair = DirectPair()
    pair.request(timeout_s=1.0)
    pair.runtime.advance(1.1)
    assert kinds(pair.outcomes) == [(OutcomeKind.NO_ANSWER, False)]
    pair.connect()
    pair.carry()
    assert pair.started == []


def test_request_that_is_given_up_has_no_outcome_and_frees_its_slot() -> None:
    pair = DirectPair(direct_inflight_max=1)
    pair.warm()
    first = pair.request(b"first")
    second = pair.request(b"second")
    pair.carry()
    pair.caller.requests.give_up(first)
    pair.carry()
    assert pair.started[0].state is IncomingState.CANCELLED
    assert pair.started[1].data == b"second"
    pair.caller.requests.give_up(second)
    pair.runtime.advance(10)
    assert pair.outcomes == []


def test_request_that_expires_before_a_handler_is_free_is_not_started() -> None:
    pair = DirectPair()
    pair.callee.requests.handlers.set(0, pair.started.append, 1)
    pair.warm()
    pair.request(b"first", timeout_s=100.0)
    cable = pair.cables[0]
    pair.carry()
    pair.request(b"second", timeout_s=0.5)
    pair.carry()
    assert len(pair.started) == 1
    pair.runtime.time += 1.0  # the Cancel of the caller is not under way yet
    pair.started[0].reply(b"done")
    pair.started[0].done()
    assert len(pair.started) == 1
    assert cable.ends[1].sent_messages(Reply)[-1].status is RequestStatus.EXPIRED


def test_waiting_requests_start_when_a_handler_is_free() -> None:
    pair = DirectPair()
    pair.callee.requests.handlers.set(0, pair.started.append, 2)
    pair.warm()
    for number in range(5):
        pair.request(b"%d" % number)
    pair.carry()
    assert [request.data for request in pair.started] == [b"0", b"1"]
    pair.answer(b"")
    assert [request.data for request in pair.started] == [b"1", b"2"]
    while pair.started:
        pair.answer(b"")
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)] * 5


def test_many_waiting_requests_are_handled_at_once_without_recursion() -> None:
    pair = DirectPair(direct_inflight_max=5000, direct_waiting_max=5000)
    pair.callee.requests.handlers.set(0, pair.started.append, 1)
    pair.warm()
    for _ in range(3000):
        pair.request()
    pair.carry()

    def reply_at_once(request: object) -> None:
        request.reply(b"")  # type: ignore[attr-defined]
        request.done()  # type: ignore[attr-defined]

    for handler in pair.callee.requests.handlers._by_layer.values():
        handler.callback = reply_at_once
    pair.answer(b"")
    assert len(pair.outcomes) == 3000


# -- lost connections


def test_lost_connection_ends_sent_requests_and_redials_for_queued_ones() -> None:
    pair = DirectPair(direct_inflight_max=1)
    cable = pair.warm()
    pair.request(b"sent")
    pair.request(b"queued")
    pair.carry()
    cancelled: list[bool] = []
    pair.started[0].on_cancel = lambda: cancelled.append(True)
    for end in cable.ends:
        end.remote_closes()
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, True)]
    assert cancelled == [True]
    pair.started.clear()
    pair.connect()
    pair.carry()
    pair.answer(b"after all")
    assert kinds(pair.outcomes)[1:] == [(OutcomeKind.REPLIED, True)]


def test_queued_request_is_redialed_only_once() -> None:
    pair = DirectPair(direct_inflight_max=1)
    for data in (b"first", b"second", b"third"):
        pair.request(data)
    for _ in range(2):
        cable = pair.connect()
        pair.carry()
        for end in cable.ends:
            end.remote_closes()
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, True), (OutcomeKind.GONE, True), (OutcomeKind.GONE, False)]
    assert [request.data for request in pair.started] == [b"first", b"second"]
    assert pair.dials == 2


@pytest.mark.parametrize("is_sent", [True, False])
def test_request_that_is_given_up_because_of_the_outcome_of_another_has_no_outcome(is_sent: bool) -> None:
    pair = DirectPair()
    cable = pair.warm() if is_sent else None
    second: list[OutgoingRequest] = []

    def give_up_the_second(outcome: Outcome) -> None:
        pair.outcomes.append(outcome)
        pair.caller.requests.give_up(second[0])

    pair.caller.requests.request(CALLEE, b"first", 5.0, give_up_the_second)
    second.append(pair.request(b"second"))
    for end in cable.ends if cable is not None else [pair.dial()]:
        end.remote_closes()
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, is_sent)]


def test_peer_that_cannot_be_dialed_is_gone_and_not_dialed_again_at_once() -> None:
    pair = DirectPair()
    pair.request()
    pair.dial().remote_closes()
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, False)]
    pair.request()
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, False)] * 2
    assert pair.dials == 1
    pair.runtime.advance(1.1)
    pair.request()
    assert pair.dials == 2


def test_other_peer_at_the_address_gets_no_request() -> None:
    pair = DirectPair()
    pair.request()
    near = pair.dial()
    near.remote_accepts()
    near.remote_sends(hello(CALLEE + 1), DirectAccept(1, 128, MIB))
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, False)]
    assert "another peer" in pair.outcomes[0].text
    assert near.sent_messages(Request) == []


def test_unknown_peer_is_waited_for_then_reported() -> None:
    pair = DirectPair()
    pair.caller.requests.address_of = lambda _peer_id: None
    pair.request()
    pair.request()
    pair.runtime.advance(0.9)
    assert pair.outcomes == []
    pair.runtime.advance(0.3)
    assert kinds(pair.outcomes) == [(OutcomeKind.UNKNOWN_PEER, False)] * 2


def test_peer_that_becomes_known_is_dialed() -> None:
    pair = DirectPair()
    pair.caller.requests.address_of = lambda _peer_id: None
    pair.request()
    pair.runtime.advance(0.5)
    pair.caller.requests.address_of = lambda peer_id: peer_info(peer_id).address
    pair.runtime.advance(0.2)
    pair.connect()
    pair.carry()
    assert len(pair.started) == 1


def test_silent_callee_is_gone_after_the_heartbeat_timeout() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request(timeout_s=60.0)  # never carried
    pair.runtime.advance(7.0)
    assert pair.outcomes == []
    pair.runtime.advance(3.0)
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, True)]


@pytest.mark.parametrize(("timeout_s", "interval_s"), [(3.0, 3.5), (0.5, 1.0), (0.05, 2.0), (0.05, 0.1)])
def test_dead_connection_is_closed_although_requests_end_before_the_heartbeat_timeout(
    timeout_s: float, interval_s: float
) -> None:
    """A network that was cut for a while can leave a connection that only one side takes for open."""
    pair = DirectPair()
    cable = pair.warm()
    silent_since = pair.runtime.time
    while not cable.ends[0].closed:
        pair.request(timeout_s=timeout_s)  # never carried
        pair.runtime.advance(interval_s)
        assert pair.runtime.time < silent_since + 12.0
    assert pair.runtime.time > silent_since + 7.0


def test_connection_to_a_slow_callee_is_kept_although_all_requests_are_canceled() -> None:
    pair = DirectPair()
    cable = pair.warm()
    for _ in range(10):
        pair.request(timeout_s=1.0)
        pair.carry()
        pair.runtime.advance(1.5)
        pair.carry()
    assert kinds(pair.outcomes) == [(OutcomeKind.NO_ANSWER, True)] * 10
    assert not cable.ends[0].closed


def test_heartbeats_keep_a_slow_request_alive_and_stop_when_it_ends() -> None:
    pair = DirectPair(direct_keep_s=1000.0)
    cable = pair.warm()
    pair.request(timeout_s=60.0)
    for _ in range(30):
        pair.carry()
        pair.runtime.advance(1.0)
    assert pair.outcomes == []
    assert len(cable.ends[1].sent_messages(Heartbeat)) >= 8
    pair.answer(b"slow")
    sent = len(cable.ends[0].sent), len(cable.ends[1].sent)
    for _ in range(20):
        pair.runtime.advance(1.0)
        pair.carry()
    assert (len(cable.ends[0].sent), len(cable.ends[1].sent)) == sent  # nothing at rest
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)]


def test_peer_that_is_known_to_be_lost_is_gone_at_once() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request()
    pair.caller.requests.on_peer_lost(CALLEE)
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, True)]


# -- closing


def test_idle_connection_is_closed_by_both_sides() -> None:
    pair = DirectPair()
    cable = pair.warm()
    for _ in range(36):
        pair.runtime.advance(1.0)
        pair.carry()
    assert all(end.closed for end in cable.ends)
    assert cable.ends[0].sent_messages(DirectClose) or cable.ends[1].sent_messages(DirectClose)
    dials = pair.dials  # includes probes of cached peers
    pair.request()
    assert pair.dials == dials + 1


def test_request_that_crosses_the_close_is_answered() -> None:
    pair = DirectPair()
    cable = pair.warm()
    next(iter(pair.callee.requests._connections)).begin_close()
    pair.request(b"crossing")  # before the DirectClose arrives
    pair.carry()
    assert not cable.ends[0].closed
    pair.answer(b"answered")
    assert [outcome.data for outcome in pair.outcomes] == [b"answered"]
    pair.carry()
    assert all(end.closed for end in cable.ends)


def test_request_whose_parts_are_still_to_be_sent_is_answered_before_the_close() -> None:
    pair = DirectPair()
    cable = pair.warm()
    connection = next(iter(pair.caller.requests._connections))
    connection._connection = _CongestedAfter(cable.ends[0], 1)  # type: ignore[assignment]
    data = [bytes([number]) * (3 * PART_BYTES_MAX) for number in (1, 2)]
    pair.request(data[0])
    connection._connection.left = 1  # type: ignore[attr-defined]
    pair.request(data[1])
    connection.begin_close()
    assert not cable.ends[0].sent_messages(DirectClose)
    pair.carry()
    connection._connection.left = 100  # type: ignore[attr-defined]
    connection.on_writable()
    assert cable.ends[0].sent_messages(DirectClose)
    connection._connection = cable.ends[0]
    pair.carry()
    assert [request.data for request in pair.started] == data
    pair.answer(b"one")
    pair.answer(b"two")
    assert [outcome.data for outcome in pair.outcomes] == [b"one", b"two"]
    assert all(end.closed for end in cable.ends)


@pytest.mark.parametrize("first", [0, 1])
def test_two_peers_that_dial_each_other_keep_the_connection_of_the_lower_id(first: int) -> None:
    pair = DirectPair()
    pair.request(b"there")
    pair.request(b"back", peer=pair.callee)
    cables = [pair.connect(), pair.connect()]
    while cables[first].carry(0) or cables[first].carry(1):
        pass
    pair.carry()
    while pair.started:
        pair.answer(b"yes")
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)] * 2
    assert not any(end.closed for end in cables[0].ends)  # dialed by the caller, which has the lower id
    assert all(end.closed for end in cables[1].ends)


def test_leaving_peer_refuses_new_requests_and_connections() -> None:
    pair = DirectPair()
    pair.warm()
    pair.callee.requests.begin_leave()
    pair.request()
    pair.carry()
    assert [outcome.status for outcome in pair.outcomes] == [RequestStatus.LEAVING]
    connection = open_exchange(pair.callee, hello(99), DirectOpen(1, 128, MIB))
    assert connection.sent_messages(Reject)[0].reason is RejectReason.LEAVING


def test_peer_that_leaves_ends_all_its_requests() -> None:
    pair = DirectPair(direct_inflight_max=1)
    cable = pair.warm()
    pair.request(b"sent")
    pair.request(b"queued")
    pair.caller.requests.close()
    assert {outcome.kind for outcome in pair.outcomes} <= {OutcomeKind.GONE, OutcomeKind.LEFT}
    assert len(pair.outcomes) == 2
    assert cable.ends[0].closed
    pair.request()
    assert pair.outcomes[-1].kind is OutcomeKind.LEFT


# -- limits


def test_large_reply_is_interleaved_with_small_ones() -> None:
    pair = DirectPair()
    cable = pair.warm()
    pair.request(b"large")
    pair.request(b"small")
    pair.carry()
    cable.ends[1].is_congested = True
    pair.started[0].reply(bytes(5 * PART_BYTES_MAX))
    pair.started[1].reply(b"quick")
    cable.ends[1].is_congested = False
    cable.ends[1].handler.on_writable()
    replies = [reply.id for reply in cable.ends[1].sent_messages(Reply)[1:]]
    assert replies == [3, 2, 2, 2, 2, 2]
    pair.carry()
    assert [len(outcome.data) for outcome in pair.outcomes] == [5, 5 * PART_BYTES_MAX]


def test_two_large_requests_take_turns() -> None:
    pair = DirectPair()
    cable = pair.warm()
    cable.ends[0].is_congested = False
    requests = [bytes([number]) * (3 * PART_BYTES_MAX) for number in (1, 2)]
    connection = next(iter(pair.caller.requests._connections))
    connection._connection = _CongestedAfter(cable.ends[0], 1)  # type: ignore[assignment]
    pair.request(requests[0])
    connection._connection.left = 10  # type: ignore[attr-defined]
    pair.request(requests[1])
    sent = [(each.id, each.flags & MORE) for each in cable.ends[0].sent_messages(Request)[1:]]
    assert sent == [(2, 1), (2, 1), (3, 1), (2, 0), (3, 1), (3, 0)]
    pair.carry()
    assert [request.data for request in pair.started] == requests


class _CongestedAfter:
    """A connection that takes this many frames at a time."""

    def __init__(self, connection: object, left: int) -> None:
        self._connection, self.left = connection, left

    @property
    def is_congested(self) -> bool:
        return self.left <= 0

    def send(self, frame: bytes) -> None:
        self.left -= 1
        self._connection.send(frame)  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [PART_BYTES_MAX, PART_BYTES_MAX + 1, MIB + 7])
def test_data_of_any_size_arrives_whole_in_both_directions(size: int) -> None:
    pair = DirectPair()
    pair.warm()
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    pair.request(data)
    pair.carry()
    assert pair.started[0].data == data
    pair.answer(data)
    assert pair.outcomes[0].data == data
    assert pair.callee.requests.held_bytes == pair.caller.requests.held_bytes == 0


def test_request_larger_than_the_callee_accepts_is_not_sent() -> None:
    pair = DirectPair(direct_request_bytes_max=MIB)
    pair.warm()
    pair.request(bytes(MIB + 1))
    assert kinds(pair.outcomes) == [(OutcomeKind.TOO_LARGE, False)]


def test_reply_larger_than_the_caller_accepts_is_refused() -> None:
    pair = DirectPair(direct_request_bytes_max=MIB)
    pair.warm()
    pair.request()
    pair.carry()
    pair.answer(bytes(MIB + 1))
    assert [outcome.status for outcome in pair.outcomes] == [RequestStatus.TOO_LARGE]


def test_open_requests_together_stay_within_the_byte_limit() -> None:
    pair = DirectPair(direct_request_bytes_max=MIB)
    pair.warm()
    for _ in range(4):
        pair.request(bytes(400 * KIB))
    pair.carry()
    assert len(pair.started) == 2
    while pair.started:
        pair.answer(b"")
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)] * 4


def test_requests_beyond_the_memory_of_the_callee_get_busy() -> None:
    pair = DirectPair(direct_bytes_max=MIB)
    pair.warm()
    pair.request(bytes(900 * KIB))
    pair.request(bytes(300 * KIB))  # in parts, refused before the last one
    pair.request(b"small")
    pair.carry()
    assert [len(request.data) for request in pair.started] == [900 * KIB, 5]
    assert [outcome.status for outcome in pair.outcomes] == [RequestStatus.BUSY]
    while pair.started:
        pair.answer(b"ok")
    pair.request(bytes(300 * KIB))
    pair.carry()
    assert len(pair.started) == 1
    assert pair.callee.requests.held_bytes == 300 * KIB


def test_too_many_waiting_requests_get_busy() -> None:
    pair = DirectPair(direct_waiting_max=3)
    for _ in range(4):
        pair.request()
    assert kinds(pair.outcomes) == [(OutcomeKind.BUSY, False)]


def test_too_many_requests_that_wait_for_a_handler_get_busy() -> None:
    pair = DirectPair(direct_waiting_max=2)
    pair.callee.requests.handlers.set(0, pair.started.append, 1)
    pair.warm()
    for _ in range(4):
        pair.request()
    pair.carry()
    assert [outcome.status for outcome in pair.outcomes] == [RequestStatus.BUSY]


def test_least_recently_used_connection_makes_room_for_another() -> None:
    pair = DirectPair(direct_out_max=2)
    cable = pair.warm()
    requests = pair.caller.requests
    for peer_id in (30, 40):
        pair.runtime.advance(1.5)
        requests.request(peer_id, b"?", 5.0, pair.outcomes.append)
        near = next(each for each in pair.runtime.dialed if each.address == peer_info(peer_id).address)
        near.remote_accepts()
        near.remote_sends(hello(peer_id), DirectAccept(1, 128, MIB))
        near.remote_sends(Reply(1, RequestStatus.OK, 0, b"!"))
    assert cable.ends[0].sent_messages(DirectClose)
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)] * 2


def test_request_waits_while_all_connections_are_in_use() -> None:
    pair = DirectPair(direct_out_max=1)
    pair.warm()
    pair.request(b"long", timeout_s=100.0)
    pair.carry()
    pair.runtime.advance(1.0)  # the rate allows another dial
    pair.caller.requests.request(30, b"?", 50.0, pair.outcomes.append)
    assert not any(each.address == peer_info(30).address for each in pair.runtime.dialed)
    pair.answer(b"done")
    assert any(each.address == peer_info(30).address for each in pair.runtime.dialed)


def test_dials_are_limited_in_rate() -> None:
    pair = DirectPair(direct_out_max=5, direct_dials_per_s=10)
    for number in range(8):
        pair.caller.requests.request(100 + number, b"?", 5.0, pair.outcomes.append)
        pair.runtime.dialed[-1].remote_closes()
    assert len([each for each in pair.runtime.dialed if each.closed]) == 5
    pair.runtime.advance(0.35)
    assert len(pair.runtime.dialed) == 8


def test_too_many_incoming_connections_are_rejected() -> None:
    pair = DirectPair(direct_in_max=1)
    pair.warm()
    pair.request()
    pair.carry()  # busy, so it is not closed for another
    connection = open_exchange(pair.callee, hello(99), DirectOpen(1, 128, MIB))
    assert connection.sent_messages(Reject)[0].reason is RejectReason.BUSY


# -- a remote side that breaks the rules


def broken(*messages: WireMessage) -> tuple[DirectPair, bool]:
    """A stranger opens a direct connection and sends these messages."""
    pair = DirectPair(direct_inflight_max=2, direct_request_bytes_max=128 * KIB)
    connection = open_exchange(pair.callee, hello(99), DirectOpen(1, 128, MIB))
    assert connection.sent_messages(DirectAccept)
    connection.remote_sends(*messages)
    return pair, connection.closed


@pytest.mark.parametrize(
    "messages",
    [
        [Request(1, 0, 9, 0, b""), Request(1, 0, 9, 0, b"")],
        [Request(5, 0, 9, 0, b""), Request(4, 0, 9, 0, b"")],
        [Request(number, 0, 9, 0, b"") for number in (1, 2, 3)],
        [Request(number, MORE, 9, 0, b"") for number in (1, 2, 3)],
        [Request(1, MORE, 9, 0, bytes(64 * KIB))] * 3,
        [Request(number, 0, 9, 0, bytes(64 * KIB)) for number in (1, 2)] + [Request(3, 0, 9, 0, b"")],
        [Reply(1, RequestStatus.OK, 0, b"")],
        [DirectOpen(1, 1, 1)],
        [hello(99)],
    ],
    ids=["id twice", "id falls", "too many", "too many parts", "too large", "bytes", "reply", "open twice", "hello"],
)
def test_peer_that_breaks_the_protocol_is_disconnected(messages: list[WireMessage]) -> None:
    pair, closed = broken(*messages)
    assert closed
    assert pair.callee.counters.malformed_frames == 1
    assert not pair.callee.requests._connections
    assert pair.callee.requests.held_bytes == 0


@pytest.mark.parametrize("message", [Cancel(7), Heartbeat(), Tell(0, 0, b"x"), Request(1, 4, 9, 0, b"")])
def test_harmless_messages_are_accepted(message: WireMessage) -> None:
    assert broken(message)[1] is False


def test_replies_larger_than_allowed_disconnect_the_callee() -> None:
    pair = DirectPair(direct_request_bytes_max=128 * KIB)
    pair.request()
    near = pair.dial()
    near.remote_accepts()
    near.remote_sends(hello(CALLEE), DirectAccept(1, 128, MIB))
    near.remote_sends(*[Reply(1, RequestStatus.OK, MORE, bytes(64 * KIB))] * 3)
    assert near.closed
    assert kinds(pair.outcomes) == [(OutcomeKind.GONE, True)]


# -- one-way messages


def test_one_way_message_is_handled_and_ends_when_it_is_sent() -> None:
    pair = DirectPair()
    pair.warm()
    pair.request(b"news", is_tell=True)
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)]
    pair.carry()
    (incoming,) = pair.started
    assert (incoming.data, incoming.expects_reply) == (b"news", False)
    incoming.reply(b"ignored")
    incoming.done()
    pair.carry()
    assert len(pair.outcomes) == 1


def test_large_one_way_messages_follow_each_other() -> None:
    pair = DirectPair()
    cable = pair.warm()
    connection = next(iter(pair.caller.requests._connections))
    connection._connection = _CongestedAfter(cable.ends[0], 1)  # type: ignore[assignment]
    first, second = b"a" * (3 * PART_BYTES_MAX), b"b" * (2 * PART_BYTES_MAX)
    pair.request(first, is_tell=True)
    pair.request(second, is_tell=True)
    connection._connection.left = 100  # type: ignore[attr-defined]
    connection.on_writable()
    assert kinds(pair.outcomes) == [(OutcomeKind.REPLIED, True)] * 2
    pair.carry()
    assert [request.data for request in pair.started] == [first, second]


def test_one_way_messages_that_no_handler_takes_stop_the_reading() -> None:
    pair = DirectPair(tells_waiting_max=4)
    pair.callee.requests.handlers.set(0, pair.started.append, 1)
    cable = pair.warm()
    for _ in range(5):
        pair.request(b"news", is_tell=True)
    pair.carry()
    assert cable.ends[1].is_paused
    while pair.started:
        pair.started.pop(0).done()
    assert not cable.ends[1].is_paused
    assert pair.callee.requests.held_bytes == 0


def test_reading_goes_on_while_a_reply_is_awaited() -> None:
    """A handler that asks the sender back would otherwise never end."""
    pair = DirectPair(tells_waiting_max=4)
    pair.callee.requests.handlers.set(0, pair.started.append, 1)
    cable = pair.warm()
    for _ in range(5):
        pair.request(b"news", is_tell=True)
    pair.carry()
    assert cable.ends[1].is_paused
    pair.request(b"back", peer=pair.callee)
    assert not cable.ends[1].is_paused


def test_one_way_messages_are_handled_after_the_connection_is_lost() -> None:
    pair = DirectPair()
    pair.callee.requests.handlers.set(0, pair.started.append, 1)
    cable = pair.warm()
    for number in range(3):
        pair.request(b"%d" % number, is_tell=True)
    pair.carry()
    cable.ends[1].remote_closes()
    handled = []
    while pair.started:
        request = pair.started.pop(0)
        handled.append(request.data)
        request.done()
    assert handled == [b"0", b"1", b"2"]
    assert pair.callee.requests.held_bytes == 0


def test_states_are_ended_after_the_outcome() -> None:
    pair = DirectPair()
    pair.warm()
    request = pair.request()
    states = [request.state]
    pair.carry()
    pair.answer(b"")
    assert [*states, request.state] == [RequestState.SENT, RequestState.ENDED]
    assert request.data == b""  # it stays with its deadline for a while
    assert [type(decode(frame)).__name__ for frame in pair.cables[0].ends[0].sent[2:]] == ["Request", "Request"]


def test_timer_that_fires_early_by_a_rounding_error_ends_the_request() -> None:
    """It would otherwise be set again for the same moment, forever."""
    runtime = FakeRuntime()
    runtime.time = 0.1
    ended: list[OutgoingRequest] = []
    deadlines = Deadlines(runtime, ended.append)
    request = OutgoingRequest(1, b"", 0, 0, 0.1 + 0.2, lambda _outcome: None, is_tell=False)
    deadlines.add(request)
    ((_, _, timer),) = runtime._timers
    runtime.time = 0.3 - 1e-16
    assert runtime.time < request.deadline_at
    timer.callback()
    assert ended == [request]


def test_request_that_begins_while_another_ends_does_not_delay_the_deadlines_before_its_own() -> None:
    runtime = FakeRuntime()
    first, second, third = (
        OutgoingRequest(1, b"", 0, 0, deadline_at, lambda _outcome: None, is_tell=False)
        for deadline_at in (1.0, 2.0, 10.0)
    )
    ended: list[tuple[OutgoingRequest, float]] = []

    def on_deadline(request: OutgoingRequest) -> None:
        ended.append((request, runtime.now()))
        if request is first:
            deadlines.add(third)

    deadlines = Deadlines(runtime, on_deadline)
    deadlines.add(first)
    deadlines.add(second)
    runtime.advance(3.0)
    assert ended == [(first, 1.0), (second, 2.0)]


def test_waiting_one_way_messages_do_not_count_as_requests() -> None:
    """The caller does not know how many wait, so it must not be disconnected because of them."""
    pair = DirectPair(direct_request_bytes_max=256 * KIB)
    pair.callee.requests.handlers.set(0, pair.started.append, 1)
    cable = pair.warm()
    for _ in range(5):
        pair.request(bytes(60 * KIB), is_tell=True)
    pair.carry()
    pair.request(bytes(200 * KIB), timeout_s=100.0)
    pair.carry()
    assert not any(end.closed for end in cable.ends)
    while pair.started:
        request = pair.started.pop(0)
        request.reply(b"done")
        request.done()
        pair.carry()
    assert [outcome.data for outcome in pair.outcomes] == [b""] * 5 + [b"done"]
    assert pair.callee.requests.held_bytes == 0


# -- the quota on the card


def test_requests_beyond_the_quota_wait_and_are_sent_in_order() -> None:
    pair = DirectPair()
    pair.warm()
    pair.caller.requests.set_quota(Quota(requests_per_s=2, burst_s=1))
    for number in range(5):
        pair.request(b"%d" % number, is_tell=number % 2 == 1)
    pair.carry()
    assert [request.data for request in pair.started] == [b"0", b"1"]
    pair.runtime.advance(0.6)
    pair.carry()
    assert [request.data for request in pair.started] == [b"0", b"1", b"2"]
    pair.runtime.advance(1)
    pair.carry()
    assert [request.data for request in pair.started] == [b"%d" % number for number in range(5)]


def test_wait_for_the_quota_is_part_of_the_timeout() -> None:
    pair = DirectPair()
    pair.warm()
    pair.caller.requests.set_quota(Quota(requests_per_s=0.5, burst_s=2))
    pair.request(b"takes all of it", 60.0)
    late = pair.request(b"sent after two seconds", 3.0)
    pair.runtime.advance(2.1)
    assert late.state is RequestState.SENT
    pair.runtime.advance(1)
    assert kinds(pair.outcomes) == [(OutcomeKind.NO_ANSWER, True)]


def test_request_that_the_quota_does_not_allow_in_time_ends_as_busy_and_uses_nothing_of_it() -> None:
    pair = DirectPair()
    pair.warm()
    pair.caller.requests.set_quota(Quota(requests_per_s=0.5, burst_s=2))
    pair.request(b"takes all of it", 60.0)
    pair.request(b"no time", 1.0)
    given_up = pair.request(b"given up", 60.0)
    pair.runtime.advance(1.1)
    assert kinds(pair.outcomes) == [(OutcomeKind.BUSY, False)]
    assert "quota on the channel's card" in pair.outcomes[0].text
    pair.caller.requests.give_up(given_up)
    pair.request(b"next", 60.0)
    pair.runtime.advance(1)
    pair.carry()
    assert [request.data for request in pair.started] == [b"takes all of it", b"next"]


def test_requests_that_wait_go_on_when_a_new_card_lifts_the_quota() -> None:
    pair = DirectPair()
    pair.warm()
    pair.caller.requests.set_quota(Quota(requests_per_s=0.001))
    for _ in range(3):
        pair.request(timeout_s=60.0)
    pair.carry()
    assert len(pair.started) == 1
    pair.caller.requests.set_quota(None)
    pair.carry()
    assert len(pair.started) == 3
    assert pair.caller.requests.waiting_count == 0


def test_quota_is_used_when_a_request_is_sent_and_not_while_it_is_dialed() -> None:
    pair = DirectPair()
    pair.caller.requests.set_quota(Quota(requests_per_s=1, burst_s=1))
    for _ in range(6):
        pair.request(timeout_s=60.0)
    pair.runtime.advance(3)
    pair.connect()
    pair.carry()
    assert len(pair.started) == 1, "not all at once, after a dial that took long"
    pair.runtime.advance(1.1)
    pair.carry()
    assert len(pair.started) == 2
