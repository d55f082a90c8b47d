"""The tree that a reader sees: compared step by step with a flat list that is slow and plain; and quick when large."""

import time
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broadloom.apps.chat import line_index
from broadloom.apps.chat.thread_tree import ThreadNode, ThreadTree, find_text
from broadloom.groups import GroupMessage, MessageId

LARGE = 100_000
QUICK_S = 0.3
"""Of computing time: a person does not notice it. Most steps take a hundredth of it."""


def message(number: int, parent: int | None = None, text: str = "", name: str = "Anna") -> GroupMessage:
    above = MessageId(1, parent) if parent is not None else None
    return GroupMessage(9, MessageId(1, number), name, above, 0, (text or f"text {number}").encode())


def numbers(nodes: object) -> list[int]:
    return [node.message.sequence for node in nodes]  # type: ignore[attr-defined]


class FlatTree:
    """The same as a plain list of beginnings and ends, looked through from its start for every question."""

    def __init__(self, shown_max: int) -> None:
        self.shown_max = shown_max
        self.markers: list[tuple[int, bool]] = []
        self.parents: dict[int, int | None] = {}
        self.arrived: list[int] = []
        self.folded: set[int] = set()
        self.unread: set[int] = set()

    def add(self, number: int, parent: int | None, unread: bool) -> None:
        if number in self.parents:
            return
        at = self.markers.index((parent, False)) if parent in self.parents else len(self.markers)
        self.markers[at:at] = [(number, True), (number, False)]
        orphans = [each for each in self.arrived if self.parents[each] == number]
        self.parents[number] = parent
        self.arrived.append(number)
        if unread:
            self.unread.add(number)
        for orphan in orphans:
            if orphan not in self.chain(number):
                first, last = self.markers.index((orphan, True)), self.markers.index((orphan, False))
                branch = self.markers[first : last + 1]
                del self.markers[first : last + 1]
                at = self.markers.index((number, False))
                self.markers[at:at] = branch
        while len(self.arrived) > self.shown_max:
            oldest = self.arrived.pop(0)
            del self.parents[oldest]
            self.markers = [marker for marker in self.markers if marker[0] != oldest]
            self.folded.discard(oldest)
            self.unread.discard(oldest)

    def chain(self, number: int | None) -> list[int]:
        """It and all above it, by where they stand."""
        stack: list[int] = []
        for each, begins in self.markers:
            if begins:
                stack.append(each)
            else:
                stack.pop()
            if each == number:
                return stack
        return []

    def order(self) -> list[int]:
        return [number for number, begins in self.markers if begins]

    def visible(self) -> list[int]:
        found, hidden = [], 0
        for number, begins in self.markers:
            if begins and not hidden:
                found.append(number)
            if number in self.folded:
                hidden += 1 if begins else -1
        return found

    def below(self, number: int) -> list[int]:
        first, last = self.markers.index((number, True)), self.markers.index((number, False))
        return [each for each, begins in self.markers[first + 1 : last] if begins]

    def next_unread(self, number: int | None, backward: bool) -> int | None:
        order = self.order()[::-1] if backward else self.order()
        at = order.index(number) + 1 if number is not None else 0
        return next((each for each in order[at:] + order[:at] if each in self.unread), None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40), st.one_of(st.none(), st.integers(0, 40))),
        st.tuples(st.just("fold"), st.integers(0, 40), st.booleans()),
        st.tuples(st.just("read"), st.integers(0, 40), st.none()),
        st.tuples(st.just("reveal"), st.integers(0, 40), st.none()),
    ),
    max_size=80,
)


@given(STEPS, st.sampled_from([5, 12, 1000]), st.sampled_from([2, 5, 16]))
def test_line_index_behaves_like_a_flat_list(
    steps: list[tuple[str, int, int | bool | None]], shown_max: int, block_max: int
) -> None:
    with patch.object(line_index, "BLOCK_MARKERS_MAX", block_max):
        tree, flat = ThreadTree(shown_max), FlatTree(shown_max)
        for what, number, more in steps:
            node = tree.get(MessageId(1, number))
            assert (node is not None) == (number in flat.parents)
            if what == "add" and number != more:
                parent = None if more is None else int(more)
                tree.add(message(number, parent), unread=number % 3 == 0)
                flat.add(number, parent, number % 3 == 0)
            elif what == "fold" and node is not None:
                tree.set_folded(node, bool(more))
                if node.is_folded:
                    flat.folded.add(number)
                else:
                    flat.folded.discard(number)
            elif what == "read" and node is not None:
                tree.mark_read(node)
                flat.unread.discard(number)
            elif what == "reveal" and node is not None:
                tree.reveal(node)
                flat.folded.difference_update(flat.chain(number)[:-1])
            _compare(tree, flat)


