"""Rules ready to run: conditions as functions, names of programs and Python actions resolved.

Everything that can be wrong with a rule, except for its effects, is reported here, when rules are loaded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broadloom.channel.outgoing import Outgoing
from broadloom.errors import RulesError
from broadloom.rules.conditions import Check, NamedConditions, compile_condition, needed_text
from broadloom.rules.model import Action, Comment, Condition, Encrypt, Hold, Redact, Rule, Run, Set
from broadloom.rules.redaction import Redactor
from broadloom.rules.scanner import MISTAKES_MAX, Mistake, RulesSyntaxError
from broadloom.security.sealing import RECIPIENTS_MAX
from broadloom.wire.broadcast_frame import PRIORITY_MAX
from broadloom.wire.message_headers import checked_topic

PythonAction = Callable[..., Outgoing]
RULES_MAX = 10_000


class Program(NamedTuple):
    """A program and its arguments."""

    name: str
    command: tuple[str, ...]


class PythonCall(NamedTuple):
    name: str
    function: PythonAction
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    rule: Rule
    check: Check
    then: "tuple[CompiledAction, ...]"
    otherwise: "tuple[CompiledAction, ...]"


@dataclass(frozen=True, slots=True)
class CompiledAction:
    action: Action
    target: CompiledRule | Program | PythonCall | Redactor | None = None


Entry = tuple[str, int, int, CompiledRule]
"""A rule that is not nested: it can hold only if this text is in the field with this number. Its own number."""


@dataclass(frozen=True, slots=True)
class Names:
    """What rules may refer to by name."""

    programs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    actions: Mapping[str, PythonAction] = field(default_factory=dict)
    conditions: NamedConditions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledRules:
    entries: tuple[Entry, ...]
    entries_to_trace: tuple[Entry, ...]
    """The same without texts that must be there, so that every condition is shown."""
    labels: tuple[str, ...]
    slots: tuple[str, ...]
    """Fields whose texts decide quickly that a rule does not hold."""
    keys: tuple[str, ...]
    """All public keys that messages are encrypted for."""
    can_hold: bool


class _RuleError(ValueError):
    def __init__(self, rule: Rule, problem: ValueError) -> None:
        super().__init__(str(problem))
        self.mistake = Mistake(rule.line, rule.column, str(problem))


def compile_rules(items: Iterable[Rule | Comment], names: Names, file: str = "") -> CompiledRules:
    """Raises `RulesError`; for rules of a file with the places of all mistakes."""
    rules = [each for each in items if not isinstance(each, Comment)]
    for each in rules:
        _check_type(each, Rule, "a rule")
    if len(rules) > RULES_MAX:
        raise RulesError(f"{len(rules):,} rules: at most {RULES_MAX:,} are allowed")
    compiler = _Compiler(names)
    slots: dict[str, int] = {}
    entries = []
    mistakes = []
    labels = tuple(rule.label(number) for number, rule in enumerate(rules, 1))
    for number, rule in enumerate(rules):
        try:
            compiled = compiler.rule(rule)
        except _RuleError as problem:
            if not rule.line:
                raise RulesError(f"{labels[number]}: {problem}") from None
            mistakes.append(problem.mistake)
            continue
        needed = needed_text(rule.when) if not rule.otherwise else None
        field_name, wanted = needed if needed is not None else ("layer", "")
        entries.append((wanted, slots.setdefault(field_name, len(slots)), number, compiled))
    if mistakes:
        raise RulesSyntaxError(tuple(mistakes[:MISTAKES_MAX]), file)
    traced = tuple(("", slot, number, compiled) for _, slot, number, compiled in entries)
    return CompiledRules(tuple(entries), traced, labels, tuple(slots), tuple(compiler.keys), compiler.can_hold)


def _check_type(value: object, kind: Any, wanted: str) -> None:
    """A mistake in rules that are Python objects must not let messages out."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not {wanted}")


class _Compiler:
    def __init__(self, names: Names) -> None:
        self._names = names
        self.keys: dict[str, None] = {}
        self.can_hold = False

    def rule(self, rule: Rule) -> CompiledRule:
        try:
            when = self._condition(rule.when)
            return CompiledRule(rule, when, self._actions(rule.then), self._actions(rule.otherwise))
        except _RuleError:  # of a rule inside this one
            raise
        except ValueError as problem:
            raise _RuleError(rule, problem) from None

    def _condition(self, condition: Condition) -> Check:
        try:
            return compile_condition(condition, self._names.conditions)
        except KeyError as missing:
            raise ValueError(
                f"there is no condition `{missing.args[0]}`; a field is missing a value, or write the condition in "
                "Python (broadloom.rules.condition)"
            ) from None

    def _actions(self, actions: Sequence[Action]) -> tuple[CompiledAction, ...]:
        for each in actions:
            _check_type(each, Action, "an action")
        return tuple(self._action(each) for each in actions if not isinstance(each, Comment))

    def _action(self, action: Action) -> CompiledAction:
        match action:
            case Rule():
                return CompiledAction(action, self.rule(action))
            case Run(words):
                return CompiledAction(action, self._target(words))
            case Redact(what):
                return CompiledAction(action, Redactor(what))
            case Encrypt(keys):
                _check_type(keys, tuple, "a tuple of files")
                if not 1 <= len(keys) <= RECIPIENTS_MAX:
                    raise ValueError(f"encrypt for {len(keys)} keys: must be 1 to {RECIPIENTS_MAX}")
                self.keys.update(dict.fromkeys(keys))
            case Set("priority", value):
                if not isinstance(value, int) or not 0 <= value <= PRIORITY_MAX:
                    raise ValueError(f"set priority {value}: must be 0 to {PRIORITY_MAX}")
            case Set("ttl", value):
                if not isinstance(value, int | float) or not value > 0:
                    raise ValueError(f"set ttl {value}: must be a number of seconds, more than 0")
            case Set("topic", str() as topic) if topic:
                checked_topic(topic)
            case Set(name, value):
                if not name or "\0" in name or not isinstance(value, str):
                    raise ValueError(f"set {name!r}: a header has a name, and a text as value")
        self.can_hold = self.can_hold or isinstance(action, Hold)
        return CompiledAction(action)

    def _target(self, words: Sequence[str]) -> Program | PythonCall:
        """The longest beginning of the words that is a name: names of programs may have several words."""
        for count in range(len(words), 0, -1):
            name, rest = " ".join(words[:count]), tuple(words[count:])
            if name in self._names.actions:
                return PythonCall(name, self._names.actions[name], rest)
            if name in self._names.programs:
                return Program(name, (*self._names.programs[name], *rest))
        name = " ".join(words)
        raise ValueError(
            f"there is no action `{name}`, and no program of that name is switched on; check the spelling, pass "
            "programs={…}, or write the action in Python (broadloom.rules.action)"
        )
