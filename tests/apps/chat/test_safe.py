"""Nobody can paint another's screen: what others wrote is shown, and is as wide as we think."""

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from broadloom.apps.chat.display_names import DisplayNames
from broadloom.apps.chat.sanitize import COMBINING_MARKS_MAX, clean, clean_line, decode_text, truncate, wrap
from broadloom.groups import GroupMessage, Member, MessageId

HOSTILE = st.text(st.one_of(st.characters(), st.sampled_from("\x1b\x9b\x07\r\n\t \u202e\u200d\u0301\ufe0f👩🏽漢[]")))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb", r"a\rb"),
        ("one\r\ntwo", "one\ntwo"),
        ("a\tb", "a    b"),
        ("abc\u202edef\u202c", r"abc\u202edef\u202c"),
        ("\u2066x\u2069\u200f", r"\u2066x\u2069\u200f"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
        ("👩\u200d👩\u200d👧", "👩👩👧"),
        ("❤\ufe0f 👍🏽", "❤ 👍"),
        ("naïve café", "naïve café"),
        ("نمی\u200cخواهم", "نمی\u200cخواهم"),
        ("a\u00a0b\u202fc\u3000d", "a b c  d"),
        ("\u3164", r"\u3164"),
        ("e" + "\u0301" * 50, "e" + "\u0301" * COMBINING_MARKS_MAX),
        ("\u0301x", "\u25cc\u0301x"),
    ],
)
def test_sanitized_text_is_shown(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(HOSTILE)
def test_no_control_character_survives_sanitizing(text: str) -> None:
    shown = clean(text)
    for sign in shown.replace("\n", ""):
        assert sign.isprintable() or sign == "\u200c", ascii(shown)
    assert "\n" not in clean_line(text)
    assert clean_line(text) == clean_line(text).strip()
    for line in shown.split("\n"):
        assert not line or unicodedata.category(line[0]) not in ("Mn", "Me"), "a mark would stand on what we draw"


@given(HOSTILE, st.integers(2, 40), st.integers(1, 6), st.integers(2, 40))
def test_wrapped_lines_fit_the_width(text: str, width: int, lines_max: int, first_width: int) -> None:
    shown = clean(text)
    lines, has_more = wrap(shown, width, lines_max, first_width)
    assert 1 <= len(lines) <= lines_max
    assert cell_len(lines[0]) <= first_width
    assert all(cell_len(line) <= width for line in lines[1:])
    if not has_more:
        assert "".join("".join(lines).split()) == "".join(shown.split()), "nothing is lost"
    assert cell_len(truncate(shown.replace("\n", " "), width)) <= width


def test_words_are_not_split_when_they_fit() -> None:
    assert wrap("who plays white today", 11, 9) == (["who plays", "white today"], False)
    assert wrap("a" * 25, 10, 9) == (["a" * 10, "a" * 10, "a" * 5], False)
    assert wrap("漢字漢字漢字", 5, 9) == (["漢字", "漢字", "漢字"], False)
    assert wrap("x\n" * 100, 10, 3) == (["x", "x", "x"], True)


def test_binary_payload_is_shown_by_its_size() -> None:
    assert decode_text(b"\xff\xfe" * 600) == "(1,200 bytes that are no text)"
    assert decode_text("größe\n".encode()) == "größe"


def test_equal_names_get_a_suffix_but_the_reader_does_not() -> None:
    me, other = Member(0xAA << 56, "Anna"), Member(0xBB << 56, "Anna")
    names = DisplayNames(me)
    assert names.get(me.id) == "Anna"
    names.learn(other)
    names.learn(Member(0xCC << 56, "Ben\x1b[2J"))
    names.learn(Member(0xDD << 56, " \u200d"))
    assert names.get(me.id) == "Anna"
    assert names.get(other.id) == "Anna~bb00"
    assert names.get(0xCC << 56) == r"Ben\x1b[2J"
    assert names.get(0xDD << 56) == "dd000000", "a name of nothing is no name"
    names.learn(other._replace(name="Cleo"))
    assert names.get(other.id) == "Cleo"
    said = GroupMessage(1, MessageId(other.id, 1), "Cleo", None, 0, b"", verified_name="Mallory\x1b")
    assert names.author_label(said) == r"Cleo [Mallory\x1b]", "the ticket says otherwise"
    assert (
        names.author_label(replace(said, verified_name="Cleo"))
        == names.author_label(replace(said, verified_name=""))
        == "Cleo"
    )