def _compare(tree: ThreadTree, flat: FlatTree) -> None:
    seen = flat.visible()
    assert numbers(tree) == flat.order()
    assert numbers(tree.visible_from(None)) == seen
    assert numbers(tree.visible_from(None, backward=True)) == seen[::-1]
    assert tree.rows == len(seen)
    assert tree.unread == len(flat.unread)
    assert numbers(filter(None, map(tree.node_at, range(len(seen))))) == seen
    assert tree.node_at(len(seen)) is None
    for row, number in enumerate(seen):
        node = tree.get(MessageId(1, number))
        assert node is not None
        assert tree.row_of(node) == row
        assert tree.visible_ancestor(node) is node
    for node in tree:
        number = node.message.sequence
        below = flat.below(number)
        assert tree.count_below(node) == (len(below), len(flat.unread.intersection(below)))
        assert {each.message.sequence for each in tree.unread_in_branch(node)} == flat.unread.intersection(
            [number, *below]
        )
        for backward in (False, True):
            found = tree.next_unread(node, backward=backward)
            assert (found and found.message.sequence) == flat.next_unread(number, backward)
        assert tree.visible_ancestor(node).message.sequence in seen


def test_reply_is_placed_below_its_parent() -> None:
    tree = ThreadTree()
    for number, parent in ((1, None), (2, None), (3, 1), (4, 2), (5, 1), (6, 3)):
        tree.add(message(number, parent), unread=True)
    assert numbers(tree) == [1, 3, 6, 5, 2, 4]
    three = tree.get(MessageId(1, 3))
    assert three is not None
    assert three.has_sibling
    tree.set_folded(three, True)
    assert numbers(tree.visible_from(None)) == [1, 3, 5, 2, 4]
    tree.add(message(7, 6), unread=True)
    assert numbers(tree.visible_from(None)) == [1, 3, 5, 2, 4], "what comes into a folded branch stays hidden"
    assert tree.count_below(three) == (2, 2)
    seven = tree.next_unread(three)
    assert seven is not None
    assert seven.message.sequence == 6
    tree.reveal(seven)
    assert numbers(tree.visible_from(None)) == [1, 3, 6, 7, 5, 2, 4]


def test_orphan_moves_below_its_parent_when_it_arrives() -> None:
    tree = ThreadTree()
    tree.add(message(2, 1), unread=False)
    orphan = tree.get(MessageId(1, 2))
    assert orphan is not None
    assert orphan.has_missing_parent
    tree.add(message(3, 2), unread=False)
    tree.set_folded(orphan, True)
    tree.add(message(1), unread=False)
    assert numbers(tree) == [1, 2, 3]
    assert not orphan.has_missing_parent
    assert numbers(tree.visible_from(None)) == [1, 2], "it stays folded"


def test_stripped_message_gets_data_when_full_copy_arrives() -> None:
    tree = ThreadTree()
    node = tree.add(replace(message(1), data=b"", is_stripped=True), unread=False)
    assert node is not None
    assert tree.add(message(1, text="here"), unread=False) is None
    assert node.message.data == b"here"


def test_search_wraps_around() -> None:
    tree = ThreadTree()
    for number, text in ((1, "Straße"), (2, "nothing"), (3, "STRASSE"), (4, "strasse 4")):
        tree.add(message(number, 1 if number == 4 else None, text), unread=False)
    tree.add(message(5, None, "nothing", name="Strasser"), unread=False)
    at: ThreadNode | None = None
    seen = []
    for _ in range(5):
        found = find_text(tree, "strasse", at)
        assert found is not None
        seen.append((found.node.message.sequence, found.number, found.total))
        at = found.node
    assert seen == [(1, 1, 4), (4, 2, 4), (3, 3, 4), (5, 4, 4), (1, 1, 4)]
    back = find_text(tree, "strasse", at, backward=True)
    assert back is not None
    assert back.node.message.sequence == 5
    assert find_text(tree, "nowhere", None) is None
    assert find_text(tree, "", None) is None


def _seconds(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began


@pytest.mark.parametrize("shape", ["deep", "flat"])
def test_tree_of_100000_messages_is_fast(shape: str) -> None:
    tree = ThreadTree(shown_max=LARGE)
    for number in range(1, LARGE + 1):
        tree.add(message(number, number - 1 if shape == "deep" and number > 1 else None), unread=number % 1000 == 0)
    first, last, middle = tree.node_at(0), tree.last, tree.get(MessageId(1, LARGE // 2))
    assert first is not None
    assert last is not None
    assert middle is not None
    assert last.message.sequence == LARGE

    def unfold_to_the_last() -> None:
        tree.set_folded(first, True)
        assert tree.rows == (1 if shape == "deep" else LARGE)
        assert tree.visible_ancestor(last) is (first if shape == "deep" else last)
        tree.reveal(last)
        assert tree.rows == LARGE

    steps: dict[str, Callable[[], object]] = {
        "row of": lambda: tree.row_of(middle),
        "at": lambda: tree.node_at(LARGE - 1),
        "fold and reveal": unfold_to_the_last,
        "fold all": lambda: tree.fold_threads(True),
        "unfold all": lambda: tree.fold_threads(False),
        "next unread": lambda: tree.next_unread(middle),
        "below": lambda: tree.count_below(first),
        "find": lambda: find_text(tree, "no such words", middle),
        "one more, and the oldest gives way": lambda: tree.add(message(LARGE + 1, LARGE), unread=True),
    }
    taken = {what: _seconds(act) for what, act in steps.items()}
    assert max(taken.values()) < QUICK_S, taken
    assert len(tree) == LARGE
    assert tree.dropped_count == 1
