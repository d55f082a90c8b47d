"""Random rule files on random messages: `python -m tests.rules.fuzz SEEDS`.

Every text is parsed or rejected with places in it; every rule that is loaded can be formatted and parsed again, and
runs or refuses. A step that takes more processor time than `STEP_S` counts as a hang.
"""

import random
import time
from collections import Counter

from broadloom.channel.outgoing import Outgoing
from broadloom.errors import NotSentError, RulesError
from broadloom.rules import Rules, RulesSyntaxError, action, condition, format_rules, parse
from tests.histories import HistoryError, main

STEP_S = 5.0
STEPS = 500
_WORDS = r"""
IF THEN ELSE RULE AND OR NOT { } ( ) ; # , < <= > >= = != $ true false matches transform copy send forward encrypt for
compress set redact hold refuse stop card-numbers emails topic subject to size priority ttl date text json.a.0 header.x
group way vip stamp "x" "com" "a/**" "1993.04.20" "\n" 5 1MB 2.5min /a*b/ /(a|b)+$/i /[^x]{2,5}\d/ $/backup userA
"""
WORDS = [*_WORDS.split(), *["\n"] * 4]
TEMPLATES = [
    "IF {{ {c} }} THEN {{ {a} }} ELSE {{ {a} }}\n",
    'RULE "{n}" IF {{ {c} AND ({c} OR NOT {c}) }} THEN {{ {a}\n IF {{ {c} }} THEN {{ {a} }} }}\n',
]
CONDITIONS = [
    'to("com")', 'subject "(x)"', "size > 10", 'date < "1993.04.20"', "matches(/(a|aa)+b/)", "json.a.0 = 1",
    "true", "vip", 'topic("a/**")', 'header.x matches /[a-z]*/i', 'text("é")', "group", "priority >= high",
    "ttl < 5min",
]  # fmt: skip
ACTIONS = [
    "stop", 'refuse "no"', "hold", "compress", "redact emails", "redact card-numbers", "redact /(a*)*b/", 'copy "x"',
    'send "anna"', 'forward "b/two"', "stamp a b", "stamp $", "prg < $", 'set x "y"', 'set topic "a/b"',
    "set priority 200",
]  # fmt: skip


def source(dice: random.Random) -> str:
    if dice.random() < 0.4:
        return " ".join(dice.choice(WORDS) for _ in range(dice.randrange(60)))
    text = "".join(
        dice.choice(TEMPLATES).format(c=dice.choice(CONDITIONS), a=dice.choice(ACTIONS), n=dice.randrange(9))
        for _ in range(dice.randrange(1, 6))
    )
    for _ in range(dice.choice((0, 0, 1, 2, 8))):
        at = dice.randrange(len(text) + 1)
        cut = dice.choice((0, 1, 5))
        new = dice.choice(("", dice.choice(WORDS), chr(dice.choice((0, 10, 34, 92, 123, 233, 0x2028, 0x1F600)))))
        text = text[:at] + new + text[at + cut :]
    return text


def message(dice: random.Random) -> Outgoing:
    data = dice.choice(
        (
            b"",
            b"aaab " * dice.randrange(2000),
            b'{"a": [1, 2]}',
            b"4111 1111 1111 1111 a@b.example",
            dice.randbytes(300),
        )
    )
    headers = {name: dice.choice(("", "x", "com, org", "(X)")) for name in dice.sample(("to", "subject", "x"), 2)}
    return Outgoing(data, channel="office/hq", topic=dice.choice((None, "a/b")), headers=headers)


def check(text: str, out: Outgoing) -> str:
    """What became of it. Raises `AssertionError`, or whatever else went wrong."""
    try:
        items = parse(text)
    except RulesSyntaxError as problem:
        lines = text.split("\n")
        for each in problem.mistakes:
            assert each.column <= len(lines[each.line - 1]) + 1
        return "rejected"
    assert parse(format_rules(items)) == items
    try:
        rules = Rules(items, programs={"prg": ["true"]}, held="/nonexistent")
    except (RulesError, ValueError):
        return "not usable"
    preview = rules.preview(out)
    try:
        rules.apply_nowait(out, _Nowhere())  # type: ignore[arg-type]
    except NotSentError:
        return "refused"
    assert preview.out is not None
    return "sent"


class _Nowhere:
    name = "office/hq"
    _observer = None


def run_seed(seed: int) -> Counter[str]:
    """Outcomes of the steps of this seed. Raises `HistoryError` with the text of the step that failed."""
    action("stamp")(lambda out, *_words: out)
    condition("vip")(lambda out: bool(out.data))
    outcomes: Counter[str] = Counter()
    dice = random.Random(seed)
    for _ in range(STEPS):
        text, out = source(dice), message(dice)
        started_at = time.process_time()
        try:
            outcomes[check(text, out)] += 1
        except Exception as problem:
            raise HistoryError(f"seed {seed}: {problem!r} with {text!r}") from problem
        if time.process_time() - started_at > STEP_S:
            raise HistoryError(f"seed {seed}: more than {STEP_S:g} s with {text!r}")
    return outcomes


if __name__ == "__main__":
    main(run_seed)
