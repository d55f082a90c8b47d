"""What a neighbour that reads slowly is owed: nothing is stored for it, nobody starves, all is told."""

from tests.fabric.fake_world import FakeLine, FakeWorld, founder, link
from weft.fabric import Peer, Settings
from weft.wire import Broadcast
from weft.wire.broadcast import Priority, Way
from weft.wire.links import Announce, Gone, Lack, Prune, Want

LOUD, QUIET, OTHER = 71, 72, 73
PATIENT = Settings(silence_s=1e9, straggler_s=0.0)


def frame(
    author: int, sequence: int, *, size: int = 100, priority: int = Priority.NORMAL, lifetime_ms: int = 0
) -> Broadcast:
    return Broadcast(
        author, sequence, 1, (bytes(size),), hops=2, way=Way.TREE, priority=priority, lifetime_ms=lifetime_ms
    )


def with_full_line(settings: Settings = PATIENT) -> tuple[FakeWorld, Peer, FakeLine, FakeLine]:
    world = FakeWorld()
    peer = founder(world, settings)
    source, slow = link(peer, 2), link(peer, 3)
    slow.is_full = True
    return world, peer, source, slow


def drain(line: FakeLine) -> None:
    line.is_full = False
    line.owner.on_room()


def test_nothing_goes_to_a_line_that_is_full_until_there_is_room() -> None:
    _, _, source, slow = with_full_line()
    source.says(*(frame(LOUD, sequence) for sequence in range(1, 6)))
    assert slow.names() == []
    drain(slow)
    assert slow.names() == [(LOUD, sequence) for sequence in range(1, 6)]
    source.says(frame(LOUD, 6))
    assert slow.names()[-1] == (LOUD, 6), "as it comes again"


def test_a_loud_author_does_not_keep_the_others_waiting() -> None:
    _, _, source, slow = with_full_line()
    source.says(*(frame(LOUD, sequence) for sequence in range(1, 50)))
    source.says(frame(QUIET, 1), frame(OTHER, 1), frame(QUIET, 2))
    drain(slow)
    first = slow.names()[:6]
    assert {(QUIET, 1), (QUIET, 2), (OTHER, 1)} <= set(first), first
    assert sorted(slow.names()) == sorted(
        [(LOUD, each) for each in range(1, 50)] + [(QUIET, 1), (QUIET, 2), (OTHER, 1)]
    )


def test_who_has_something_urgent_goes_first_and_in_its_own_order() -> None:
    _, _, source, slow = with_full_line()
    source.says(*(frame(LOUD, sequence) for sequence in range(1, 10)))
    source.says(frame(QUIET, 1, priority=Priority.LOW), frame(QUIET, 2, priority=Priority.HIGH))
    drain(slow)
    assert slow.names()[:2] == [(QUIET, 1), (QUIET, 2)]


def test_only_as_much_is_sent_as_there_is_room_for() -> None:
    _, _, source, slow = with_full_line()
    source.says(*(frame(LOUD, sequence) for sequence in range(1, 10)))
    honest = slow.send

    def send(frame: bytes, rest: memoryview | None = None) -> None:
        honest(frame, rest)
        slow.is_full = len(slow.copies()) % 2 == 0

    slow.send = send  # type: ignore[method-assign]
    drain(slow)
    assert len(slow.copies()) == 2
    drain(slow)
    assert slow.names() == [(LOUD, sequence) for sequence in range(1, 5)]


def test_who_brought_it_gets_no_copy() -> None:
    _, _, source, slow = with_full_line()
    source.says(frame(LOUD, 1))
    slow.says(frame(LOUD, 2), frame(LOUD, 3))
    drain(slow)
    assert slow.names() == [(LOUD, 1)]


def test_who_gets_it_another_way_is_owed_nothing_any_more() -> None:
    _, _, source, slow = with_full_line()
    source.says(frame(LOUD, 1), frame(LOUD, 2))
    slow.says(Prune(LOUD))
    drain(slow)
    assert slow.names() == []


def test_who_is_far_behind_is_spared_what_has_low_priority_and_told_so() -> None:
    _, peer, source, slow = with_full_line(Settings(silence_s=1e9, behind_bytes=1000))
    priorities = [Priority.LOW, Priority.NORMAL] * 4
    source.says(*(frame(LOUD, number, size=500, priority=each) for number, each in enumerate(priorities, 1)))
    drain(slow)
    assert slow.names() == [(LOUD, sequence) for sequence in (2, 4, 6, 8)]
    assert [(gone.first, gone.last, gone.why) for gone in slow.heard(Gone)] == [
        (n, n, Lack.NO_MORE) for n in (1, 3, 5, 7)
    ]
    assert peer.counters.culled == 4


def test_who_is_a_little_behind_is_spared_nothing() -> None:
    _, peer, source, slow = with_full_line()
    source.says(frame(LOUD, 1, priority=Priority.LOW), frame(LOUD, 2))
    drain(slow)
    assert slow.names() == [(LOUD, 1), (LOUD, 2)]
    assert peer.counters.culled == 0


def test_what_has_expired_meanwhile_is_not_sent() -> None:
    world, _, source, slow = with_full_line()
    source.says(frame(LOUD, 1, lifetime_ms=500), frame(LOUD, 2, lifetime_ms=5000))
    world.run(1)
    drain(slow)
    assert slow.names() == [(LOUD, 2)]
    assert [(gone.first, gone.last, gone.why) for gone in slow.heard(Gone)] == [(1, 1, Lack.NO_MORE)]


def test_its_age_grows_while_it_waits() -> None:
    world, _, source, slow = with_full_line()
    source.says(frame(LOUD, 1))
    world.run(2)
    drain(slow)
    assert slow.broadcasts()[0].age_ms == 2000


def test_who_is_too_far_behind_gets_names_and_then_what_it_asks_for() -> None:
    settings = Settings(silence_s=1e9, straggler_s=0.1, behind_bytes=1000, behind_bytes_max=5000)
    world, peer, source, slow = with_full_line(settings)
    source.says(frame(LOUD, 1, size=500))
    world.run(0.2)
    source.says(*(frame(LOUD, sequence, size=500) for sequence in range(2, 20)))
    assert peer.counters.fell_behind == 1
    drain(slow)
    assert slow.names() == []
    world.run(1)
    assert [each.mark for announce in slow.heard(Announce) for each in announce.standings][-1] == 19
    slow.says(Want(LOUD, 1, 19))
    assert slow.names() == [(LOUD, sequence) for sequence in range(1, 20)]


def test_a_burst_alone_is_no_reason_for_names() -> None:
    settings = Settings(silence_s=1e9, behind_bytes=1000, behind_bytes_max=5000)
    _, peer, source, slow = with_full_line(settings)
    source.says(*(frame(LOUD, sequence, size=500) for sequence in range(1, 20)))
    assert peer.counters.fell_behind == 0
    drain(slow)
    assert len(slow.names()) == 19


def test_what_is_no_longer_kept_is_told_in_one_go() -> None:
    settings = Settings(silence_s=1e9, retention_bytes_max=2000)
    _, peer, source, slow = with_full_line(settings)
    source.says(*(frame(LOUD, sequence, size=500) for sequence in range(1, 20)))
    drain(slow)
    kept = [sequence for _, sequence in slow.names()]
    assert kept == list(range(kept[0], 20))
    assert [(gone.first, gone.last, gone.why) for gone in slow.heard(Gone)] == [(1, kept[0] - 1, Lack.NO_MORE)]
    assert peer.stream.retention.held_bytes <= 2000
