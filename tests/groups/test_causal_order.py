"""Sb order: parents first in any arrival order, nobody waits for strangers, and what never comes."""

from hypothesis import given
from hypothesis import strategies as st

from broadloom.groups.causal_order import CausalOrder, Delivery
from broadloom.groups.intervals import IntervalSet
from broadloom.groups.model import MessageId, Post
from broadloom.groups.settings import GAPS_MAX

HUGE = 1 << 40


def new_order(messages_max: int = 1 << 30, bytes_max: int = HUGE) -> CausalOrder:
    return CausalOrder(messages_max, bytes_max)


def post(author: int, sequence: int, parent: tuple[int, int] | None = None, data: bytes = b"") -> Post:
    return Post(author, sequence, None if parent is None else MessageId(*parent), 0, data)


def ids(released: list[Delivery] | None) -> list[tuple[int, int]]:
    assert released is not None
    return [(each.post.author, each.post.sequence) for each in released]


@st.composite
def conversations(draw: st.DrawFn) -> list[Post]:
    """Messages of a few authors, each to an earlier one or to none; in an order that mixes them, some twice."""
    said: list[Post] = []
    counts = [0, 0, 0]
    for _ in range(draw(st.integers(1, 25))):
        author = draw(st.integers(0, 2))
        counts[author] += 1
        parent = draw(st.sampled_from([None, *(each.id for each in said)]))
        said.append(Post(author, counts[author], parent, 0, b"x"))
    again = draw(st.lists(st.sampled_from(said), max_size=5))
    return draw(st.permutations([*said, *again]))


@given(conversations())
def test_any_order_of_arrival(arriving: list[Post]) -> None:
    order = new_order()
    delivered: list[MessageId] = []
    came: set[MessageId] = set()
    for each in arriving:
        released = order.receive(each, 0.0)
        assert (released is None) == (each.id in came), "taken exactly once"
        came.add(each.id)
        delivered += [one.post.id for one in released or ()]
        parents = {one.id: one.parent_id for one in arriving}
        for named in came:  # delivered as soon as it can be, and not before
            above: MessageId | None = named
            while above is not None and above in came:
                above = parents[above]
            assert (named in delivered) == (above is None)
        for at, named in enumerate(delivered):
            parent = parents[named]
            assert parent is None or parent in delivered[:at]
    assert len(delivered) == len(set(delivered)) == len(came)
    assert (order.waiting_count, order.waiting_bytes) == (0, 0)


def test_unrelated_ones_do_not_wait() -> None:
    order = new_order()
    assert ids(order.receive(post(1, 2, (9, 9)), 0.0)) == []
    assert ids(order.receive(post(1, 3), 0.0)) == [(1, 3)]
    assert ids(order.receive(post(2, 7, (1, 3)), 0.0)) == [(2, 7)]


def test_a_hundred_thousand_deep() -> None:
    order = new_order()
    depth = 100_000
    for sequence in range(depth, 1, -1):
        assert order.receive(post(1, sequence, (1, sequence - 1)), 0.0) == []
    assert ids(order.receive(post(1, 1), 0.0)) == [(1, each) for each in range(1, depth + 1)]
    assert list(order.received[1]) == [(1, depth)]


def test_what_is_lacking_is_told_once_and_in_time() -> None:
    order = new_order()
    order.receive(post(1, 2, (5, 1)), 10.0)
    order.receive(post(1, 3, (5, 2)), 11.0)
    order.receive(post(1, 4, (1, 3)), 11.0)
    assert order.missing_parents(9.0, 10) == []
    assert order.missing_parents(10.0, 10) == [(5, 1)]
    assert order.missing_parents(10.0, 10) == []
    order.receive(post(5, 2), 11.5)
    assert order.missing_parents(12.0, 10) == [], "it came meanwhile"


def test_orphans_are_marked_and_their_answers_follow() -> None:
    order = new_order()
    order.receive(post(1, 2, (5, 1)), 10.0)
    order.receive(post(2, 1, (1, 2)), 10.5)
    order.receive(post(2, 2, (1, 2)), 10.6)
    assert order.release_overdue(9.9) == []
    waits_since = order.waiting_since
    assert waits_since == 10.0
    released = order.release_overdue(10.0)
    assert [(tuple(each.post.id), each.is_orphan) for each in released] == [
        ((1, 2), True),
        ((2, 1), False),
        ((2, 2), False),
    ]
    assert (order.waiting_count, order.waiting_since) == (0, None)
    assert ids(order.receive(post(5, 1), 20.0)) == [(5, 1)], "late, and delivered all the same"


def test_the_topmost_that_waits_is_released() -> None:
    order = new_order()
    order.receive(post(2, 1, (1, 2)), 10.0)
    order.receive(post(1, 2, (5, 1)), 15.0)
    released = order.release_overdue(10.0)
    assert [(tuple(each.post.id), each.is_orphan) for each in released] == [((1, 2), True), ((2, 1), False)]


def test_a_circle_is_cut() -> None:
    order = new_order()
    order.receive(post(1, 1, (2, 1)), 0.0)
    order.receive(post(2, 1, (3, 1)), 0.0)
    order.receive(post(3, 1, (1, 1)), 0.0)
    released = order.release_overdue(0.0)
    assert sorted(ids(released)) == [(1, 1), (2, 1), (3, 1)]
    assert sum(each.is_orphan for each in released) == 1
    assert order.waiting_count == 0


def test_what_is_given_up_no_longer_holds_up() -> None:
    order = new_order()
    order.receive(post(1, 2, (5, 3)), 0.0)
    order.receive(post(1, 3, (5, 9)), 0.0)
    assert [(tuple(each.post.id), each.is_orphan) for each in order.give_up({5: IntervalSet([(1, 5)])})] == [
        ((1, 2), True)
    ]
    later = order.receive(post(1, 4, (5, 4)), 0.0)
    assert later is not None
    assert [each.is_orphan for each in later] == [True], "at once"
    assert ids(order.receive(post(5, 3), 0.0)) == [(5, 3)], "it turned up after all"


def test_limits_refuse_and_do_not_take() -> None:
    order = new_order(messages_max=2)
    for sequence in (1, 2):
        assert order.receive(post(1, sequence, (5, 1)), 0.0) == []
    assert order.receive(post(1, 3, (5, 1)), 0.0) is None
    assert order.rejected_count == 1
    assert not order.has(MessageId(1, 3)), "so it can come again"
    assert len(ids(order.receive(post(5, 1), 0.0))) == 3
    assert ids(order.receive(post(1, 3, (5, 1)), 0.0)) == [(1, 3)]
    heavy = new_order(bytes_max=1000)
    assert heavy.receive(post(1, 1, (5, 1), bytes(900)), 0.0) is None


def test_gaps_are_limited() -> None:
    order = new_order()
    for sequence in range(1, 2 * GAPS_MAX, 2):
        assert order.receive(post(1, sequence), 0.0) is not None
    assert order.receive(post(1, 3 * GAPS_MAX), 0.0) is None
    assert order.receive(post(1, 2), 0.0) is not None, "what closes one is welcome"
    assert order.receive(post(1, 3 * GAPS_MAX), 0.0) is not None
