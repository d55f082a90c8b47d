"""Parts of months: a subscriber that starts, ends or changes its plan within a month is billed for parts of it.

A part is a range of days. What was issued decides on the parts of its month; a month without an invoice follows the
billing file. Most months have one part, and then nothing here has any effect.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import polars as pl

from broadloom.pipeline.billing.config import BillingConfig, Subscriber
from broadloom.pipeline.billing.months import (
    NO_PERIODS,
    PERIOD_KEYS,
    add_months,
    day_start_us,
    days_of,
    month_start_us,
    months_between,
)
from broadloom.pipeline.billing.terms import parse_terms, terms_of


def first_day(issued_terms: str | None) -> int:
    """The first day that an issued invoice is for."""
    days = parse_terms(issued_terms).days if issued_terms is not None else None
    return days[0] if days is not None else 1


def with_topic_of_channel(sessions: pl.DataFrame, billing: BillingConfig) -> pl.DataFrame:
    """Sessions without a topic get the only topic of their channel (`BillingConfig.topic_of`)."""
    only = {channel: billing.topic_of(channel) for channel in sessions["channel"].unique().to_list()}
    known = {channel: topic for channel, topic in only.items() if topic is not None}
    if not known:
        return sessions
    return sessions.with_columns(topic=pl.coalesce("topic", pl.col("channel").replace_strict(known, default=None)))


def parts_of_months(
    sessions: pl.DataFrame, issued: pl.DataFrame, billing: BillingConfig, tapes_end_us: object
) -> pl.DataFrame:
    """First and last day of each part, of the months that have several or begin late. `issued` has `first_day`."""
    keys = PERIOD_KEYS[:-1]
    rows: list[tuple[Any, ...]] = []
    known = {tuple(row[:-1]): None for row in issued.select(*keys, "first_day").rows()}
    for *key, terms in issued.filter(pl.col("kind") == "invoice").select(*keys, "terms").rows():
        days = parse_terms(terms).days
        if days is not None:
            rows.append((*key, days[0], days[1]))
    dated = {each.name for each in billing.subscribers if each.first_day or each.last_day}
    if dated and sessions.height:
        within = sessions.select(
            first=pl.col("start_time").min().dt.timestamp("us"), last=pl.col("end_time").max().dt.timestamp("us")
        ).row(0)
        last = max(within[1], tapes_end_us) if isinstance(tapes_end_us, int) else within[1]
        names = sessions.filter(pl.col("subscriber").is_in(dated)).select("channel", "subscriber", "topic").unique()
        for month in months_between(within[0], last, billing.time_zone):
            for channel, subscriber, topic in names.sort("channel", "subscriber", "topic").rows():
                if (channel, subscriber, topic, month) not in known:
                    cuts = _cuts(billing, channel, subscriber, topic, month)
                    rows += [(channel, subscriber, topic, month, *part) for part in cuts if len(cuts) > 1]
    return pl.DataFrame(rows, schema=NO_PERIODS.schema, orient="row") if rows else NO_PERIODS


def _cuts(
    billing: BillingConfig, channel: str | None, subscriber: str, topic: str | None, month: str
) -> list[tuple[int, int]]:
    """The parts of a month, by the days on which listings begin and end."""
    starts = {1}
    for each in billing.subscribers:
        if each.name == subscriber and each.rank(channel, topic) is not None:
            first, last = each.days
            if each.first_day and first[:7] == month:
                starts.add(int(first[8:]))
            if each.last_day and last[:7] == month and int(last[8:]) < days_of(month):
                starts.add(int(last[8:]) + 1)
    ordered = sorted(starts)
    return list(zip(ordered, [*(each - 1 for each in ordered[1:]), days_of(month)], strict=True))


def bounds_of(row: tuple[Any, ...], billing: BillingConfig) -> tuple[int, bool, int, int, int]:
    """Last day, whether it is a part, start and end of the part, and end of the month, of a row with `PERIOD_KEYS` and
    the issued terms."""
    channel, subscriber, topic, month, first, issued_terms = row
    end_us = month_start_us(add_months(month), billing.time_zone)
    if issued_terms is not None:
        days = parse_terms(issued_terms).days
        last = days[1] if days is not None else days_of(month)
    else:
        parts = _cuts(billing, channel, subscriber, topic, month)
        last = next((end for start, end in parts if start == first), days_of(month))
    is_part = (first, last) != (1, days_of(month))
    if not is_part:
        return last, False, month_start_us(month, billing.time_zone), end_us, end_us
    stop_us = end_us if last == days_of(month) else day_start_us(f"{month}-{last + 1:02}", billing.time_zone)
    return last, True, day_start_us(f"{month}-{first:02}", billing.time_zone), stop_us, end_us


class PlanChooser:
    """The plan of a subscriber for a part of a month, and its terms as text."""

    def __init__(self, billing: BillingConfig) -> None:
        self._billing = billing
        self._by_name: defaultdict[str, list[Subscriber]] = defaultdict(list)
        for each in billing.subscribers:
            self._by_name[each.name].append(each)
        self._terms = {name: terms_of(plan, billing.digits, billing.rounding) for name, plan in billing.plans.items()}
        self._texts = {name: each.to_json() for name, each in self._terms.items()}

    def __call__(
        self, subscriber: str, channel: str, topic: str | None, month: str, first: int, last: int, is_part: bool
    ) -> tuple[str | None, str | None]:
        day = f"{month}-{first:02}"
        ranked = [
            (rank, each.plan)
            for each in self._by_name.get(subscriber, ())
            if each.days[0] <= day <= each.days[1] and (rank := each.rank(channel, topic)) is not None
        ]
        plan = min(ranked)[1] if ranked else self._billing.default_plan
        if plan is None or plan not in self._terms:
            return plan, None
        if not is_part:
            return plan, self._texts[plan]
        return plan, replace(self._terms[plan], days=(first, last, days_of(month))).to_json()
