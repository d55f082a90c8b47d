"""Looking for a channel where somebody is who does not let us in."""

import pytest

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.protocol.events import Rejected, StateChanged
from broadloom.wire import Address
from broadloom.wire.exchange_messages import DiscoverRequest, DiscoverResponse, JoinRequest, Reject, RejectReason
from tests.protocol.fake_runtime import CHANNEL, FakeConnection, FakeRuntime, hello, peer_info

DEPTH = 3
ME = 1000
SETTINGS = Tuning(discovery_ports=DEPTH, heartbeat_timeout_s=1e9)
AT_A_PORT = Address("alpha", 4000)

ANYWHERE = [
    RejectReason.WRONG_KEY,
    RejectReason.TICKET_EXPIRED,
    RejectReason.TICKET_REVOKED,
    RejectReason.SIGNING_MISMATCH,
]
"""Who says so is of this channel for certain."""
AT_A_GIVEN_PORT = [
    *ANYWHERE,
    RejectReason.TLS_MISMATCH,
    RejectReason.WRONG_VERSION,
    RejectReason.WRONG_CHANNEL,
    RejectReason.WRONG_PROTOCOL,
]


def started(world: FakeRuntime, *bootstrap: Address) -> Peer:
    peer = Peer(world, peer_info(ME), CHANNEL, bootstrap, SETTINGS)
    peer.start()
    return peer


def unanswered(world: FakeRuntime) -> list[FakeConnection]:
    return [line for line in world.dialed if not line.closed]


def tells(line: FakeConnection, refusal: RejectReason) -> None:
    """In the handshake below, or in words."""
    if refusal in (RejectReason.WRONG_KEY, RejectReason.TLS_MISMATCH, RejectReason.WRONG_PROTOCOL):
        line.closed = True
        line.handler.on_disconnect(refusal)
    else:
        line.remote_accepts()
        line.remote_sends(Reject(refusal, "no"))


def barred(world: FakeRuntime) -> list[Rejected]:
    return [event for event in world.events if isinstance(event, Rejected)]


def finds_itself(line: FakeConnection) -> None:
    line.remote_accepts()
    line.remote_sends(hello(ME))


@pytest.mark.parametrize("refusal", AT_A_GIVEN_PORT)
def test_at_an_address_with_a_port_every_misfit_bars(refusal: RejectReason) -> None:
    world = FakeRuntime()
    peer = started(world, AT_A_PORT)
    tells(unanswered(world)[0], refusal)
    (told,) = barred(world)
    assert told.reason is refusal
    assert told.text.startswith("alpha:4000: ")
    assert peer.state is PeerState.DISCOVERING


@pytest.mark.parametrize(
    "refusal", [RejectReason.LEAVING, RejectReason.BUSY, RejectReason.NOT_READY, RejectReason.MALFORMED_MESSAGE, None]
)
def test_what_may_be_better_next_time_does_not_bar(refusal: RejectReason | None) -> None:
    world = FakeRuntime()
    started(world, AT_A_PORT)
    line = unanswered(world)[0]
    if refusal is None:
        line.remote_closes()
    else:
        tells(line, refusal)
    assert not barred(world)


@pytest.mark.parametrize("refusal", ANYWHERE)
def test_along_the_port_order_who_is_of_the_channel_bars_and_no_second_channel_is_founded(
    refusal: RejectReason,
) -> None:
    world = FakeRuntime()
    peer = started(world, Address("alpha", 0))
    tells(unanswered(world)[0], refusal)
    finds_itself(unanswered(world)[0])
    assert not barred(world), "there may still be somebody who lets us in"
    unanswered(world)[0].remote_closes()
    assert [event.reason for event in barred(world)] == [refusal]
    world.advance(0.4)
    assert peer.state is PeerState.DISCOVERING
    assert StateChanged(PeerState.CONNECTED) not in world.events


@pytest.mark.parametrize("refusal", [each for each in AT_A_GIVEN_PORT if each not in ANYWHERE])
def test_along_the_port_order_strangers_are_to_be_expected(refusal: RejectReason) -> None:
    world = FakeRuntime()
    peer = started(world, Address("alpha", 0))
    tells(unanswered(world)[0], refusal)
    finds_itself(unanswered(world)[0])
    tells(unanswered(world)[0], refusal)
    assert not barred(world)
    assert peer.state is PeerState.CONNECTED, "nobody of the channel is there, so it is founded"


@pytest.mark.parametrize("good_first", [False, True])
def test_who_finds_somebody_good_as_well_joins(good_first: bool) -> None:
    world = FakeRuntime()
    started(world, AT_A_PORT, Address("beta", 4000))
    bad, good = unanswered(world)
    if not good_first:
        tells(bad, RejectReason.WRONG_KEY)
    good.remote_accepts()
    assert good.sent_messages(DiscoverRequest)
    good.remote_sends(hello(5), DiscoverResponse(True, 0, ()))
    if good_first:
        tells(bad, RejectReason.WRONG_KEY)
    joining = world.dialed[-1]
    assert joining.address == peer_info(5).address
    joining.remote_accepts()
    assert joining.sent_messages(JoinRequest)
    world.advance(0.5)
    assert not barred(world)


def test_who_is_barred_looks_again_and_gets_in_when_that_is_mended() -> None:
    world = FakeRuntime()
    peer = started(world, AT_A_PORT)
    tells(unanswered(world)[0], RejectReason.TICKET_REVOKED)
    assert len(barred(world)) == 1
    world.advance(1.6)
    tells(unanswered(world)[0], RejectReason.TICKET_REVOKED)
    assert len(barred(world)) == 2
    world.advance(1.6)
    finds_itself(unanswered(world)[0])
    assert peer.state is PeerState.CONNECTED
    assert len(barred(world)) == 2
