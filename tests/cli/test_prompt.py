"""The line editor and the escaping of text, without a terminal."""

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
def test_line_editor_handles_keys(typed: str, finished: list[str], line: str) -> None:
    editor = LineEditor()
    assert editor.feed(typed.encode()) == finished
    assert editor.line == line


@example("\x1b\x1b1", 1)
@given(st.text(st.sampled_from("aä日\x1b[A;1O\x7f\x15\x17\n"), max_size=30), st.integers(1, 4))
def test_line_editor_result_is_independent_of_chunking(typed: str, size: int) -> None:
    whole, parts = LineEditor(), LineEditor()
    finished = whole.feed(typed.encode())
    data = typed.encode()
    by_parts = [line for start in range(0, len(data), size) for line in parts.feed(data[start : start + size])]
    assert (finished, whole.line) == (by_parts, parts.line)


def test_ctrl_d_ends_input_only_on_empty_line() -> None:
    editor = LineEditor()
    editor.feed(b"a\x04")
    assert not editor.is_ended
    editor.feed(b"\x7f\x04")
    assert editor.is_ended


def test_long_line_shows_its_end() -> None:
    editor = LineEditor()
    editor.feed("日".encode() * 20 + b"end")
    assert editor.visible_text(12) == "> 日日日end"


@given(st.text())
def test_escaped_text_is_printable(text: str) -> None:
    assert escape_control_chars(text).isprintable()
    assert all(line.isprintable() for line in message_text(text.encode(errors="surrogatepass")).split("\n"))
