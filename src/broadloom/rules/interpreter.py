"""One message through all rules, without IO: the caller carries out the effects that the interpreter asks for.

`Interpretation.run` is a generator. It yields an effect when an action needs the world (a file, a program, randomness),
and gets the result sent in. Rules act in order, and each on what the one before has made of the message. What goes to
others (`send`, `forward`) is collected, with the data as it is at that moment, and is sent by the caller when all rules
have succeeded.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import NamedTuple

from broadloom.channel.encodings import ZLIB, compress
from broadloom.channel.outgoing import Outgoing, Way
from broadloom.errors import NotSentError
from broadloom.rules.compiled import CompiledAction, CompiledRule, CompiledRules, Program, PythonCall
from broadloom.rules.conditions import compile_condition, is_present
from broadloom.rules.fields import MessageView, kind_of
from broadloom.rules.formatter import format_action, format_condition
from broadloom.rules.model import (
    Action,
    And,
    Compress,
    Condition,
    Copy,
    Encrypt,
    Forward,
    Hold,
    Not,
    Or,
    Redact,
    Refuse,
    Run,
    Send,
    Set,
    Stop,
    Test,
)
from broadloom.rules.redaction import Redactor
from broadloom.security.sealing import ENCODING_NAME as X25519
from broadloom.wire.message_headers import ENCODINGS_MAX, FORWARDS_MAX

RUNS_MAX = 32
"""Programs that are started for one message."""
SHOWN_CHARACTERS = 60


class CopyEffect(NamedTuple):
    """Write the data to a new file."""

    directory: str
    data: bytes


class SealEffect(NamedTuple):
    """Encrypt; the result is the encrypted data. Does not wait."""

    data: bytes
    keys: tuple[str, ...]


class ProgramEffect(NamedTuple):
    """Run a program; the result is its output."""

    program: Program
    data: bytes


Effect = CopyEffect | SealEffect | ProgramEffect


class Delivery(NamedTuple):
    """A copy of the message for others."""

    label: str
    action: Send | Forward
    out: Outgoing


@dataclass(frozen=True, slots=True)
class Step:
    """What happened at one place of the rules."""

    rule: str
    depth: int
    text: str
    """The condition or the action, as in the file."""
    outcome: str
    """Of a condition: `true` or `false`."""
    is_condition: bool = False
    found: str = ""
    """What a condition has found: `subject is 'plans'`."""
    is_part: bool = False
    """One test of the condition above it."""


class _EndedError(Exception):
    """No further rule is looked at."""


class Interpretation:
    """One message and the rules. Read `out`, `deliveries` and `hold_reason` after `run`."""

    def __init__(
        self, rules: CompiledRules, out: Outgoing, now_s: float, clock: Callable[[], float], *, traces: bool = False
    ) -> None:
        self.out = out
        self.deliveries: list[Delivery] = []
        self.hold_reason: str | None = None
        self.label = ""
        """The rule that is being carried out, for errors."""
        self.hits: list[tuple[int, float]] = []
        """Numbers of the rules that held, and the time they took."""
        self.acted: list[tuple[int, Action]] = []
        """Numbers of rules, and what they did."""
        self.current = -1
        self.steps: list[Step] | None = [] if traces else None
        self._rules = rules
        self._view = MessageView(out, now_s)
        self._clock = clock
        self._started_at = 0.0
        self._runs = 0

    @property
    def labels(self) -> tuple[str, ...]:
        return self._rules.labels

    @property
    def elapsed_s(self) -> float:
        """Since the rule that is being carried out began."""
        return self._clock() - self._started_at

    def run(self) -> Generator[Effect, bytes, None]:
        """Raises `NotSentError` if a rule refuses the message."""
        rules, view = self._rules, self._view
        texts = [view.text(name) for name in rules.slots]
        for wanted, slot, number, compiled in rules.entries if self.steps is None else rules.entries_to_trace:
            if wanted not in texts[slot]:
                continue  # the usual case, so it is kept short
            self.label, self.current = rules.labels[number], number
            self._started_at = self._clock()
            try:
                if (yield from self._rule(compiled, 0)):
                    self.hits.append((number, self.elapsed_s))
            except _EndedError:
                self.hits.append((number, self.elapsed_s))
                return
            if view is not self._view:  # the rule has changed the message
                view = self._view
                texts = [view.text(name) for name in rules.slots]
        self.label, self.current = "", -1

    def _rule(self, compiled: CompiledRule, depth: int) -> Generator[Effect, bytes, bool]:
        holds = compiled.check(self._view)
        if self.steps is not None:
            self._explain(compiled.rule.when, depth, holds)
        for each in compiled.then if holds else compiled.otherwise:
            if isinstance(each.target, CompiledRule):
                yield from self._rule(each.target, depth + 1)
            else:
                yield from self._act(each, depth + 1)
        return holds or bool(compiled.otherwise)

    # -- actions

    def _act(self, compiled: CompiledAction, depth: int) -> Generator[Effect, bytes, None]:
        outcome = ""
        action, out = compiled.action, self.out
        self.acted.append((self.current, action))
        try:
            match action:
                case Copy(directory):
                    yield CopyEffect(directory, out.data)
                case Send() | Forward():
                    outcome = self._deliver(action)
                case Encrypt(keys):
                    self._check_encodable("encrypted")
                    self._change(data=(yield SealEffect(out.content, keys)), encodings=(*out.encodings, X25519))
                case Compress():
                    outcome = self._compress()
                case Run():
                    outcome = yield from self._run(compiled.target, action.keeps_data)
                case Set(field, value):
                    self._set(field, value)
                case Redact():
                    assert isinstance(compiled.target, Redactor)
                    outcome = self._redact(compiled.target)
                case Hold(reason):
                    outcome = self._hold(reason)
                case Refuse(reason):
                    outcome = "not sent"
                    raise NotSentError(self.label, reason)
                case Stop():
                    raise _EndedError
        except NotSentError as problem:
            outcome = f"not sent: {problem.reason}"
            raise
        finally:
            if self.steps is not None:
                text = format_action(action)[0]
                self.steps.append(Step(self.label, depth, text, outcome or "done"))

    def _change(self, **fields: object) -> None:
        self.out = replace(self.out, **fields)  # type: ignore[arg-type]
        self._view = MessageView(self.out, self._view.now_s)

    def _check_encodable(self, what: str) -> None:
        if not self.out.has_envelope:
            raise NotSentError(self.label, f"a {self.out.way} cannot be {what}: it has no headers that would say so")
        if len(self.out.encodings) >= ENCODINGS_MAX:
            raise NotSentError(self.label, f"a message has at most {ENCODINGS_MAX} encodings")

    def _compress(self) -> str:
        self._check_encodable("compressed")
        if ZLIB in self.out.encodings:
            return "it is already compressed"
        packed = compress(self.out.content)
        if packed is None:
            return "it would not become smaller"
        self._change(data=packed, encodings=(*self.out.encodings, ZLIB))
        return f"{len(packed):,} bytes"

    def _deliver(self, action: Send | Forward) -> str:
        out = self.out
        if isinstance(action, Forward):
            passed = (*out.forwarded_from, out.channel)
            if action.channel in passed:
                return "it has already been there"
            if len(passed) > FORWARDS_MAX:
                raise NotSentError(self.label, f"a message is forwarded at most {FORWARDS_MAX} times")
            way = out.way if out.way is Way.FILE else Way.BROADCAST
            layer = out.layer if out.way is Way.BROADCAST else ""
            out = replace(out, way=way, layer=layer, forwarded_from=passed, name="", receiver=(), has_envelope=True)
        self.deliveries.append(Delivery(self.label, action, out))
        return "sent when all rules have succeeded"

    def _run(self, target: object, keeps_data: bool) -> Generator[Effect, bytes, str]:
        out = self.out
        if isinstance(target, PythonCall):
            result = target.function(replace(out), *target.arguments)
            if not isinstance(getattr(result, "data", None), bytes):
                raise NotSentError(self.label, f"the action `{target.name}` did not return a message with bytes")
            if not keeps_data and result != out:
                fields = {name: getattr(result, name) for name in ("data", *_CHANGEABLE)}
                self._change(**fields, encodings=self._opaque(target.name, result.data))
            return ""
        assert isinstance(target, Program)
        self._runs += 1
        if self._runs > RUNS_MAX:
            raise NotSentError(self.label, f"at most {RUNS_MAX} programs run for one message")
        output = yield ProgramEffect(target, out.data)
        if not keeps_data and output != out.data:
            self._change(data=output, encodings=self._opaque(target.name, output))
        return ""

    def _opaque(self, name: str, data: bytes) -> tuple[str, ...]:
        """Encodings after a program has changed data that is already encoded: receivers must not undo them."""
        if not self.out.encodings or data == self.out.data:
            return self.out.encodings
        self._check_encodable("encoded once more")
        return (*self.out.encodings, f"program {name}"[:64])

    def _set(self, field: str, value: str | float) -> None:
        if not self.out.has_envelope and field.lower() not in ("priority", "ttl"):
            raise NotSentError(self.label, f"a {self.out.way} cannot carry headers")
        match field.lower():
            case "topic":
                self._change(topic=value or None)
            case "content-type":
                self._change(content_type=value or None)
            case "priority":
                self._change(priority=value)
            case "ttl":
                self._change(ttl_s=value)
            case name:
                headers = {key: old for key, old in self.out.headers.items() if key.lower() != name}
                if value:
                    headers[field] = str(value)
                self._change(headers=headers)

    def _redact(self, redactor: Redactor) -> str:
        if self.out.encodings:
            raise NotSentError(self.label, "what is compressed or encrypted cannot be redacted; redact it first")
        text = self._view.data_text
        redacted = redactor.redact(text)
        if redacted is text:
            return "nothing found"
        try:
            is_utf8 = self.out.data == text.encode()
        except UnicodeEncodeError:
            is_utf8 = False
        self._change(data=redacted.encode("utf-8" if is_utf8 else "latin-1"))
        return ""

    def _hold(self, reason: str) -> str:
        if self.out.is_released:
            return "released"
        self.hold_reason = reason
        raise _EndedError

    # -- explanations

    def _explain(self, condition: Condition, depth: int, holds: bool) -> None:
        self._add_condition(condition, depth, holds)
        if not isinstance(condition, Test):
            for test in _tests(condition):
                self._add_condition(test, depth + 1, compile_condition(test, {})(self._view), True)

    def _add_condition(self, condition: Condition, depth: int, holds: bool, is_part: bool = False) -> None:
        assert self.steps is not None
        found = self._shown(condition.field) if isinstance(condition, Test) else ""
        outcome, text = str(holds).lower(), format_condition(condition)
        self.steps.append(Step(self.label, depth, text, outcome, True, found, is_part))

    def _shown(self, field: str) -> str:
        if kind_of(field) == "date" or not is_present(self._view, field):
            return f"{field} is {'now' if field == 'date' else 'empty'}"
        number = self._view.number(field)
        text = f"{number}" if number is not None else self._view.raw_text(field)[: SHOWN_CHARACTERS + 1]
        return f"{field} is {text[:SHOWN_CHARACTERS]!r}" + ("…" if len(text) > SHOWN_CHARACTERS else "")


_CHANGEABLE = ("topic", "content_type", "headers", "priority", "ttl_s")
"""What an action written in Python may change beside the data."""


def _tests(condition: Condition) -> list[Test]:
    match condition:
        case And(conditions) | Or(conditions):
            return [test for each in conditions for test in _tests(each)]
        case Not(inner):
            return _tests(inner)
        case Test():
            return [condition]
    return []
