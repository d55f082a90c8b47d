"""How deeply the JSON values of other members may be nested.

Without a limit, the stack of each process would be one: some members could read a value, and others could not.
"""

from typing import Any

NESTING_MAX = 32
"""Levels of lists and dictionaries in what one member sends."""


def is_too_deep(value: Any, levels_max: int = NESTING_MAX) -> bool:
    """Level by level, because a recursive function would meet the limit of its process."""
    level = [value]
    for _ in range(levels_max + 1):
        level = [each for each in level if isinstance(each, dict | list | tuple)]
        if not level:
            return False
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return True
