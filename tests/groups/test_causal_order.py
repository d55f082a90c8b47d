"""Causal order: parents first in any arrival order, unrelated messages never wait, and missing parents."""

from hypothesis import given
from hypothesis import strategies as st

from broadloom.groups.causal_order import CausalOrder, Delivery
from broadloom.groups.message_set import MessageSet
from broadloom.groups.model import MessageId, Post
from broadloom.groups.settings import GAPS_MAX

HUGE = 1 << 40


def new_order(messages_max: int = 1 << 30, bytes_max: int = HUGE) -> CausalOrder:
    return CausalOrder(messages_max, bytes_max)


def post(author: int, sequence: int, parent: tuple[int, int] | None = None, data: bytes = b"") -> Post:
    return Post(author, sequence, None if parent is None else MessageId(*parent), 0, data)


def ids(deliveries: list[Delivery] | None) -> list[tuple[int, int]]:
    assert deliveries is not None
    return [(each.post.author, each.post.sequence) for each in deliveries]


@st.composite
def conversations(draw: st.DrawFn) -> list[Post]:
    """Messages of a few authors, each a reply to an earlier one or to none, shuffled, with duplicates."""
    posts: list[Post] = []
    counts = [0, 0, 0]
    for _ in range(draw(st.integers(1, 25))):
        author = draw(st.integers(0, 2))
        counts[author] += 1
        parent = draw(st.sampled_from([None, *(each.id for each in posts)]))
        posts.append(Post(author, counts[author], parent, 0, b"x"))
    again = draw(st.lists(st.sampled_from(posts), max_size=5))
    return draw(st.permutations([*posts, *again]))


@given(conversations())
def test_parents_are_delivered_first_in_any_arrival_order(arriving: list[Post]) -> None:
    order = new_order()
    delivered: list[MessageId] = []
    came: set[MessageId] = set()
    for each in arriving:
        deliveries = order.receive(each, 0.0)
        assert (deliveries is None) == (each.id in came), "accepted exactly once"
        came.add(each.id)
        delivered += [one.post.id for one in deliveries or ()]
        parents = {one.id: one.parent_id for one in arriving}
        for named in came:  # delivered as soon as all ancestors are there, and not before
            above: MessageId | None = named
            while above is not None and above in came:
                above = parents[above]
            assert (named in delivered) == (above is None)
        for at, named in enumerate(delivered):
            parent = parents[named]
            assert parent is None or parent in delivered[:at]
    assert len(delivered) == len(set(delivered)) == len(came)
    assert (order.waiting_count, order.waiting_bytes) == (0, 0)


def test_unrelated_messages_do_not_wait() -> None:
    order = new_order()
    assert ids(order.receive(post(1, 2, (9, 9)), 0.0)) == []
    assert ids(order.receive(post(1, 3), 0.0)) == [(1, 3)]
    assert ids(order.receive(post(2, 7, (1, 3)), 0.0)) == [(2, 7)]


def test_chain_of_100000_replies_is_delivered_in_order() -> None:
    order = new_order()
    depth = 100_000
    for sequence in range(depth, 1, -1):
        assert order.receive(post(1, sequence, (1, sequence - 1)), 0.0) == []
    assert ids(order.receive(post(1, 1), 0.0)) == [(1, each) for each in range(1, depth + 1)]
    assert list(order.received[1]) == [(1, depth)]


def test_missing_parents_are_returned_once_after_delay() -> None:
    order = new_order()
    order.receive(post(1, 2, (5, 1)), 10.0)
    order.receive(post(1, 3, (5, 2)), 11.0)
    order.receive(post(1, 4, (1, 3)), 11.0)
    assert order.missing_parents(9.0, 10) == []
    assert order.missing_parents(10.0, 10) == [(5, 1)]
    assert order.missing_parents(10.0, 10) == []
    order.receive(post(5, 2), 11.5)
    assert order.missing_parents(12.0, 10) == [], "it arrived meanwhile"


