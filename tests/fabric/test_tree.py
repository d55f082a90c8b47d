"""Announce and pull: who feeds whom, who only hears names, and what happens when a branch breaks."""

from collections.abc import Callable

import pytest

from tests.fabric.fake_world import ME, FakeLine, FakeWorld, contact, founder, link
from tests.fabric.fake_world import said as flooded
from weft.fabric import Peer, Settings
from weft.fabric.authors import AuthorWindow
from weft.fabric.tree import HOPS_UNKNOWN, LATELY_S, NEARER_HOPS
from weft.wire import Broadcast
from weft.wire.broadcast import BUNDLED_MAX, Kind, Way
from weft.wire.links import Announce, Graft, Leave, Prune, Want
from weft.wire.types import Standing

A, B = 71, 72
"""Authors somewhere in the fabric."""

TREE = Settings(silence_s=1e9, flood_bytes_max=0)
"""All that we say ourselves spreads along our tree."""
SOON_S = TREE.announce_s + 0.01
LATE_S = 1.5 * TREE.gap_s
"""By then it was noticed that nothing comes, and asked for once."""


def said(author: int, sequence: int, hops: int = 2) -> Broadcast:
    """A frame that goes along the author's tree."""
    return flooded(author, sequence, hops=hops)._replace(way=Way.TREE)


def branches(world: FakeWorld) -> tuple[Peer, FakeLine, FakeLine, FakeLine]:
    """A peer with three neighbours."""
    peer = founder(world, TREE)
    return peer, link(peer, 2), link(peer, 3), link(peer, 4)


def fed_by_the_first(world: FakeWorld, hops: int = 2) -> tuple[Peer, FakeLine, FakeLine, FakeLine]:
    """A has spoken; the first neighbour feeds us, and the two others were told not to."""
    peer, *lines = branches(world)
    for line in lines:
        line.says(said(A, 1, hops=hops))
    first, *others = lines
    assert not first.heard(Prune)
    assert [line.heard(Prune) for line in others] == [[Prune(A)]] * 2
    return peer, first, others[0], others[1]


def window_of(peer: Peer, author: int = A) -> AuthorWindow:
    return peer.stream.authors[author]


def standings(line: FakeLine) -> list[Standing]:
    return [each for announce in line.heard(Announce) for each in announce.standings]


# A branch too many.


def test_who_brings_a_second_copy_is_pruned_once() -> None:
    _, near, other, third = branches(FakeWorld())
    near.says(said(A, 1))
    assert not other.heard(Prune)
    other.says(said(A, 1), said(A, 1))
    assert (near.heard(Prune), other.heard(Prune), third.heard(Prune)) == ([], [Prune(A)], [])


def test_a_copy_on_its_way_when_the_branch_was_pruned_changes_nothing() -> None:
    peer, near, other, _ = fed_by_the_first(FakeWorld())
    other.says(said(A, 2))
    near.says(said(A, 2))
    assert window_of(peer).parent is peer.links.get(2)
    assert not near.heard(Prune)


def test_already_the_first_word_of_an_author_makes_its_tree() -> None:
    """So that what it says next, however much it is, spreads along it."""
    _, near, other, _ = branches(FakeWorld())
    for line in (near, other):
        line.says(flooded(A, 1))
    assert (near.heard(Prune), other.heard(Prune)) == ([], [Prune(A)])


def test_the_same_link_twice_is_one_branch() -> None:
    """What was asked for twice comes twice."""
    _, near, *_ = branches(FakeWorld())
    near.says(said(A, 1), said(A, 1))
    assert not near.heard(Prune)


def test_what_floods_first_over_another_link_does_not_change_the_branch() -> None:
    """A flood takes any way. Who followed it could choose a peer that is fed by us, and both would starve."""
    peer, near, other, _ = branches(FakeWorld())
    near.says(flooded(A, 1))
    other.says(flooded(A, 2, hops=1))
    near.says(flooded(A, 2, hops=9))
    assert window_of(peer).parent is peer.links.get(2)
    assert not near.heard(Prune)


def test_a_distance_learned_from_a_flood_is_not_told() -> None:
    world = FakeWorld()
    _, near, other, _ = branches(world)
    near.says(flooded(A, 1, hops=1))
    other.says(Prune(A))
    world.run(SOON_S)
    assert standings(other) == [Standing(A, 1, 1, HOPS_UNKNOWN)]


