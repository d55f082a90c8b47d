"""Exchanges that fail: each is rejected for the right reason, counted where that matters, and leaves no state."""

from dataclasses import replace

import pytest

from broadloom.protocol import ChannelName, Peer, Tuning
from broadloom.protocol.exchange import Exchange, OutgoingExchange
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import (
    MAGIC,
    VERSION,
    DiscoverRequest,
    DiscoverResponse,
    Hello,
    JoinRequest,
    JoinResponse,
    LinkRequest,
    LinkResponse,
    Reject,
    RejectReason,
)
from broadloom.wire.link_messages import Heartbeat
from tests.protocol.fake_runtime import (
    CHANNEL,
    ME,
    NO_TIMEOUT,
    Cable,
    FakeConnection,
    FakeRuntime,
    Sendable,
    hello,
    open_exchange,
    peer_info,
)

OTHER_CHANNEL = ChannelName("test", "another").id
REQUEST = DiscoverRequest(is_connected=False, search_depth=0, seekers=())
RESPONSE = DiscoverResponse(True, 0, ())


def idle_peer(runtime: FakeRuntime, settings: Tuning = NO_TIMEOUT) -> Peer:
    """Connected but not started, so that only timers of the exchange under test run."""
    peer = Peer(runtime, peer_info(ME), CHANNEL, (), settings)
    peer.create_channel()
    assert runtime.pending_timers == 0
    return peer


def assert_no_state_left(runtime: FakeRuntime, peer: Peer, connection: FakeConnection) -> None:
    assert connection.closed
    assert runtime.pending_timers == 0
    assert len(peer._exchanges) == 0
    assert len(peer.links) == 0


# Incoming exchanges.


INVALID_EXCHANGES: dict[str, tuple[list[Sendable], RejectReason, str, int]] = {
    "wrong magic": (
        [replace(hello(2), magic=MAGIC + 1), REQUEST],
        RejectReason.WRONG_PROTOCOL,
        "this is a Broadloom peer; you use another protocol",
        0,
    ),
    "wrong version": (
        [replace(hello(2), version=VERSION + 1), REQUEST],
        RejectReason.WRONG_VERSION,
        f"this peer uses protocol version {VERSION}, you use {VERSION + 1}",
        0,
    ),
    "wrong channel": (
        [replace(hello(2), channel=OTHER_CHANNEL), REQUEST],
        RejectReason.WRONG_CHANNEL,
        "this peer is on another channel; check type and instance",
        0,
    ),
    "from ourselves": ([hello(ME), REQUEST], RejectReason.SELF_CONNECTION, "you dialed yourself", 0),
    "garbage": ([b"GET / HTTP/1.1\r\n\r\n"], RejectReason.MALFORMED_MESSAGE, "is unknown", 1),
    "garbage in Hello": ([bytes([0, 0, 0, 8, 0, 0, 0, 1]) + b"BLOM"], RejectReason.MALFORMED_MESSAGE, "Hello", 1),
    "no Hello first": (
        [REQUEST, hello(2)],
        RejectReason.MALFORMED_MESSAGE,
        "an exchange starts with Hello, not with DiscoverRequest",
        1,
    ),
    "Hello twice": ([hello(2), hello(2)], RejectReason.MALFORMED_MESSAGE, "Hello is not a request", 1),
    "garbage for a request": ([hello(2), bytes(8)], RejectReason.MALFORMED_MESSAGE, "is unknown", 1),
    "a response for a request": (
        [hello(2), LinkResponse()],
        RejectReason.MALFORMED_MESSAGE,
        "LinkResponse is not a request",
        1,
    ),
    "a link's message": ([hello(2), Heartbeat()], RejectReason.MALFORMED_MESSAGE, "Heartbeat is not a request", 1),
}


@pytest.mark.parametrize(
    ("messages", "reason", "text", "malformed"), INVALID_EXCHANGES.values(), ids=list(INVALID_EXCHANGES)
)
def test_invalid_exchange_is_rejected_with_reason_and_text(
    messages: list[Sendable], reason: RejectReason, text: str, malformed: int
) -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    connection = open_exchange(peer, *messages)
    (reject,) = connection.sent_messages(Reject)
    assert reject.reason is reason
    assert text in reject.text
    # Every version can read Hello and Reject, and nothing else is sent.
    assert connection.sent_messages(Hello) == [hello(ME)]
    assert len(connection.sent) == 2
    assert peer.counters.malformed_frames == malformed
    assert len(peer.peer_cache) == 0
    assert_no_state_left(runtime, peer, connection)


def test_valid_exchange_is_answered_and_initiator_is_cached() -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    connection = open_exchange(peer, hello(2), REQUEST)
    assert connection.sent_messages(DiscoverResponse) == [RESPONSE]
    assert connection.sent_messages(Reject) == []
    assert 2 in peer.peer_cache
    connection.remote_closes()
    assert_no_state_left(runtime, peer, connection)


