"""The worked example 4.1.4 of the M2MC thesis: how process A handles the messages of B, step by step."""

from broadloom.groups.causal_order import CausalOrder
from broadloom.groups.model import MessageId, Post

A, B = 1, 2


def post(author: int, sequence: int, parent: tuple[int, int] | None) -> Post:
    return Post(author, sequence, None if parent is None else MessageId(*parent), 0, b"data")


def test_protocol_illustration_thesis_4_1_4() -> None:
    order = CausalOrder(100, 1 << 20)
    delivered: list[tuple[int, int]] = []

    def receives(author: int, sequence: int, parent: tuple[int, int] | None) -> list[tuple[int, int]]:
        deliveries = order.receive(post(author, sequence, parent), 0.0)
        assert deliveries is not None
        assert not any(each.is_orphan for each in deliveries)
        new = [tuple(each.post.id) for each in deliveries]
        delivered.extend(new)  # type: ignore[arg-type]
        return new  # type: ignore[return-value]

    # 1. Initially the ordering tree is only its root, and nothing waits.
    assert (order.received.count, order.waiting_count) == (0, 0)
    # 2. B1 has no parent: it is delivered at once.
    assert receives(B, 1, None) == [(B, 1)]
    # 3. B3 replies to B2, which is missing: it waits.
    assert receives(B, 3, (B, 2)) == []
    assert order.is_waiting(MessageId(B, 3))
    # 4. So does B4, which replies to B3.
    assert receives(B, 4, (B, 3)) == []
    assert order.waiting_count == 2
    # 5. B2 arrives: it is delivered, and both waiting messages follow in order.
    assert receives(B, 2, (B, 1)) == [(B, 2), (B, 3), (B, 4)]
    assert order.waiting_count == 0
    # 6. A replies to B2: its own message goes the same way.
    assert receives(A, 1, (B, 2)) == [(A, 1)]
    assert delivered == [(B, 1), (B, 2), (B, 3), (B, 4), (A, 1)]
    # One interval per author is enough to represent all of it (thesis 4.1.6).
    assert {author: list(had) for author, had in order.received.items()} == {B: [(1, 4)], A: [(1, 1)]}
