"""Plumtree: eager and lazy links, pulling, and repair of the tree."""

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.broadcast.plumtree import HOPS_UNKNOWN, PARENT_SWITCH_HOPS, RECENT_S, TreeState
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import Dissemination
from broadloom.wire.link_messages import Graft, IHave, Leave, Prune, Want
from broadloom.wire.types import TreePosition
from tests.protocol.broadcast.harness import A, B
from tests.protocol.fake_runtime import ME, FakeConnection, FakeRuntime, creator, link, peer_info
from tests.protocol.fake_runtime import broadcast_of as flooded

TREE = Tuning(heartbeat_timeout_s=1e9, flood_bytes_max=0)
"""This peer's own messages use its tree."""
AFTER_IHAVE_S = TREE.ihave_interval_s + 0.01
AFTER_REPAIR_S = 1.5 * TREE.gap_repair_delay_s
"""By then a gap was noticed and requested once."""


def tree_frame(author: int, sequence: int, hops: int = 2) -> Broadcast:
    """A frame that uses the author's tree."""
    return flooded(author, sequence, hops=hops)._replace(dissemination=Dissemination.TREE)


PeerWithLinks = tuple[Peer, FakeConnection, FakeConnection, FakeConnection]


def peer_with_three_links(runtime: FakeRuntime) -> PeerWithLinks:
    peer = creator(runtime, TREE)
    return peer, link(peer, 2), link(peer, 3), link(peer, 4)


def peer_with_parent(
    runtime: FakeRuntime, hops: int = 2
) -> tuple[Peer, FakeConnection, FakeConnection, FakeConnection]:
    """A has sent a message; the first link is the parent, and the two others were pruned."""
    peer, *connections = peer_with_three_links(runtime)
    for connection in connections:
        connection.remote_sends(tree_frame(A, 1, hops=hops))
    first, *others = connections
    assert not first.sent_messages(Prune)
    assert [connection.sent_messages(Prune) for connection in others] == [[Prune(A)]] * 2
    return peer, first, others[0], others[1]


def tree_of(peer: Peer, author: int = A) -> TreeState:
    return peer.broadcaster.receiver.windows[author].tree


def announced(connection: FakeConnection) -> list[TreePosition]:
    return [each for ihave in connection.sent_messages(IHave) for each in ihave.positions]


# Pruning.


def test_link_with_second_copy_is_pruned_once() -> None:
    _, first, other, third = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1))
    assert not other.sent_messages(Prune)
    other.remote_sends(tree_frame(A, 1), tree_frame(A, 1))
    assert (first.sent_messages(Prune), other.sent_messages(Prune), third.sent_messages(Prune)) == ([], [Prune(A)], [])


def test_copy_in_flight_during_prune_changes_nothing() -> None:
    peer, first, other, _ = peer_with_parent(FakeRuntime())
    other.remote_sends(tree_frame(A, 2))
    first.remote_sends(tree_frame(A, 2))
    assert tree_of(peer).parent is peer.links.get(2)
    assert not first.sent_messages(Prune)


def test_first_flooded_message_builds_tree() -> None:
    """So that later messages, however large, find a tree."""
    _, first, other, _ = peer_with_three_links(FakeRuntime())
    for connection in (first, other):
        connection.remote_sends(flooded(A, 1))
    assert (first.sent_messages(Prune), other.sent_messages(Prune)) == ([], [Prune(A)])


def test_second_copy_over_same_link_is_not_pruned() -> None:
    """A frame that was requested twice arrives twice."""
    _, first, *_ = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1), tree_frame(A, 1))
    assert not first.sent_messages(Prune)


def test_flooded_copy_does_not_change_parent() -> None:
    """A flood takes any path. Following it, a peer could choose its own child as parent, and both would starve."""
    peer, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(flooded(A, 1))
    other.remote_sends(flooded(A, 2, hops=1))
    first.remote_sends(flooded(A, 2, hops=9))
    assert tree_of(peer).parent is peer.links.get(2)
    assert not first.sent_messages(Prune)


def test_distance_from_flood_is_not_announced() -> None:
    runtime = FakeRuntime()
    _, first, other, _ = peer_with_three_links(runtime)
    first.remote_sends(flooded(A, 1, hops=1))
    other.remote_sends(Prune(A))
    runtime.advance(AFTER_IHAVE_S)
    assert announced(other) == [TreePosition(A, 1, 1, HOPS_UNKNOWN)]


