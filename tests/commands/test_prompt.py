"""The line that is typed, and the text of others, without a terminal."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.commands.prompt import Typing
from weft.commands.telling import harmless, message_text


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
    typing = Typing()
    assert typing.feed(typed.encode()) == finished
    assert typing.line == line


@example("\x1b\x1b1", 1)
@given(st.text(st.sampled_from("aä日\x1b[A;1O\x7f\x15\x17\n"), max_size=30), st.integers(1, 4))
def test_typing_does_not_depend_on_how_it_is_cut(typed: str, size: int) -> None:
    whole, parts = Typing(), Typing()
    finished = whole.feed(typed.encode())
    data = typed.encode()
    by_parts = [line for start in range(0, len(data), size) for line in parts.feed(data[start : start + size])]
    assert (finished, whole.line) == (by_parts, parts.line)


def test_the_end_is_only_at_the_beginning_of_a_line() -> None:
    typing = Typing()
    typing.feed(b"a\x04")
    assert not typing.ended
    typing.feed(b"\x7f\x04")
    assert typing.ended


def test_of_a_long_line_the_end_is_shown() -> None:
    typing = Typing()
    typing.feed("日".encode() * 20 + b"end")
    assert typing.shown(12) == "> 日日日end"


@given(st.text())
def test_no_text_steers_a_terminal(text: str) -> None:
    assert harmless(text).isprintable()
    assert all(line.isprintable() for line in message_text(text.encode(errors="surrogatepass")).split("\n"))
