"""Regular expressions: the same results as `re`, without its worst case."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broadloom.rules.conditions import glob_source
from broadloom.rules.regex import CACHED_MAX, CompiledRegex, RegexError

ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "[a-c1]", "\\d", "\\W", "\\s", "1", "é", "\\.", "()"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0}", "{1,2}", "{0,2}", "{1,}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)
TEXTS = st.text(alphabet="abc1. \né", max_size=10)
MODES = st.sampled_from(["{}", "^{}", "{}$", "^({})$", "({}|$b)"])


@example("[^a]", "{}", "a", True)
@given(PATTERNS, MODES, TEXTS, st.booleans())
def test_search_finds_what_re_finds(pattern: str, mode: str, text: str, ignores_case: bool) -> None:
    pattern = mode.format(pattern)
    flags = re.ASCII | (re.IGNORECASE if ignores_case else 0)
    expected = re.search(pattern.replace("$", r"\Z"), text, flags) is not None
    assert CompiledRegex(pattern, ignores_case).search(text) == expected


@given(PATTERNS, st.sampled_from(["{}", "^{}"]), TEXTS)
def test_covered_characters_are_those_of_all_occurrences(pattern: str, mode: str, text: str) -> None:
    pattern = mode.format(pattern)
    found = re.compile(pattern, re.ASCII)
    expected = {
        at
        for begin in range(len(text))
        for end in range(begin + 1, len(text) + 1)
        if found.fullmatch(text, begin, end) and (begin == 0 or not pattern.startswith("^"))
        for at in range(begin, end)
    }
    ranges = CompiledRegex(pattern).covered(text)
    assert {at for begin, end in ranges for at in range(begin, end)} == expected
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$", "((a+)+)+c", "(.*)*x", "a{0,200}a{200}b"])
def test_patterns_on_which_backtracking_takes_forever_are_quick(pattern: str) -> None:
    regex = CompiledRegex(pattern)
    text = "a" * 50_000 + "!"
    assert not regex.search(text)
    assert regex.covered(text[-10_000:]) == []


def test_memory_is_limited_for_texts_with_all_characters() -> None:
    regex = CompiledRegex("(.x|[^y]z)+")
    regex.search("".join(map(chr, range(0x4000, 0x4000 + 2 * CACHED_MAX))))
    assert sum(map(len, regex._steps.values())) <= CACHED_MAX


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*a", "nothing to repeat"), ("a**", "cannot be repeated"), ("a+?", "cannot be repeated"),
        ("(a", "without `)`"), ("a)", "without `(`"), ("[a", "without `]`"), ("a\\", "ends with a backslash"),
        ("\\b", "not supported"),
        ("(?i)a", "not supported"), ("a{2", "begins a repetition"), ("a{5,2}", "smaller"), ("a{999}", "at most"),
        ("((a{200}){200})", "too large"), ("[z-a]", "later one"), ("\\x4", "two hexadecimal"),
        ("{2}", "nothing to repeat"),
        ("(" * 60 + ")" * 60, "groups in each other"),
    ],
)  # fmt: skip
def test_pattern_that_is_not_supported_is_rejected(pattern: str, expected: str) -> None:
    with pytest.raises(RegexError, match=re.escape(expected)):
        CompiledRegex(pattern)


@given(st.text(max_size=30))
def test_any_pattern_is_compiled_or_rejected(pattern: str) -> None:
    try:
        regex = CompiledRegex(pattern)
    except RegexError as problem:
        position = problem.position
    else:
        position = 0
        regex.search("some text")
    assert 0 <= position <= len(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("image/*", "image/png", True), ("image/*", "image/a/b", False), ("sports/**", "sports", True),
        ("sports/**", "sports/nfl/x", True), ("sports/**", "sportsx", False), ("**/scores", "a/b/scores", True),
        ("a.b*", "axb", False), ("a(b*", "a(bc", True),
    ],
)  # fmt: skip
def test_pattern_with_stars_stands_for_the_whole_text(pattern: str, text: str, expected: bool) -> None:
    assert CompiledRegex(glob_source(pattern)).search(text) == expected
