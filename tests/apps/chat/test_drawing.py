"""One message as lines on the screen: branches, folds, and a right edge that holds whatever stands in it."""

from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.style import Style

from broadloom.apps.chat.display_names import DisplayNames
from broadloom.apps.chat.message_renderer import MORE_HINT, TIME_CELLS, MessageRenderer, Theme
from broadloom.apps.chat.thread_tree import ThreadTree
from broadloom.groups import GroupMessage, Member, MessageId

THEME = Theme(Style(), Style(), Style(), Style(), Style(reverse=True), (Style(),))


def rendered_lines(tree: ThreadTree, names: DisplayNames, width: int = 60, search_text: str = "") -> list[str]:
    renderer = MessageRenderer(tree, names, THEME, width, search_text)
    return [
        "".join(segment.text for segment in line) for node in tree.visible_from(None) for line in renderer.lines(node)
    ]


def make_tree(*messages: tuple[int, int | None, str], name: str = "Ben") -> tuple[ThreadTree, DisplayNames]:
    tree, names = ThreadTree(), DisplayNames(Member(1, "Anna"))
    names.learn(Member(2, name))
    for number, parent, text in messages:
        above = MessageId(2, parent) if parent is not None else None
        tree.add(GroupMessage(9, MessageId(2, number), name, above, 0, text.encode()), unread=number == 1)
    return tree, names


def test_branches_are_drawn_as_a_tree() -> None:
    tree, names = make_tree(
        (1, None, "white?"), (2, 1, "I do\nreally"), (3, 2, "no, I"), (4, 1, "me too"), (5, None, "lunch?")
    )
    lines = [line[: 60 - TIME_CELLS].rstrip() for line in rendered_lines(tree, names)]
    assert lines == [
        "● ▾ Ben  white?",
        "  ├─▾ Ben  I do",
        "  │ │ really",
        "  │ └── Ben  no, I",
        "  └── Ben  me too",
        "    Ben  lunch?",
    ]
    first = tree.node_at(0)
    assert first is not None
    tree.set_folded(first, True)
    assert [line[: 60 - TIME_CELLS].rstrip() for line in rendered_lines(tree, names)] == [
        "● ▸ Ben  white?  ▸ 3 replies",
        "    Ben  lunch?",
    ]


def test_rendered_lines_fit_the_width() -> None:
    texts = ["漢字" * 40, "👩‍👩‍👧" * 30, "e\u0301" * 200, "\x1b[31m" * 40, "word " * 100, "x" * 500, "", "❤️ " * 50]
    deep = [(number, number - 1 if number > 1 else None, texts[number % len(texts)]) for number in range(1, 60)]
    tree, names = make_tree(*deep, name="👨‍👩‍👧 漢字 with a name that is very long")
    for width in (30, 40, 57, 100):
        for line in rendered_lines(tree, names, width):
            assert cell_len(line) <= width
    assert any(line.startswith("  ⋯ ") for line in rendered_lines(tree, names, 60)), "deeper than can be drawn"
    assert any(MORE_HINT in line for line in rendered_lines(tree, names, 60)), "long messages are folded"


def test_orphans_stripped_messages_and_invalid_times_are_rendered() -> None:
    tree, names = ThreadTree(), DisplayNames(Member(1, "Anna"))
    tree.add(GroupMessage(9, MessageId(2, 1), "Ben", MessageId(7, 7), 1 << 62, b"answer"), unread=False)
    tree.add(GroupMessage(9, MessageId(2, 2), "Ben", None, 0, b"", is_stripped=True), unread=False)
    names.learn(Member(2, "Ben"))
    first, second = rendered_lines(tree, names)
    assert first.startswith("    Ben  ↳ answer")
    assert first.endswith("?")
    assert "(not stored)" in second


def test_search_text_is_highlighted() -> None:
    tree, names = make_tree((1, None, "Black and WHITE and white"))
    node = tree.node_at(0)
    assert node is not None
    (line,) = MessageRenderer(tree, names, THEME, 60, "white").lines(node)
    assert [segment.text for segment in line if segment.style == THEME.match] == ["WHITE", "white"]


def test_unproven_message_is_marked_even_if_its_author_has_a_long_name() -> None:
    for name in ("Ben", "Ben, who has chosen a name that fills the column"):
        for width in (40, 60, 100):
            tree, names = ThreadTree(), DisplayNames(Member(1, "Anna"))
            names.learn(Member(2, name))
            unproven = GroupMessage(9, MessageId(2, 1), name, None, 0, b"x", is_unproven=True)
            tree.add(unproven, unread=False)
            tree.add(replace(unproven, id=MessageId(2, 2), verified_name=name, is_unproven=False), unread=False)
            first, second = rendered_lines(tree, names, width)
            assert "(unproven)  x" in first
            assert first.lstrip().startswith("Ben")
            assert "(unproven)" not in second


@pytest.mark.parametrize("width", [40, 60, 100])
def test_unproven_reply_deep_in_a_thread_is_marked(width: int) -> None:
    tree, names = ThreadTree(), DisplayNames(Member(1, "Anna"))
    names.learn(Member(2, "Annabella"))
    for number in range(1, 25):
        parent = MessageId(2, number - 1) if number > 1 else None
        tree.add(GroupMessage(9, MessageId(2, number), "Annabella", parent, 0, b"x", is_unproven=True), unread=False)
    lines = rendered_lines(tree, names, width)
    assert len(lines) == 24
    for line in lines:
        assert "Ann" in line
        assert "(unproven)  x" in line
        assert cell_len(line) <= width


def test_long_name_does_not_hide_the_name_on_the_ticket() -> None:
    names = DisplayNames(Member(1, "Anna"))
    names.learn(Member(2, "the owner of this channel"))
    message = GroupMessage(9, MessageId(2, 1), "the owner of this channel", None, 0, b"x", verified_name="mallory")
    assert names.author_label(message, 20) == "the owner… [mallory]"
    assert (
        names.author_label(replace(message, verified_name="mallory of the other channel"), 20) == "the… [mallory of th…"
    )
    assert names.author_label(message) == "the owner of this channel [mallory]"