def test_a_branch_that_does_not_feed_us_is_no_reason_to_prune_the_others() -> None:
    """We pulled from one that has nothing; two others bring everything. One of these must stay."""
    world = FakeWorld()
    peer, near, other, third = branches(world)
    near.says(said(A, 1))
    window_of(peer).parent = peer.links.get(4)
    for sequence in (2, 3, 4):
        near.says(said(A, sequence))
        other.says(said(A, sequence))
    assert (near.heard(Prune), other.heard(Prune), third.heard(Prune)) == ([], [Prune(A)], [])
    assert window_of(peer).parent is peer.links.get(2)


# Feeding others.


def test_who_pruned_us_is_told_names_only() -> None:
    world = FakeWorld()
    _, near, other, third = branches(world)
    near.says(said(A, 1, hops=3))
    other.says(Prune(A))
    near.says(said(A, 2, hops=3), said(A, 3, hops=3))
    world.run(SOON_S)
    assert other.names() == [(A, 1)]
    assert third.names() == [(A, 1), (A, 2), (A, 3)]
    assert standings(other) == [Standing(A, 1, 3, 3)]
    assert not standings(third)


def test_names_of_many_authors_go_in_one_frame() -> None:
    world = FakeWorld()
    _, near, other, _ = branches(world)
    near.says(said(A, 1), said(B, 1))
    other.says(Prune(A), Prune(B))
    near.says(said(A, 2), said(B, 2), said(A, 3))
    world.run(SOON_S)
    assert len(other.heard(Announce)) == 1
    assert sorted(each[:3] for each in standings(other)) == [(A, 1, 3), (B, 1, 2)]


def test_a_prune_is_answered_with_what_we_have() -> None:
    """It may be that it does not come the other way."""
    world = FakeWorld()
    _, near, other, _ = branches(world)
    near.says(said(A, 1))
    other.says(Prune(A))
    world.run(SOON_S)
    assert [each[:3] for each in standings(other)] == [(A, 1, 1)]


def test_small_frames_flood_over_all_links() -> None:
    _, near, other, _ = branches(FakeWorld())
    near.says(flooded(A, 1))
    other.says(Prune(A))
    near.says(flooded(A, 2), said(A, 3), flooded(A, 4))
    assert other.names() == [(A, 1), (A, 2), (A, 4)]


def test_our_own_messages_spread_along_our_tree() -> None:
    world = FakeWorld()
    peer, near, other, _ = branches(world)
    peer.broadcast(b"one")
    other.says(Prune(ME))
    peer.broadcast(b"two")
    world.run(SOON_S)
    assert near.names() == [(ME, 1), (ME, 2)]
    assert other.names() == [(ME, 1)]
    assert standings(other) == [Standing(ME, 1, 2, 0)]


def test_who_grafts_gets_what_it_lacks_and_all_that_follows() -> None:
    _, near, other, _ = branches(FakeWorld())
    near.says(said(A, 1))
    other.says(Prune(A))
    near.says(said(A, 2), said(A, 3))
    other.says(Graft(A, 2))
    near.says(said(A, 4))
    assert other.names() == [(A, 1), (A, 3), (A, 4)]


def test_a_graft_that_crossed_what_was_sent_costs_nothing() -> None:
    _, near, other, _ = branches(FakeWorld())
    near.says(said(A, 1))
    other.says(Graft(A, 1))
    assert other.names() == [(A, 1)]


def test_grafts_and_prunes_of_unknown_authors_are_passed_over() -> None:
    peer, _, other, _ = branches(FakeWorld())
    other.says(Prune(A), Graft(A, 0), Graft(B, 1 << 63))
    assert not other.closed
    assert not peer.stream.authors.keys() & {A, B}


# Silence.


def test_what_is_announced_and_does_not_come_is_pulled_from_who_announced_it() -> None:
    world = FakeWorld()
    peer, near, other, third = fed_by_the_first(world)
    other.says(Announce((Standing(A, 1, 3, 2),)))
    world.run(LATE_S)
    assert other.heard(Graft) == [Graft(A, 3)]  # what we lack is asked for by itself
    assert other.heard(Want)[0] == Want(A, 2, 3)
    other.says(said(A, 2), said(A, 3))
    assert world.names() == [(A, 1), (A, 2), (A, 3)]
    assert window_of(peer).parent is peer.links.get(3)
    assert not third.heard(Graft)
    assert not near.heard(Prune), "nobody knows yet whether it brings the next one"


def test_what_is_announced_and_comes_in_time_is_not_pulled() -> None:
    world = FakeWorld()
    _, near, other, third = fed_by_the_first(world)
    other.says(Announce((Standing(A, 1, 3, 2),)))
    world.run(TREE.gap_s / 4)
    near.says(said(A, 2), said(A, 3))
    world.run(LATE_S)
    assert [line.heard(Want) + line.heard(Graft) for line in (near, other, third)] == [[], [], []]


