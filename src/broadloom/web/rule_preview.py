"""Rules tried with a message: mistakes with line and column, or every step and what would leave.

Nothing is sent, stored or run, and no file is read: programs and Python functions are only known by name, and `encrypt`
uses a key that is made for this preview.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broadloom.errors import RulesError
from broadloom.rules import (
    Mistake,
    Outgoing,
    Preview,
    RulesSyntaxError,
    SealingPrivateKey,
    Step,
    parse,
)
from broadloom.rules.compiled import Names, compile_rules
from broadloom.rules.interpreter import Interpretation, SealEffect
from broadloom.rules.parser import ACTIONS
from broadloom.rules.preview import try_out
from broadloom.security.sealing import seal
from broadloom.wire.broadcast_frame import Priority

SOURCE_CHARS_MAX = 64 << 10
TEXT_CHARS_MAX = 64 << 10
SIZE_BYTES_MAX = 4 << 20
"""Larger messages are not tried: conditions look at all of their data."""
PREVIEW_S_MAX = 5.0
"""No further rule is tried after this time."""
PRIORITY_NAMES = {each.value: each.name.lower() for each in Priority}
_BLANKS = b" \t\r\n" * 64


class PreviewError(RulesError):
    """This message cannot be tried."""


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """What came out: mistakes, or a preview."""

    mistakes: tuple[Mistake, ...] = ()
    preview: Preview | None = None


def try_rules(
    source: str, out: Outgoing, names: Iterable[str] = (), clock: Callable[[], float] = time.perf_counter
) -> PreviewResult:
    """`names` are programs and Python functions that the rules may use. Conditions of these names count as true."""
    if len(source) > SOURCE_CHARS_MAX:
        raise PreviewError(f"the rules have more than {SOURCE_CHARS_MAX:,} characters; use `broadloom rules try`")
    known = Names({name: (name,) for name in names}, {}, {name: lambda _out: True for name in names})
    try:
        compiled = compile_rules(parse(source), known)
    except RulesSyntaxError as problem:
        return PreviewResult(problem.mistakes)
    ends_at = clock() + PREVIEW_S_MAX

    def checked_clock() -> float:
        if (now := clock()) > ends_at:
            raise PreviewError(f"these rules take more than {PREVIEW_S_MAX:g} s for this message")
        return now

    key = SealingPrivateKey.generate().public

    def seal_for_preview(effect: SealEffect) -> bytes:
        return seal(effect.data, [key] * len(effect.keys))

    run = Interpretation(compiled, out, time.time(), checked_clock, traces=True)
    return PreviewResult(preview=try_out(run, seal_for_preview))


def step_outcome(step: Step) -> str:
    """The outcome of an action, which was not carried out."""
    if step.is_condition:
        return step.found
    if step.text.split(maxsplit=1)[0] not in ACTIONS or step.text.startswith("transform"):
        return "not run here; the data stays as it is"
    return "" if step.outcome == "done" else step.outcome


def priority_text(priority: int) -> str:
    """Its name, or the number if it has none."""
    return PRIORITY_NAMES.get(priority, str(priority))


def message_data(text: str, size: int | None) -> bytes:
    """The data of a message, filled up with white space to a size: text and JSON mean the same with it. It is mixed,
    so that it compresses like ordinary text."""
    data = text.encode()
    if len(text) > TEXT_CHARS_MAX:
        raise PreviewError(f"the text has more than {TEXT_CHARS_MAX:,} characters; use `broadloom rules try`")
    if size is None:
        return data
    if not len(data) <= size <= SIZE_BYTES_MAX:
        raise PreviewError(f"size {size:,}: the text has {len(data):,} bytes, and at most {SIZE_BYTES_MAX:,} are tried")
    return data + random.Random(size).randbytes(size - len(data)).translate(_BLANKS)


def parse_headers(text: str) -> dict[str, str]:
    """Headers from lines as `name: value`."""
    headers = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            raise PreviewError(f"line {number} of the headers must be `name: value`, not {line.strip()!r}")
        if name.strip():
            headers[name.strip()] = value.strip()
    return headers
