"""What a latecomer does for a neighbour that lacks what was said before its time."""

from tests.fabric import signed_world
from tests.fabric.fake_world import FakeLine, FakeWorld, greeting, has, link, said, seeker
from weft.fabric import Peer
from weft.fabric.errands import ERRAND_LASTS_S, ERRAND_S, ERRANDS_MAX
from weft.fabric.events import Missed
from weft.fabric.gaps import DENIED_S
from weft.wire.links import Gone, Known, Lack, Want

A = 71


def latecomer(world: FakeWorld) -> tuple[Peer, FakeLine, FakeLine]:
    """It came when the author had said five; a neighbour that has them, and one that lacks them."""
    peer = seeker(world)
    holds = link(peer, 2, has((A, 1, 5)))
    return peer, holds, link(peer, 3)


def test_it_fetches_them_and_keeps_them_to_itself() -> None:
    world = FakeWorld()
    _, holds, lacks = latecomer(world)
    lacks.says(Want(A, 1, 3))
    assert lacks.heard(Gone) == [Gone(A, 1, 5, Lack.NEVER)]
    assert holds.heard(Want) == [Want(A, 1, 5)]
    holds.says(said(A, 1), said(A, 2))
    assert lacks.names() == [(A, 1), (A, 2)]
    assert world.names() == [], "they are none of its own business"
    lacks.says(Want(A, 1, 2))
    assert lacks.names() == [(A, 1), (A, 2)] * 2, "whoever asks again gets them from what is kept"


def test_all_other_neighbours_are_asked_but_not_often() -> None:
    world = FakeWorld()
    peer, holds, lacks = latecomer(world)
    more = link(peer, 4)
    for _ in range(10):
        lacks.says(Want(A, 1, 3))
    assert len(holds.heard(Want)) == len(more.heard(Want)) == 1
    assert not lacks.heard(Want)
    world.run(ERRAND_S + 0.01)
    lacks.says(Want(A, 1, 3))
    assert len(holds.heard(Want)) == len(more.heard(Want)) == 2


def test_a_second_copy_is_no_branch_too_many() -> None:
    world = FakeWorld()
    peer, holds, lacks = latecomer(world)
    more = link(peer, 4)
    lacks.says(Want(A, 1, 3))
    holds.says(said(A, 1))
    more.says(said(A, 1))
    assert lacks.names() == [(A, 1)]
    assert peer.counters.duplicates == 0


def test_what_nobody_asked_for_is_a_duplicate_as_ever() -> None:
    world = FakeWorld()
    peer, holds, lacks = latecomer(world)
    holds.says(said(A, 1))
    lacks.says(Want(A, 1, 2))
    holds.says(said(A, 4, age_ms=10**9))
    world.run(ERRAND_LASTS_S + 1)
    holds.says(said(A, 2))
    assert lacks.names() == []
    assert peer.counters.duplicates == 3


def test_there_are_not_many_errands_at_once() -> None:
    world = FakeWorld()
    peer = seeker(world)
    authors = range(100, 100 + 2 * ERRANDS_MAX)
    holds = link(peer, 2, has(*((author, 1, 5) for author in authors)))
    lacks = link(peer, 3)
    for author in authors:
        lacks.says(Want(author, 1, 5))
    assert len(holds.heard(Want)) == ERRANDS_MAX
    world.run(ERRAND_LASTS_S + 1)
    for author in reversed(authors):
        lacks.says(Want(author, 1, 5))
    assert len(holds.heard(Want)) == 2 * ERRANDS_MAX, "old ones make room"


def test_a_neighbour_that_has_gone_meanwhile_gets_nothing() -> None:
    world = FakeWorld()
    peer, holds, lacks = latecomer(world)
    lacks.says(Want(A, 1, 3))
    lacks.hangs_up()
    holds.says(said(A, 1))
    assert lacks.names() == []
    assert peer.stream.retention.get(A, 1) is not None


def test_on_a_signed_channel_only_what_was_checked_is_passed_on() -> None:
    world = FakeWorld()
    peer, _ = signed_world.member(world)
    holds, lacks = signed_world.link(peer, 2), signed_world.link(peer, 3)
    holds.says(signed_world.credential())
    window = peer.stream.meet(signed_world.AUTHOR, 1, 0.0)
    assert window is not None
    window.start_at(5)
    lacks.says(Want(signed_world.AUTHOR, 1, 3))
    holds.says(signed_world.signed(signed_world.AUTHOR, 1))
    assert signed_world.story(lacks) == [("credential", signed_world.AUTHOR), ("message", signed_world.AUTHOR)]
    holds.says(signed_world.signed(signed_world.AUTHOR, 2, channel=b"another channel!"))
    assert peer.counters.forged == 1
    assert len(signed_world.story(lacks)) == 2


def test_it_tells_its_neighbours_of_what_was_said_before_its_time() -> None:
    world = FakeWorld()
    peer = seeker(world)
    older = link(peer, 2, has())
    world.run(5)
    link(peer, 3, has((A, 1, 5), silent_ms=60_000))
    world.run(1)
    (told,) = older.heard(Known)
    (have,) = told.have
    assert (have.author, have.run_start, have.mark) == (A, 1, 5)
    assert 60_000 <= have.silent_ms <= 61_000
    assert world.names() == []


def test_it_does_not_tell_of_what_nobody_can_have_any_more() -> None:
    world = FakeWorld()
    peer = seeker(world)
    older = link(peer, 2, has())
    link(peer, 3, has((A, 1, 5), silent_ms=1000 * int(peer.settings.retention_s + 1)))
    world.run(1)
    assert older.heard(Known) == []


# The side that lacks them.


def test_what_all_neighbours_came_after_and_find_nowhere_is_not_waited_for_long() -> None:
    world = FakeWorld()
    peer = seeker(world)
    lines = [link(peer, 2, has()), link(peer, 3, greeting())]
    lines[0].says(said(A, 3))
    while world.time < DENIED_S - 1:
        world.run(0.5)
        for line in lines:
            line.says(Gone(A, 1, 2, Lack.NEVER))
    assert (world.told_missed, world.delivered) == ([], [])
    while world.time < DENIED_S + 5:
        world.run(0.5)
        for line in lines:
            line.says(Gone(A, 1, 2, Lack.NEVER))
    assert world.told_missed == [Missed(A, 1, 2)]
    assert world.names() == [(A, 3)]


def test_as_long_as_one_of_them_may_get_it_the_others_do_not_decide() -> None:
    world = FakeWorld()
    peer = seeker(world)
    lines = [link(peer, 2, has()), link(peer, 3, greeting())]
    lines[0].says(said(A, 3))
    while world.time < 3 * DENIED_S:
        world.run(0.5)
        lines[0].says(Gone(A, 1, 2, Lack.NEVER))
        lines[1].says(Gone(A, 1, 2, Lack.NOT_YET))
    assert (world.told_missed, world.delivered) == ([], [])
