"""The search for a channel when portals do not answer."""

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.wire import Address
from broadloom.wire.exchange_messages import DiscoverResponse
from tests.protocol.fake_runtime import CHANNEL, NO_TIMEOUT, FakeConnection, FakeRuntime, hello, peer_info

DEPTH = 4
SEEKING = Tuning(discovery_ports=DEPTH, heartbeat_timeout_s=NO_TIMEOUT.heartbeat_timeout_s)
DEAD, ALIVE = "dead", "alive"


def started(world: FakeRuntime, *hosts: str) -> Peer:
    peer = Peer(world, peer_info(1000), CHANNEL, tuple(Address(host, 0) for host in hosts), SEEKING)
    peer.start()
    return peer


def dialled(world: FakeRuntime, host: str) -> list[FakeConnection]:
    return [line for line in world.dialed if line.address is not None and line.address.host == host]


def refuse_all(world: FakeRuntime, host: str) -> None:
    for line in dialled(world, host):
        line.remote_closes()


def test_a_portal_that_never_answers_does_not_hold_up_the_search() -> None:
    world = FakeRuntime()
    started(world, DEAD, ALIVE)
    for depth in range(1, DEPTH + 1):
        assert len(dialled(world, ALIVE)) == depth, "one port further each time"
        refuse_all(world, ALIVE)
        world.advance(SEEKING.discovery_attempt_s)
    assert len(dialled(world, DEAD)) == DEPTH


def test_who_is_found_late_is_found() -> None:
    world = FakeRuntime()
    peer = started(world, DEAD)
    world.advance(SEEKING.discovery_attempt_s * 1.5)
    first, second = dialled(world, DEAD)
    second.remote_closes()
    first.remote_accepts()
    first.remote_sends(hello(7), DiscoverResponse(True, 0, ()))
    assert peer.state is PeerState.DISCOVERING
    asked = [line for line in world.dialed if line.address == peer_info(7).address]
    assert asked, "it asks the one that answered late to weave it in"


def test_a_channel_is_founded_only_when_every_call_is_over() -> None:
    world = FakeRuntime()
    peer = started(world, DEAD, ALIVE)
    for _ in range(DEPTH):
        for line in dialled(world, ALIVE):
            line.remote_accepts()
            line.remote_sends(hello(1000))  # that is ourselves: we are on a portal, and could found the channel
        world.advance(SEEKING.discovery_attempt_s)
    assert peer.discovery.search_depth == 0, "nothing is claimed to be searched while a portal may still answer"
    assert not peer.is_member
    refuse_all(world, DEAD)
    assert peer.is_member


def test_a_depth_counts_as_searched_when_all_portals_have_answered() -> None:
    world = FakeRuntime()
    peer = started(world, "one", "two")
    refuse_all(world, "one")
    world.advance(SEEKING.discovery_attempt_s)
    assert peer.discovery.search_depth == 0
    for _ in range(DEPTH):
        refuse_all(world, "one")
        refuse_all(world, "two")
        world.advance(0.0)
    assert peer.discovery.search_depth == DEPTH