def test_inactive_parent_does_not_cause_prune_of_other_links() -> None:
    """The parent has nothing, two other links deliver everything. One of them must stay eager."""
    runtime = FakeRuntime()
    peer, first, other, third = peer_with_three_links(runtime)
    first.remote_sends(tree_frame(A, 1))
    tree_of(peer).parent = peer.links.get(4)
    for sequence in (2, 3, 4):
        first.remote_sends(tree_frame(A, sequence))
        other.remote_sends(tree_frame(A, sequence))
    assert (first.sent_messages(Prune), other.sent_messages(Prune), third.sent_messages(Prune)) == ([], [Prune(A)], [])
    assert tree_of(peer).parent is peer.links.get(2)


# Towards the leaves.


def test_pruned_link_gets_ihave_only() -> None:
    runtime = FakeRuntime()
    _, first, other, third = peer_with_three_links(runtime)
    first.remote_sends(tree_frame(A, 1, hops=3))
    other.remote_sends(Prune(A))
    first.remote_sends(tree_frame(A, 2, hops=3), tree_frame(A, 3, hops=3))
    runtime.advance(AFTER_IHAVE_S)
    assert other.broadcast_ids() == [(A, 1)]
    assert third.broadcast_ids() == [(A, 1), (A, 2), (A, 3)]
    assert announced(other) == [TreePosition(A, 1, 3, 3)]
    assert not announced(third)


def test_ihave_combines_many_authors() -> None:
    runtime = FakeRuntime()
    _, first, other, _ = peer_with_three_links(runtime)
    first.remote_sends(tree_frame(A, 1), tree_frame(B, 1))
    other.remote_sends(Prune(A), Prune(B))
    first.remote_sends(tree_frame(A, 2), tree_frame(B, 2), tree_frame(A, 3))
    runtime.advance(AFTER_IHAVE_S)
    assert len(other.sent_messages(IHave)) == 1
    assert sorted(each[:3] for each in announced(other)) == [(A, 1, 3), (B, 1, 2)]


def test_prune_is_answered_with_ihave() -> None:
    """The messages may not arrive the other way."""
    runtime = FakeRuntime()
    _, first, other, _ = peer_with_three_links(runtime)
    first.remote_sends(tree_frame(A, 1))
    other.remote_sends(Prune(A))
    runtime.advance(AFTER_IHAVE_S)
    assert [each[:3] for each in announced(other)] == [(A, 1, 1)]


def test_announcements_are_fast_at_once_after_a_change() -> None:
    """Although one is due at the end of a long interval."""
    runtime = FakeRuntime()
    _, first, other, third = peer_with_three_links(runtime)
    first.remote_sends(tree_frame(A, 1))
    other.remote_sends(Prune(A))
    for sequence in range(2, 12):  # the interval grows
        runtime.advance(TREE.ihave_interval_s_max + 0.01)
        first.remote_sends(tree_frame(A, sequence))
    third.remote_sends(Prune(A))
    runtime.advance(AFTER_IHAVE_S)
    assert announced(third)


def test_flooded_frame_uses_lazy_links_too() -> None:
    _, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(flooded(A, 1))
    other.remote_sends(Prune(A))
    first.remote_sends(flooded(A, 2), tree_frame(A, 3), flooded(A, 4))
    assert other.broadcast_ids() == [(A, 1), (A, 2), (A, 4)]


def test_own_messages_use_own_tree() -> None:
    runtime = FakeRuntime()
    peer, first, other, _ = peer_with_three_links(runtime)
    peer.broadcast(b"one")
    other.remote_sends(Prune(ME))
    peer.broadcast(b"two")
    runtime.advance(AFTER_IHAVE_S)
    assert first.broadcast_ids() == [(ME, 1), (ME, 2)]
    assert other.broadcast_ids() == [(ME, 1)]
    assert announced(other) == [TreePosition(ME, 1, 2, 0)]


def test_graft_sends_missing_and_following_messages() -> None:
    _, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1))
    other.remote_sends(Prune(A))
    first.remote_sends(tree_frame(A, 2), tree_frame(A, 3))
    other.remote_sends(Graft(A, 2))
    first.remote_sends(tree_frame(A, 4))
    assert other.broadcast_ids() == [(A, 1), (A, 3), (A, 4)]


def test_graft_that_crosses_a_frame_causes_no_resend() -> None:
    _, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1))
    other.remote_sends(Graft(A, 1))
    assert other.broadcast_ids() == [(A, 1)]