def test_newcomer_joins_over_the_connection_of_its_probe() -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    connection = open_exchange(peer, hello(2, has_position=False), REQUEST)
    connection.remote_sends(JoinRequest(4, ()))
    assert len(connection.sent_messages(Hello)) == 1
    assert connection.sent_messages(JoinResponse)[0].is_linked
    assert 2 in peer.links
    assert len(peer._exchanges) == 0


@pytest.mark.parametrize("request_", [REQUEST, LinkRequest()], ids=["another probe", "link request"])
def test_only_a_join_request_may_follow_a_probe(request_: WireMessage) -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    connection = open_exchange(peer, hello(2), REQUEST)
    connection.remote_sends(request_)
    assert [reject.reason for reject in connection.sent_messages(Reject)] == [RejectReason.MALFORMED_MESSAGE]
    assert_no_state_left(runtime, peer, connection)


def test_probe_of_a_member_ends_with_the_response() -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    connection = open_exchange(peer, hello(2), replace(REQUEST, is_connected=True))
    assert connection.sent_messages(DiscoverResponse) == [RESPONSE]
    assert_no_state_left(runtime, peer, connection)


@pytest.mark.parametrize(
    "messages", [[], [hello(2)], [hello(2), REQUEST]], ids=["nothing", "Hello only", "probe without join request"]
)
def test_incomplete_exchange_is_closed_after_timeout(messages: list[Sendable]) -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    connection = open_exchange(peer, *messages)
    runtime.advance(NO_TIMEOUT.exchange_timeout_s - 0.1)
    assert not connection.closed
    assert len(peer._exchanges) == 1
    runtime.advance(0.2)
    assert_no_state_left(runtime, peer, connection)


@pytest.mark.parametrize("messages", [[], [hello(2)]], ids=["nothing", "Hello only"])
def test_exchange_closed_by_initiator_leaves_no_state(messages: list[Sendable]) -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    connection = open_exchange(peer, *messages)
    connection.remote_closes()
    assert_no_state_left(runtime, peer, connection)


@pytest.mark.parametrize("messages", [[], [hello(2)]], ids=["nothing", "Hello only"])
def test_oldest_exchange_is_closed_when_limit_is_reached(messages: list[Sendable]) -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime, Tuning(exchanges_max=3))
    idle = [open_exchange(peer, *messages) for _ in range(3)]
    newcomer = open_exchange(peer, hello(2), REQUEST)
    assert newcomer.sent_messages(DiscoverResponse) == [RESPONSE]
    assert [connection.closed for connection in idle] == [True, False, False]
    assert peer.counters.exchanges_rejected == 1
    newcomer.remote_closes()
    # The newcomer was answered and has gone, so the next exchange finds room.
    assert open_exchange(peer, hello(4), REQUEST).sent_messages(DiscoverResponse) == [RESPONSE]
    assert peer.counters.exchanges_rejected == 1
    runtime.advance(NO_TIMEOUT.exchange_timeout_s)
    assert_no_state_left(runtime, peer, idle[-1])


def test_peer_that_has_left_rejects_exchanges() -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    peer.leave()
    runtime.advance(NO_TIMEOUT.unlink_timeout_s)
    connection = open_exchange(peer, hello(2), REQUEST)
    assert connection.sent == []
    assert peer.counters.exchanges_rejected == 1
    assert_no_state_left(runtime, peer, connection)


# Outgoing exchanges.


class OutgoingCase:
    """One outgoing exchange and its outcome."""

    def __init__(self, target: int = 2, *, cached: bool = True) -> None:
        self.runtime = FakeRuntime()
        self.peer = idle_peer(self.runtime)
        self.responses: list[WireMessage] = []
        self.failures: list[RejectReason | None] = []
        if cached:
            self.peer.peer_cache.add(peer_info(target))
        OutgoingExchange(self.peer, peer_info(target), REQUEST, self._on_response, self.failures.append)
        (self.connection,) = self.runtime.dialed

    def _on_response(self, _exchange: Exchange, response: WireMessage) -> None:
        self.responses.append(response)

    def assert_failed(self, reason: RejectReason | None) -> None:
        assert (self.responses, self.failures) == ([], [reason])
        assert_no_state_left(self.runtime, self.peer, self.connection)


def test_initiator_sends_hello_and_request_together() -> None:
    case = OutgoingCase()
    assert case.connection.sent == []
    case.connection.remote_accepts()
    assert case.connection.sent_messages(WireMessage) == [hello(ME), REQUEST]


def test_response_ends_the_exchange() -> None:
    case = OutgoingCase(cached=False)
    case.connection.remote_accepts()
    case.connection.remote_sends(hello(2), RESPONSE)
    assert (case.responses, case.failures) == ([RESPONSE], [])
    assert 2 in case.peer.peer_cache
    assert_no_state_left(case.runtime, case.peer, case.connection)


def test_reject_is_reported_to_the_initiator() -> None:
    case = OutgoingCase()
    case.connection.remote_accepts()
    case.connection.remote_sends(hello(2), Reject(RejectReason.NO_FREE_SLOT, "full"))
    case.assert_failed(RejectReason.NO_FREE_SLOT)
    assert 2 in case.peer.peer_cache


