"""Places: never more than the degree, kept for whom they were promised, and given back when nobody comes."""

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
from tests.protocol.fake_runtime import (
    EMPTY_DIGEST,
    NO_TIMEOUT,
    Cable,
    FakeConnection,
    FakeRuntime,
    founder,
    hello,
    link,
    open_exchange,
    peer_info,
)

DEGREE = NO_TIMEOUT.degree


def refusals(line: FakeConnection) -> list[RejectReason]:
    return [refuse.reason for refuse in line.sent_messages(Reject)]


def ask(peer: Peer, name: int) -> FakeConnection:
    return open_exchange(peer, hello(name), LinkRequest())


# Room.


@pytest.mark.parametrize("degree", [3, 4, 5, 8])
def test_a_peer_has_as_many_links_as_its_degree_and_no_more(degree: int) -> None:
    peer = founder(FakeRuntime(), Tuning(degree=degree))
    for name in range(1, degree + 1):
        assert peer.links.free_slots == peer.links.unreserved_slots == degree - name + 1
        link(peer, name)
    line = ask(peer, 50)
    assert refusals(line) == [RejectReason.NO_FREE_SLOT]
    assert line.closed
    assert peer.links.neighbors == tuple(range(1, degree + 1))


def test_nobody_is_a_neighbour_twice() -> None:
    peer = founder(FakeRuntime())
    link(peer, 2)
    assert refusals(ask(peer, 2)) == [RejectReason.ALREADY_LINKED]
    assert peer.links.neighbors == (2,)


def test_links_that_come_and_go_are_told() -> None:
    world = FakeRuntime()
    peer = founder(world)
    link(peer, 2).remote_closes()
    told = [event for event in world.events if isinstance(event, LinkUp | LinkDown)]
    assert told == [LinkUp(peer_info(2)), LinkDown(peer_info(2), LinkDownReason.CONNECTION_LOST)]
    assert peer.links.free_slots == DEGREE


# Claims.