def test_graft_and_prune_of_unknown_author_are_ignored() -> None:
    peer, _, other, _ = peer_with_three_links(FakeRuntime())
    other.remote_sends(Prune(A), Graft(A, 0), Graft(B, 1 << 63))
    assert not other.closed
    assert not peer.broadcaster.receiver.windows.keys() & {A, B}


# Pulling.


def test_announced_message_that_does_not_arrive_is_pulled() -> None:
    runtime = FakeRuntime()
    peer, first, other, third = peer_with_parent(runtime)
    other.remote_sends(IHave((TreePosition(A, 1, 3, 2),)))
    runtime.advance(AFTER_REPAIR_S)
    assert other.sent_messages(Graft) == [Graft(A, 3)]  # the gap itself is requested by Want
    assert other.sent_messages(Want)[0] == Want(A, 2, 3)
    other.remote_sends(tree_frame(A, 2), tree_frame(A, 3))
    assert runtime.delivered_ids() == [(A, 1), (A, 2), (A, 3)]
    assert tree_of(peer).parent is peer.links.get(3)
    assert not third.sent_messages(Graft)
    assert not first.sent_messages(Prune), "it may still deliver the next one"


def test_announced_message_that_arrives_in_time_is_not_pulled() -> None:
    runtime = FakeRuntime()
    _, first, other, third = peer_with_parent(runtime)
    other.remote_sends(IHave((TreePosition(A, 1, 3, 2),)))
    runtime.advance(TREE.gap_repair_delay_s / 4)
    first.remote_sends(tree_frame(A, 2), tree_frame(A, 3))
    runtime.advance(AFTER_REPAIR_S)
    assert [
        connection.sent_messages(Want) + connection.sent_messages(Graft) for connection in (first, other, third)
    ] == [[], [], []]


def test_slowly_closing_gap_is_not_pulled() -> None:
    """The gap moves, so it closes by itself."""
    runtime = FakeRuntime()
    _, first, other, third = peer_with_parent(runtime)
    other.remote_sends(IHave((TreePosition(A, 1, 20, 2),)))
    for sequence in range(2, 20):
        first.remote_sends(tree_frame(A, sequence))
        runtime.advance(TREE.gap_repair_delay_s / 4)
    assert [connection.sent_messages(Want) for connection in (first, other, third)] == [[], [], []]


def test_announced_message_of_unknown_author_is_pulled() -> None:
    runtime = FakeRuntime()
    _, _, other, _ = peer_with_three_links(runtime)
    other.remote_sends(IHave((TreePosition(B, 1, 2, 1),)))
    runtime.advance(AFTER_REPAIR_S)
    assert other.sent_messages(Want)[0] == Want(B, 1, 2)


# Loss of links.


def test_loss_of_parent_grafts_all_other_links() -> None:
    runtime = FakeRuntime()
    peer, first, other, third = peer_with_parent(runtime)
    first.remote_closes()
    assert other.sent_messages(Graft) == third.sent_messages(Graft) == [Graft(A, 1)]
    assert tree_of(peer).parent is None
    other.remote_sends(tree_frame(A, 2))
    third.remote_sends(tree_frame(A, 2))
    assert tree_of(peer).parent is peer.links.get(3)
    assert (len(other.sent_messages(Prune)), len(third.sent_messages(Prune))) == (1, 2)


def test_flooded_frame_does_not_choose_new_parent() -> None:
    runtime = FakeRuntime()
    peer, first, other, third = peer_with_three_links(runtime)
    for connection in (first, other, third):
        connection.remote_sends(tree_frame(A, 1))
    first.remote_closes()
    other.remote_sends(flooded(A, 2))
    third.remote_sends(flooded(A, 2))
    assert tree_of(peer).parent is None
    assert (len(other.sent_messages(Prune)), len(third.sent_messages(Prune))) == (1, 1)
    third.remote_sends(tree_frame(A, 3))
    assert tree_of(peer).parent is peer.links.get(4)


def test_loss_of_another_link_causes_no_graft() -> None:
    peer, first, other, third = peer_with_parent(FakeRuntime())
    other.remote_closes()
    assert not first.sent_messages(Graft)
    assert not third.sent_messages(Graft)
    assert list(tree_of(peer).pruned_links) == [peer.links.get(4)]