def test_exchange_fails_after_timeout() -> None:
    case = OutgoingCase()
    case.connection.remote_accepts()
    case.runtime.advance(NO_TIMEOUT.exchange_timeout_s - 0.1)
    assert case.failures == []
    case.runtime.advance(0.2)
    case.assert_failed(None)


def test_exchange_fails_when_connection_is_refused() -> None:
    case = OutgoingCase()
    case.connection.remote_closes()
    case.assert_failed(None)


@pytest.mark.parametrize("failure", ["timeout", "refused"])
def test_peer_cache_marks_peer_as_failed_when_it_does_not_answer(failure: str) -> None:
    case = OutgoingCase()
    assert case.peer.peer_cache.sample(1) == (peer_info(2),)
    if failure == "refused":
        case.connection.remote_closes()
    case.runtime.advance(NO_TIMEOUT.exchange_timeout_s)
    assert case.peer.peer_cache.sample(1) == ()


def test_exchange_fails_when_response_is_malformed() -> None:
    case = OutgoingCase()
    case.connection.remote_accepts()
    case.connection.remote_sends(b"HTTP/1.1 400 Bad Request\r\n")
    case.assert_failed(RejectReason.MALFORMED_MESSAGE)
    assert case.peer.counters.malformed_frames == 1


def test_exchange_fails_when_another_peer_has_the_address() -> None:
    case = OutgoingCase(target=2)
    case.connection.remote_accepts()
    case.connection.remote_sends(replace(hello(3), address=peer_info(2).address), RESPONSE)
    case.assert_failed(None)
    assert 2 not in case.peer.peer_cache
    assert 3 in case.peer.peer_cache


def test_peer_cache_drops_peer_whose_address_another_program_has() -> None:
    case = OutgoingCase()
    case.connection.closed = True
    case.connection.handler.on_disconnect(None, "a web server")
    case.assert_failed(None)
    assert 2 not in case.peer.peer_cache


def test_peer_cache_drops_peer_whose_address_a_peer_of_another_channel_has() -> None:
    case = OutgoingCase()
    case.connection.remote_accepts()
    case.connection.remote_sends(replace(hello(3), channel=OTHER_CHANNEL))
    case.assert_failed(RejectReason.WRONG_CHANNEL)
    assert 2 not in case.peer.peer_cache


@pytest.mark.parametrize(
    "wrong",
    [{"magic": MAGIC + 1}, {"version": VERSION + 1}, {"channel": OTHER_CHANNEL}],
    ids=["magic", "version", "channel"],
)
def test_peer_of_another_channel_is_not_cached(wrong: dict[str, int]) -> None:
    # Channels share the ports of a bootstrap host, so a search meets peers of other channels.
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    failures: list[RejectReason | None] = []
    responses: list[WireMessage] = []
    OutgoingExchange(
        peer, peer_info(2).address, REQUEST, lambda _exchange, response: responses.append(response), failures.append
    )
    (connection,) = runtime.dialed
    connection.remote_accepts()
    connection.remote_sends(replace(hello(2), **wrong), Reject(RejectReason.WRONG_CHANNEL, "another channel"))  # type: ignore[arg-type]
    assert (responses, len(failures)) == ([], 1)
    assert 2 not in peer.peer_cache
    assert_no_state_left(runtime, peer, connection)


def test_peer_detects_that_it_dialed_itself() -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    failures: list[RejectReason | None] = []
    OutgoingExchange(peer, peer_info(ME).address, REQUEST, lambda _exchange, _answer: None, failures.append)
    cable = Cable(runtime.dialed[0], peer)
    cable.carry_all()
    assert failures == [RejectReason.SELF_CONNECTION]
    for connection in cable.ends:
        assert_no_state_left(runtime, peer, connection)


def test_response_with_our_own_id_is_rejected() -> None:
    runtime = FakeRuntime()
    peer = idle_peer(runtime)
    failures: list[RejectReason | None] = []
    responses: list[WireMessage] = []
    OutgoingExchange(
        peer, peer_info(2).address, REQUEST, lambda _exchange, response: responses.append(response), failures.append
    )
    (connection,) = runtime.dialed
    connection.remote_accepts()
    connection.remote_sends(hello(ME), RESPONSE)
    assert (responses, failures) == ([], [RejectReason.SELF_CONNECTION])
    assert_no_state_left(runtime, peer, connection)


def test_frames_after_the_end_of_an_exchange_are_ignored() -> None:
    case = OutgoingCase()
    owner = case.connection.handler
    case.connection.remote_accepts()
    case.connection.remote_sends(hello(2), RESPONSE)
    # A runtime may have read further frames before the connection was closed.
    case.connection.closed = False
    case.connection.remote_sends(JoinResponse(True, False, 1, (), ()), b"garbage and more")
    owner.on_disconnect()
    case.runtime.advance(NO_TIMEOUT.exchange_timeout_s)
    assert (case.responses, case.failures) == ([RESPONSE], [])
    assert case.peer.counters.malformed_frames == 0
