"""Announce and pull: who feeds whom, who only hears names, and what happens when a branch breaks."""

from collections.abc import Callable

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.broadcast.plumtree import HOPS_UNKNOWN, PARENT_SWITCH_HOPS, RECENT_S
from broadloom.protocol.broadcast.receive_window import ReceiveWindow
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import BUNDLE_MESSAGES_MAX, Dissemination, PayloadKind
from broadloom.wire.link_messages import Graft, IHave, Leave, Prune, Want
from broadloom.wire.types import TreePosition
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime, founder, link, peer_info
from tests.protocol.fake_runtime import broadcast_of as flooded

A, B = 71, 72
"""Authors somewhere in the fabric."""

TREE = Tuning(heartbeat_timeout_s=1e9, flood_bytes_max=0)
"""All that we say ourselves spreads along our tree."""
SOON_S = TREE.ihave_interval_s + 0.01
LATE_S = 1.5 * TREE.gap_repair_delay_s
"""By then it was noticed that nothing comes, and asked for once."""


def said(author: int, sequence: int, hops: int = 2) -> Broadcast:
    """A frame that goes along the author's tree."""
    return flooded(author, sequence, hops=hops)._replace(dissemination=Dissemination.TREE)


def branches(world: FakeRuntime) -> tuple[Peer, FakeConnection, FakeConnection, FakeConnection]:
    """A peer with three neighbours."""
    peer = founder(world, TREE)
    return peer, link(peer, 2), link(peer, 3), link(peer, 4)


def fed_by_the_first(world: FakeRuntime, hops: int = 2) -> tuple[Peer, FakeConnection, FakeConnection, FakeConnection]:
    """A has spoken; the first neighbour feeds us, and the two others were told not to."""
    peer, *lines = branches(world)
    for line in lines:
        line.remote_sends(said(A, 1, hops=hops))
    first, *others = lines
    assert not first.sent_messages(Prune)
    assert [line.sent_messages(Prune) for line in others] == [[Prune(A)]] * 2
    return peer, first, others[0], others[1]


def window_of(peer: Peer, author: int = A) -> ReceiveWindow:
    return peer.broadcaster.authors[author]


def standings(line: FakeConnection) -> list[TreePosition]:
    return [each for announce in line.sent_messages(IHave) for each in announce.positions]


# A branch too many.


def test_who_brings_a_second_copy_is_pruned_once() -> None:
    _, near, other, third = branches(FakeRuntime())
    near.remote_sends(said(A, 1))
    assert not other.sent_messages(Prune)
    other.remote_sends(said(A, 1), said(A, 1))
    assert (near.sent_messages(Prune), other.sent_messages(Prune), third.sent_messages(Prune)) == ([], [Prune(A)], [])


def test_a_copy_on_its_way_when_the_branch_was_pruned_changes_nothing() -> None:
    peer, near, other, _ = fed_by_the_first(FakeRuntime())
    other.remote_sends(said(A, 2))
    near.remote_sends(said(A, 2))
    assert window_of(peer).parent is peer.links.get(2)
    assert not near.sent_messages(Prune)


def test_already_the_first_word_of_an_author_makes_its_tree() -> None:
    """So that what it says next, however much it is, spreads along it."""
    _, near, other, _ = branches(FakeRuntime())
    for line in (near, other):
        line.remote_sends(flooded(A, 1))
    assert (near.sent_messages(Prune), other.sent_messages(Prune)) == ([], [Prune(A)])


def test_the_same_link_twice_is_one_branch() -> None:
    """What was asked for twice comes twice."""
    _, near, *_ = branches(FakeRuntime())
    near.remote_sends(said(A, 1), said(A, 1))
    assert not near.sent_messages(Prune)


def test_what_floods_first_over_another_link_does_not_change_the_branch() -> None:
    """A flood takes any way. Who followed it could choose a peer that is fed by us, and both would starve."""
    peer, near, other, _ = branches(FakeRuntime())
    near.remote_sends(flooded(A, 1))
    other.remote_sends(flooded(A, 2, hops=1))
    near.remote_sends(flooded(A, 2, hops=9))
    assert window_of(peer).parent is peer.links.get(2)
    assert not near.sent_messages(Prune)


