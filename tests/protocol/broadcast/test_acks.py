"""How far the others are: an author waits for those that keep up, and for nobody else."""

from broadloom.protocol import Peer, Tuning
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import Dissemination
from broadloom.wire.link_messages import Ack, Prune
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime, founder, link

A = 71
SIZE = 64 << 10
SETTINGS = Tuning(
    heartbeat_timeout_s=1e9,
    send_window_bytes_max=1 << 20,
    send_window_bytes_min=1 << 20,
    straggler_timeout_s=0.5,
    stall_grace_s=0.2,
)
WINDOW = (1 << 20) // SIZE
"""Messages that may be under way."""
FREE = Tuning(heartbeat_timeout_s=1e9)


def author() -> tuple[FakeRuntime, Peer, FakeConnection, FakeConnection]:
    world = FakeRuntime()
    peer = founder(world, SETTINGS)
    return world, peer, link(peer, 2), link(peer, 3)


def say(peer: Peer, count: int) -> None:
    for _ in range(count):
        peer.broadcast(bytes(SIZE))


def frames(first: int, last: int) -> list[Broadcast]:
    return [
        Broadcast(A, each, 1, (bytes(SIZE),), hops=2, dissemination=Dissemination.TREE)
        for each in range(first, last + 1)
    ]


def ahead(peer: Peer) -> bool:
    peer.broadcaster.acks.recheck()
    return peer.broadcaster.acks.is_window_full


def test_nobody_has_told_anything_so_nobody_is_waited_for() -> None:
    _, peer, _, _ = author()
    say(peer, 5 * WINDOW)
    assert not ahead(peer)


def test_an_author_waits_for_the_last_of_those_that_it_feeds() -> None:
    _, peer, one, other = author()
    say(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 8))
    say(peer, WINDOW)
    assert ahead(peer)
    one.remote_sends(Ack(ME, 10 + WINDOW))
    assert ahead(peer), "the other one is as far as it was"
    other.remote_sends(Ack(ME, 20))
    assert not ahead(peer)


def test_one_that_stays_behind_is_waited_for_only_a_moment() -> None:
    world, peer, one, other = author()
    say(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    say(peer, WINDOW + 20)
    one.remote_sends(Ack(ME, 30 + WINDOW))
    for mark in range(11, 19):
        assert ahead(peer), "it moves"
        other.remote_sends(Ack(ME, mark))
        world.advance(SETTINGS.straggler_timeout_s / 8)
    assert not ahead(peer), "but too slowly"
    say(peer, 5 * WINDOW)
    one.remote_sends(Ack(ME, 30 + 6 * WINDOW))
    assert not ahead(peer)
    other.remote_sends(Ack(ME, 30 + 6 * WINDOW))
    say(peer, WINDOW + 1)
    one.remote_sends(Ack(ME, 31 + 7 * WINDOW))
    assert ahead(peer), "it has caught up, and counts again"


def test_one_that_stands_still_is_waited_for_even_less() -> None:
    world, peer, one, other = author()
    say(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    say(peer, WINDOW + 1)
    one.remote_sends(Ack(ME, 10 + WINDOW + 1))
    assert ahead(peer)
    world.advance(SETTINGS.stall_grace_s + 0.01)
    assert SETTINGS.stall_grace_s + 0.01 < SETTINGS.straggler_timeout_s
    assert not ahead(peer)
    other.remote_sends(Ack(ME, 11))
    assert ahead(peer), "it moves again"


def test_where_all_are_slow_all_are_waited_for() -> None:
    world, peer, one, other = author()
    say(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    say(peer, WINDOW + 20)
    for mark in range(11, 19):
        one.remote_sends(Ack(ME, mark))
        other.remote_sends(Ack(ME, mark + 1))
        world.advance(SETTINGS.straggler_timeout_s / 4)
        assert ahead(peer), "nobody is behind the others"


def test_what_may_be_under_way_follows_how_fast_it_goes() -> None:
    world = FakeRuntime()
    peer = founder(world, FREE)
    one = link(peer, 2)
    say(peer, 1)
    for mark in range(1, 101):  # 640 KiB a second: half of that may be under way, five messages
        one.remote_sends(Ack(ME, mark))
        world.advance(0.1)
        say(peer, 1)
    assert not ahead(peer)
    say(peer, 4)
    assert not ahead(peer)
    say(peer, 1)
    assert ahead(peer)
    for mark in range(102, 200, 8):  # eight times as fast
        one.remote_sends(Ack(ME, mark))
        world.advance(0.1)
        say(peer, 8)
    say(peer, 20)
    assert not ahead(peer)


def test_one_that_is_fed_another_way_or_lost_does_not_count() -> None:
    _, peer, one, other = author()
    say(peer, 10)
    one.remote_sends(Ack(ME, 10))
    other.remote_sends(Ack(ME, 10))
    say(peer, WINDOW + 1)
    assert ahead(peer)
    one.remote_sends(Prune(ME))
    assert ahead(peer)
    other.remote_closes()
    assert not ahead(peer)


def test_who_is_fed_tells_after_so_much_and_not_before() -> None:
    world = FakeRuntime()
    peer = founder(world, FREE)
    parent = link(peer, 2)
    parent.remote_sends(*frames(1, 4))
    assert parent.sent_messages(Ack) == []
    parent.remote_sends(*frames(5, 5))
    assert parent.sent_messages(Ack) == [Ack(A, 5)]
    parent.remote_sends(*frames(6, 13))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5, 9, 13]


def test_who_feeds_others_tells_how_far_the_last_of_them_is() -> None:
    world = FakeRuntime()
    peer = founder(world, FREE)
    parent, child = link(peer, 2), link(peer, 3)
    parent.remote_sends(*frames(1, 5))
    child.remote_sends(Ack(A, 4))
    parent.remote_sends(*frames(6, 13))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5]
    child.remote_sends(Ack(A, 11))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5, 11]


def test_nobody_can_be_further_than_we_are() -> None:
    world = FakeRuntime()
    peer = founder(world, FREE)
    parent, child = link(peer, 2), link(peer, 3)
    parent.remote_sends(*frames(1, 5))
    child.remote_sends(Ack(A, 1 << 60), Ack(999, 5))
    parent.remote_sends(*frames(6, 9))
    assert [each.last_contiguous for each in parent.sent_messages(Ack)] == [5], "it was no further than 5 when it spoke"


def test_in_quiet_times_nothing_is_told() -> None:
    world = FakeRuntime()
    peer = founder(world, FREE)
    parent = link(peer, 2)
    for sequence in range(1, 200):
        parent.remote_sends(Broadcast(A, sequence, 1, (b"little",), hops=2))
    assert parent.sent_messages(Ack) == []


def test_where_little_may_be_under_way_it_is_told_more_often() -> None:
    world = FakeRuntime()
    peer = founder(world, FREE)
    parent = link(peer, 2)
    for each in range(1, 31):
        parent.remote_sends(*frames(each, each))
        world.advance(0.1)
    marks = [each.last_contiguous for each in parent.sent_messages(Ack)]
    assert marks[-3:] == [28, 29, 30]
