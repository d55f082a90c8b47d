"""The rule language: recursive descent from text to the objects of `model.py`.

    RULE "name" IF { condition } THEN { actions } ELSE { actions }

Every mistake has a line and a column. After one, reading goes on at the next rule that begins a line, so that all
mistakes of a file are shown.
"""

import re
from typing import Literal

from broadloom.rules import model
from broadloom.rules.conditions import COMPARISONS, check_test
from broadloom.rules.fields import FIELDS, NUMBER, kind_of
from broadloom.rules.redaction import DETECTORS
from broadloom.rules.scanner import (
    MISTAKES_MAX,
    SOURCE_BYTES_MAX,
    Mistake,
    RulesSyntaxError,
    Scanner,
    SyntaxMistakeError,
)
from broadloom.wire.broadcast_frame import Priority

DEPTH_MAX = 50
"""Rules in rules, and conditions in conditions."""
ACTIONS = ("copy", "send", "forward", "encrypt", "compress", "transform", "set", "redact", "hold", "refuse", "stop")
SHELL_WORDS = ("|", "||", "&", "&&", ">", ">>")
_RULE_START = re.compile(r"^(?:IF|RULE)\b", re.M | re.I)

Item = model.Rule | model.Comment


def parse(text: str, name: str = "") -> tuple[Item, ...]:
    """The rules of a text, and the comments between them. Raises `RulesSyntaxError` with all mistakes."""
    if len(text) > SOURCE_BYTES_MAX:
        raise RulesSyntaxError((Mistake(1, 1, f"more than {SOURCE_BYTES_MAX:,} characters"),), name)
    parser = _Parser(text)
    items: list[Item] = []
    mistakes: list[Mistake] = []
    while len(mistakes) < MISTAKES_MAX:
        try:
            parser.scanner.skip()
            items += parser.take_comments()
            if parser.scanner.is_at_end:
                break
            items.append(parser.rule())
        except SyntaxMistakeError as problem:
            mistakes.append(Mistake(*parser.scanner.place(problem.position), str(problem)))
            following = _RULE_START.search(text, max(problem.position, parser.scanner.at) + 1)
            if following is None:
                break
            parser.restart(following.start())
    if mistakes:
        raise RulesSyntaxError(tuple(mistakes), name)
    return tuple(items)


