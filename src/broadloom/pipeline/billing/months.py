"""Months of a named time zone, and sessions split at their bounds.

A month starts at local midnight of its first day, whatever DST does. A session is split there for the bill only, and
its pieces add up to it exactly.
"""

from calendar import monthrange
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.frames import in_us
from broadloom.pipeline.billing.money import Ints

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def month_name(moment_us: int, time_zone: str) -> str:
    """Month of a time, as YYYY-MM."""
    return (EPOCH + timedelta(microseconds=moment_us)).astimezone(ZoneInfo(time_zone)).strftime("%Y-%m")


def add_months(month: str, count: int = 1) -> str:
    number = int(month[:4]) * 12 + int(month[5:]) - 1 + count
    return f"{number // 12:04}-{number % 12 + 1:02}"


def month_start_us(month: str, time_zone: str) -> int:
    """Start of a month. If DST repeats midnight, the first one; if it skips midnight, the moment of the jump."""
    local = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=ZoneInfo(time_zone))
    return (local.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def months_between(first_us: int, last_us: int, time_zone: str) -> list[str]:
    """All months from the first time to the last."""
    months = [month_name(first_us, time_zone)]
    # If DST sets the clock back over the first midnight of a month, the repeated hour belongs to the new month.
    if month_start_us(add_months(months[0]), time_zone) <= first_us:
        months = [add_months(months[0])]
    while month_start_us(add_months(months[-1]), time_zone) <= last_us:
        months.append(add_months(months[-1]))
    return months


def months_column(times: pl.Series, time_zone: str) -> pl.Series:
    """Month of each time, given in microseconds."""
    if not len(times):
        return pl.Series([], dtype=pl.String)
    moments: Ints = times.to_numpy()
    names = months_between(int(moments.min()), int(moments.max()), time_zone)
    edges = np.array([month_start_us(each, time_zone) for each in names], dtype=np.int64)
    return pl.Series(names).gather(np.searchsorted(edges, moments, side="right") - 1)


def day_edges(first_us: int, last_us: int, time_zone: str) -> tuple[list[str], Ints]:
    """The days from the first time to the last, as YYYY-MM-DD, and where they start; the last edge ends the last."""
    names: list[str] = []
    edges: list[int] = []
    for month in months_between(first_us, last_us, time_zone):
        names += [f"{month}-{day:02}" for day in range(1, days_of(month) + 1)]
        edges += [day_start_us(each, time_zone) for each in names[len(edges) :]]
    edges.append(month_start_us(add_months(names[-1][:7]), time_zone))
    return names, np.array(edges, dtype=np.int64)


def days_of(month: str) -> int:
    return monthrange(int(month[:4]), int(month[5:]))[1]


def day_start_us(day: str, time_zone: str) -> int:
    """As `month_start_us`."""
    local = datetime(int(day[:4]), int(day[5:7]), int(day[8:]), tzinfo=ZoneInfo(time_zone))
    return (local.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def connected_by_period(sessions: pl.DataFrame, periods: pl.DataFrame, time_zone: str) -> pl.DataFrame:
    """Connect time (`connected_us`) and number of sessions by channel, subscriber, topic, month and `first_day`.

    `periods` has the parts of months, from `first_day` to `last_day`; a month without any is one part.
    """
    spans = in_us(sessions.select("channel", "subscriber", "topic", "start_time", "end_time"))
    start: Ints = spans["start_time"].to_numpy()
    end: Ints = spans["end_time"].to_numpy()
    if periods.height and len(start):
        days, edges = day_edges(int(start.min()), int(end.max()), time_zone)
    else:
        months = months_between(int(start.min()), int(end.max()), time_zone) if len(start) else ["1970-01"]
        days = [f"{each}-01" for each in months]
        edges = np.array(
            [month_start_us(each, time_zone) for each in [*months, add_months(months[-1])]], dtype=np.int64
        )
    row, place, lengths = split_at_edges(start, end, edges)
    pieces = spans.select("channel", "subscriber", "topic")[row].with_columns(
        day=pl.Series(days).gather(place), length=pl.Series(lengths, dtype=pl.Int64), session=pl.Series(row)
    )
    pieces = with_period(pieces, periods)
    totals = pieces.group_by(*PERIOD_KEYS).agg(
        connected_us=pl.col("length").sum(), session_count=pl.col("session").n_unique().cast(pl.Int64)
    )
    return totals.sort(PERIOD_KEYS)


PERIOD_KEYS = ["channel", "subscriber", "topic", "billing_month", "first_day"]
NO_PERIODS = pl.DataFrame(
    schema=dict.fromkeys(PERIOD_KEYS[:-1], pl.String()) | dict.fromkeys(("first_day", "last_day"), pl.Int64())
)


def with_period(rows: pl.DataFrame, periods: pl.DataFrame) -> pl.DataFrame:
    """Add `billing_month` and `first_day` to rows with a `day`, given as YYYY-MM-DD."""
    rows = rows.with_columns(
        billing_month=pl.col("day").str.head(7),
        day_number=pl.col("day").str.tail(2).cast(pl.Int64),
        at=pl.int_range(pl.len()),
    )
    keys = PERIOD_KEYS[:-1]
    inside = (
        rows.join(periods, on=keys, nulls_equal=True)
        .filter(pl.col("day_number").is_between("first_day", "last_day"))
        .select("at", "first_day")
    )
    return (
        rows.join(inside, on="at", how="left").with_columns(pl.col("first_day").fill_null(1)).drop("at", "day_number")
    )


def split_at_edges(start: Ints, end: Ints, edges: Ints) -> tuple[Ints, Ints, Ints]:
    """Split intervals at edges. For each piece: the index of its interval, the index of its month, and its length.

    An empty interval is one piece; an interval that ends at an edge has no piece beyond it.
    """
    first = np.searchsorted(edges, start, side="right") - 1
    last = np.maximum(np.searchsorted(edges, end, side="left") - 1, first)
    count = last - first + 1
    row = np.repeat(np.arange(len(start)), count)
    # Index of the piece within its interval.
    piece = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    month = first[row] + piece
    lengths = np.minimum(end[row], edges[month + 1]) - np.maximum(start[row], edges[month])
    return row, month, lengths
