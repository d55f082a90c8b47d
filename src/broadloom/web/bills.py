"""What the pipeline has billed, for one subscriber and for the topics of one operator. Read without Spark."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import itemgetter
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from broadloom.record.arrow_import import pa
from broadloom.web.table_catalog import Filter, OneOf, TableCatalog, reading_again

SUMMED = ("topic", "billing_month", "time_zone", "currency")
"""Rows of `invoices` that have these in common are added up."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What was used, and what it costs."""

    connected_ms: Decimal = Decimal(0)
    money: dict[str, Decimal] = field(default_factory=dict)
    """By currency."""

    def plus(self, other: "Amount") -> "Amount":
        money = dict(self.money)
        for currency, amount in other.money.items():
            money[currency] = money.get(currency, Decimal(0)) + amount
        return Amount(self.connected_ms + other.connected_ms, money)

    @property
    def text(self) -> str:
        return " + ".join(f"{money:,.2f} {currency}" for currency, money in sorted(self.money.items()))


def total(amounts: Iterable[Amount]) -> Amount:
    return reduce(Amount.plus, amounts, Amount())


class Bills:
    def __init__(self, folder: Path) -> None:
        self._catalog = TableCatalog(folder)

    @property
    def written_at(self) -> str:
        """When the tables were built; empty if there are none."""
        return self._catalog.written_at

    def months(self, subscriber: str) -> list[dict[str, Any]]:
        """The rows of `invoices` of a subscriber, newest month first."""
        chosen = Filter("subscriber", "is", subscriber)
        rows = reading_again(lambda: list(self._rows("invoices", chosen)))
        return sorted(rows, key=lambda row: (row["billing_month"], row["topic"] or ""), reverse=True)

    def revenue(self, topics: Iterable[str]) -> dict[str, Amount]:
        """What the subscribers of these topics owe for this month."""
        chosen = OneOf("topic", frozenset(topics))
        return reading_again(
            lambda: this_month(row for batch in self._batches("invoices", chosen) for row in _sums(batch))
        )

    def ads(self, topics: Iterable[str], count: int) -> list[dict[str, Any]]:
        """The last ads on these topics, newest first."""
        chosen = OneOf("topic", frozenset(topics))
        return reading_again(
            lambda: heapq.nlargest(count, self._rows("ad_broadcasts", chosen), key=itemgetter("broadcast_time"))
        )

    def _rows(self, name: str, chosen: Filter | OneOf) -> Iterator[dict[str, Any]]:
        return (row for batch in self._batches(name, chosen) for row in batch.to_pylist())

    def _batches(self, name: str, chosen: Filter | OneOf) -> Iterator[pa.RecordBatch]:
        entry = next((each for each in self._catalog.entries() if each.key == name), None)
        return self._catalog.batches(entry, chosen) if entry is not None and entry.rows else iter(())


def _sums(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A row for all subscribers: a batch can have tens of thousands of them."""
    sums = pa.Table.from_batches([batch]).group_by(SUMMED).aggregate([("connected_ms", "sum"), ("amount", "sum")])
    names = [each.removesuffix("_sum") for each in sums.column_names]
    found: list[dict[str, Any]] = sums.rename_columns(names).to_pylist()
    return found


def this_month(rows: Iterable[dict[str, Any]]) -> dict[str, Amount]:
    """By topic. The rows of a month that is not over add up to what it costs so far."""
    found: dict[str, Amount] = {}
    for row in rows:
        if row["billing_month"] == f"{datetime.now(ZoneInfo(row['time_zone'])):%Y-%m}":
            money = {row["currency"]: row["amount"]} if row["currency"] and row["amount"] is not None else {}
            amount = Amount(Decimal(row["connected_ms"] or 0), money)
            found[row["topic"] or ""] = found.get(row["topic"] or "", Amount()).plus(amount)
    return found