class _Parser:
    def __init__(self, text: str) -> None:
        self.scanner = Scanner(text)
        self._depth = 0

    def restart(self, position: int) -> None:
        self.scanner.at = position
        self.scanner.comments.clear()
        self._depth = 0

    def take_comments(self) -> list[model.Comment]:
        comments = [model.Comment(text) for text in self.scanner.comments]
        self.scanner.comments.clear()
        return comments

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self.scanner.mistake(f"more than {DEPTH_MAX} levels")

    # -- rules

    def rule(self) -> model.Rule:
        scanner = self.scanner
        line, column = scanner.place(scanner.at)
        name = self._text("after RULE", "the name of the rule") if scanner.take_keyword("RULE") else ""
        if not scanner.take_keyword("IF"):
            raise scanner.mistake(f"expected IF, found {scanner.shown()}")
        self._deeper()
        scanner.expect("{", "after IF")
        condition = self._or()
        scanner.expect("}", "after the condition; conditions are joined by AND or OR")
        if not scanner.take_keyword("THEN"):
            raise scanner.mistake(f"expected THEN, found {scanner.shown()}")
        then = self._block("THEN")
        otherwise = self._block("ELSE") if scanner.take_keyword("ELSE") else ()
        self._depth -= 1
        return model.Rule(condition, then, otherwise, name, line, column)

    def _block(self, keyword: str) -> tuple[model.Action, ...]:
        scanner = self.scanner
        scanner.expect("{", f"after {keyword}")
        actions: list[model.Action] = []
        while True:
            scanner.skip()
            actions += self.take_comments()
            if scanner.take("}"):
                return tuple(actions)
            if scanner.is_at_end:
                raise scanner.mistake("expected an action or `}`, found the end of the file")
            if not scanner.take(";"):
                actions.append(self._action())

    # -- conditions

    def _or(self) -> model.Condition:
        return self._joined("OR")

    def _joined(self, keyword: Literal["AND", "OR"]) -> model.Condition:
        operand = self._not if keyword == "AND" else lambda: self._joined("AND")
        conditions = [operand()]
        while self.scanner.take_keyword(keyword):
            conditions.append(operand())
        if len(conditions) == 1:
            return conditions[0]
        return model.And(tuple(conditions)) if keyword == "AND" else model.Or(tuple(conditions))

    def _not(self) -> model.Condition:
        self._deeper()
        try:
            if self.scanner.take_keyword("NOT"):
                return model.Not(self._not())
            if self.scanner.take("("):
                inner = self._or()
                self.scanner.expect(")", "at the end of the condition")
                return inner
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> model.Condition:
        scanner = self.scanner
        scanner.skip()
        begin = scanner.at
        name = scanner.name()
        if name is None or name.upper() in ("IF", "THEN", "ELSE", "AND", "OR", "RULE"):
            raise scanner.mistake(f"expected a condition, found {scanner.shown() if name is None else name}", begin)
        lowered = name.lower()
        if lowered in ("true", "false"):
            return model.Constant(lowered == "true")
        if lowered == "matches":
            scanner.expect("(", "after matches")
            test = model.Test("text", "matches", (self._regex(),))
            scanner.expect(")", "after the regular expression")
            return test
        head, dot, path = name.partition(".")
        field = head.lower() + dot + path
        if kind_of(field) is None:
            return self._named(name, begin)
        test = self._comparison(field)
        try:
            check_test(test)
        except ValueError as problem:
            raise scanner.mistake(str(problem), begin) from None
        return test

    def _named(self, name: str, begin: int) -> model.Named:
        """A condition written in Python has no operator."""
        scanner = self.scanner
        scanner.skip()
        if scanner.peek() in ("(", '"', "<", ">", "=", "!"):
            known = ", ".join([*FIELDS, "header.NAME", "json.PATH"])
            raise scanner.mistake(f"there is no field `{name}`; fields are {known}", begin)
        return model.Named(name)

    def _comparison(self, field: str) -> model.Test:
        scanner = self.scanner
        scanner.skip()
        if scanner.take("("):
            values = [self._value(field)]
            while scanner.take(","):
                values.append(self._value(field))
            scanner.expect(")", f"after the values of {field}")
            return model.Test(field, "contains" if isinstance(values[0], str) else "=", tuple(values))
        if scanner.peek() == '"':
            return model.Test(field, "contains", (self._value(field),))
        if scanner.take_keyword("MATCHES"):
            return model.Test(field, "matches", (self._regex(),))
        for symbol in sorted(COMPARISONS, key=len, reverse=True):
            if scanner.take(symbol):
                return model.Test(field, symbol, (self._value(field),))
        return model.Test(field)

    def _value(self, field: str) -> str | model.Number:
        scanner = self.scanner
        scanner.skip()
        value: str | model.Number | None = scanner.string()
        if value is None:
            value = scanner.number()
        if value is None and field == "priority" and (name := scanner.name()) is not None:
            value = _priority(name)
        if value is None:
            what = "a number" if kind_of(field) == NUMBER else "a text in quotes"
            raise scanner.mistake(f"expected {what} after {field}, found {scanner.shown()}")
        return value

    def _regex(self) -> model.Regex:
        self.scanner.skip()
        regex = self.scanner.regex()
        if regex is None:
            raise self.scanner.mistake(f"expected a regular expression as in /[A-Z]+/, found {self.scanner.shown()}")
        return regex

    # -- actions

    def _text(self, where: str, what: str) -> str:
        """A string, or one word."""
        self.scanner.skip_in_line()
        text = self.scanner.string()
        if text is None:
            text = self.scanner.word()
        if not text:
            raise self.scanner.mistake(f"expected {what} {where}, found {self.scanner.shown()}")
        return text

    def _optional_text(self, default: str) -> str:
        self.scanner.skip_in_line()
        text = self.scanner.string()
        return default if text is None else text

    def _action(self) -> model.Action:
        scanner = self.scanner
        begin = scanner.at
        if scanner.looking_at("IF") or scanner.looking_at("RULE"):
            return self.rule()
        if scanner.peek() == '"':
            return self._run()
        word = scanner.word()
        if word is None:
            raise scanner.mistake(f"expected an action, found {scanner.shown()}")
        match word.lower():
            case "copy":
                return model.Copy(self._text("after copy", "a directory"))
            case "send":
                return model.Send(self._text("after send", "a member"))
            case "forward":
                return model.Forward(self._text("after forward", "a channel"))
            case "encrypt":
                return self._encrypt()
            case "compress":
                return self._compress()
            case "transform":
                scanner.skip_in_line()
                return self._run()
            case "set":
                return self._set()
            case "redact":
                return self._redact()
            case "hold":
                return model.Hold(self._optional_text(""))
            case "refuse":
                return model.Refuse(self._optional_text("refused"))
            case "stop":
                return model.Stop()
            case "then" | "else" | "and" | "or" | "not":
                raise scanner.mistake(f"expected an action, found {word}", begin)
        scanner.at = begin
        return self._run()

    def _encrypt(self) -> model.Encrypt:
        scanner = self.scanner
        scanner.skip_in_line()
        if not scanner.looking_at("FOR"):
            raise scanner.mistake('expected `for` and public keys, as in encrypt for "com.pub"')
        scanner.at += len("for")
        keys = [self._text("after for", "a public key")]
        scanner.skip_in_line()
        while scanner.peek() == '"':
            keys.append(self._text("after for", "a public key"))
            scanner.skip_in_line()
        return model.Encrypt(tuple(keys))

    def _compress(self) -> model.Compress:
        scanner = self.scanner
        scanner.skip_in_line()
        begin = scanner.at
        method = scanner.name()
        if method is not None and method.lower() != "zlib":
            scanner.at = begin
            if method.lower() in ("zstd", "gzip", "lzma", "bz2", "brotli"):
                raise scanner.mistake(f"{method} is not supported; messages are compressed with zlib")
        return model.Compress()

    def _set(self) -> model.Set:
        scanner = self.scanner
        field = self._text("after set", "a field or the name of a header")
        scanner.skip_in_line()
        value: str | model.Number | None = scanner.string()
        if field in ("priority", "ttl"):
            begin = scanner.at
            value = scanner.number() if value is None else value
            if value is None and field == "priority":
                value = _priority(scanner.name() or "")
            if value is None or isinstance(value, str):
                raise scanner.mistake(f"expected a number after set {field}", begin)
        elif value is None:
            raise scanner.mistake(f"expected a text in quotes after set {field}, found {scanner.shown()}")
        return model.Set(field, value)

    def _redact(self) -> model.Redact:
        scanner = self.scanner
        scanner.skip_in_line()
        regex = scanner.regex()
        if regex is not None:
            return model.Redact(regex)
        begin = scanner.at
        word = scanner.word()
        if word not in DETECTORS:
            raise scanner.mistake(f"expected {', '.join(DETECTORS)} or a regular expression after redact", begin)
        return model.Redact(word)

    def _run(self) -> model.Run:
        """A program: words to the end of the line, `;` or `}`."""
        scanner = self.scanner
        words: list[str] = []
        keeps_data = replaces_data = False
        while True:
            scanner.skip_in_line()
            begin = scanner.at
            quoted = scanner.string()
            if quoted is not None:
                words.append(quoted)
                continue
            if scanner.take_flag("<"):
                scanner.skip_in_line()
                if scanner.word() != "$":
                    raise scanner.mistake("after `<` only `$`, the data, can stand", begin)
                keeps_data = True
                continue
            word = scanner.word()
            if word is None:
                if scanner.peek() == ">":
                    raise scanner.mistake("programs run without a shell: output cannot be redirected")
                if scanner.peek() == "{":
                    raise scanner.mistake("expected an action, found `{`")
                break
            if word in SHELL_WORDS:
                raise scanner.mistake(f"programs run without a shell: `{word}` has no meaning", begin)
            if word == "$":
                replaces_data = True
            elif word.startswith("$/"):
                keeps_data = True
                words.append(word[1:])
            elif word.startswith("$"):
                raise scanner.mistake("`$` is the data, and there are no variables; put the word in quotes", begin)
            else:
                words.append(word)
        if not words or not words[0]:
            raise scanner.mistake(f"expected the name of a program, found {scanner.shown()}")
        if keeps_data and replaces_data:
            raise scanner.mistake("`$` and `< $` exclude each other: the output either replaces the data or does not")
        return model.Run(tuple(words), keeps_data)


def _priority(name: str) -> int | None:
    return Priority[name.upper()].value if name.upper() in Priority.__members__ else None