def test_what_trickles_in_is_not_pulled() -> None:
    """Behind, but moving: it comes by itself."""
    world = FakeWorld()
    _, near, other, third = fed_by_the_first(world)
    other.says(Announce((Standing(A, 1, 20, 2),)))
    for sequence in range(2, 20):
        near.says(said(A, sequence))
        world.run(TREE.gap_s / 4)
    assert [line.heard(Want) for line in (near, other, third)] == [[], [], []]


def test_an_announced_author_that_we_never_heard_is_pulled() -> None:
    world = FakeWorld()
    _, _, other, _ = branches(world)
    other.says(Announce((Standing(B, 1, 2, 1),)))
    world.run(LATE_S)
    assert other.heard(Want)[0] == Want(B, 1, 2)


# A branch breaks.


def test_when_the_branch_breaks_all_others_are_grafted_at_once() -> None:
    world = FakeWorld()
    peer, near, other, third = fed_by_the_first(world)
    near.hangs_up()
    assert other.heard(Graft) == third.heard(Graft) == [Graft(A, 1)]
    assert window_of(peer).parent is None
    other.says(said(A, 2))
    third.says(said(A, 2))
    assert window_of(peer).parent is peer.links.get(3)
    assert (len(other.heard(Prune)), len(third.heard(Prune))) == (1, 2)


def test_small_frames_do_not_choose_the_new_branch() -> None:
    world = FakeWorld()
    peer, near, other, third = branches(world)
    for line in (near, other, third):
        line.says(said(A, 1))
    near.hangs_up()
    other.says(flooded(A, 2))
    third.says(flooded(A, 2))
    assert window_of(peer).parent is None
    assert (len(other.heard(Prune)), len(third.heard(Prune))) == (1, 1)
    third.says(said(A, 3))
    assert window_of(peer).parent is peer.links.get(4)


def test_when_another_link_breaks_nothing_is_grafted() -> None:
    peer, near, other, third = fed_by_the_first(FakeWorld())
    other.hangs_up()
    assert not near.heard(Graft)
    assert not third.heard(Graft)
    assert list(window_of(peer).pruned) == [peer.links.get(4)]


def test_of_authors_that_are_silent_for_long_no_branch_is_grafted() -> None:
    world = FakeWorld()
    peer, near, other, third = fed_by_the_first(world)
    world.run(LATELY_S + 1)
    near.hangs_up()
    assert not other.heard(Graft) + third.heard(Graft)
    third.says(Announce((Standing(A, 1, 2, 2),)))  # it speaks again
    world.run(LATE_S)
    assert third.heard(Graft) == [Graft(A, 2)]
    assert window_of(peer).parent is peer.links.get(4)


def test_a_lost_link_is_forgotten_everywhere() -> None:
    world = FakeWorld()
    peer, near, other, _ = fed_by_the_first(world)
    other.says(Prune(A), Announce((Standing(A, 1, 2, 2),)))
    gone = [peer.links.get(2), peer.links.get(3)]
    near.hangs_up()
    other.hangs_up()
    window = window_of(peer)
    assert window.parent not in gone
    assert window.first_from not in gone
    assert window.source not in gone
    assert window.failed not in gone
    assert not window.lazy.keys() & set(gone)
    assert not window.pruned.keys() & set(gone)
    world.run(SOON_S)
    assert not standings(other)


# Nearer ways.


def test_a_copy_by_a_nearer_way_makes_that_the_branch() -> None:
    peer, near, other, _ = branches(FakeWorld())
    near.says(said(A, 1, hops=5))
    other.says(said(A, 1, hops=5 - NEARER_HOPS))
    assert (near.heard(Prune), other.heard(Prune)) == ([Prune(A)], [])
    assert (window_of(peer).parent, window_of(peer).hops) == (peer.links.get(3), 5 - NEARER_HOPS)


def test_a_little_nearer_is_not_worth_the_change() -> None:
    _, near, other, _ = branches(FakeWorld())
    near.says(said(A, 1, hops=5))
    other.says(said(A, 1, hops=6 - NEARER_HOPS))
    assert (near.heard(Prune), other.heard(Prune)) == ([], [Prune(A)])


def test_a_new_link_that_is_first_and_nearer_makes_the_change_when_the_branch_comes_second() -> None:
    peer, near, other, _ = branches(FakeWorld())
    near.says(said(A, 1, hops=5))
    other.says(said(A, 2, hops=1))
    near.says(said(A, 2, hops=5))
    assert (near.heard(Prune), other.heard(Prune)) == ([Prune(A)], [])
    assert window_of(peer).parent is peer.links.get(3)


