"""Discovery when members of the channel, or other programs, reject the peer."""

import pytest

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.protocol.events import Rejected, StateChanged
from broadloom.wire import Address
from broadloom.wire.exchange_messages import DiscoverRequest, DiscoverResponse, JoinRequest, Reject, RejectReason
from tests.protocol.fake_runtime import CHANNEL, FakeConnection, FakeRuntime, hello, peer_info

DEPTH = 3
ME = 1000
SETTINGS = Tuning(discovery_ports=DEPTH, heartbeat_timeout_s=1e9)
ADDRESS_WITH_PORT = Address("alpha", 4000)

ANYWHERE_REASONS = [
    RejectReason.WRONG_KEY,
    RejectReason.TICKET_EXPIRED,
    RejectReason.TICKET_REVOKED,
    RejectReason.SIGNING_MISMATCH,
    RejectReason.CHANNEL_TLS_MISMATCH,
    RejectReason.CHANNEL_CLOSED,
    RejectReason.QUOTA_EXCEEDED,
]
"""Only a member of this channel gives these reasons."""
WITH_PORT_REASONS = [
    *ANYWHERE_REASONS,
    RejectReason.TLS_MISMATCH,
    RejectReason.WRONG_VERSION,
    RejectReason.WRONG_CHANNEL,
    RejectReason.WRONG_PROTOCOL,
]


def start_seeker(runtime: FakeRuntime, *bootstrap: Address) -> Peer:
    peer = Peer(runtime, peer_info(ME), CHANNEL, bootstrap, SETTINGS)
    peer.start()
    return peer


def pending(runtime: FakeRuntime) -> list[FakeConnection]:
    return [connection for connection in runtime.dialed if not connection.closed]


def reject(connection: FakeConnection, reason: RejectReason) -> None:
    """In the TLS handshake or with a `Reject`."""
    if reason in (RejectReason.WRONG_KEY, RejectReason.TLS_MISMATCH, RejectReason.WRONG_PROTOCOL):
        connection.closed = True
        connection.handler.on_disconnect(reason)
    else:
        connection.remote_accepts()
        connection.remote_sends(Reject(reason, "no"))


def rejected_events(runtime: FakeRuntime) -> list[Rejected]:
    return [event for event in runtime.events if isinstance(event, Rejected)]


def reach_itself(connection: FakeConnection) -> None:
    connection.remote_accepts()
    connection.remote_sends(hello(ME))


@pytest.mark.parametrize("reason", WITH_PORT_REASONS)
def test_every_mismatch_is_reported_at_an_address_with_a_port(reason: RejectReason) -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, ADDRESS_WITH_PORT)
    reject(pending(runtime)[0], reason)
    (event,) = rejected_events(runtime)
    assert event.reason is reason
    assert event.text.startswith("alpha:4000: ")
    assert peer.state is PeerState.DISCOVERING


@pytest.mark.parametrize(
    "reason", [RejectReason.LEAVING, RejectReason.BUSY, RejectReason.NOT_READY, RejectReason.MALFORMED_MESSAGE, None]
)
def test_temporary_failure_is_not_reported_as_rejected(reason: RejectReason | None) -> None:
    runtime = FakeRuntime()
    start_seeker(runtime, ADDRESS_WITH_PORT)
    connection = pending(runtime)[0]
    if reason is None:
        connection.remote_closes()
    else:
        reject(connection, reason)
    assert not rejected_events(runtime)


@pytest.mark.parametrize("reason", ANYWHERE_REASONS)
def test_rejection_by_a_member_prevents_founding_a_second_channel(
    reason: RejectReason,
) -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, Address("alpha", 0))
    reject(pending(runtime)[0], reason)
    reach_itself(pending(runtime)[0])
    assert not rejected_events(runtime), "another member may still admit the seeker"
    pending(runtime)[0].remote_closes()
    assert [event.reason for event in rejected_events(runtime)] == [reason]
    runtime.advance(0.4)
    assert peer.state is PeerState.DISCOVERING
    assert StateChanged(PeerState.CONNECTED) not in runtime.events


@pytest.mark.parametrize("reason", [each for each in WITH_PORT_REASONS if each not in ANYWHERE_REASONS])
def test_foreign_programs_along_the_port_order_do_not_prevent_founding(reason: RejectReason) -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, Address("alpha", 0))
    reject(pending(runtime)[0], reason)
    reach_itself(pending(runtime)[0])
    reject(pending(runtime)[0], reason)
    assert not rejected_events(runtime)
    assert peer.state is PeerState.CONNECTED, "no member is there, so the channel is created"


@pytest.mark.parametrize("good_first", [False, True])
def test_seeker_joins_when_another_member_admits_it(good_first: bool) -> None:
    runtime = FakeRuntime()
    start_seeker(runtime, ADDRESS_WITH_PORT, Address("beta", 4000))
    bad, good = pending(runtime)
    if not good_first:
        reject(bad, RejectReason.WRONG_KEY)
    good.remote_accepts()
    assert good.sent_messages(DiscoverRequest)
    good.remote_sends(hello(5), DiscoverResponse(True, 0, ()))
    if good_first:
        reject(bad, RejectReason.WRONG_KEY)
    assert good.sent_messages(JoinRequest)
    runtime.advance(0.5)
    assert not rejected_events(runtime)


def test_rejected_seeker_retries_and_joins_when_admitted() -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, ADDRESS_WITH_PORT)
    reject(pending(runtime)[0], RejectReason.TICKET_REVOKED)
    assert len(rejected_events(runtime)) == 1
    runtime.advance(1.6)
    reject(pending(runtime)[0], RejectReason.TICKET_REVOKED)
    assert len(rejected_events(runtime)) == 2
    runtime.advance(1.6)
    reach_itself(pending(runtime)[0])
    assert peer.state is PeerState.CONNECTED
    assert len(rejected_events(runtime)) == 2