def test_overdue_message_is_released_as_orphan_with_its_replies() -> None:
    order = new_order()
    order.receive(post(1, 2, (5, 1)), 10.0)
    order.receive(post(2, 1, (1, 2)), 10.5)
    order.receive(post(2, 2, (1, 2)), 10.6)
    assert order.release_overdue(9.9) == []
    waits_since = order.waiting_since
    assert waits_since == 10.0
    deliveries = order.release_overdue(10.0)
    assert [(tuple(each.post.id), each.is_orphan) for each in deliveries] == [
        ((1, 2), True),
        ((2, 1), False),
        ((2, 2), False),
    ]
    assert (order.waiting_count, order.waiting_since) == (0, None)
    assert ids(order.receive(post(5, 1), 20.0)) == [(5, 1)], "late messages are delivered too"


def test_topmost_waiting_ancestor_is_released_first() -> None:
    order = new_order()
    order.receive(post(2, 1, (1, 2)), 10.0)
    order.receive(post(1, 2, (5, 1)), 15.0)
    deliveries = order.release_overdue(10.0)
    assert [(tuple(each.post.id), each.is_orphan) for each in deliveries] == [((1, 2), True), ((2, 1), False)]


def test_cycle_is_cut_with_one_orphan() -> None:
    order = new_order()
    order.receive(post(1, 1, (2, 1)), 0.0)
    order.receive(post(2, 1, (3, 1)), 0.0)
    order.receive(post(3, 1, (1, 1)), 0.0)
    deliveries = order.release_overdue(0.0)
    assert sorted(ids(deliveries)) == [(1, 1), (2, 1), (3, 1)]
    assert sum(each.is_orphan for each in deliveries) == 1
    assert order.waiting_count == 0


def test_reply_to_pruned_parent_is_released_as_orphan() -> None:
    order = new_order()
    order.receive(post(1, 2, (5, 3)), 0.0)
    order.receive(post(1, 3, (5, 9)), 0.0)
    order.receive(post(1, 5, (6, 1)), 0.0)
    pruned, missing = MessageSet([(5, [(1, 5)])]), MessageSet([(5, [(1, 5)]), (6, [(1, 1)])])
    assert [(tuple(each.post.id), each.is_orphan) for each in order.give_up(missing, pruned)] == [((1, 2), True)]
    assert order.is_waiting(MessageId(1, 5)), "its parent may come back"
    later = order.receive(post(1, 4, (5, 4)), 0.0)
    assert later is not None
    assert [each.is_orphan for each in later] == [True], "without waiting"
    assert ids(order.receive(post(5, 3), 0.0)) == [(5, 3)], "unavailable messages are still accepted"


def test_message_over_reorder_limit_is_rejected_and_accepted_later() -> None:
    order = new_order(messages_max=2)
    for sequence in (1, 2):
        assert order.receive(post(1, sequence, (5, 1)), 0.0) == []
    assert order.receive(post(1, 3, (5, 1)), 0.0) is None
    assert order.rejected_count == 1
    assert not order.received.has(MessageId(1, 3)), "it can be received again"
    assert len(ids(order.receive(post(5, 1), 0.0))) == 3
    assert ids(order.receive(post(1, 3, (5, 1)), 0.0)) == [(1, 3)]
    heavy = new_order(bytes_max=1000)
    assert heavy.receive(post(1, 1, (5, 1), bytes(900)), 0.0) is None


def test_message_that_adds_gap_over_limit_is_rejected() -> None:
    order = new_order()
    for sequence in range(1, 2 * GAPS_MAX, 2):
        assert order.receive(post(1, sequence), 0.0) is not None
    assert order.receive(post(1, 3 * GAPS_MAX), 0.0) is None
    assert order.receive(post(1, 2), 0.0) is not None, "a message that closes a gap is accepted"
    assert order.receive(post(1, 3 * GAPS_MAX), 0.0) is not None
