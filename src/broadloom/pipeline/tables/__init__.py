"""All tables in build order: each table comes after the tables it depends on.

To add a table, write a module in this folder that defines `TABLE` and add its name to `_MODULES`.
"""

from functools import cache
from importlib import import_module

from broadloom.errors import BroadloomError
from broadloom.pipeline.table import Table

_MODULES = (
    "quarantine",
    "messages",
    "deliveries",
    "clock_offsets",
    "recorded_peers",
    "membership_intervals",
    "links",
    "delivery_balances",
    "requests",
    "audit_findings",
    "audit_summary",
    "fabric_snapshots",
    "repairs",
    "latency",
    "redundancy",
    "link_latency",
    "thread_positions",
    "threads",
    "channels",
    "sessions",
    "usage",
    "auction_lots",
    "invoices",
    "ad_broadcasts",
    "ad_fees",
    "activity",
    "author_stats",
    "group_stats",
    "topic_stats",
    "request_stats",
    "rule_stats",
    "mailbox_stats",
    "game_rounds",
    "meetings",
)


class TableNotFoundError(BroadloomError):
    """No table has this name. The message lists the tables."""


@cache
def all_tables() -> tuple[Table, ...]:
    return tuple(import_module(f"{__name__}.{name}").TABLE for name in _MODULES)


def table(name: str) -> Table:
    for each in all_tables():
        if each.name == name:
            return each
    raise TableNotFoundError(f"unknown table {name!r}; tables: {', '.join(each.name for each in all_tables())}")


def with_dependencies(names: list[str]) -> tuple[Table, ...]:
    """These tables and everything they depend on, in build order."""
    wanted: set[str] = set()
    pending = [table(name) for name in names]
    while pending:
        each = pending.pop()
        if each.name not in wanted:
            wanted.add(each.name)
            pending += [table(name) for name in each.depends_on]
    return tuple(each for each in all_tables() if each.name in wanted)