def test_a_new_link_that_is_first_and_not_nearer_is_pruned_when_the_branch_comes_second() -> None:
    peer, near, other, _ = branches(FakeWorld())
    near.says(said(A, 1, hops=5))
    other.says(said(A, 2, hops=5))
    near.says(said(A, 2, hops=5))
    assert (near.heard(Prune), other.heard(Prune)) == ([], [Prune(A)])
    assert window_of(peer).parent is peer.links.get(2)


def test_a_pruned_neighbour_that_announces_to_be_nearer_becomes_the_branch() -> None:
    peer, near, other, third = fed_by_the_first(FakeWorld(), hops=5)
    other.says(Announce((Standing(A, 1, 1, 5 - NEARER_HOPS),)))
    assert not other.heard(Graft), "by one hop more it comes to us"
    third.says(Announce((Standing(A, 1, 1, 4 - NEARER_HOPS),)))
    assert third.heard(Graft) == [Graft(A, 1)]
    assert near.heard(Prune) == [Prune(A)]
    assert (window_of(peer).parent, window_of(peer).hops) == (peer.links.get(4), 5 - NEARER_HOPS)


# Links that are being drained.


def lingering(line: FakeLine, name: int) -> None:
    """This neighbour leaves, and is listened to for a moment."""
    line.says(Leave((contact(ME), contact(name))))


def test_a_branch_that_leaves_is_replaced_at_once() -> None:
    _, near, other, third = fed_by_the_first(FakeWorld())
    lingering(near, 2)
    assert other.heard(Graft) == third.heard(Graft) == [Graft(A, 1)]


def test_what_a_leaver_still_brings_counts_and_makes_it_no_branch() -> None:
    world = FakeWorld()
    peer, near, other, _ = fed_by_the_first(world)
    lingering(near, 2)
    near.says(said(A, 2))
    assert world.names() == [(A, 1), (A, 2)]
    assert window_of(peer).parent is None
    other.says(said(A, 2))
    near.says(said(A, 2, hops=1))
    assert window_of(peer).parent is peer.links.get(3)
    assert not near.heard(Prune)


def test_a_leaver_that_prunes_or_grafts_leaves_nothing_behind() -> None:
    world = FakeWorld()
    peer, near, *_ = fed_by_the_first(world)
    lingering(near, 2)
    near.says(Prune(A))
    assert not window_of(peer).lazy
    near.says(Graft(A, 0))
    world.run(SOON_S)
    assert not standings(near)
    assert not near.copies()


def test_the_names_that_a_leaver_tells_last_are_learned() -> None:
    world = FakeWorld()
    _, near, other, third = fed_by_the_first(world)
    lingering(near, 2)
    near.says(Announce((Standing(A, 1, 2, 1),)))
    world.run(LATE_S)
    assert other.heard(Want) + third.heard(Want)
    assert not near.heard(Want)


# Neighbours that lie.


def test_a_mark_that_cannot_be_is_not_believed() -> None:
    world = FakeWorld()
    peer, near, other, _ = fed_by_the_first(world)
    other.says(Announce((Standing(A, 1, (1 << 64) - 1, 1),)))
    world.run(LATE_S)
    assert peer.counters.hearsay_refused
    assert not other.heard(Want)
    near.says(said(A, 2))
    assert world.names() == [(A, 1), (A, 2)]
    assert not world.told_missed


@pytest.mark.parametrize("hops", [0, 0xFFFFFFFF])
def test_any_number_of_hops_is_survived(hops: int) -> None:
    world = FakeWorld()
    peer, near, other, third = fed_by_the_first(world)
    other.says(Announce((Standing(A, 1, 1, hops),)), Announce((Standing(ME, 1, 9, hops),)))
    third.says(Prune(A))
    near.says(said(A, 2, hops=0xFFFFFFFF))
    world.run(SOON_S)
    assert world.names() == [(A, 1), (A, 2)]
    assert [each[:3] for each in standings(third)] == [(A, 1, 2)]
    assert ME not in peer.stream.authors


def test_what_we_said_ourselves_nobody_knows_better() -> None:
    world = FakeWorld()
    peer, _, other, _ = branches(world)
    peer.broadcast(b"one")
    other.says(Announce((Standing(ME, 1, 9, 0),)))
    world.run(LATE_S)
    assert not other.heard(Want)
    assert window_of(peer, ME).known == 1


