"""The language: what conditions mean, what mistakes look like, and that formatting is the inverse of parsing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.channel.outgoing import Way
from broadloom.rules import (
    And,
    Comment,
    Compress,
    Constant,
    Copy,
    Encrypt,
    Forward,
    Hold,
    Named,
    Not,
    Or,
    Redact,
    Refuse,
    Regex,
    Rule,
    Rules,
    RulesError,
    RulesSyntaxError,
    Run,
    Send,
    Set,
    Stop,
    Test,
    condition,
    format_rules,
    parse,
)
from broadloom.rules.fields import FIELDS, kind_of
from broadloom.rules.parser import DEPTH_MAX
from broadloom.rules.regex import CompiledRegex, RegexError
from tests.rules.recording import message

NOTE = message(
    b'{"price": 120, "user": {"name": "Anna", "roles": ["admin", "ops"]}, "secret": true}',
    topic="sports/nfl/scores",
    content_type="image/png",
    headers={"Subject": "Plans (Crypto)", "to": "sales@example.com, ops", "origin": "hq"},
    priority=2,
    ttl_s=90,
    receiver=("ben", "00000000000000ff"),
    sender="anna",
    role="producer",
)


def holds(text: str, out: object = NOTE) -> bool:
    preview = Rules(parse(f'IF {{ {text} }} THEN {{ refuse "it holds" }}')).preview(out)  # type: ignore[arg-type]
    return preview.out is None


@pytest.mark.parametrize(
    "text",
    [
        'subject("crypto")', 'subject "(crypto)"', 'subject = "plans (crypto)"', 'subject != "plans"', "subject",
        'to("example")', 'to = "ops"', 'to = "ben"', 'to("x", "ops")', 'NOT to = "example"', 'header.ORIGIN = "hq"',
        'topic("sports/**")', 'topic("sports/*/scores")', 'NOT topic("sports/*")', 'topic("nfl")',
        'topic("sports/nfl/scores/**")',
        'content-type("image/*")', 'channel = "office/hq"', 'type = "office"', 'instance("HQ")', 'way = "broadcast"',
        'from = "anna"', 'role("producer")', "NOT group", "NOT layer", "NOT file-name", 'NOT encoding("zlib")',
        "size > 50B", "size < 1KB", "size <= 1MiB", "size != 3", "priority >= high", "priority = 2", "ttl = 1.5min",
        "forwarded = 0", 'date > "1993.04.20"', 'date >= "2020-01-01 12:30"', 'date < "2999-12-31T23:59:59"',
        "json.price > 100", "json.price = 120", 'json.user.name = "anna"', 'json.user.roles.1("ops")',
        'json.user.roles("admin")', "json.secret", "NOT json.missing", "NOT json.user.roles.7", "NOT json.price.x",
        'text("ANNA")', "matches(/\"pri[a-z]e\"/)", "matches(/ANNA/i)", "NOT matches(/ANNA/)",
        "subject matches /Plans \\(C/", "NOT subject matches /plans/",
        "true", "NOT false", 'false OR true AND NOT (to("nobody") OR false)', 'true and not FALSE',
    ],
)  # fmt: skip
def test_condition_holds(text: str) -> None:
    assert holds(text)
    assert not holds(f"NOT ({text})")


def test_condition_on_json_does_not_hold_for_other_data() -> None:
    assert not holds("json.a = 1", message(b"not json"))
    assert not holds("json.a = 1", message(b"[" * 100_000))
    assert not holds("json.a = 1", message(b'{"a": ' + b"9" * 5000 + b"}"))


def test_several_headers_of_one_name_all_count() -> None:
    """A second spelling does not hide a value."""
    assert holds('to("com")', message(headers={"to": "", "TO": "com"}))


def test_condition_written_in_python_is_called_by_name() -> None:
    condition("large one")(lambda out: len(out.data) > 3)
    condition("vip")(lambda out: out.headers.get("to") == "boss")
    assert holds("vip", message(headers={"to": "boss"}))
    assert not holds("vip")


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("", 0, 0, ""),
        ("IF", 1, 3, "expected `{` after IF, found the end of the file"),
        ('IF { to("x) } THEN { }', 1, 9, 'a string is not closed by `"`'),
        ("IF { }\nTHEN { }", 1, 6, "expected a condition, found `}`"),
        ('IF { to("x") }\n{ stop }', 2, 1, "expected THEN, found `{`"),
        ('IF { to("x") } THEN {\n  stop', 2, 7, "expected an action or `}`"),
        ("THEN { }", 1, 1, "expected IF, found `THEN`"),
        ('IF { sbject("x") } THEN { }', 1, 6, "there is no field `sbject`; fields are channel, type"),
        ("IF { size > 5XB } THEN { }", 1, 13, "`XB` is not a unit"),
        ('IF { size > "5" } THEN { }', 1, 6, "`size` is a number"),
        ('IF { to < "5" } THEN { }', 1, 6, "`<` works with numbers only"),
        ("IF { to > 5 } THEN { }", 1, 6, "`to` is a text"),
        ('IF { date < "tomorrow" } THEN { }', 1, 6, '"tomorrow" is not a date'),
        ('IF { date < "1993.02.30" } THEN { }', 1, 6, "is not a date: day is out of range"),
        ("IF { matches(/a(b/) } THEN { }", 1, 16, "regular expression: `(` without `)`"),
        ("IF { matches(/a(?=b)/) } THEN { }", 1, 17, "lookaround"),
        ("IF { matches(/(a)\\1/) } THEN { }", 1, 20, "\\1 is not supported"),
        ("IF { true } THEN { redact everything }", 1, 27, "expected card-numbers, emails or a regular expression"),
        ("IF { true } THEN { compress zstd }", 1, 29, "zstd is not supported"),
        ("IF { true } THEN { encrypt com.pub }", 1, 28, "expected `for` and public keys"),
        ("IF { true } THEN {\n  mail_prg userA | tee }", 2, 18, "programs run without a shell: `|` has no meaning"),
        ("IF { true } THEN { mail_prg > file }", 1, 29, "output cannot be redirected"),
        ("IF { true } THEN { mail_prg $HOME }", 1, 29, "there are no variables"),
        ("IF { true } THEN { mail_prg < file }", 1, 29, "after `<` only `$`"),
        ("IF { true } THEN { mail_prg $ < $ }", 1, 35, "exclude each other"),
        ("IF { true } THEN { set priority often }", 1, 33, "expected a number after set priority"),
        ('IF { true } THEN { refuse "\\q" }', 1, 28, "after a backslash"),
        ("IF { true } THEN { copy }", 1, 25, "expected a directory after copy"),
        ('IF { to("x") to("y") } THEN { }', 1, 14, "conditions are joined by AND or OR"),
    ],
)  # fmt: skip
def test_mistake_has_line_column_and_reason(text: str, line: int, column: int, expected: str) -> None:
    if not text:
        assert parse(text) == ()
        return
    with pytest.raises(RulesSyntaxError) as found:
        parse(text, "out.rules")
    mistake = found.value.mistakes[0]
    assert (mistake.line, mistake.column) == (line, column)
    assert expected in mistake.text
    assert str(found.value).startswith(f"out.rules: line {line}, column {column}: ")


def test_all_mistakes_of_a_file_are_reported() -> None:
    text = 'IF { to("x) } THEN { }\n\nIF { true } THEN { stop }\nIF { size > "1" } THEN { }\n  IF nested\nRULE IF {\n'
    with pytest.raises(RulesSyntaxError) as found:
        parse(text)
    assert [each.line for each in found.value.mistakes] == [1, 4, 6]


@pytest.mark.parametrize("text", ["(" * 500 + "true" + ")" * 500, "NOT " * 500 + "true"])
def test_depth_of_conditions_is_limited(text: str) -> None:
    with pytest.raises(RulesSyntaxError, match=f"more than {DEPTH_MAX} levels"):
        parse(f"IF {{ {text} }} THEN {{ stop }}")


def test_depth_of_rules_is_limited() -> None:
    def nested(levels: int) -> str:
        return "IF { true } THEN { " * levels + "stop" + " }" * levels

    assert Rules(parse(nested(DEPTH_MAX - 1))).preview(message()).out is not None
    with pytest.raises(RulesSyntaxError, match="levels"):
        parse(nested(500))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IF { vipp } THEN { stop }", "line 1, column 1: there is no condition `vipp`"),
        ("IF { true } THEN {\n  IF { true } THEN { stop }\n  IF { true } THEN { seal } }", "line 3, column 3: there"),
        ("IF { true } THEN { crypto_prg $ }", "there is no action `crypto_prg`, and no program of that name"),
        ('IF { true } THEN { encrypt for "nobody.pub" }', "cannot read the public key"),
        ("IF { true } THEN { hold }", "pass a directory"),
        ("IF { true } THEN { set priority 300 }", "must be 0 to 255"),
    ],
)
def test_rules_that_cannot_work_are_rejected_when_they_are_loaded(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Rules(parse(text))


def test_python_objects_are_checked_like_the_language() -> None:
    for bad in (Test("nothing"), Test("size", "contains", ("x",)), Test("text", "=", (5,)), Test("to", "=")):
        with pytest.raises(RulesError, match="rule 1: "):
            Rules([Rule(bad, (Stop(),))])
    with pytest.raises(RulesError, match="without"):
        Rules([Rule(Test("text", "matches", (Regex("("),)), ())])


# -- formatting

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.from_regex(r"[a-z_][a-z0-9_-]{0,8}", fullmatch=True).filter(
    lambda name: (
        kind_of(name) is None
        and name.upper() not in ("IF", "THEN", "ELSE", "AND", "OR", "NOT", "RULE", "TRUE", "FALSE", "MATCHES")
    )
)
TEXT_FIELDS = st.sampled_from(
    [name for name, (kind, _) in FIELDS.items() if kind == "text"] + ["header.x-y", "json.a.0"]
)
NUMBERS = st.integers(0, 10**12) | st.integers(0, 10**6).map(lambda number: number / 4)


def is_regex(source: str) -> bool:
    try:
        CompiledRegex(Regex(source).source)
    except RegexError:
        return False
    return True


REGEXES = st.builds(
    Regex, st.from_regex(r"([a-z/.]|\\[/dw.]|\[a-z\]|\(b\||\)|[*?])*", fullmatch=True).filter(is_regex), st.booleans()
)
TESTS = st.one_of(
    st.builds(Test, TEXT_FIELDS),
    st.builds(Test, TEXT_FIELDS, st.just("contains"), st.lists(TEXTS, min_size=1, max_size=3).map(tuple)),
    st.builds(Test, TEXT_FIELDS, st.sampled_from(["=", "!="]), TEXTS.map(lambda text: (text,))),
    st.builds(Test, TEXT_FIELDS, st.just("matches"), REGEXES.map(lambda regex: (regex,))),
    st.builds(
        Test,
        st.sampled_from(["size", "priority", "ttl", "json.a"]),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        NUMBERS.map(lambda number: (number,)),
    ),
    st.builds(Test, st.just("date"), st.sampled_from(["<", ">="]), st.just(("1993.04.20",))),
    st.builds(Named, NAMES),
    st.builds(Constant, st.booleans()),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
WORDS = TEXTS.filter(bool)
SIMPLE = st.one_of(
    st.builds(Copy, WORDS),
    st.builds(Send, WORDS),
    st.builds(Forward, WORDS),
    st.builds(Encrypt, st.lists(WORDS, min_size=1, max_size=3).map(tuple)),
    st.just(Compress()),
    st.builds(Run, st.lists(WORDS, min_size=1, max_size=4).map(tuple), st.booleans()),
    st.builds(Set, WORDS.filter(lambda name: name not in ("priority", "ttl")), TEXTS),
    st.builds(Set, st.sampled_from(["priority", "ttl"]), st.integers(0, 255)),
    st.builds(Redact, st.sampled_from(["card-numbers", "emails"]) | REGEXES),
    st.builds(Hold, TEXTS),
    st.builds(Refuse, TEXTS),
    st.just(Stop()),
    st.builds(Comment, st.from_regex(r"[a-z #{}]*", fullmatch=True).map(str.strip)),
)
ACTIONS = st.recursive(
    SIMPLE,
    lambda inner: st.builds(
        Rule,
        CONDITIONS,
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=2).map(tuple),
        TEXTS.filter(lambda name: name == name.strip()),
    ),
    max_leaves=8,
)
RULES = st.builds(Rule, CONDITIONS, st.lists(ACTIONS, max_size=4).map(tuple), st.lists(ACTIONS, max_size=2).map(tuple))


@given(st.lists(RULES, max_size=2))
@settings(max_examples=25)
def test_parser_is_the_inverse_of_the_formatter(rules: list[Rule]) -> None:
    text = format_rules(rules)
    parsed = parse(text)
    assert list(parsed) == rules
    assert format_rules(parsed) == text


def test_formatting_keeps_comments_and_their_place() -> None:
    text = "# of the file\nif { true } # why\nthen { # first\n stop;stop # last\n}\n# the end"
    expected = "# of the file\nIF { true }\nTHEN {\n  # why\n  # first\n  stop\n  stop\n  # last\n}\n\n# the end\n"
    assert format_rules(parse(text)) == expected
    assert format_rules(parse(expected)) == expected


PIECES = ["IF", "{", "}", "THEN", "ELSE", "(", ")", '"', "/", "$", "<", "copy", "to", "size", ">", "5MB", "#", "\n"]


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        items = parse(text)
    except RulesSyntaxError as problem:
        places = [(each.line, each.column) for each in problem.mistakes]
    else:
        places = []
        assert parse(format_rules(items)) == items
    lines = text.split("\n")
    for line, column in places:
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1


def test_ways_in_the_field_list_are_all_ways() -> None:
    assert all(f"`{way}`" in FIELDS["way"][1] for way in Way)
