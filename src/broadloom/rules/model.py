"""Rules as Python objects: what the parser makes of a file, and what a program can write down itself.

A `Rule` has a condition, the actions if it holds, and those if it does not. A rule may itself be an action: that is how
rules nest. All objects are immutable, and two are equal if they mean the same.
"""

from dataclasses import dataclass, field

Number = int | float


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression; `regex.py` has the syntax."""

    source: str
    ignores_case: bool = False

    def __post_init__(self) -> None:
        """One spelling: a slash needs no backslash, and a newline is `\\n`."""
        parts, at = [], 0
        while at < len(self.source):
            size = 2 if self.source[at] == "\\" else 1
            part = self.source[at : at + size]
            parts.append({"\\/": "/", "\n": "\\n", "\\\n": "\\n"}.get(part, part))
            at += size
        object.__setattr__(self, "source", "".join(parts))


# -- conditions


@dataclass(frozen=True, slots=True)
class Test:
    """One field compared with values; `fields.py` lists the fields. It holds if any of the values fits."""

    __test__ = False  # not for pytest

    field: str
    operator: str = "present"
    """`contains`, `=`, `!=`, `<`, `<=`, `>`, `>=`, `matches` or `present`."""
    values: tuple[str | Number | Regex, ...] = ()


@dataclass(frozen=True, slots=True)
class And:
    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    condition: "Condition"


@dataclass(frozen=True, slots=True)
class Named:
    """A condition written in Python (`broadloom.rules.condition`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool


Condition = Test | And | Or | Not | Named | Constant


# -- actions


@dataclass(frozen=True, slots=True)
class Copy:
    """Write the data to a new file in this directory."""

    directory: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send the message as it is now to one member, by name or peer id, too."""

    member: str


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the message as it is now on another channel, too."""

    channel: str


@dataclass(frozen=True, slots=True)
class Encrypt:
    """Encrypt the data for the holders of these public keys, which are files."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compress:
    """Compress the data, if that makes it smaller."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run a program, or an action written in Python: its name, which may have several words, and arguments."""

    words: tuple[str, ...]
    keeps_data: bool = False
    """The output is ignored. Otherwise it replaces the data."""


@dataclass(frozen=True, slots=True)
class Set:
    """Set `topic`, `content-type`, `priority`, `ttl` or a header. An empty value removes it."""

    field: str
    value: str | Number


@dataclass(frozen=True, slots=True)
class Redact:
    """Replace what is found in the data: `card-numbers`, `emails`, or a regular expression."""

    what: str | Regex


@dataclass(frozen=True, slots=True)
class Hold:
    """Store the message until a person releases or drops it."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not send the message."""

    reason: str = "refused"


@dataclass(frozen=True, slots=True)
class Stop:
    """Send the message as it is now, without looking at further rules."""


@dataclass(frozen=True, slots=True)
class Comment:
    """Does nothing. Kept so that formatting a file does not lose its comments."""

    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """IF the condition holds THEN these actions ELSE those."""

    when: Condition
    then: "tuple[Action, ...]"
    otherwise: "tuple[Action, ...]" = ()
    name: str = ""
    line: int = field(default=0, compare=False)
    """Where it is in its file; 0 for rules that are not from one."""
    column: int = field(default=0, compare=False)

    def label(self, number: int) -> str:
        """How errors and counters call it. `number` counts the rules that are not nested, from 1."""
        where = f" (line {self.line})" if self.line else ""
        return f'rule "{self.name}"{where}' if self.name else f"rule {number}{where}"


Action = Copy | Send | Forward | Encrypt | Compress | Run | Set | Redact | Hold | Refuse | Stop | Comment | Rule
