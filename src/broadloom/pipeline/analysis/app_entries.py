"""Entries of applications over a channel: games, meetings and auctions. Several peers record each of them."""

import polars as pl

from broadloom.record.schema import EventKind

EVENT_COLUMNS = ("kind", "event_time", "peer", "author", "sequence", "name", "status", "reason", "owner", "actions")


def app_entries(events: pl.DataFrame) -> pl.DataFrame:
    """The entries of a part."""
    found = events.filter(pl.col("kind").eq(EventKind.APP_ENTRY.value))
    return found.select(*(each for each in EVENT_COLUMNS if each not in ("kind", "actions")), figures="actions")


def entries_of(rows: pl.DataFrame, application: str) -> pl.DataFrame:
    """Those of one application, in an order that does not depend on that of the parts."""
    return rows.filter(pl.col("name") == application).sort("event_time", "peer", "author", "sequence", "status")


def figure(name: str) -> pl.Expr:
    """A figure of an entry, as text; null if there is none."""
    return pl.col("figures").str.json_path_match(f"$.{name}")


def count_entries(condition: pl.Expr) -> pl.Expr:
    """Entries for which the condition holds, each once, however many peers recorded it."""
    return pl.struct("author", "sequence").filter(condition).n_unique().cast(pl.Int64)