def test_a_distance_learned_from_a_flood_is_not_told() -> None:
    world = FakeRuntime()
    _, near, other, _ = branches(world)
    near.remote_sends(flooded(A, 1, hops=1))
    other.remote_sends(Prune(A))
    world.advance(SOON_S)
    assert standings(other) == [TreePosition(A, 1, 1, HOPS_UNKNOWN)]


def test_a_branch_that_does_not_feed_us_is_no_reason_to_prune_the_others() -> None:
    """We pulled from one that has nothing; two others bring everything. One of these must stay."""
    world = FakeRuntime()
    peer, near, other, third = branches(world)
    near.remote_sends(said(A, 1))
    window_of(peer).parent = peer.links.get(4)
    for sequence in (2, 3, 4):
        near.remote_sends(said(A, sequence))
        other.remote_sends(said(A, sequence))
    assert (near.sent_messages(Prune), other.sent_messages(Prune), third.sent_messages(Prune)) == ([], [Prune(A)], [])
    assert window_of(peer).parent is peer.links.get(2)


# Feeding others.


def test_who_pruned_us_is_told_names_only() -> None:
    world = FakeRuntime()
    _, near, other, third = branches(world)
    near.remote_sends(said(A, 1, hops=3))
    other.remote_sends(Prune(A))
    near.remote_sends(said(A, 2, hops=3), said(A, 3, hops=3))
    world.advance(SOON_S)
    assert other.broadcast_ids() == [(A, 1)]
    assert third.broadcast_ids() == [(A, 1), (A, 2), (A, 3)]
    assert standings(other) == [TreePosition(A, 1, 3, 3)]
    assert not standings(third)


def test_names_of_many_authors_go_in_one_frame() -> None:
    world = FakeRuntime()
    _, near, other, _ = branches(world)
    near.remote_sends(said(A, 1), said(B, 1))
    other.remote_sends(Prune(A), Prune(B))
    near.remote_sends(said(A, 2), said(B, 2), said(A, 3))
    world.advance(SOON_S)
    assert len(other.sent_messages(IHave)) == 1
    assert sorted(each[:3] for each in standings(other)) == [(A, 1, 3), (B, 1, 2)]


def test_a_prune_is_answered_with_what_we_have() -> None:
    """It may be that it does not come the other way."""
    world = FakeRuntime()
    _, near, other, _ = branches(world)
    near.remote_sends(said(A, 1))
    other.remote_sends(Prune(A))
    world.advance(SOON_S)
    assert [each[:3] for each in standings(other)] == [(A, 1, 1)]


def test_small_frames_flood_over_all_links() -> None:
    _, near, other, _ = branches(FakeRuntime())
    near.remote_sends(flooded(A, 1))
    other.remote_sends(Prune(A))
    near.remote_sends(flooded(A, 2), said(A, 3), flooded(A, 4))
    assert other.broadcast_ids() == [(A, 1), (A, 2), (A, 4)]


def test_our_own_messages_spread_along_our_tree() -> None:
    world = FakeRuntime()
    peer, near, other, _ = branches(world)
    peer.broadcast(b"one")
    other.remote_sends(Prune(ME))
    peer.broadcast(b"two")
    world.advance(SOON_S)
    assert near.broadcast_ids() == [(ME, 1), (ME, 2)]
    assert other.broadcast_ids() == [(ME, 1)]
    assert standings(other) == [TreePosition(ME, 1, 2, 0)]


def test_who_grafts_gets_what_it_lacks_and_all_that_follows() -> None:
    _, near, other, _ = branches(FakeRuntime())
    near.remote_sends(said(A, 1))
    other.remote_sends(Prune(A))
    near.remote_sends(said(A, 2), said(A, 3))
    other.remote_sends(Graft(A, 2))
    near.remote_sends(said(A, 4))
    assert other.broadcast_ids() == [(A, 1), (A, 3), (A, 4)]


def test_a_graft_that_crossed_what_was_sent_costs_nothing() -> None:
    _, near, other, _ = branches(FakeRuntime())
    near.remote_sends(said(A, 1))
    other.remote_sends(Graft(A, 1))
    assert other.broadcast_ids() == [(A, 1)]


