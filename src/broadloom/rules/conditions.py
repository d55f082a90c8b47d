"""Conditions as functions of a message. A condition is compiled once, when its rules are loaded."""

import operator
import re
from collections.abc import Callable, Mapping

from broadloom.channel.outgoing import Outgoing
from broadloom.rules.fields import DATE, NUMBER, MessageView, kind_of, parse_date, parts_of
from broadloom.rules.model import And, Condition, Constant, Named, Not, Number, Or, Regex, Test
from broadloom.rules.regex import CompiledRegex

Check = Callable[[MessageView], bool]
NamedConditions = Mapping[str, Callable[[Outgoing], bool]]

COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LISTED = ("to", "encoding")
"""Fields with several values: equal to a text if one of them is."""


def compile_condition(condition: Condition, named: NamedConditions) -> Check:
    """Raises `KeyError` for the name of a condition that is not there, `ValueError` for a test that cannot work."""
    match condition:
        case Test():
            if not isinstance(condition.values, tuple):
                raise TypeError(f"Test(…, values={condition.values!r}): must be a tuple")
            return _compile_test(condition)
        case And(conditions):
            checks = [compile_condition(each, named) for each in conditions]
            return lambda view: all(check(view) for check in checks)
        case Or(conditions):
            checks = [compile_condition(each, named) for each in conditions]
            return lambda view: any(check(view) for check in checks)
        case Not(inner):
            check = compile_condition(inner, named)
            return lambda view: not check(view)
        case Constant(value):
            return lambda _view: value
        case Named(name):
            function = named[name]
            return lambda view: bool(function(view.out))


def check_test(test: Test) -> None:
    """Raise `ValueError` if this test cannot work."""
    kind = kind_of(test.field)
    if kind is None:
        raise ValueError(f"there is no field `{test.field}`")
    if test.operator == "present":
        return
    if not test.values:
        raise ValueError(f"`{test.field}` is compared with nothing")
    for value in test.values:
        if test.operator == "matches":
            if not isinstance(value, Regex) or kind in (NUMBER, DATE):
                raise ValueError(f"`{test.field}` cannot be matched with a regular expression")
        elif isinstance(value, Regex):
            raise ValueError("a regular expression stands after `matches`")
        elif kind == DATE:
            if test.operator not in COMPARISONS or not isinstance(value, str):
                raise ValueError('a date is compared with another: date < "1993.04.20"')
            parse_date(value)
        elif kind == NUMBER:
            if test.operator not in COMPARISONS or isinstance(value, str):
                raise ValueError(f"`{test.field}` is a number: compare it with another, as in {test.field} > 100")
        elif isinstance(value, str) and test.operator not in ("contains", "=", "!="):
            raise ValueError(f"`{test.field}` is a text: `{test.operator}` works with numbers only")
        elif not isinstance(value, str) and (kind == "text" or test.operator == "contains"):
            raise ValueError(f'`{test.field}` is a text: compare it with a text in quotes, as in {test.field}("x")')


def _compile_test(test: Test) -> Check:
    check_test(test)
    checks = [_compile_value(test.field, test.operator, value) for value in test.values]
    if test.operator == "present":
        field = test.field
        return lambda view: is_present(view, field)
    if len(checks) == 1:
        return checks[0]
    if test.operator == "!=":
        return lambda view: all(check(view) for check in checks)
    return lambda view: any(check(view) for check in checks)


def is_present(view: MessageView, field: str) -> bool:
    return bool(view.number(field) if kind_of(field) in (NUMBER, DATE) else view.raw_text(field))


def _compile_value(field: str, operation: str, value: str | Number | Regex) -> Check:
    if isinstance(value, Regex):
        regex = CompiledRegex(value.source, value.ignores_case)
        if field == "text":
            return lambda view: regex.search(view.data_text)
        return lambda view: regex.search(view.raw_text(field))
    if isinstance(value, str) and kind_of(field) != DATE:
        return _compile_text(field, operation, value.lower())
    limit = parse_date(value) if isinstance(value, str) else value
    compare = COMPARISONS[operation]

    def check(view: MessageView) -> bool:
        number = view.number(field)
        return number is not None and compare(number, limit)

    return check


def _compile_text(field: str, operation: str, wanted: str) -> Check:
    if operation == "contains":
        if "*" in wanted:
            glob = CompiledRegex(glob_source(wanted))
            return lambda view: glob.search(view.text(field))
        return lambda view: wanted in view.text(field)
    is_negated = operation == "!="
    if field in LISTED:
        return lambda view: (wanted in parts_of(view.text(field))) is not is_negated
    return lambda view: (view.text(field) == wanted) is not is_negated


def glob_source(pattern: str) -> str:
    """A pattern with `*` (anything but a slash) and `**` (anything) as a regular expression for the whole text."""
    parts = re.split(r"(/\*\*$|\*\*|\*)", pattern)
    meanings = {"/**": r"(/(.|\n)*)?", "**": r"(.|\n)*", "*": "[^/]*"}
    return "^" + "".join(meanings.get(part) or re.sub(r"([^\w\s])", r"\\\1", part) for part in parts) + "$"


def needed_text(condition: Condition) -> tuple[str, str] | None:
    """A field and a text in it without which the condition cannot hold: the cheapest test, made before all others."""
    match condition:
        case Test(field, "contains", (str() as wanted,)) if "*" not in wanted and field != "text" and wanted:
            return (field, wanted.lower()) if not field.startswith("json") else None
        case And(conditions):
            return next((found for each in conditions if (found := needed_text(each)) is not None), None)
    return None
