"""Which group somebody means: by what it is called, by the text it was made by, or by the first digits of its id."""

import hashlib
from collections.abc import Iterable

from weft.groups.errors import NoSuchGroup
from weft.groups.events import GroupInfo
from weft.groups.names import GroupId

DIGITS_MIN = 4
"""Of an id: fewer may be a word."""
TOLD_MAX = 10
"""Groups named in an error."""


def group_id(identity: str) -> GroupId:
    """The id of a group that all find by the same text."""
    return int.from_bytes(hashlib.sha256(b"weft group\0" + identity.encode()).digest()[:8], "big") or 1


class Ambiguous(NoSuchGroup):
    """Several groups are called the same."""


def meant(text: str, groups: Iterable[GroupInfo]) -> GroupInfo:
    """The one group that is called this; NoSuchGroup, with those that there are, if there is none, or more than one."""
    known = list(groups)
    folded = text.casefold()
    digits = text.lower() if len(text) >= DIGITS_MIN else "?"
    for found in (
        [each for each in known if text in (each.description, _title(each))],
        [each for each in known if each.id == group_id(text)],
        [each for each in known if folded in (each.description.casefold(), _title(each).casefold())],
        [each for each in known if f"{each.id:016x}".startswith(digits)],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise Ambiguous(f"several groups are called {text!r}; give the id of one: {_told(found)}")
    there = f"there are: {_told(known)}" if known else "none is known here"
    raise NoSuchGroup(f"no group is called {text!r}; {there}")


def _title(group: GroupInfo) -> str:
    """A description may have a title: its first line."""
    return group.description.partition("\n")[0]


def _told(groups: list[GroupInfo]) -> str:
    named = [f"{each.id:016x} {each.description!r}" for each in groups[:TOLD_MAX]]
    more = [f"and {len(groups) - TOLD_MAX:,} more"] if len(groups) > TOLD_MAX else []
    return ", ".join([*named, *more])