def test_grafts_and_prunes_of_unknown_authors_are_passed_over() -> None:
    peer, _, other, _ = branches(FakeRuntime())
    other.remote_sends(Prune(A), Graft(A, 0), Graft(B, 1 << 63))
    assert not other.closed
    assert not peer.broadcaster.authors.keys() & {A, B}


# Silence.


def test_what_is_announced_and_does_not_come_is_pulled_from_who_announced_it() -> None:
    world = FakeRuntime()
    peer, near, other, third = fed_by_the_first(world)
    other.remote_sends(IHave((TreePosition(A, 1, 3, 2),)))
    world.advance(LATE_S)
    assert other.sent_messages(Graft) == [Graft(A, 3)]  # what we lack is asked for by itself
    assert other.sent_messages(Want)[0] == Want(A, 2, 3)
    other.remote_sends(said(A, 2), said(A, 3))
    assert world.delivered_ids() == [(A, 1), (A, 2), (A, 3)]
    assert window_of(peer).parent is peer.links.get(3)
    assert not third.sent_messages(Graft)
    assert not near.sent_messages(Prune), "nobody knows yet whether it brings the next one"


def test_what_is_announced_and_comes_in_time_is_not_pulled() -> None:
    world = FakeRuntime()
    _, near, other, third = fed_by_the_first(world)
    other.remote_sends(IHave((TreePosition(A, 1, 3, 2),)))
    world.advance(TREE.gap_repair_delay_s / 4)
    near.remote_sends(said(A, 2), said(A, 3))
    world.advance(LATE_S)
    assert [line.sent_messages(Want) + line.sent_messages(Graft) for line in (near, other, third)] == [[], [], []]


def test_what_trickles_in_is_not_pulled() -> None:
    """Behind, but moving: it comes by itself."""
    world = FakeRuntime()
    _, near, other, third = fed_by_the_first(world)
    other.remote_sends(IHave((TreePosition(A, 1, 20, 2),)))
    for sequence in range(2, 20):
        near.remote_sends(said(A, sequence))
        world.advance(TREE.gap_repair_delay_s / 4)
    assert [line.sent_messages(Want) for line in (near, other, third)] == [[], [], []]


def test_an_announced_author_that_we_never_heard_is_pulled() -> None:
    world = FakeRuntime()
    _, _, other, _ = branches(world)
    other.remote_sends(IHave((TreePosition(B, 1, 2, 1),)))
    world.advance(LATE_S)
    assert other.sent_messages(Want)[0] == Want(B, 1, 2)


# A branch breaks.


def test_when_the_branch_breaks_all_others_are_grafted_at_once() -> None:
    world = FakeRuntime()
    peer, near, other, third = fed_by_the_first(world)
    near.remote_closes()
    assert other.sent_messages(Graft) == third.sent_messages(Graft) == [Graft(A, 1)]
    assert window_of(peer).parent is None
    other.remote_sends(said(A, 2))
    third.remote_sends(said(A, 2))
    assert window_of(peer).parent is peer.links.get(3)
    assert (len(other.sent_messages(Prune)), len(third.sent_messages(Prune))) == (1, 2)


def test_small_frames_do_not_choose_the_new_branch() -> None:
    world = FakeRuntime()
    peer, near, other, third = branches(world)
    for line in (near, other, third):
        line.remote_sends(said(A, 1))
    near.remote_closes()
    other.remote_sends(flooded(A, 2))
    third.remote_sends(flooded(A, 2))
    assert window_of(peer).parent is None
    assert (len(other.sent_messages(Prune)), len(third.sent_messages(Prune))) == (1, 1)
    third.remote_sends(said(A, 3))
    assert window_of(peer).parent is peer.links.get(4)


def test_when_another_link_breaks_nothing_is_grafted() -> None:
    peer, near, other, third = fed_by_the_first(FakeRuntime())
    other.remote_closes()
    assert not near.sent_messages(Graft)
    assert not third.sent_messages(Graft)
    assert list(window_of(peer).pruned_links) == [peer.links.get(4)]


