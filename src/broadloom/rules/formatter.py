"""Rules as text, the same for all files: the inverse of the parser."""

from collections.abc import Sequence

from broadloom.rules import model
from broadloom.rules.parser import ACTIONS, SHELL_WORDS, Item
from broadloom.rules.scanner import WORD

INDENT = "  "
WIDTH = 100
"""A condition that is longer gets a line of its own."""
_RESERVED = {*ACTIONS, "if", "rule", "then", "else", "and", "or", "not"}


def format_rules(items: Sequence[Item]) -> str:
    """The text of a rule file."""
    parts: list[str] = []
    for number, item in enumerate(items):
        is_commented = number and isinstance(items[number - 1], model.Comment)
        if number and not is_commented:
            parts.append("")
        parts += format_action(item)
    return "\n".join(parts) + ("\n" if parts else "")


def format_action(action: model.Action, indent: str = "") -> list[str]:
    """The lines of an action."""
    if not isinstance(action, model.Rule):
        return [f"{indent}{_simple_action(action)}"]
    name = f"RULE {_string(action.name)} " if action.name else ""
    condition = format_condition(action.when)
    lines = [f"{indent}{name}IF {{ {condition} }}"]
    if len(lines[0]) > WIDTH:
        lines = [f"{indent}{name}IF {{", f"{indent}{INDENT}{condition}", f"{indent}}}"]
    lines += _block("THEN", action.then, indent)
    return lines + (_block("ELSE", action.otherwise, indent) if action.otherwise else [])


def _block(keyword: str, actions: Sequence[model.Action], indent: str) -> list[str]:
    inner = [line for each in actions for line in format_action(each, indent + INDENT)]
    return [f"{indent}{keyword} {{", *inner, f"{indent}}}"]


def _simple_action(action: model.Action) -> str:
    match action:
        case model.Comment(text):
            return f"# {text}".rstrip()
        case model.Copy(directory):
            return f"copy {_string(directory)}"
        case model.Send(member):
            return f"send {_string(member)}"
        case model.Forward(channel):
            return f"forward {_string(channel)}"
        case model.Encrypt(keys):
            return f"encrypt for {' '.join(map(_string, keys))}"
        case model.Compress():
            return "compress"
        case model.Run(words, keeps_data):
            first = words[0] if _is_word(words[0]) and words[0].lower() not in _RESERVED else _string(words[0])
            rest = [word if _is_word(word) else _string(word) for word in words[1:]]
            return " ".join([first, *rest, "< $" if keeps_data else "$"])
        case model.Set(field, value):
            name = field if _is_word(field) else _string(field)
            return f"set {name} {_value(value)}"
        case model.Redact(what):
            return f"redact {what if isinstance(what, str) else _regex(what)}"
        case model.Hold(reason):
            return f"hold {_string(reason)}" if reason else "hold"
        case model.Refuse(reason):
            return f"refuse {_string(reason)}"
        case model.Stop():
            return "stop"
    raise TypeError(f"not an action: {action!r}")


def format_condition(condition: model.Condition) -> str:
    match condition:
        case model.Test(field, operator, values):
            return _test(field, operator, values)
        case model.And(conditions):
            return " AND ".join(map(_operand, conditions))
        case model.Or(conditions):
            return " OR ".join(map(_operand, conditions))
        case model.Not(inner):
            return f"NOT {_operand(inner)}"
        case model.Named(name):
            return name
        case model.Constant(value):
            return "true" if value else "false"


def _operand(condition: model.Condition) -> str:
    text = format_condition(condition)
    return f"({text})" if isinstance(condition, model.And | model.Or) else text


def _test(field: str, operator: str, values: Sequence[str | model.Number | model.Regex]) -> str:
    if operator == "present":
        return field
    if operator == "contains" or len(values) > 1:
        return f"{field}({', '.join(map(_value, values))})"
    if operator == "matches" and field == "text":
        return f"matches({_value(values[0])})"
    return f"{field} {operator} {_value(values[0])}"


def _value(value: str | model.Number | model.Regex) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, model.Regex):
        return _regex(value)
    return f"{value:.9f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value}"


def _regex(regex: model.Regex) -> str:
    parts, at = [], 0
    while at < len(regex.source):
        size = 2 if regex.source[at] == "\\" else 1
        part = regex.source[at : at + size]
        parts.append("\\/" if part == "/" else part)
        at += size
    return f"/{''.join(parts)}/{'i' if regex.ignores_case else ''}"


def _is_word(text: str) -> bool:
    return WORD.fullmatch(text) is not None and not text.startswith("$") and text not in SHELL_WORDS


def _string(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(each) or _visible(each) for each in text) + '"'


def _visible(character: str) -> str:
    return character if character.isprintable() or ord(character) > 255 else f"\\x{ord(character):02x}"
