"""The line that is typed, and the text of others, without a terminal."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broadloom.cli.formatting import escape_control_chars, message_text
from broadloom.cli.prompt import LineEditor


@pytest.mark.parametrize(
    ("typed", "finished", "line"),
    [
        ("abc", [], "abc"),
        ("abc\rdef\n", ["abc", "def"], ""),
        ("abc\x7f\bd", [], "ad"),
        ("all of it\x15new", [], "new"),
        ("two words \x17x", [], "two x"),
        ("\x1b[A\x1b[1;5Cx\x1bOP\x1bb", [], "x"),
        ("a\tb\x00\x07", [], "a b"),
        ("\x7fä日\x7f", [], "ä"),
    ],
)
def test_typing(typed: str, finished: list[str], line: str) -> None:
    typing = LineEditor()
    assert typing.feed(typed.encode()) == finished
    assert typing.line == line


@example("\x1b\x1b1", 1)
@given(st.text(st.sampled_from("aä日\x1b[A;1O\x7f\x15\x17\n"), max_size=30), st.integers(1, 4))
def test_typing_does_not_depend_on_how_it_is_cut(typed: str, size: int) -> None:
    whole, parts = LineEditor(), LineEditor()
    finished = whole.feed(typed.encode())
    data = typed.encode()
    by_parts = [line for start in range(0, len(data), size) for line in parts.feed(data[start : start + size])]
    assert (finished, whole.line) == (by_parts, parts.line)


def test_the_end_is_only_at_the_beginning_of_a_line() -> None:
    typing = LineEditor()
    typing.feed(b"a\x04")
    assert not typing.is_ended
    typing.feed(b"\x7f\x04")
    assert typing.is_ended


def test_of_a_long_line_the_end_is_shown() -> None:
    typing = LineEditor()
    typing.feed("日".encode() * 20 + b"end")
    assert typing.visible_text(12) == "> 日日日end"


@given(st.text())
def test_no_text_steers_a_terminal(text: str) -> None:
    assert escape_control_chars(text).isprintable()
    assert all(line.isprintable() for line in message_text(text.encode(errors="surrogatepass")).split("\n"))
