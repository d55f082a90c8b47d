"""How deeply the JSON values of other members may be nested.

Without a limit, the stack of each process would be one: some members could read a value, and others could not.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

NESTING_MAX = 32
"""Levels of lists and dictionaries in what one member sends."""


def levels_of(value: Any) -> Iterator[list[Any]]:
    """The lists and dictionaries in a value, level by level: a recursive function would meet the limit of its
    process."""
    level = [value]
    while level := [each for each in level if isinstance(each, dict | list | tuple)]:
        yield level
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]


def is_too_deep(value: Any) -> bool:
    return any(islice(levels_of(value), NESTING_MAX, None))
