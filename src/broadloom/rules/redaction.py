"""Finding what must not leave in a text, and replacing it.

The detectors use fixed patterns that cannot backtrack far; patterns of users go through `regex.py`.
"""

import re
from collections.abc import Iterator

from broadloom.rules.model import Regex
from broadloom.rules.regex import CompiledRegex

REPLACEMENT = "[redacted]"
DETECTORS = ("card-numbers", "emails")

_CARD = re.compile(r"(?<![0-9])[0-9](?:[ -]?[0-9]){12,18}(?![0-9])")
"""13 to 19 digits, as payment cards have."""
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")


class Redactor:
    """What one `redact` action does."""

    def __init__(self, what: str | Regex) -> None:
        if isinstance(what, str) and what not in DETECTORS:
            raise ValueError(f"redact {what}: must be {' or '.join(DETECTORS)}, or a regular expression")
        self._what = what
        self._regex = CompiledRegex(what.source, what.ignores_case) if isinstance(what, Regex) else None

    def redact(self, text: str) -> str:
        """The text with `[redacted]` in place of what was found; the same object if nothing was."""
        parts, at = [], 0
        for begin, end in self._spans(text):
            parts += [text[at:begin], REPLACEMENT]
            at = end
        return "".join([*parts, text[at:]]) if parts else text

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        if self._regex is not None:
            yield from self._regex.covered(text)
        elif self._what == "emails":
            yield from (found.span() for found in _EMAIL.finditer(text))
        else:
            for found in _CARD.finditer(text):
                if _has_luhn_checksum([int(each) for each in found[0] if each.isdigit()]):
                    yield found.span()


def _has_luhn_checksum(digits: list[int]) -> bool:
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
