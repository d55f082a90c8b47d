"""Slots: never more than the degree, kept while reserved, and released when the reservation expires."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.events import LinkDown, LinkDownReason, LinkUp
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import (
    EdgeOffer,
    EdgeOfferResponse,
    EdgeOfferResult,
    JoinRequest,
    LinkRequest,
    LinkResponse,
    Reject,
    RejectReason,
)
from broadloom.wire.link_messages import Heartbeat, Leave, RandomWalk, Unlink, UnlinkAck
from broadloom.wire.roster_messages import RosterDigest
from tests.protocol.fake_runtime import (
    EMPTY_DIGEST,
    NO_TIMEOUT,
    Cable,
    FakeConnection,
    FakeRuntime,
    creator,
    hello,
    link,
    open_exchange,
    peer_info,
)

DEGREE = NO_TIMEOUT.degree


def reject_reasons(connection: FakeConnection) -> list[RejectReason]:
    return [reject.reason for reject in connection.sent_messages(Reject)]


def request_link(peer: Peer, peer_id: int) -> FakeConnection:
    return open_exchange(peer, hello(peer_id), LinkRequest())


# Degree.


@pytest.mark.parametrize("degree", [3, 4, 5, 8])
def test_peer_accepts_links_up_to_its_degree(degree: int) -> None:
    peer = creator(FakeRuntime(), Tuning(degree=degree))
    for peer_id in range(1, degree + 1):
        assert peer.links.free_slots == peer.links.unreserved_slots == degree - peer_id + 1
        link(peer, peer_id)
    connection = request_link(peer, 50)
    assert reject_reasons(connection) == [RejectReason.NO_FREE_SLOT]
    assert connection.closed
    assert peer.links.neighbors == tuple(range(1, degree + 1))


def test_second_link_to_a_neighbor_is_rejected() -> None:
    peer = creator(FakeRuntime())
    link(peer, 2)
    assert reject_reasons(request_link(peer, 2)) == [RejectReason.ALREADY_LINKED]
    assert peer.links.neighbors == (2,)


def test_link_up_and_link_down_are_emitted() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    link(peer, 2).remote_closes()
    results = [event for event in runtime.events if isinstance(event, LinkUp | LinkDown)]
    assert results == [LinkUp(peer_info(2)), LinkDown(peer_info(2), LinkDownReason.CONNECTION_LOST)]
    assert peer.links.free_slots == DEGREE


# Reservations.


def test_reserved_slot_is_kept_for_its_peer() -> None:
    peer = creator(FakeRuntime())
    for peer_id in (2, 3, 4):
        link(peer, peer_id)
    assert peer.links.reserve(9)
    assert (peer.links.unreserved_slots, peer.links.free_slots) == (0, 1)
    assert not peer.links.reserve(10)
    assert reject_reasons(request_link(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    link(peer, 9)
    assert (peer.links.unreserved_slots, peer.links.free_slots) == (0, 0)


def test_slot_reservation_expires() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    for peer_id in (2, 3, 4):
        link(peer, peer_id)
    peer.links.reserve(9)
    runtime.advance(NO_TIMEOUT.slot_reservation_s - 0.1)
    assert reject_reasons(request_link(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    runtime.advance(0.2)
    assert not peer.links.is_reserved(9)
    link(peer, 10)


def test_renewed_reservation_lasts_longer_and_takes_no_second_slot() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    peer.links.reserve(9)
    runtime.advance(NO_TIMEOUT.slot_reservation_s - 0.1)
    peer.links.reserve(9)
    assert peer.links.unreserved_slots == DEGREE - 1
    runtime.advance(NO_TIMEOUT.slot_reservation_s - 0.1)
    assert peer.links.is_reserved(9)
    runtime.advance(0.2)
    assert peer.links.unreserved_slots == DEGREE


def test_no_slot_is_reserved_for_a_neighbor_or_own_id() -> None:
    peer = creator(FakeRuntime())
    link(peer, 2)
    assert not peer.links.reserve(2)
    assert not peer.links.reserve(peer.me.peer_id)
    assert peer.links.unreserved_slots == DEGREE - 1


def test_link_request_keeps_its_slot_until_it_fails() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    for peer_id in (2, 3, 4):
        link(peer, peer_id)
    peer.join_protocol.request_link(peer_info(9))
    assert reject_reasons(request_link(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    runtime.dialed[0].remote_closes()
    link(peer, 10)


@pytest.mark.parametrize(("pair", "result"), [(False, EdgeOfferResult.NO_FREE_SLOT), (True, EdgeOfferResult.ACCEPTED)])
def test_edge_offer_needs_two_slots_unless_it_splits_a_pair(pair: bool, result: EdgeOfferResult) -> None:
    peer = creator(FakeRuntime())
    for peer_id in (2, 3, 4):
        link(peer, peer_id)
    connection = open_exchange(peer, hello(8), EdgeOffer(1, peer_info(9), pair, (), (), True))
    assert connection.sent_messages(EdgeOfferResponse) == [EdgeOfferResponse(result)]
    assert (8 in peer.links) == pair


def test_accepted_edge_reserves_a_slot_for_its_far_end() -> None:
    peer = creator(FakeRuntime())
    for peer_id in (2, 3):
        link(peer, peer_id)
    connection = open_exchange(peer, hello(8), EdgeOffer(1, peer_info(9), False, (), (), True))
    assert connection.sent_messages(EdgeOfferResponse) == [EdgeOfferResponse(EdgeOfferResult.ACCEPTED)]
    assert reject_reasons(request_link(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    link(peer, 9)


# Simultaneous requests.


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=16), st.sampled_from([0, DEGREE - 1]))
def test_simultaneous_link_requests_create_exactly_one_link(schedule: list[tuple[int, int]], others: int) -> None:
    runtimes = FakeRuntime(1), FakeRuntime(2)
    peers = [creator(runtime, peer_id=peer_id) for runtime, peer_id in zip(runtimes, (1, 2), strict=True)]
    for peer in peers:
        for peer_id in range(10, 10 + others):
            link(peer, peer_id)
    peers[0].join_protocol.request_link(peers[1].me)
    peers[1].join_protocol.request_link(peers[0].me)
    cables = [Cable(runtimes[0].dialed[0], peers[1]), Cable(runtimes[1].dialed[0], peers[0])]
    for number, end in schedule:
        cables[number].carry(end)
    while any(cable.carry(end) for cable in cables for end in (0, 1)):
        pass
    assert [len(peer.links) for peer in peers] == [others + 1] * 2
    assert [peer.links.unreserved_slots for peer in peers] == [DEGREE - others - 1] * 2
    assert sorted(tuple(end.closed for end in cable.ends) for cable in cables) == [(False, False), (True, True)]
    # Both ends kept the same connection: a message crosses it.
    peers[0].broadcast(b"e4")
    for cable in cables:
        cable.carry_all()
    assert [message.data for message in runtimes[1].delivered] == [b"e4"]


@pytest.mark.parametrize("first", [0, 1], ids=["request of the lower id first", "request of the higher id first"])
def test_simultaneous_link_requests_both_finish(first: int) -> None:
    # Joining waits for the end of these requests, so none may stay pending.
    runtimes = FakeRuntime(1), FakeRuntime(2)
    peers = [creator(runtime, peer_id=peer_id) for runtime, peer_id in zip(runtimes, (1, 2), strict=True)]
    results: list[list[bool]] = [[], []]
    peers[0].join_protocol.request_link(peers[1].me, results[0].append)
    peers[1].join_protocol.request_link(peers[0].me, results[1].append)
    cables = [Cable(runtimes[0].dialed[0], peers[1]), Cable(runtimes[1].dialed[0], peers[0])]
    for cable in (cables[first], cables[1 - first], cables[first]):
        cable.carry_all()
    for runtime in runtimes:
        runtime.advance(NO_TIMEOUT.exchange_timeout_s)
    assert [len(each) for each in results] == [1, 1]
    assert results[0] == [True]


def test_join_target_is_rejected_when_slots_are_taken_meanwhile() -> None:
    # A join request reserves no slot, so a link request of the same peer may find none.
    runtime = FakeRuntime()
    peer = creator(runtime)
    for peer_id in (2, 3, 4):
        link(peer, peer_id)
    peer.join_protocol.join_via(peer_info(9), lambda _accepted: None)
    runtime.dialed[0].remote_accepts()
    assert runtime.dialed[0].sent_messages(JoinRequest)
    link(peer, 5)
    assert reject_reasons(request_link(peer, 9)) == [RejectReason.NO_FREE_SLOT]
    assert len(peer.links) == DEGREE


def test_link_target_is_rejected_when_its_reservation_expired() -> None:
    # A reservation is shorter than the timeout of an exchange.
    runtime = FakeRuntime()
    peer = creator(runtime)
    for peer_id in (2, 3, 4):
        link(peer, peer_id)
    peer.join_protocol.request_link(peer_info(9))
    runtime.advance((NO_TIMEOUT.slot_reservation_s + NO_TIMEOUT.exchange_timeout_s) / 2)
    link(peer, 5)
    assert reject_reasons(request_link(peer, 9)) == [RejectReason.NO_FREE_SLOT]
    assert len(peer.links) == DEGREE


def test_late_link_response_creates_no_link_when_slot_is_taken() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    for peer_id in (2, 3, 4):
        link(peer, peer_id)
    peer.join_protocol.request_link(peer_info(9))
    runtime.dialed[0].remote_accepts()
    runtime.advance((NO_TIMEOUT.slot_reservation_s + NO_TIMEOUT.exchange_timeout_s) / 2)
    link(peer, 5)
    runtime.dialed[0].remote_sends(hello(9), LinkResponse())
    assert runtime.dialed[0].closed
    assert peer.links.neighbors == (2, 3, 4, 5)


# Cut edges.


def test_cut_link_frees_its_slot_and_is_drained_until_timeout() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connection, *_ = (link(peer, peer_id) for peer_id in (2, 3, 4, 5))
    connection.remote_sends(RandomWalk(1, peer_info(9), None, (), (), free_slot_only=False, steps=0, extra_steps=0))
    offer = runtime.dialed[0]
    offer.remote_accepts()
    offer.remote_sends(hello(9), EdgeOfferResponse(EdgeOfferResult.ACCEPTED))
    assert connection.sent_messages(Unlink) == [Unlink(dial=peer_info(9), await_dial=None)]
    assert peer.links.neighbors == (3, 4, 5, 9)
    connection.remote_sends(Broadcast(71, 1, 1, (b"under way when the link was cut",)))
    assert runtime.delivered_ids() == [(71, 1)]
    runtime.advance(NO_TIMEOUT.unlink_timeout_s - 0.1)
    assert not connection.closed
    runtime.advance(0.2)
    assert connection.closed
    assert peer.links.neighbors == (3, 4, 5, 9)


def test_unlink_is_acknowledged_and_the_slot_refilled() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    dial, awaited = (link(peer, peer_id) for peer_id in (2, 3))
    dial.remote_sends(Unlink(dial=peer_info(9), await_dial=None))
    assert runtime.dialed[0].address == peer_info(9).address
    awaited.remote_sends(Unlink(dial=None, await_dial=peer_info(8)))
    assert peer.links.is_reserved(8)
    for connection in (dial, awaited):
        assert (connection.sent_messages(UnlinkAck), connection.closed) == ([UnlinkAck()], True)


# Idle links.


def test_silent_link_is_closed_and_idle_link_is_kept() -> None:
    runtime = FakeRuntime()
    defaults = Tuning()
    peer = creator(runtime, defaults)
    idle, silent = link(peer, 2), link(peer, 3)
    while runtime.time < 3 * defaults.heartbeat_timeout_s:
        runtime.advance(defaults.heartbeat_s)
        idle.remote_sends(Heartbeat())
    assert peer.links.neighbors == (2,)
    assert (idle.closed, silent.closed) == (False, True)
    assert LinkDown(peer_info(3), LinkDownReason.HEARTBEAT_TIMEOUT) in runtime.events


def test_idle_link_sends_heartbeats() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime)
    connection = link(peer, 2)
    for _ in range(20):
        sent = len(connection.sent)
        runtime.advance(NO_TIMEOUT.heartbeat_s + 2 * NO_TIMEOUT.tick_s)
        assert len(connection.sent) > sent
    assert connection.sent_messages(RosterDigest)
    assert peer.links.neighbors == (2,)


# Any history.

peer_ids = st.integers(1, 9)


class SlotMachine(RuleBasedStateMachine):
    """Any history of exchanges, links, reservations, offers, cuts and losses. The id of the peer is in mid-range."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = FakeRuntime()
        self.peer = creator(self.runtime, peer_id=5)
        self.connections: dict[int, FakeConnection] = {}

    def _keep(self, peer_id: int, connection: FakeConnection) -> None:
        if peer_id in self.peer.links and not connection.closed:
            connection.remote_sends(EMPTY_DIGEST)
            self.connections[peer_id] = connection

    def _drop_closed(self) -> None:
        self.connections = {
            peer_id: connection for peer_id, connection in self.connections.items() if not connection.closed
        }

    @rule(peer_id=peer_ids.filter(lambda peer_id: peer_id != 5))
    def receives_link_request(self, peer_id: int) -> None:
        connection = request_link(self.peer, peer_id)
        assert bool(connection.sent_messages(LinkResponse)) != bool(connection.sent_messages(Reject))
        self._keep(peer_id, connection)

    @rule(peer_id=peer_ids.filter(lambda peer_id: peer_id != 5), free_slots=st.integers(0, 9))
    def receives_join_request(self, peer_id: int, free_slots: int) -> None:
        self._keep(peer_id, open_exchange(self.peer, hello(peer_id), JoinRequest(free_slots, ())))

    @rule(peer_id=peer_ids.filter(lambda peer_id: peer_id != 5), other=peer_ids, pair=st.booleans())
    def receives_edge_offer(self, peer_id: int, other: int, pair: bool) -> None:
        connection = open_exchange(self.peer, hello(peer_id), EdgeOffer(1, peer_info(other), pair, (), (), True))
        (response,) = connection.sent_messages(EdgeOfferResponse)
        assert (response.result is EdgeOfferResult.ACCEPTED) == (not connection.closed)
        self._keep(peer_id, connection)

    @rule(peer_id=peer_ids)
    def sends_link_request(self, peer_id: int) -> None:
        if peer_id != 5:
            self.peer.join_protocol.request_link(peer_info(peer_id))

    @rule(peer_id=peer_ids)
    def sends_join_request(self, peer_id: int) -> None:
        if peer_id != 5:
            self.peer.join_protocol.join_via(peer_info(peer_id), lambda _accepted: None)

    @rule(data=st.data(), accept=st.booleans())
    def request_is_answered(self, data: st.DataObject, accept: bool) -> None:
        waiting = [
            connection
            for connection in self.runtime.dialed
            if not connection.closed and connection not in self.connections.values()
        ]
        if waiting:
            connection = data.draw(st.sampled_from(waiting))
            assert connection.address is not None
            peer_id = int(connection.address.host.removeprefix("host-"))
            connection.remote_accepts()
            is_link_response = connection.sent_messages(LinkRequest) and accept
            connection.remote_sends(
                hello(peer_id), LinkResponse() if is_link_response else Reject(RejectReason.NO_FREE_SLOT, "")
            )
            self._keep(peer_id, connection)

    @rule(peer_id=peer_ids)
    def slot_is_reserved(self, peer_id: int) -> None:
        self.peer.links.reserve(peer_id)

    @rule(peer_id=peer_ids, dial=st.none() | peer_ids, awaited=st.none() | peer_ids)
    def link_is_cut(self, peer_id: int, dial: int | None, awaited: int | None) -> None:
        if peer_id in self.connections:
            self.connections[peer_id].remote_sends(
                Unlink(
                    dial=peer_info(dial) if dial is not None else None,
                    await_dial=peer_info(awaited) if awaited is not None else None,
                )
            )
            self._drop_closed()

    @rule(peer_id=peer_ids, others=st.lists(peer_ids, unique=True, max_size=4))
    def neighbor_leaves(self, peer_id: int, others: list[int]) -> None:
        if peer_id in self.connections:
            self.connections.pop(peer_id).remote_sends(Leave(tuple(peer_info(other) for other in others)))

    @rule(peer_id=peer_ids)
    def link_is_lost(self, peer_id: int) -> None:
        if peer_id in self.connections:
            self.connections.pop(peer_id).remote_closes()

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.runtime.advance(seconds)
        self._drop_closed()

    @invariant()
    def links_and_reservations_never_exceed_the_degree(self) -> None:
        links = self.peer.links
        reserved = [peer_id for peer_id in range(1, 10) if links.is_reserved(peer_id)]
        assert len(links) + len(reserved) <= DEGREE
        assert links.unreserved_slots == DEGREE - len(links) - len(reserved)
        assert len(set(links.neighbors)) == len(links)
        assert not set(reserved) & {5, *links.neighbors}

    @invariant()
    def every_link_has_its_line(self) -> None:
        assert sorted(self.peer.links.neighbors) == sorted(self.connections)


SlotMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = SlotMachine.TestCase