def test_loss_of_parent_causes_no_graft_for_idle_author() -> None:
    runtime = FakeRuntime()
    peer, first, other, third = peer_with_parent(runtime)
    runtime.advance(RECENT_S + 1)
    first.remote_closes()
    assert not other.sent_messages(Graft) + third.sent_messages(Graft)
    third.remote_sends(IHave((TreePosition(A, 1, 2, 2),)))  # the author is active again
    runtime.advance(AFTER_REPAIR_S)
    assert third.sent_messages(Graft) == [Graft(A, 2)]
    assert tree_of(peer).parent is peer.links.get(4)


def test_lost_link_is_removed_from_all_state() -> None:
    runtime = FakeRuntime()
    peer, first, other, _ = peer_with_parent(runtime)
    other.remote_sends(Prune(A), IHave((TreePosition(A, 1, 2, 2),)))
    lost = [peer.links.get(2), peer.links.get(3)]
    first.remote_closes()
    other.remote_closes()
    tree = tree_of(peer)
    assert tree.parent not in lost
    assert tree.first_copy_link not in lost
    assert peer.broadcaster.gap_repair._state(A).announced_by not in lost
    assert tree.failed_parent not in lost
    assert not tree.lazy_links.keys() & set(lost)
    assert not tree.pruned_links.keys() & set(lost)
    runtime.advance(AFTER_IHAVE_S)
    assert not announced(other)


# Closer parents.


def test_closer_copy_becomes_parent() -> None:
    peer, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1, hops=5))
    other.remote_sends(tree_frame(A, 1, hops=5 - PARENT_SWITCH_HOPS))
    assert (first.sent_messages(Prune), other.sent_messages(Prune)) == ([Prune(A)], [])
    assert (tree_of(peer).parent, tree_of(peer).hops) == (peer.links.get(3), 5 - PARENT_SWITCH_HOPS)


def test_parent_is_kept_when_alternative_is_one_hop_closer() -> None:
    _, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1, hops=5))
    other.remote_sends(tree_frame(A, 1, hops=6 - PARENT_SWITCH_HOPS))
    assert (first.sent_messages(Prune), other.sent_messages(Prune)) == ([], [Prune(A)])


def test_closer_first_copy_becomes_parent_when_parent_is_second() -> None:
    peer, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1, hops=5))
    other.remote_sends(tree_frame(A, 2, hops=1))
    first.remote_sends(tree_frame(A, 2, hops=5))
    assert (first.sent_messages(Prune), other.sent_messages(Prune)) == ([Prune(A)], [])
    assert tree_of(peer).parent is peer.links.get(3)


def test_equally_close_first_copy_is_pruned_when_parent_is_second() -> None:
    peer, first, other, _ = peer_with_three_links(FakeRuntime())
    first.remote_sends(tree_frame(A, 1, hops=5))
    other.remote_sends(tree_frame(A, 2, hops=5))
    first.remote_sends(tree_frame(A, 2, hops=5))
    assert (first.sent_messages(Prune), other.sent_messages(Prune)) == ([], [Prune(A)])
    assert tree_of(peer).parent is peer.links.get(2)


def test_pruned_link_with_closer_ihave_becomes_parent() -> None:
    peer, first, other, third = peer_with_parent(FakeRuntime(), hops=5)
    other.remote_sends(IHave((TreePosition(A, 1, 1, 5 - PARENT_SWITCH_HOPS),)))
    assert not other.sent_messages(Graft), "one hop is added on the way to this peer"
    third.remote_sends(IHave((TreePosition(A, 1, 1, 4 - PARENT_SWITCH_HOPS),)))
    assert third.sent_messages(Graft) == [Graft(A, 1)]
    assert first.sent_messages(Prune) == [Prune(A)]
    assert (tree_of(peer).parent, tree_of(peer).hops) == (peer.links.get(4), 5 - PARENT_SWITCH_HOPS)


# Draining links.


def leave_gracefully(connection: FakeConnection, name: int) -> None:
    """The neighbor leaves; its link drains for a moment."""
    connection.remote_sends(Leave((peer_info(ME), peer_info(name))))


def test_leaving_parent_is_replaced_at_once() -> None:
    _, first, other, third = peer_with_parent(FakeRuntime())
    leave_gracefully(first, 2)
    assert other.sent_messages(Graft) == third.sent_messages(Graft) == [Graft(A, 1)]