def test_a_flood_of_unknown_authors_is_bounded() -> None:
    world = FakeWorld()
    peer = founder(world, Settings(silence_s=1e9, authors_max=50))
    line = link(peer, 2)
    line.says(Announce(tuple(Standing(author, 1, 5, 1) for author in range(5000, 6000))))
    assert len(peer.stream.authors) <= 50
    line.says(said(A, 1))
    assert world.names() == [(A, 1)]


def test_one_that_promises_to_be_nearer_and_does_not_feed_is_not_chosen_again() -> None:
    world = FakeWorld()
    peer, near, liar, third = fed_by_the_first(world, hops=5)
    liar.says(Announce((Standing(A, 1, 1, 0),)))
    assert window_of(peer).parent is peer.links.get(3)
    third.says(Announce((Standing(A, 1, 2, 5),)))
    world.run(LATE_S)
    third.says(said(A, 2, hops=6))
    assert window_of(peer).parent is peer.links.get(4)
    liar.says(Announce((Standing(A, 1, 2, 0),)))
    assert window_of(peer).parent is peer.links.get(4)
    assert not third.heard(Prune)[1:]
    assert len(near.heard(Prune)) == 1


# Bundles.


class Turns(FakeWorld):
    """What shall happen soon happens when the test says that the turn is over."""

    def __init__(self) -> None:
        super().__init__()
        self._soon: list[Callable[[], None]] = []

    def soon(self, act: Callable[[], None]) -> None:
        self._soon.append(act)

    def end_turn(self) -> None:
        acts, self._soon = self._soon, []
        for act in acts:
            act()


def bundles(line: FakeLine) -> list[tuple[int, int]]:
    """First sequence and number of messages of each frame."""
    return [(each.sequence, len(each.messages)) for each in line.broadcasts()]


def test_what_is_said_in_one_turn_goes_out_in_one_frame() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    assert [peer.broadcast(b"%d" % number) for number in range(3)] == [1, 2, 3]
    assert not line.copies()
    world.end_turn()
    assert [each.messages for each in line.broadcasts()] == [(b"0", b"1", b"2")]
    assert peer.broadcast(b"3") == 4
    world.end_turn()
    world.run(1.0)
    assert bundles(line) == [(1, 3), (4, 1)]
    assert peer.counters.sent == 4


def test_a_turn_without_words_sends_nothing() -> None:
    world = Turns()
    line = link(founder(world), 2)
    world.end_turn()
    assert not line.copies()


def test_a_bundle_is_closed_when_it_is_large_enough() -> None:
    world = Turns()
    peer = founder(world, Settings(silence_s=1e9, bundle_bytes=100))
    line = link(peer, 2)
    for size in (40, 40, 40, 300, 100, 1):
        peer.broadcast(bytes(size))
    world.end_turn()
    assert bundles(line) == [(1, 2), (3, 1), (4, 1), (5, 1), (6, 1)]


def test_a_bundle_holds_a_limited_number_of_messages() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    sequences = [peer.broadcast(b"") for _ in range(BUNDLED_MAX + 1)]
    world.end_turn()
    assert sequences == list(range(1, BUNDLED_MAX + 2))
    assert bundles(line) == [(1, BUNDLED_MAX), (BUNDLED_MAX + 1, 1)]


def test_messages_of_one_frame_are_of_one_nature() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    stream = peer.stream
    stream.broadcast(b"", Kind.DATA)
    stream.broadcast(b"", Kind.DATA)
    stream.broadcast(b"", Kind.PART)
    stream.broadcast(b"", Kind.PART, 7)
    stream.broadcast(b"", Kind.PART, 7, 500)
    stream.broadcast(b"", Kind.PART, 7, 500)
    world.end_turn()
    assert bundles(line) == [(1, 2), (3, 1), (4, 1), (5, 2)]
    natures = [(each.kind, each.lifetime_ms) for each in line.broadcasts()]
    assert natures == [(Kind.DATA, 0), (Kind.PART, 0), (Kind.PART, 0), (Kind.PART, 500)]
    assert [each.priority for each in line.broadcasts()[2:]] == [7, 7]


def test_who_links_in_the_middle_of_a_turn_lacks_nothing() -> None:
    world = Turns()
    peer = founder(world)
    peer.broadcast(b"before")
    line = link(peer, 2)
    peer.broadcast(b"after")
    world.end_turn()
    world.run(1.0)
    assert line.names() == [(ME, 1), (ME, 2)]


def test_who_leaves_in_the_middle_of_a_turn_has_said_everything() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    peer.broadcast(b"last words")
    peer.leave()
    assert line.names() == [(ME, 1)]
