"""One neighbour or stranger that does not keep to the protocol harms only itself."""

import pytest

from tests.fabric.fake_world import FakeWorld, contact, founder, greeting, has, link, said, seeker
from weft.fabric import Settings, State
from weft.wire.links import Beacon, Heartbeat, Known, Want
from weft.wire.types import Have

A, B = 71, 72
LARGEST = (1 << 64) - 1


@pytest.mark.parametrize(
    "have",
    [Have(A, 1, 5, LARGEST), Have(99, 1, 5, LARGEST), Have(A, 0, LARGEST, 0), Have(A, LARGEST, LARGEST, LARGEST)],
)
def test_absurd_hearsay_stops_nothing(have: Have) -> None:
    world = FakeWorld()
    peer = founder(world)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.says(said(A, 1))
    liar.says(Known((have,)))
    world.run(3)
    honest.says(said(B, 1), said(B, 3))  # a real gap is still asked for
    world.run(3)
    assert any(want.author == B for line in (liar, honest) for want in line.heard(Want))
    honest.says(said(B, 2))
    assert world.names() == [(A, 1), (B, 1), (B, 2), (B, 3)]
    assert link(peer, 4).heard(type(greeting()))  # a newcomer is still greeted


def test_an_author_is_not_muted_by_a_tale_of_what_it_said() -> None:
    world = FakeWorld()
    peer = founder(world)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.says(said(A, 1))
    liar.says(Known((Have(A, 1, LARGEST, 10**9),)))
    world.run(3)
    honest.says(said(A, 2))
    assert world.names() == [(A, 1), (A, 2)]
    assert world.told_missed == []
    assert peer.counters.hearsay_refused == 1


def test_many_invented_authors_do_not_start_a_storm_of_questions() -> None:
    world = FakeWorld()
    liar = link(founder(world), 2)
    liar.says(Known(tuple(Have(1000 + name, 1, 9, 0) for name in range(5000))))
    world.run(10)
    assert len(liar.heard(Want)) <= 64 * 10 / 0.5


def test_messages_that_wait_are_bounded() -> None:
    world = FakeWorld()
    peer = founder(world, Settings(waiting_bytes_max=100_000))
    line, other = link(peer, 2), link(peer, 3)
    for sequence in range(2, 40):
        line.says(said(A, sequence)._replace(messages=(bytes(10_000),)))
    assert len(other.names()) <= 10
    assert peer.counters.waiting_refused > 20
    line.says(said(A, 1))
    assert world.names()[:2] == [(A, 1), (A, 2)]


def test_floods_end_even_if_nobody_remembers_them() -> None:
    world = FakeWorld()
    peer = founder(world)
    line, other = link(peer, 2), link(peer, 3)
    line.says(Beacon(5, 1, 1000))
    assert other.heard(Beacon) == []
    line.says(Beacon(peer.me.peer, 1, 1))  # in our own name
    assert other.heard(Beacon) == []
    line.says(Beacon(5, 2, 1))
    assert [each.hops for each in other.heard(Beacon)] == [2]


def test_a_neighbour_that_never_greets_is_given_up() -> None:
    world = FakeWorld()
    peer = seeker(world, Settings())
    line = link(peer, 2, None)
    for _ in range(20):
        world.run(1)
        line.says(Heartbeat())
    assert 2 not in peer.links
    link(peer, 3, has())
    world.run(3)
    assert peer.state is State.CONNECTED


def test_a_starting_point_cannot_give_us_other_numbers() -> None:
    world = FakeWorld()
    peer = seeker(world)
    link(peer, 2, has((peer.me.peer, 1, 1000)))
    world.run(3)
    assert peer.broadcast(b"first") == 1


def test_one_greeting_brings_a_part_of_the_cache_at_most() -> None:
    peer = founder(FakeWorld())
    for name in range(1000, 1128):
        peer.contacts.add(contact(name))
    link(peer, 2, greeting(sample=tuple(contact(name) for name in range(2000, 2200))))
    assert sum(each.peer < 2000 for each in peer.contacts.sample(128)) >= 100
