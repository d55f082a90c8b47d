"""How far the others are: an author waits for those that keep up, and for nobody else."""

from tests.fabric.fake_world import ME, FakeLine, FakeWorld, founder, link
from weft.fabric import Peer, Settings
from weft.wire import Broadcast
from weft.wire.broadcast import Way
from weft.wire.links import Progress, Prune

A = 71
SIZE = 64 << 10
SETTINGS = Settings(
    silence_s=1e9, under_way_bytes=1 << 20, under_way_bytes_min=1 << 20, straggler_s=0.5, standstill_s=0.2
)
WINDOW = (1 << 20) // SIZE
"""Messages that may be under way."""
FREE = Settings(silence_s=1e9)


def author() -> tuple[FakeWorld, Peer, FakeLine, FakeLine]:
    world = FakeWorld()
    peer = founder(world, SETTINGS)
    return world, peer, link(peer, 2), link(peer, 3)


def say(peer: Peer, count: int) -> None:
    for _ in range(count):
        peer.broadcast(bytes(SIZE))


def frames(first: int, last: int) -> list[Broadcast]:
    return [Broadcast(A, each, 1, (bytes(SIZE),), hops=2, way=Way.TREE) for each in range(first, last + 1)]


def ahead(peer: Peer) -> bool:
    peer.stream.progress.look_again()
    return peer.stream.progress.is_ahead


def test_nobody_has_told_anything_so_nobody_is_waited_for() -> None:
    _, peer, _, _ = author()
    say(peer, 5 * WINDOW)
    assert not ahead(peer)


def test_an_author_waits_for_the_last_of_those_that_it_feeds() -> None:
    _, peer, one, other = author()
    say(peer, 10)
    one.says(Progress(ME, 10))
    other.says(Progress(ME, 8))
    say(peer, WINDOW)
    assert ahead(peer)
    one.says(Progress(ME, 10 + WINDOW))
    assert ahead(peer), "the other one is as far as it was"
    other.says(Progress(ME, 20))
    assert not ahead(peer)


def test_one_that_stays_behind_is_waited_for_only_a_moment() -> None:
    world, peer, one, other = author()
    say(peer, 10)
    one.says(Progress(ME, 10))
    other.says(Progress(ME, 10))
    say(peer, WINDOW + 20)
    one.says(Progress(ME, 30 + WINDOW))
    for mark in range(11, 19):
        assert ahead(peer), "it moves"
        other.says(Progress(ME, mark))
        world.run(SETTINGS.straggler_s / 8)
    assert not ahead(peer), "but too slowly"
    say(peer, 5 * WINDOW)
    one.says(Progress(ME, 30 + 6 * WINDOW))
    assert not ahead(peer)
    other.says(Progress(ME, 30 + 6 * WINDOW))
    say(peer, WINDOW + 1)
    one.says(Progress(ME, 31 + 7 * WINDOW))
    assert ahead(peer), "it has caught up, and counts again"


def test_one_that_stands_still_is_waited_for_even_less() -> None:
    world, peer, one, other = author()
    say(peer, 10)
    one.says(Progress(ME, 10))
    other.says(Progress(ME, 10))
    say(peer, WINDOW + 1)
    one.says(Progress(ME, 10 + WINDOW + 1))
    assert ahead(peer)
    world.run(SETTINGS.standstill_s + 0.01)
    assert SETTINGS.standstill_s + 0.01 < SETTINGS.straggler_s
    assert not ahead(peer)
    other.says(Progress(ME, 11))
    assert ahead(peer), "it moves again"


def test_where_all_are_slow_all_are_waited_for() -> None:
    world, peer, one, other = author()
    say(peer, 10)
    one.says(Progress(ME, 10))
    other.says(Progress(ME, 10))
    say(peer, WINDOW + 20)
    for mark in range(11, 19):
        one.says(Progress(ME, mark))
        other.says(Progress(ME, mark + 1))
        world.run(SETTINGS.straggler_s / 4)
        assert ahead(peer), "nobody is behind the others"


def test_what_may_be_under_way_follows_how_fast_it_goes() -> None:
    world = FakeWorld()
    peer = founder(world, FREE)
    one = link(peer, 2)
    say(peer, 1)
    for mark in range(1, 101):  # 640 KiB a second: half of that may be under way, five messages
        one.says(Progress(ME, mark))
        world.run(0.1)
        say(peer, 1)
    assert not ahead(peer)
    say(peer, 4)
    assert not ahead(peer)
    say(peer, 1)
    assert ahead(peer)
    for mark in range(102, 200, 8):  # eight times as fast
        one.says(Progress(ME, mark))
        world.run(0.1)
        say(peer, 8)
    say(peer, 20)
    assert not ahead(peer)


def test_one_that_is_fed_another_way_or_lost_does_not_count() -> None:
    _, peer, one, other = author()
    say(peer, 10)
    one.says(Progress(ME, 10))
    other.says(Progress(ME, 10))
    say(peer, WINDOW + 1)
    assert ahead(peer)
    one.says(Prune(ME))
    assert ahead(peer)
    other.hangs_up()
    assert not ahead(peer)


def test_who_is_fed_tells_after_so_much_and_not_before() -> None:
    world = FakeWorld()
    peer = founder(world, FREE)
    parent = link(peer, 2)
    parent.says(*frames(1, 4))
    assert parent.heard(Progress) == []
    parent.says(*frames(5, 5))
    assert parent.heard(Progress) == [Progress(A, 5)]
    parent.says(*frames(6, 13))
    assert [each.mark for each in parent.heard(Progress)] == [5, 9, 13]


def test_who_feeds_others_tells_how_far_the_last_of_them_is() -> None:
    world = FakeWorld()
    peer = founder(world, FREE)
    parent, child = link(peer, 2), link(peer, 3)
    parent.says(*frames(1, 5))
    child.says(Progress(A, 4))
    parent.says(*frames(6, 13))
    assert [each.mark for each in parent.heard(Progress)] == [5]
    child.says(Progress(A, 11))
    assert [each.mark for each in parent.heard(Progress)] == [5, 11]


def test_nobody_can_be_further_than_we_are() -> None:
    world = FakeWorld()
    peer = founder(world, FREE)
    parent, child = link(peer, 2), link(peer, 3)
    parent.says(*frames(1, 5))
    child.says(Progress(A, 1 << 60), Progress(999, 5))
    parent.says(*frames(6, 9))
    assert [each.mark for each in parent.heard(Progress)] == [5], "it was no further than 5 when it spoke"


def test_in_quiet_times_nothing_is_told() -> None:
    world = FakeWorld()
    peer = founder(world, FREE)
    parent = link(peer, 2)
    for sequence in range(1, 200):
        parent.says(Broadcast(A, sequence, 1, (b"little",), hops=2))
    assert parent.heard(Progress) == []


def test_where_little_may_be_under_way_it_is_told_more_often() -> None:
    world = FakeWorld()
    peer = founder(world, FREE)
    parent = link(peer, 2)
    for each in range(1, 31):
        parent.says(*frames(each, each))
        world.run(0.1)
    marks = [each.mark for each in parent.heard(Progress)]
    assert marks[-3:] == [28, 29, 30]