def test_frame_of_leaving_neighbor_is_delivered_without_making_it_parent() -> None:
    runtime = FakeRuntime()
    peer, first, other, _ = peer_with_parent(runtime)
    leave_gracefully(first, 2)
    first.remote_sends(tree_frame(A, 2))
    assert runtime.delivered_ids() == [(A, 1), (A, 2)]
    assert tree_of(peer).parent is None
    other.remote_sends(tree_frame(A, 2))
    first.remote_sends(tree_frame(A, 2, hops=1))
    assert tree_of(peer).parent is peer.links.get(3)
    assert not first.sent_messages(Prune)


def test_prune_and_graft_of_leaving_neighbor_are_ignored() -> None:
    runtime = FakeRuntime()
    peer, first, *_ = peer_with_parent(runtime)
    leave_gracefully(first, 2)
    first.remote_sends(Prune(A))
    assert not tree_of(peer).lazy_links
    first.remote_sends(Graft(A, 0))
    runtime.advance(AFTER_IHAVE_S)
    assert not announced(first)
    assert not first.broadcast_frames()


def test_ihave_of_leaving_neighbor_is_used() -> None:
    runtime = FakeRuntime()
    _, first, other, third = peer_with_parent(runtime)
    leave_gracefully(first, 2)
    first.remote_sends(IHave((TreePosition(A, 1, 2, 1),)))
    runtime.advance(AFTER_REPAIR_S)
    assert other.sent_messages(Want) + third.sent_messages(Want)
    assert not first.sent_messages(Want)


# Malicious neighbors.


def test_implausible_ihave_is_rejected() -> None:
    runtime = FakeRuntime()
    peer, first, other, _ = peer_with_parent(runtime)
    other.remote_sends(IHave((TreePosition(A, 1, (1 << 64) - 1, 1),)))
    runtime.advance(AFTER_REPAIR_S)
    assert peer.counters.claims_rejected
    assert not other.sent_messages(Want)
    first.remote_sends(tree_frame(A, 2))
    assert runtime.delivered_ids() == [(A, 1), (A, 2)]
    assert not runtime.reported_missed


@pytest.mark.parametrize("hops", [0, 0xFFFFFFFF])
def test_extreme_hop_counts_are_handled(hops: int) -> None:
    runtime = FakeRuntime()
    peer, first, other, third = peer_with_parent(runtime)
    other.remote_sends(IHave((TreePosition(A, 1, 1, hops),)), IHave((TreePosition(ME, 1, 9, hops),)))
    third.remote_sends(Prune(A))
    first.remote_sends(tree_frame(A, 2, hops=0xFFFFFFFF))
    runtime.advance(AFTER_IHAVE_S)
    assert runtime.delivered_ids() == [(A, 1), (A, 2)]
    assert [each[:3] for each in announced(third)] == [(A, 1, 2)]
    assert ME not in peer.broadcaster.receiver.windows


def test_ihave_about_own_messages_is_ignored() -> None:
    runtime = FakeRuntime()
    peer, _, other, _ = peer_with_three_links(runtime)
    peer.broadcast(b"one")
    other.remote_sends(IHave((TreePosition(ME, 1, 9, 0),)))
    runtime.advance(AFTER_REPAIR_S)
    assert not other.sent_messages(Want)
    assert peer.broadcaster.receiver.windows[ME].last_known == 1


def test_unknown_authors_in_ihave_are_bounded() -> None:
    runtime = FakeRuntime()
    peer = creator(runtime, Tuning(heartbeat_timeout_s=1e9, authors_max=50))
    connection = link(peer, 2)
    connection.remote_sends(IHave(tuple(TreePosition(author, 1, 5, 1) for author in range(5000, 6000))))
    assert len(peer.broadcaster.receiver.windows) <= 50
    connection.remote_sends(tree_frame(A, 1))
    assert runtime.delivered_ids() == [(A, 1)]


def test_failed_parent_is_not_chosen_again() -> None:
    runtime = FakeRuntime()
    peer, first, liar, third = peer_with_parent(runtime, hops=5)
    liar.remote_sends(IHave((TreePosition(A, 1, 1, 0),)))
    assert tree_of(peer).parent is peer.links.get(3)
    third.remote_sends(IHave((TreePosition(A, 1, 2, 5),)))
    runtime.advance(AFTER_REPAIR_S)
    third.remote_sends(tree_frame(A, 2, hops=6))
    assert tree_of(peer).parent is peer.links.get(4)
    liar.remote_sends(IHave((TreePosition(A, 1, 2, 0),)))
    assert tree_of(peer).parent is peer.links.get(4)
    assert not third.sent_messages(Prune)[1:]
    assert len(first.sent_messages(Prune)) == 1
