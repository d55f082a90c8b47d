"""The search of the bootstrap hosts when some of them do not answer."""

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.wire import Address
from broadloom.wire.exchange_messages import DiscoverResponse, JoinRequest, JoinResponse, SeekerJoined
from tests.protocol.fake_runtime import (
    CHANNEL,
    NO_TIMEOUT,
    FakeConnection,
    FakeRuntime,
    hello,
    open_exchange,
    peer_info,
)

DEPTH = 4
SETTINGS = Tuning(discovery_ports=DEPTH, heartbeat_timeout_s=NO_TIMEOUT.heartbeat_timeout_s)
DEAD, ALIVE = "dead", "alive"


def start_seeker(runtime: FakeRuntime, *hosts: str) -> Peer:
    peer = Peer(runtime, peer_info(1000), CHANNEL, tuple(Address(host, 0) for host in hosts), SETTINGS)
    peer.start()
    return peer


def connections_to(runtime: FakeRuntime, host: str) -> list[FakeConnection]:
    return [
        connection
        for connection in runtime.dialed
        if connection.address is not None and connection.address.host == host
    ]


def refuse_all(runtime: FakeRuntime, host: str) -> None:
    for connection in connections_to(runtime, host):
        connection.remote_closes()


def test_search_continues_when_a_bootstrap_host_does_not_answer() -> None:
    runtime = FakeRuntime()
    start_seeker(runtime, DEAD, ALIVE)
    for depth in range(1, DEPTH + 1):
        assert len(connections_to(runtime, ALIVE)) == depth, "one port further each time"
        refuse_all(runtime, ALIVE)
        runtime.advance(SETTINGS.discovery_attempt_s)
    assert len(connections_to(runtime, DEAD)) == DEPTH


def test_seeker_joins_through_member_that_answers_late() -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, DEAD)
    runtime.advance(SETTINGS.discovery_attempt_s * 1.5)
    first, second = connections_to(runtime, DEAD)
    second.remote_closes()
    first.remote_accepts()
    first.remote_sends(hello(7), DiscoverResponse(True, 0, ()))
    assert peer.state is PeerState.DISCOVERING
    assert first.sent_messages(JoinRequest), "the seeker sends a join request to the late member"


def test_member_that_has_closed_the_probe_is_asked_over_another_connection() -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, ALIVE)
    (probe,) = connections_to(runtime, ALIVE)
    probe.remote_accepts()
    probe.remote_sends(hello(7), DiscoverResponse(True, 0, ()))
    assert probe.sent_messages(JoinRequest)
    probe.remote_closes()
    assert peer.state is PeerState.DISCOVERING
    runtime.advance(2 * SETTINGS.discovery_retry_s)
    (second,) = [connection for connection in runtime.dialed if connection.address == peer_info(7).address]
    second.remote_accepts()
    assert second.sent_messages(JoinRequest)


def test_only_one_of_several_members_that_answer_is_asked_to_join() -> None:
    runtime = FakeRuntime()
    start_seeker(runtime, ALIVE, "second")
    probes = connections_to(runtime, ALIVE) + connections_to(runtime, "second")
    for number, probe in enumerate(probes, 7):
        probe.remote_accepts()
        probe.remote_sends(hello(number), DiscoverResponse(True, 0, ()))
    assert [len(probe.sent_messages(JoinRequest)) for probe in probes] == [1, 0]
    assert [probe.closed for probe in probes] == [False, True]


def test_channel_is_created_only_after_every_probe_has_ended() -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, DEAD, ALIVE)
    for _ in range(DEPTH):
        for connection in connections_to(runtime, ALIVE):
            connection.remote_accepts()
            connection.remote_sends(hello(1000))  # our own id: this peer is on a bootstrap host
        runtime.advance(SETTINGS.discovery_attempt_s)
    assert peer.discovery.search_depth == 0, "no depth counts as searched while a host may still answer"
    assert not peer.is_member
    refuse_all(runtime, DEAD)
    assert peer.is_member


def test_depth_counts_as_searched_after_all_bootstrap_hosts_answer() -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, "one", "two")
    refuse_all(runtime, "one")
    runtime.advance(SETTINGS.discovery_attempt_s)
    assert peer.discovery.search_depth == 0
    for _ in range(DEPTH):
        refuse_all(runtime, "one")
        refuse_all(runtime, "two")
        runtime.advance(0.0)
    assert peer.discovery.search_depth == DEPTH


def test_search_does_not_restart_while_a_join_request_is_pending() -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, ALIVE)
    open_exchange(peer, hello(7), SeekerJoined())
    runtime.dialed[-1].remote_closes()  # the first request fails, and the seeker backs off
    open_exchange(peer, hello(8), SeekerJoined())
    pending = runtime.dialed[-1]
    assert pending.address == peer_info(8).address
    runtime.advance(2 * SETTINGS.discovery_retry_s)
    assert runtime.dialed[-1] is pending


def test_seeker_waits_for_accepted_links_when_its_first_link_is_lost() -> None:
    runtime = FakeRuntime()
    peer = start_seeker(runtime, ALIVE)
    open_exchange(peer, hello(7), SeekerJoined())
    join_request = runtime.dialed[-1]
    join_request.remote_accepts()
    join_request.remote_sends(hello(7), JoinResponse(True, False, 2, (), ()))
    assert 7 in peer.links
    join_request.remote_closes()
    runtime.advance(SETTINGS.join_timeout_s - 0.1)
    assert runtime.dialed[-1] is join_request
    runtime.advance(0.2)
    assert runtime.dialed[-1] is not join_request, "the join timed out, so a member is asked or the search restarts"