def test_of_authors_that_are_silent_for_long_no_branch_is_grafted() -> None:
    world = FakeRuntime()
    peer, near, other, third = fed_by_the_first(world)
    world.advance(RECENT_S + 1)
    near.remote_closes()
    assert not other.sent_messages(Graft) + third.sent_messages(Graft)
    third.remote_sends(IHave((TreePosition(A, 1, 2, 2),)))  # it speaks again
    world.advance(LATE_S)
    assert third.sent_messages(Graft) == [Graft(A, 2)]
    assert window_of(peer).parent is peer.links.get(4)


def test_a_lost_link_is_forgotten_everywhere() -> None:
    world = FakeRuntime()
    peer, near, other, _ = fed_by_the_first(world)
    other.remote_sends(Prune(A), IHave((TreePosition(A, 1, 2, 2),)))
    gone = [peer.links.get(2), peer.links.get(3)]
    near.remote_closes()
    other.remote_closes()
    window = window_of(peer)
    assert window.parent not in gone
    assert window.first_copy_link not in gone
    assert window.source not in gone
    assert window.failed_parent not in gone
    assert not window.lazy_children.keys() & set(gone)
    assert not window.pruned_links.keys() & set(gone)
    world.advance(SOON_S)
    assert not standings(other)


# Nearer ways.


def test_a_copy_by_a_nearer_way_makes_that_the_branch() -> None:
    peer, near, other, _ = branches(FakeRuntime())
    near.remote_sends(said(A, 1, hops=5))
    other.remote_sends(said(A, 1, hops=5 - PARENT_SWITCH_HOPS))
    assert (near.sent_messages(Prune), other.sent_messages(Prune)) == ([Prune(A)], [])
    assert (window_of(peer).parent, window_of(peer).hops) == (peer.links.get(3), 5 - PARENT_SWITCH_HOPS)


def test_a_little_nearer_is_not_worth_the_change() -> None:
    _, near, other, _ = branches(FakeRuntime())
    near.remote_sends(said(A, 1, hops=5))
    other.remote_sends(said(A, 1, hops=6 - PARENT_SWITCH_HOPS))
    assert (near.sent_messages(Prune), other.sent_messages(Prune)) == ([], [Prune(A)])


def test_a_new_link_that_is_first_and_nearer_makes_the_change_when_the_branch_comes_second() -> None:
    peer, near, other, _ = branches(FakeRuntime())
    near.remote_sends(said(A, 1, hops=5))
    other.remote_sends(said(A, 2, hops=1))
    near.remote_sends(said(A, 2, hops=5))
    assert (near.sent_messages(Prune), other.sent_messages(Prune)) == ([Prune(A)], [])
    assert window_of(peer).parent is peer.links.get(3)


def test_a_new_link_that_is_first_and_not_nearer_is_pruned_when_the_branch_comes_second() -> None:
    peer, near, other, _ = branches(FakeRuntime())
    near.remote_sends(said(A, 1, hops=5))
    other.remote_sends(said(A, 2, hops=5))
    near.remote_sends(said(A, 2, hops=5))
    assert (near.sent_messages(Prune), other.sent_messages(Prune)) == ([], [Prune(A)])
    assert window_of(peer).parent is peer.links.get(2)


def test_a_pruned_neighbour_that_announces_to_be_nearer_becomes_the_branch() -> None:
    peer, near, other, third = fed_by_the_first(FakeRuntime(), hops=5)
    other.remote_sends(IHave((TreePosition(A, 1, 1, 5 - PARENT_SWITCH_HOPS),)))
    assert not other.sent_messages(Graft), "by one hop more it comes to us"
    third.remote_sends(IHave((TreePosition(A, 1, 1, 4 - PARENT_SWITCH_HOPS),)))
    assert third.sent_messages(Graft) == [Graft(A, 1)]
    assert near.sent_messages(Prune) == [Prune(A)]
    assert (window_of(peer).parent, window_of(peer).hops) == (peer.links.get(4), 5 - PARENT_SWITCH_HOPS)


# Links that are being drained.


def lingering(line: FakeConnection, name: int) -> None:
    """This neighbour leaves, and is listened to for a moment."""
    line.remote_sends(Leave((peer_info(ME), peer_info(name))))