def test_a_place_is_kept_for_whom_it_was_promised() -> None:
    peer = founder(FakeRuntime())
    for name in (2, 3, 4):
        link(peer, name)
    assert peer.links.reserve(9)
    assert (peer.links.unreserved_slots, peer.links.free_slots) == (0, 1)
    assert not peer.links.reserve(10)
    assert refusals(ask(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    link(peer, 9)
    assert (peer.links.unreserved_slots, peer.links.free_slots) == (0, 0)


def test_a_claim_lapses() -> None:
    world = FakeRuntime()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.links.reserve(9)
    world.advance(NO_TIMEOUT.slot_reservation_s - 0.1)
    assert refusals(ask(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    world.advance(0.2)
    assert not peer.links.is_reserved(9)
    link(peer, 10)


def test_a_claim_made_again_lasts_longer_and_takes_no_second_place() -> None:
    world = FakeRuntime()
    peer = founder(world)
    peer.links.reserve(9)
    world.advance(NO_TIMEOUT.slot_reservation_s - 0.1)
    peer.links.reserve(9)
    assert peer.links.unreserved_slots == DEGREE - 1
    world.advance(NO_TIMEOUT.slot_reservation_s - 0.1)
    assert peer.links.is_reserved(9)
    world.advance(0.2)
    assert peer.links.unreserved_slots == DEGREE


def test_no_place_is_kept_for_a_neighbour_or_for_me() -> None:
    peer = founder(FakeRuntime())
    link(peer, 2)
    assert not peer.links.reserve(2)
    assert not peer.links.reserve(peer.me.peer_id)
    assert peer.links.unreserved_slots == DEGREE - 1


def test_a_call_of_ours_keeps_its_place_until_it_fails() -> None:
    world = FakeRuntime()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.join_protocol.request_link(peer_info(9))
    assert refusals(ask(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    world.dialed[0].remote_closes()
    link(peer, 10)


@pytest.mark.parametrize(("pair", "verdict"), [(False, EdgeOfferResult.NO_FREE_SLOT), (True, EdgeOfferResult.ACCEPTED)])
def test_an_edge_with_two_ends_needs_two_places(pair: bool, verdict: EdgeOfferResult) -> None:
    peer = founder(FakeRuntime())
    for name in (2, 3, 4):
        link(peer, name)
    line = open_exchange(peer, hello(8), EdgeOffer(1, peer_info(9), pair, (), (), True))
    assert line.sent_messages(EdgeOfferResponse) == [EdgeOfferResponse(verdict)]
    assert (8 in peer.links) == pair


def test_an_accepted_edge_keeps_a_place_for_its_other_end() -> None:
    peer = founder(FakeRuntime())
    for name in (2, 3):
        link(peer, name)
    line = open_exchange(peer, hello(8), EdgeOffer(1, peer_info(9), False, (), (), True))
    assert line.sent_messages(EdgeOfferResponse) == [EdgeOfferResponse(EdgeOfferResult.ACCEPTED)]
    assert refusals(ask(peer, 10)) == [RejectReason.NO_FREE_SLOT]
    link(peer, 9)


# Each calls the other.


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=16), st.sampled_from([0, DEGREE - 1]))
def test_two_that_call_each_other_at_once_get_exactly_one_link(schedule: list[tuple[int, int]], others: int) -> None:
    worlds = FakeRuntime(1), FakeRuntime(2)
    peers = [founder(world, peer_id=name) for world, name in zip(worlds, (1, 2), strict=True)]
    for peer in peers:
        for name in range(10, 10 + others):
            link(peer, name)
    peers[0].join_protocol.request_link(peers[1].me)
    peers[1].join_protocol.request_link(peers[0].me)
    cables = [Cable(worlds[0].dialed[0], peers[1]), Cable(worlds[1].dialed[0], peers[0])]
    for number, end in schedule:
        cables[number].carry(end)
    while any(cable.carry(end) for cable in cables for end in (0, 1)):
        pass
    assert [len(peer.links) for peer in peers] == [others + 1] * 2
    assert [peer.links.unreserved_slots for peer in peers] == [DEGREE - others - 1] * 2
    assert sorted(tuple(end.closed for end in cable.ends) for cable in cables) == [(False, False), (True, True)]
    # It is the same link at both ends: what one says on it, the other hears.
    peers[0].broadcast(b"e4")
    for cable in cables:
        cable.carry_all()
    assert [message.data for message in worlds[1].delivered] == [b"e4"]


@pytest.mark.parametrize("first", [0, 1], ids=["the lower id's call arrives first", "the higher id's"])
def test_both_are_told_what_became_of_their_call(first: int) -> None:
    # Whoever waits for the end of a call (a newcomer for its members, a seeker for its request) must not wait for ever.
    worlds = FakeRuntime(1), FakeRuntime(2)
    peers = [founder(world, peer_id=name) for world, name in zip(worlds, (1, 2), strict=True)]
    told: list[list[bool]] = [[], []]
    peers[0].join_protocol.request_link(peers[1].me, told[0].append)
    peers[1].join_protocol.request_link(peers[0].me, told[1].append)
    cables = [Cable(worlds[0].dialed[0], peers[1]), Cable(worlds[1].dialed[0], peers[0])]
    for cable in (cables[first], cables[1 - first], cables[first]):
        cable.carry_all()
    for world in worlds:
        world.advance(NO_TIMEOUT.exchange_timeout_s)
    assert [len(each) for each in told] == [1, 1]
    assert told[0] == [True]


def test_one_that_we_asked_to_join_through_gets_no_place_that_is_taken_meanwhile() -> None:
    # Asking to be woven in keeps no place; when the one that was asked calls us itself, there may be none left.
    world = FakeRuntime()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.join_protocol.join_via(peer_info(9), lambda _accepted: None)
    world.dialed[0].remote_accepts()
    assert world.dialed[0].sent_messages(JoinRequest)
    link(peer, 5)
    assert refusals(ask(peer, 9)) == [RejectReason.NO_FREE_SLOT]
    assert len(peer.links) == DEGREE


def test_one_that_we_called_gets_no_place_that_lapsed_and_was_taken_meanwhile() -> None:
    # A place is kept for less long than a call may take.
    world = FakeRuntime()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.join_protocol.request_link(peer_info(9))
    world.advance((NO_TIMEOUT.slot_reservation_s + NO_TIMEOUT.exchange_timeout_s) / 2)
    link(peer, 5)
    assert refusals(ask(peer, 9)) == [RejectReason.NO_FREE_SLOT]
    assert len(peer.links) == DEGREE


def test_a_yes_that_comes_when_the_place_lapsed_and_was_taken_makes_no_link() -> None:
    world = FakeRuntime()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.join_protocol.request_link(peer_info(9))
    world.dialed[0].remote_accepts()
    world.advance((NO_TIMEOUT.slot_reservation_s + NO_TIMEOUT.exchange_timeout_s) / 2)
    link(peer, 5)
    world.dialed[0].remote_sends(hello(9), LinkResponse())
    assert world.dialed[0].closed
    assert peer.links.neighbors == (2, 3, 4, 5)


# An edge is cut.


def test_a_link_that_was_cut_frees_its_place_is_heard_to_its_end_and_closed_in_time() -> None:
    world = FakeRuntime()
    peer = founder(world)
    line, *_ = (link(peer, name) for name in (2, 3, 4, 5))
    line.remote_sends(RandomWalk(1, peer_info(9), None, (), (), free_slot_only=False, steps=0, extra_steps=0))
    offer = world.dialed[0]
    offer.remote_accepts()
    offer.remote_sends(hello(9), EdgeOfferResponse(EdgeOfferResult.ACCEPTED))
    assert line.sent_messages(Unlink) == [Unlink(dial=peer_info(9), await_dial=None)]
    assert peer.links.neighbors == (3, 4, 5, 9)
    line.remote_sends(Broadcast(71, 1, 1, (b"under way when the link was cut",)))
    assert world.delivered_ids() == [(71, 1)]
    world.advance(NO_TIMEOUT.unlink_timeout_s - 0.1)
    assert not line.closed
    world.advance(0.2)
    assert line.closed
    assert peer.links.neighbors == (3, 4, 5, 9)


def test_the_other_end_of_a_cut_says_its_last_word_and_fills_the_place_as_told() -> None:
    world = FakeRuntime()
    peer = founder(world)
    called, expected = (link(peer, name) for name in (2, 3))
    called.remote_sends(Unlink(dial=peer_info(9), await_dial=None))
    assert world.dialed[0].address == peer_info(9).address
    expected.remote_sends(Unlink(dial=None, await_dial=peer_info(8)))
    assert peer.links.is_reserved(8)
    for line in (called, expected):
        assert (line.sent_messages(UnlinkAck), line.closed) == ([UnlinkAck()], True)


# Idle links.


def test_an_idle_link_is_kept_alive_and_a_silent_one_given_up() -> None:
    world = FakeRuntime()
    usual = Tuning()
    peer = founder(world, usual)
    spoken_to, silent = link(peer, 2), link(peer, 3)
    while world.time < 3 * usual.heartbeat_timeout_s:
        world.advance(usual.heartbeat_s)
        spoken_to.remote_sends(Heartbeat())
    assert peer.links.neighbors == (2,)
    assert (spoken_to.closed, silent.closed) == (False, True)
    assert LinkDown(peer_info(3), LinkDownReason.HEARTBEAT_TIMEOUT) in world.events


def test_a_link_is_never_silent_from_our_side() -> None:
    world = FakeRuntime()
    peer = founder(world)
    line = link(peer, 2)
    for _ in range(20):
        sent = len(line.sent)
        world.advance(NO_TIMEOUT.heartbeat_s + 2 * NO_TIMEOUT.tick_s)
        assert len(line.sent) > sent
    assert line.sent_messages(Heartbeat)
    assert peer.links.neighbors == (2,)


# Whatever happens.

names = st.integers(1, 9)


class PlacesMachine(RuleBasedStateMachine):
    """Any history of calls, links, claims, offers, cuts and losses. The peer itself is in the middle of the names."""

    def __init__(self) -> None:
        super().__init__()
        self.world = FakeRuntime()
        self.peer = founder(self.world, peer_id=5)
        self.lines: dict[int, FakeConnection] = {}

    def _keep(self, name: int, line: FakeConnection) -> None:
        if name in self.peer.links and not line.closed:
            line.remote_sends(EMPTY_DIGEST)
            self.lines[name] = line

    def _drop_closed(self) -> None:
        self.lines = {name: line for name, line in self.lines.items() if not line.closed}

    @rule(name=names.filter(lambda name: name != 5))
    def is_asked_for_a_link(self, name: int) -> None:
        line = ask(self.peer, name)
        assert bool(line.sent_messages(LinkResponse)) != bool(line.sent_messages(Reject))
        self._keep(name, line)

    @rule(name=names.filter(lambda name: name != 5), holes=st.integers(0, 9))
    def is_asked_to_weave_in(self, name: int, holes: int) -> None:
        self._keep(name, open_exchange(self.peer, hello(name), JoinRequest(holes, ())))

    @rule(name=names.filter(lambda name: name != 5), other=names, pair=st.booleans())
    def is_offered_an_edge(self, name: int, other: int, pair: bool) -> None:
        line = open_exchange(self.peer, hello(name), EdgeOffer(1, peer_info(other), pair, (), (), True))
        (answer,) = line.sent_messages(EdgeOfferResponse)
        assert (answer.result is EdgeOfferResult.ACCEPTED) == (not line.closed)
        self._keep(name, line)

    @rule(name=names)
    def asks_for_a_link(self, name: int) -> None:
        if name != 5:
            self.peer.join_protocol.request_link(peer_info(name))

    @rule(name=names)
    def asks_to_be_woven_in(self, name: int) -> None:
        if name != 5:
            self.peer.join_protocol.join_via(peer_info(name), lambda _accepted: None)

    @rule(data=st.data(), yes=st.booleans())
    def a_call_is_answered(self, data: st.DataObject, yes: bool) -> None:
        waiting = [line for line in self.world.dialed if not line.closed and line not in self.lines.values()]
        if waiting:
            line = data.draw(st.sampled_from(waiting))
            assert line.address is not None
            name = int(line.address.host.removeprefix("host-"))
            line.remote_accepts()
            answered = line.sent_messages(LinkRequest) and yes
            line.remote_sends(hello(name), LinkResponse() if answered else Reject(RejectReason.NO_FREE_SLOT, ""))
            self._keep(name, line)

    @rule(name=names)
    def a_place_is_promised(self, name: int) -> None:
        self.peer.links.reserve(name)

    @rule(name=names, called=st.none() | names, expected=st.none() | names)
    def a_link_is_cut(self, name: int, called: int | None, expected: int | None) -> None:
        if name in self.lines:
            self.lines[name].remote_sends(
                Unlink(
                    dial=peer_info(called) if called is not None else None,
                    await_dial=peer_info(expected) if expected is not None else None,
                )
            )
            self._drop_closed()

    @rule(name=names, others=st.lists(names, unique=True, max_size=4))
    def a_neighbour_leaves(self, name: int, others: list[int]) -> None:
        if name in self.lines:
            self.lines.pop(name).remote_sends(Leave(tuple(peer_info(other) for other in others)))

    @rule(name=names)
    def a_link_is_lost(self, name: int) -> None:
        if name in self.lines:
            self.lines.pop(name).remote_closes()

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)
        self._drop_closed()

    @invariant()
    def there_are_never_more_links_and_promises_than_places(self) -> None:
        links = self.peer.links
        promised = [name for name in range(1, 10) if links.is_reserved(name)]
        assert len(links) + len(promised) <= DEGREE
        assert links.unreserved_slots == DEGREE - len(links) - len(promised)
        assert len(set(links.neighbors)) == len(links)
        assert not set(promised) & {5, *links.neighbors}

    @invariant()
    def every_link_has_its_line(self) -> None:
        assert sorted(self.peer.links.neighbors) == sorted(self.lines)


PlacesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = PlacesMachine.TestCase
