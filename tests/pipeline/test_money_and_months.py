"""Money and months: rounding compared with Python's decimals, splitting with a walk through the calendar."""

from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.pipeline.billing import money, months
from broadloom.pipeline.billing.terms import ROUNDINGS, BillingTerms

PYTHONS = {"half-even": ROUND_HALF_EVEN, "half-up": ROUND_HALF_UP, "down": ROUND_DOWN, "up": ROUND_CEILING}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Havana", "Australia/Lord_Howe"]
PRICES = st.decimals(0, 100_000, places=4)
BEGIN_US = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp()) * 1_000_000
YEAR_US = 366 * 86_400 * 1_000_000


def test_all_rounding_rules_are_tested() -> None:
    assert set(PYTHONS) == set(ROUNDINGS)


@settings(max_examples=200, deadline=None)
@given(amounts=st.lists(st.integers(-(10**17), 10**17)))
def test_money_roundtrips_through_decimals(amounts: list[int]) -> None:
    whole = np.array(amounts, dtype=np.int64)
    decimals = money.to_decimal(whole)
    assert decimals.to_list() == [Decimal(each).scaleb(-4) for each in amounts]
    assert money.from_decimal(decimals).to_list() == amounts
    assert money.from_decimal(decimals[1:]).to_list() == amounts[1:]


def test_from_decimal_rejects_nulls() -> None:
    with pytest.raises(TypeError):
        money.from_decimal(pl.Series([None], dtype=pl.Decimal(18, 4)))


@settings(max_examples=500, deadline=None)
@given(
    rounding=st.sampled_from(list(PYTHONS)),
    digits=st.integers(0, 4),
    amounts=st.lists(st.integers(0, 10**12) | st.integers(0, 200).map(lambda n: n * 50)),
)
def test_rounding_matches_python_decimals(rounding: str, digits: int, amounts: list[int]) -> None:
    got = money.to_decimal(money.round_amounts(np.array(amounts, dtype=np.int64), digits, rounding)).to_list()
    step = Decimal(1).scaleb(-digits)
    assert got == [Decimal(each).scaleb(-4).quantize(step, PYTHONS[rounding]) for each in amounts]


@settings(max_examples=500, deadline=None)
@given(
    price=PRICES,
    unit_s=st.sampled_from([1, 60, 900, 3600, 86_400]),
    digits=st.integers(0, 4),
    rounding=st.sampled_from(list(PYTHONS)),
    connected_us=st.integers(0, 31 * 86_400 * 1_000_000),
)
def test_hourly_price_matches_exact_fractions(
    price: Decimal, unit_s: int, digits: int, rounding: str, connected_us: int
) -> None:
    terms = BillingTerms("hour", price, unit_s, digits, rounding)
    got = money.to_decimal(money.amount_due(np.array([connected_us]), terms)).to_list()[0]
    units = -(-connected_us // (unit_s * 1_000_000))
    exact = Fraction(price) * units * unit_s / 3600
    step = Fraction(1, 10**digits)
    off = Fraction(got) - exact
    assert Fraction(got) % step == 0
    if rounding == "down":
        assert -step < off <= 0
    elif rounding == "up":
        assert 0 <= off < step
    else:
        assert abs(off) <= step / 2
        if abs(off) == step / 2:
            assert off > 0 if rounding == "half-up" else (Fraction(got) / step) % 2 == 0


def test_flat_plan_costs_the_same_for_any_connect_time() -> None:
    terms = BillingTerms("flat", Decimal("9.90"), 1, 2, "half-even")
    assert money.amount_due(np.array([0, 10**12]), terms).tolist() == [99_000, 99_000]


def sessions_table(rows: list[tuple[str, int, int]]) -> pl.DataFrame:
    schema = {"subscriber": pl.String, "start_time": pl.Int64, "end_time": pl.Int64}
    times = pl.col("start_time", "end_time").cast(pl.Datetime("us", "UTC"))
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(times, channel=pl.lit("c"))


def month_at(moment_us: int, zone: str) -> str:
    return (
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment_us))
        .astimezone(ZoneInfo(zone))
        .strftime("%Y-%m")
    )


def connected(sessions: pl.DataFrame, zone: str) -> pl.DataFrame:
    without_topic = sessions.with_columns(topic=pl.lit(None, pl.String))
    return months.connected_by_period(without_topic, months.NO_PERIODS, zone)


SESSION = st.tuples(
    st.sampled_from(["ann", "bob"]),
    st.integers(BEGIN_US, BEGIN_US + YEAR_US),
    st.integers(0, 100 * 86_400 * 1_000_000) | st.just(0),
).map(lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2]))


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(SESSION, max_size=8), zone=st.sampled_from(ZONES))
def test_session_pieces_add_up_and_lie_in_their_month(rows: list[tuple[str, int, int]], zone: str) -> None:
    got = connected(sessions_table(rows), zone).to_dicts()
    expected: dict[tuple[str, str], list[int]] = {}
    for name, start, end in rows:
        moment = start
        while True:  # bisect for the end of the local month
            month = month_at(moment, zone)
            edge = moment
            step = 40 * 86_400 * 1_000_000
            while step:
                if edge + step <= end and month_at(edge + step, zone) == month:
                    edge += step
                else:
                    step //= 2
            until = min(edge + 1, end) if edge < end else end
            total = expected.setdefault((name, month), [0, 0])
            total[0] += until - moment
            total[1] += 1
            moment = until
            if moment >= end:
                break
    assert {
        (row["subscriber"], row["billing_month"]): [row["connected_us"], row["session_count"]] for row in got
    } == expected
    assert sum(row["connected_us"] for row in got) == sum(end - start for _, start, end in rows)


@pytest.mark.parametrize(
    ("zone", "month", "hours"),
    [
        ("UTC", "2027-03", 744),
        ("Europe/Berlin", "2027-03", 743),
        ("Europe/Berlin", "2027-10", 745),
        ("America/Havana", "2026-11", 721),  # DST ends at one in the morning of the first
        ("Europe/Berlin", "2028-02", 29 * 24),
    ],
)
def test_month_length_follows_dst(zone: str, month: str, hours: int) -> None:
    begin, end = months.month_start_us(month, zone), months.month_start_us(months.add_months(month), zone)
    assert (end - begin) // 3_600_000_000 == hours
    got = connected(sessions_table([("ann", begin, end)]), zone).to_dicts()
    assert [(row["billing_month"], row["connected_us"]) for row in got] == [(month, end - begin)]


@given(month=st.dates().map(lambda day: f"{day:%Y-%m}" if day.year > 999 else "2027-01"), count=st.integers(0, 30))
def test_add_months_matches_calendar(month: str, count: int) -> None:
    year, number = int(month[:4]), int(month[5:])
    for _ in range(count):
        year, number = (year, number + 1) if number < 12 else (year + 1, 1)
    assert months.add_months(month, count) == f"{year:04}-{number:02}"
