"""All tables, in the order in which they are built: a table comes after those that it needs.

A new table is one line in `_MODULES`: the name of a file in this folder that defines `TABLE`.
"""

from functools import cache
from importlib import import_module

from broadloom.errors import BroadloomError
from broadloom.pipeline.table import Table

_MODULES = (
    "quarantine",
    "messages",
    "deliveries",
    "recorded_peers",
    "delivery_balances",
    "audit_findings",
    "audit_summary",
    "clock_offsets",
    "membership_intervals",
    "links",
    "fabric_snapshots",
    "repairs",
    "latency",
    "redundancy",
    "link_latency",
    "thread_positions",
    "threads",
    "channels",
    "sessions",
    "invoices",
    "ad_broadcasts",
    "ad_fees",
    "rosters",
    "activity",
    "author_stats",
    "group_stats",
    "topic_stats",
)


class TableNotFoundError(BroadloomError):
    """The text says which there are."""


@cache
def all_tables() -> tuple[Table, ...]:
    return tuple(import_module(f"{__name__}.{name}").TABLE for name in _MODULES)


def table(name: str) -> Table:
    for each in all_tables():
        if each.name == name:
            return each
    raise TableNotFoundError(f"there is no table {name!r}; there are: {', '.join(each.name for each in all_tables())}")


def with_dependencies(names: list[str]) -> tuple[Table, ...]:
    """These tables and all that they need, in the order of building."""
    wanted: set[str] = set()
    waiting = [table(name) for name in names]
    while waiting:
        each = waiting.pop()
        if each.name not in wanted:
            wanted.add(each.name)
            waiting += [table(name) for name in each.depends_on]
    return tuple(each for each in all_tables() if each.name in wanted)
