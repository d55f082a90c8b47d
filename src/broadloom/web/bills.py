"""What the pipeline has billed, for one subscriber and for the topics of one operator. Read without Spark."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from broadloom.web.table_catalog import Filter, TableCatalog

ROWS_MAX = 20_000
"""Rows of a table that are read for a page."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What was used, and what it costs."""

    connected_ms: Decimal = Decimal(0)
    money: Decimal = Decimal(0)
    currency: str = ""

    def plus(self, row: dict[str, Any]) -> "Amount":
        return Amount(
            self.connected_ms + (row["connected_ms"] or 0),
            self.money + (row["amount"] or 0),
            self.currency or row["currency"] or "",
        )

    @property
    def text(self) -> str:
        return f"{self.money:,.2f} {self.currency}".strip()


class Bills:
    def __init__(self, folder: Path) -> None:
        self._catalog = TableCatalog(folder)

    @property
    def written_at(self) -> str:
        """When the tables were built; empty if there are none."""
        return self._catalog.written_at

    def months(self, subscriber: str) -> list[dict[str, Any]]:
        """The rows of `invoices` of a subscriber, newest month first."""
        rows = self._rows("invoices", Filter("subscriber", "is", subscriber))
        return sorted(rows, key=lambda row: (row["billing_month"], row["topic"] or ""), reverse=True)

    def revenue(self, topics: Iterable[str]) -> dict[str, Amount]:
        """What the subscribers of these topics owe for this month."""
        wanted = frozenset(topics)
        return this_month(row for row in self._rows("invoices", Filter()) if row["topic"] in wanted)

    def ads(self, topics: Iterable[str]) -> list[dict[str, Any]]:
        """The ads on these topics, newest first."""
        wanted = frozenset(topics)
        rows = [row for row in self._rows("ad_broadcasts", Filter()) if row["topic"] in wanted]
        return sorted(rows, key=lambda row: row["broadcast_time"], reverse=True)

    def _rows(self, name: str, chosen: Filter) -> list[dict[str, Any]]:
        entry = next((each for each in self._catalog.entries() if each.key == name), None)
        if entry is None:
            return []
        found: list[dict[str, Any]] = self._catalog.page(entry, chosen, 0, ROWS_MAX).to_pylist()
        return found


def this_month(rows: Iterable[dict[str, Any]]) -> dict[str, Amount]:
    """By topic. The rows of a month that is not over add up to what it costs so far."""
    found: dict[str, Amount] = {}
    for row in rows:
        if row["billing_month"] == f"{datetime.now(ZoneInfo(row['time_zone'])):%Y-%m}":
            found[row["topic"] or ""] = found.get(row["topic"] or "", Amount()).plus(row)
    return found
