"""Places: never more than the degree, kept for whom they were promised, and given back when nobody comes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.fabric.fake_world import (
    NOTHING,
    PATIENT,
    Cable,
    FakeLine,
    FakeWorld,
    call,
    contact,
    founder,
    hello,
    link,
)
from weft.fabric import Peer, Settings
from weft.fabric.events import LinkDown, LinkUp, Why
from weft.wire import Broadcast
from weft.wire.calls import JoinRequest, Offer, OfferAnswer, PortAnswer, PortRequest, Refusal, Refuse, Verdict
from weft.wire.links import Cut, CutDone, Heartbeat, Leave, Walk

DEGREE = PATIENT.degree


def refusals(line: FakeLine) -> list[Refusal]:
    return [refuse.reason for refuse in line.heard(Refuse)]


def ask(peer: Peer, name: int) -> FakeLine:
    return call(peer, hello(name), PortRequest())


# Room.


@pytest.mark.parametrize("degree", [3, 4, 5, 8])
def test_a_peer_has_as_many_links_as_its_degree_and_no_more(degree: int) -> None:
    peer = founder(FakeWorld(), Settings(degree=degree))
    for name in range(1, degree + 1):
        assert peer.links.holes == peer.links.free == degree - name + 1
        link(peer, name)
    line = ask(peer, 50)
    assert refusals(line) == [Refusal.NO_ROOM]
    assert line.closed
    assert peer.links.neighbours == tuple(range(1, degree + 1))


def test_nobody_is_a_neighbour_twice() -> None:
    peer = founder(FakeWorld())
    link(peer, 2)
    assert refusals(ask(peer, 2)) == [Refusal.ALREADY_NEIGHBOURS]
    assert peer.links.neighbours == (2,)


def test_links_that_come_and_go_are_told() -> None:
    world = FakeWorld()
    peer = founder(world)
    link(peer, 2).hangs_up()
    told = [event for event in world.events if isinstance(event, LinkUp | LinkDown)]
    assert told == [LinkUp(contact(2)), LinkDown(contact(2), Why.LOST)]
    assert peer.links.holes == DEGREE


# Claims.


def test_a_place_is_kept_for_whom_it_was_promised() -> None:
    peer = founder(FakeWorld())
    for name in (2, 3, 4):
        link(peer, name)
    assert peer.links.claim(9)
    assert (peer.links.free, peer.links.holes) == (0, 1)
    assert not peer.links.claim(10)
    assert refusals(ask(peer, 10)) == [Refusal.NO_ROOM]
    link(peer, 9)
    assert (peer.links.free, peer.links.holes) == (0, 0)


def test_a_claim_lapses() -> None:
    world = FakeWorld()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.links.claim(9)
    world.run(PATIENT.claim_s - 0.1)
    assert refusals(ask(peer, 10)) == [Refusal.NO_ROOM]
    world.run(0.2)
    assert not peer.links.claimed(9)
    link(peer, 10)


def test_a_claim_made_again_lasts_longer_and_takes_no_second_place() -> None:
    world = FakeWorld()
    peer = founder(world)
    peer.links.claim(9)
    world.run(PATIENT.claim_s - 0.1)
    peer.links.claim(9)
    assert peer.links.free == DEGREE - 1
    world.run(PATIENT.claim_s - 0.1)
    assert peer.links.claimed(9)
    world.run(0.2)
    assert peer.links.free == DEGREE


def test_no_place_is_kept_for_a_neighbour_or_for_me() -> None:
    peer = founder(FakeWorld())
    link(peer, 2)
    assert not peer.links.claim(2)
    assert not peer.links.claim(peer.me.peer)
    assert peer.links.free == DEGREE - 1


def test_a_call_of_ours_keeps_its_place_until_it_fails() -> None:
    world = FakeWorld()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.joining.court(contact(9))
    assert refusals(ask(peer, 10)) == [Refusal.NO_ROOM]
    world.dialled[0].hangs_up()
    link(peer, 10)


@pytest.mark.parametrize(("pair", "verdict"), [(False, Verdict.FULL), (True, Verdict.ACCEPTED)])
def test_an_edge_with_two_ends_needs_two_places(pair: bool, verdict: Verdict) -> None:
    peer = founder(FakeWorld())
    for name in (2, 3, 4):
        link(peer, name)
    line = call(peer, hello(8), Offer(1, contact(9), pair, (), (), True))
    assert line.heard(OfferAnswer) == [OfferAnswer(verdict)]
    assert (8 in peer.links) == pair


def test_an_accepted_edge_keeps_a_place_for_its_other_end() -> None:
    peer = founder(FakeWorld())
    for name in (2, 3):
        link(peer, name)
    line = call(peer, hello(8), Offer(1, contact(9), False, (), (), True))
    assert line.heard(OfferAnswer) == [OfferAnswer(Verdict.ACCEPTED)]
    assert refusals(ask(peer, 10)) == [Refusal.NO_ROOM]
    link(peer, 9)


# Each calls the other.


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=16), st.sampled_from([0, DEGREE - 1]))
def test_two_that_call_each_other_at_once_get_exactly_one_link(schedule: list[tuple[int, int]], others: int) -> None:
    worlds = FakeWorld(1), FakeWorld(2)
    peers = [founder(world, name=name) for world, name in zip(worlds, (1, 2), strict=True)]
    for peer in peers:
        for name in range(10, 10 + others):
            link(peer, name)
    peers[0].joining.court(peers[1].me)
    peers[1].joining.court(peers[0].me)
    cables = [Cable(worlds[0].dialled[0], peers[1]), Cable(worlds[1].dialled[0], peers[0])]
    for number, end in schedule:
        cables[number].carry(end)
    while any(cable.carry(end) for cable in cables for end in (0, 1)):
        pass
    assert [len(peer.links) for peer in peers] == [others + 1] * 2
    assert [peer.links.free for peer in peers] == [DEGREE - others - 1] * 2
    assert sorted(tuple(end.closed for end in cable.ends) for cable in cables) == [(False, False), (True, True)]
    # It is the same link at both ends: what one says on it, the other hears.
    peers[0].broadcast(b"e4")
    for cable in cables:
        cable.carry_all()
    assert [message.data for message in worlds[1].delivered] == [b"e4"]


@pytest.mark.parametrize("first", [0, 1], ids=["the lower id's call arrives first", "the higher id's"])
def test_both_are_told_what_became_of_their_call(first: int) -> None:
    # Whoever waits for the end of a call (a newcomer for its members, a seeker for its request) must not wait for ever.
    worlds = FakeWorld(1), FakeWorld(2)
    peers = [founder(world, name=name) for world, name in zip(worlds, (1, 2), strict=True)]
    told: list[list[bool]] = [[], []]
    peers[0].joining.court(peers[1].me, told[0].append)
    peers[1].joining.court(peers[0].me, told[1].append)
    cables = [Cable(worlds[0].dialled[0], peers[1]), Cable(worlds[1].dialled[0], peers[0])]
    for cable in (cables[first], cables[1 - first], cables[first]):
        cable.carry_all()
    for world in worlds:
        world.run(PATIENT.call_s)
    assert [len(each) for each in told] == [1, 1]
    assert told[0] == [True]


def test_one_that_we_asked_to_join_through_gets_no_place_that_is_taken_meanwhile() -> None:
    # Asking to be woven in keeps no place; when the one that was asked calls us itself, there may be none left.
    world = FakeWorld()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.joining.join_through(contact(9), lambda _accepted: None)
    world.dialled[0].opens()
    assert world.dialled[0].heard(JoinRequest)
    link(peer, 5)
    assert refusals(ask(peer, 9)) == [Refusal.NO_ROOM]
    assert len(peer.links) == DEGREE


def test_one_that_we_called_gets_no_place_that_lapsed_and_was_taken_meanwhile() -> None:
    # A place is kept for less long than a call may take.
    world = FakeWorld()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.joining.court(contact(9))
    world.run((PATIENT.claim_s + PATIENT.call_s) / 2)
    link(peer, 5)
    assert refusals(ask(peer, 9)) == [Refusal.NO_ROOM]
    assert len(peer.links) == DEGREE


def test_a_yes_that_comes_when_the_place_lapsed_and_was_taken_makes_no_link() -> None:
    world = FakeWorld()
    peer = founder(world)
    for name in (2, 3, 4):
        link(peer, name)
    peer.joining.court(contact(9))
    world.dialled[0].opens()
    world.run((PATIENT.claim_s + PATIENT.call_s) / 2)
    link(peer, 5)
    world.dialled[0].says(hello(9), PortAnswer())
    assert world.dialled[0].closed
    assert peer.links.neighbours == (2, 3, 4, 5)


# An edge is cut.


def test_a_link_that_was_cut_frees_its_place_is_heard_to_its_end_and_closed_in_time() -> None:
    world = FakeWorld()
    peer = founder(world)
    line, *_ = (link(peer, name) for name in (2, 3, 4, 5))
    line.says(Walk(1, contact(9), None, (), (), hole_only=False, steps=0, spare=0))
    offer = world.dialled[0]
    offer.opens()
    offer.says(hello(9), OfferAnswer(Verdict.ACCEPTED))
    assert line.heard(Cut) == [Cut(call=contact(9), expect=None)]
    assert peer.links.neighbours == (3, 4, 5, 9)
    line.says(Broadcast(71, 1, 1, (b"under way when the link was cut",)))
    assert world.names() == [(71, 1)]
    world.run(PATIENT.drain_s - 0.1)
    assert not line.closed
    world.run(0.2)
    assert line.closed
    assert peer.links.neighbours == (3, 4, 5, 9)


def test_the_other_end_of_a_cut_says_its_last_word_and_fills_the_place_as_told() -> None:
    world = FakeWorld()
    peer = founder(world)
    called, expected = (link(peer, name) for name in (2, 3))
    called.says(Cut(call=contact(9), expect=None))
    assert world.dialled[0].address == contact(9).address
    expected.says(Cut(call=None, expect=contact(8)))
    assert peer.links.claimed(8)
    for line in (called, expected):
        assert (line.heard(CutDone), line.closed) == ([CutDone()], True)


# Idle links.


def test_an_idle_link_is_kept_alive_and_a_silent_one_given_up() -> None:
    world = FakeWorld()
    usual = Settings()
    peer = founder(world, usual)
    spoken_to, silent = link(peer, 2), link(peer, 3)
    while world.time < 3 * usual.silence_s:
        world.run(usual.heartbeat_s)
        spoken_to.says(Heartbeat())
    assert peer.links.neighbours == (2,)
    assert (spoken_to.closed, silent.closed) == (False, True)
    assert LinkDown(contact(3), Why.SILENT) in world.events


def test_a_link_is_never_silent_from_our_side() -> None:
    world = FakeWorld()
    peer = founder(world)
    line = link(peer, 2)
    for _ in range(20):
        sent = len(line.sent)
        world.run(PATIENT.heartbeat_s + 2 * PATIENT.tick_s)
        assert len(line.sent) > sent
    assert line.heard(Heartbeat)
    assert peer.links.neighbours == (2,)


# Whatever happens.

names = st.integers(1, 9)


class PlacesMachine(RuleBasedStateMachine):
    """Any history of calls, links, claims, offers, cuts and losses. The peer itself is in the middle of the names."""

    def __init__(self) -> None:
        super().__init__()
        self.world = FakeWorld()
        self.peer = founder(self.world, name=5)
        self.lines: dict[int, FakeLine] = {}

    def _keep(self, name: int, line: FakeLine) -> None:
        if name in self.peer.links and not line.closed:
            line.says(NOTHING)
            self.lines[name] = line

    def _drop_closed(self) -> None:
        self.lines = {name: line for name, line in self.lines.items() if not line.closed}

    @rule(name=names.filter(lambda name: name != 5))
    def is_asked_for_a_link(self, name: int) -> None:
        line = ask(self.peer, name)
        assert bool(line.heard(PortAnswer)) != bool(line.heard(Refuse))
        self._keep(name, line)

    @rule(name=names.filter(lambda name: name != 5), holes=st.integers(0, 9))
    def is_asked_to_weave_in(self, name: int, holes: int) -> None:
        self._keep(name, call(self.peer, hello(name), JoinRequest(holes, ())))

    @rule(name=names.filter(lambda name: name != 5), other=names, pair=st.booleans())
    def is_offered_an_edge(self, name: int, other: int, pair: bool) -> None:
        line = call(self.peer, hello(name), Offer(1, contact(other), pair, (), (), True))
        (answer,) = line.heard(OfferAnswer)
        assert (answer.verdict is Verdict.ACCEPTED) == (not line.closed)
        self._keep(name, line)

    @rule(name=names)
    def asks_for_a_link(self, name: int) -> None:
        if name != 5:
            self.peer.joining.court(contact(name))

    @rule(name=names)
    def asks_to_be_woven_in(self, name: int) -> None:
        if name != 5:
            self.peer.joining.join_through(contact(name), lambda _accepted: None)

    @rule(data=st.data(), yes=st.booleans())
    def a_call_is_answered(self, data: st.DataObject, yes: bool) -> None:
        waiting = [line for line in self.world.dialled if not line.closed and line not in self.lines.values()]
        if waiting:
            line = data.draw(st.sampled_from(waiting))
            assert line.address is not None
            name = int(line.address.host.removeprefix("host-"))
            line.opens()
            answered = line.heard(PortRequest) and yes
            line.says(hello(name), PortAnswer() if answered else Refuse(Refusal.NO_ROOM, ""))
            self._keep(name, line)

    @rule(name=names)
    def a_place_is_promised(self, name: int) -> None:
        self.peer.links.claim(name)

    @rule(name=names, called=st.none() | names, expected=st.none() | names)
    def a_link_is_cut(self, name: int, called: int | None, expected: int | None) -> None:
        if name in self.lines:
            self.lines[name].says(
                Cut(
                    call=contact(called) if called is not None else None,
                    expect=contact(expected) if expected is not None else None,
                )
            )
            self._drop_closed()

    @rule(name=names, others=st.lists(names, unique=True, max_size=4))
    def a_neighbour_leaves(self, name: int, others: list[int]) -> None:
        if name in self.lines:
            self.lines.pop(name).says(Leave(tuple(contact(other) for other in others)))

    @rule(name=names)
    def a_link_is_lost(self, name: int) -> None:
        if name in self.lines:
            self.lines.pop(name).hangs_up()

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.run(seconds)
        self._drop_closed()

    @invariant()
    def there_are_never_more_links_and_promises_than_places(self) -> None:
        links = self.peer.links
        promised = [name for name in range(1, 10) if links.claimed(name)]
        assert len(links) + len(promised) <= DEGREE
        assert links.free == DEGREE - len(links) - len(promised)
        assert len(set(links.neighbours)) == len(links)
        assert not set(promised) & {5, *links.neighbours}

    @invariant()
    def every_link_has_its_line(self) -> None:
        assert sorted(self.peer.links.neighbours) == sorted(self.lines)


PlacesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = PlacesMachine.TestCase