def test_a_branch_that_leaves_is_replaced_at_once() -> None:
    _, near, other, third = fed_by_the_first(FakeRuntime())
    lingering(near, 2)
    assert other.sent_messages(Graft) == third.sent_messages(Graft) == [Graft(A, 1)]


def test_what_a_leaver_still_brings_counts_and_makes_it_no_branch() -> None:
    world = FakeRuntime()
    peer, near, other, _ = fed_by_the_first(world)
    lingering(near, 2)
    near.remote_sends(said(A, 2))
    assert world.delivered_ids() == [(A, 1), (A, 2)]
    assert window_of(peer).parent is None
    other.remote_sends(said(A, 2))
    near.remote_sends(said(A, 2, hops=1))
    assert window_of(peer).parent is peer.links.get(3)
    assert not near.sent_messages(Prune)


def test_a_leaver_that_prunes_or_grafts_leaves_nothing_behind() -> None:
    world = FakeRuntime()
    peer, near, *_ = fed_by_the_first(world)
    lingering(near, 2)
    near.remote_sends(Prune(A))
    assert not window_of(peer).lazy_children
    near.remote_sends(Graft(A, 0))
    world.advance(SOON_S)
    assert not standings(near)
    assert not near.broadcast_frames()


def test_the_names_that_a_leaver_tells_last_are_learned() -> None:
    world = FakeRuntime()
    _, near, other, third = fed_by_the_first(world)
    lingering(near, 2)
    near.remote_sends(IHave((TreePosition(A, 1, 2, 1),)))
    world.advance(LATE_S)
    assert other.sent_messages(Want) + third.sent_messages(Want)
    assert not near.sent_messages(Want)


# Neighbours that lie.


def test_a_mark_that_cannot_be_is_not_believed() -> None:
    world = FakeRuntime()
    peer, near, other, _ = fed_by_the_first(world)
    other.remote_sends(IHave((TreePosition(A, 1, (1 << 64) - 1, 1),)))
    world.advance(LATE_S)
    assert peer.counters.claims_rejected
    assert not other.sent_messages(Want)
    near.remote_sends(said(A, 2))
    assert world.delivered_ids() == [(A, 1), (A, 2)]
    assert not world.reported_missed


@pytest.mark.parametrize("hops", [0, 0xFFFFFFFF])
def test_any_number_of_hops_is_survived(hops: int) -> None:
    world = FakeRuntime()
    peer, near, other, third = fed_by_the_first(world)
    other.remote_sends(IHave((TreePosition(A, 1, 1, hops),)), IHave((TreePosition(ME, 1, 9, hops),)))
    third.remote_sends(Prune(A))
    near.remote_sends(said(A, 2, hops=0xFFFFFFFF))
    world.advance(SOON_S)
    assert world.delivered_ids() == [(A, 1), (A, 2)]
    assert [each[:3] for each in standings(third)] == [(A, 1, 2)]
    assert ME not in peer.broadcaster.authors


def test_what_we_said_ourselves_nobody_knows_better() -> None:
    world = FakeRuntime()
    peer, _, other, _ = branches(world)
    peer.broadcast(b"one")
    other.remote_sends(IHave((TreePosition(ME, 1, 9, 0),)))
    world.advance(LATE_S)
    assert not other.sent_messages(Want)
    assert window_of(peer, ME).last_known == 1


def test_a_flood_of_unknown_authors_is_bounded() -> None:
    world = FakeRuntime()
    peer = founder(world, Tuning(heartbeat_timeout_s=1e9, authors_max=50))
    line = link(peer, 2)
    line.remote_sends(IHave(tuple(TreePosition(author, 1, 5, 1) for author in range(5000, 6000))))
    assert len(peer.broadcaster.authors) <= 50
    line.remote_sends(said(A, 1))
    assert world.delivered_ids() == [(A, 1)]


def test_one_that_promises_to_be_nearer_and_does_not_feed_is_not_chosen_again() -> None:
    world = FakeRuntime()
    peer, near, liar, third = fed_by_the_first(world, hops=5)
    liar.remote_sends(IHave((TreePosition(A, 1, 1, 0),)))
    assert window_of(peer).parent is peer.links.get(3)
    third.remote_sends(IHave((TreePosition(A, 1, 2, 5),)))
    world.advance(LATE_S)
    third.remote_sends(said(A, 2, hops=6))
    assert window_of(peer).parent is peer.links.get(4)
    liar.remote_sends(IHave((TreePosition(A, 1, 2, 0),)))
    assert window_of(peer).parent is peer.links.get(4)
    assert not third.sent_messages(Prune)[1:]
    assert len(near.sent_messages(Prune)) == 1


# Bundles.


class Turns(FakeRuntime):
    """What shall happen soon happens when the test says that the turn is over."""

    def __init__(self) -> None:
        super().__init__()
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def end_turn(self) -> None:
        acts, self._soon = self._soon, []
        for act in acts:
            act()


def bundles(line: FakeConnection) -> list[tuple[int, int]]:
    """First sequence and number of messages of each frame."""
    return [(each.sequence, len(each.messages)) for each in line.broadcasts()]


def test_what_is_said_in_one_turn_goes_out_in_one_frame() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    assert [peer.broadcast(b"%d" % number) for number in range(3)] == [1, 2, 3]
    assert not line.broadcast_frames()
    world.end_turn()
    assert [each.messages for each in line.broadcasts()] == [(b"0", b"1", b"2")]
    assert peer.broadcast(b"3") == 4
    world.end_turn()
    world.advance(1.0)
    assert bundles(line) == [(1, 3), (4, 1)]
    assert peer.counters.sent == 4


def test_a_turn_without_words_sends_nothing() -> None:
    world = Turns()
    line = link(founder(world), 2)
    world.end_turn()
    assert not line.broadcast_frames()


def test_a_bundle_is_closed_when_it_is_large_enough() -> None:
    world = Turns()
    peer = founder(world, Tuning(heartbeat_timeout_s=1e9, bundle_bytes=100))
    line = link(peer, 2)
    for size in (40, 40, 40, 300, 100, 1):
        peer.broadcast(bytes(size))
    world.end_turn()
    assert bundles(line) == [(1, 2), (3, 1), (4, 1), (5, 1), (6, 1)]


def test_a_bundle_holds_a_limited_number_of_messages() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    sequences = [peer.broadcast(b"") for _ in range(BUNDLE_MESSAGES_MAX + 1)]
    world.end_turn()
    assert sequences == list(range(1, BUNDLE_MESSAGES_MAX + 2))
    assert bundles(line) == [(1, BUNDLE_MESSAGES_MAX), (BUNDLE_MESSAGES_MAX + 1, 1)]


def test_messages_of_one_frame_are_of_one_nature() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    stream = peer.broadcaster
    stream.broadcast(b"", PayloadKind.DATA)
    stream.broadcast(b"", PayloadKind.DATA)
    stream.broadcast(b"", PayloadKind.FRAGMENT)
    stream.broadcast(b"", PayloadKind.FRAGMENT, 7)
    stream.broadcast(b"", PayloadKind.FRAGMENT, 7, 500)
    stream.broadcast(b"", PayloadKind.FRAGMENT, 7, 500)
    world.end_turn()
    assert bundles(line) == [(1, 2), (3, 1), (4, 1), (5, 2)]
    natures = [(each.kind, each.ttl_ms) for each in line.broadcasts()]
    assert natures == [
        (PayloadKind.DATA, 0),
        (PayloadKind.FRAGMENT, 0),
        (PayloadKind.FRAGMENT, 0),
        (PayloadKind.FRAGMENT, 500),
    ]
    assert [each.priority for each in line.broadcasts()[2:]] == [7, 7]


def test_who_links_in_the_middle_of_a_turn_lacks_nothing() -> None:
    world = Turns()
    peer = founder(world)
    peer.broadcast(b"before")
    line = link(peer, 2)
    peer.broadcast(b"after")
    world.end_turn()
    world.advance(1.0)
    assert line.broadcast_ids() == [(ME, 1), (ME, 2)]


def test_who_leaves_in_the_middle_of_a_turn_has_said_everything() -> None:
    world = Turns()
    peer = founder(world)
    line = link(peer, 2)
    peer.broadcast(b"last words")
    peer.leave()
    assert line.broadcast_ids() == [(ME, 1)]
