"""Usage by topic, and what it costs: by time, message and byte, with tiers, parts of months and corrections."""

import csv
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.pipeline.billing import config
from broadloom.pipeline.billing.config_section import BillingConfigError
from broadloom.pipeline.billing.export import ExportFormat, issued_rows, lines
from broadloom.pipeline.billing.money import amount_due
from broadloom.pipeline.billing.terms import BillingTerms, Tier, parse_terms
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

BEGIN = datetime(2027, 1, 10, 12, tzinfo=UTC)
CHANNEL = "00aa00aa00aa00aa"
NFL, RAIN = "sports/nfl", "weather/rain"
BILLING = """
currency = "EUR"
issue_after_s = 86400
exempt = ["meter", "nfl"]
[plans.visitor]
kind = "hour"
hour = 1.00
free = 1
tiers = [{ above = 3, price = 0.50 }]
[plans.ticker]
kind = "message"
message = 0.25
free = 1
[plans.bulk]
kind = "byte"
megabyte = 2.00
[plans.reader]
kind = "flat"
month = 31.00
[[subscribers]]
name = "ann"
topic = "sports/**"
plan = "visitor"
[[subscribers]]
name = "ann"
topic = "weather/rain"
plan = "ticker"
[[subscribers]]
name = "bob"
plan = "bulk"
[[subscribers]]
name = "cid"
plan = "reader"
last_day = "2027-01-15"
[[subscribers]]
name = "cid"
plan = "ticker"
first_day = "2027-01-16"
"""


def row(kind: str, hours: float, author: str, name: str = "", **columns: Any) -> dict[str, Any]:
    ticket = {"name": name, "ticket_serial": f"serial {name}", "is_proven": True} if name else {}
    at = BEGIN + timedelta(hours=hours)
    return {"kind": kind, "event_time": at, "peer": "r", "author": author, **ticket, **columns}


def stay(peer: str, name: str, begin: float, end: float, *topics: str) -> list[dict[str, Any]]:
    """A subscriber joins, identifies itself once for each topic, and leaves."""
    identified = [row("identification", begin, peer, name, topic=topic) for topic in topics]
    return [row("member_joined", begin, peer, name), *identified, row("member_left", end, peer, name)]


def sent(hours: float, topic: str, size: int, sequence: int) -> dict[str, Any]:
    return row("delivered", hours, "p", topic=topic, size_bytes=size, sequence=sequence)


ROWS = [
    row("joined", 0, "r"),
    row("member_joined", 0, "p", "nfl"),
    *stay("a1", "ann", 0, 5, NFL, RAIN),
    *stay("a2", "ann", 4, 6, NFL),
    *stay("b1", "bob", 2, 3, RAIN),
    *stay("c1", "cid", 5 * 24 + 10, 5 * 24 + 14, RAIN),
    *(
        sent(hours, topic, size, number)
        for number, (hours, topic, size) in enumerate(
            [(1, NFL, 100), (2.5, RAIN, 600_000), (2.9, RAIN, 100_000), (4, RAIN, 10), (5 * 24 + 13, RAIN, 7)], 1
        )
    ),
    row("sent", 24 * 40, "r", sequence=1),
]


def invoices(folder: Path, rows: list[dict[str, Any]], text: str = BILLING, **more: Any) -> dict[str, pl.DataFrame]:
    (folder / "billing.toml").write_text(text)
    return build_in_memory(
        event_table(*rows), "invoices", "ad_broadcasts", billing_file=str(folder / "billing.toml"), **more
    )


def test_each_topic_is_billed_by_its_plan(tmp_path: Path) -> None:
    tables = invoices(tmp_path, ROWS)
    columns = ("subscriber", "topic", "plan_name", "connected_ms", "message_count", "payload_bytes", "amount")
    hour = 3_600_000
    assert tables["invoices"].filter(pl.col("kind") == "invoice").select(columns).rows() == [
        # Six hours on two devices: one is free, two cost 1.00, three 0.50.
        ("ann", NFL, "visitor", 6 * hour, None, None, Decimal("3.5")),
        # Three messages, of which one is free.
        ("ann", RAIN, "ticker", 5 * hour, 3, 700_010, Decimal("0.5")),
        # 0.7 million bytes.
        ("bob", RAIN, "bulk", hour, 2, 700_000, Decimal("1.4")),
        # The first 15 days of a month of 31 days at a flat price, then by message; the free one was the only one.
        ("cid", RAIN, "reader", 2 * hour, None, None, Decimal("15")),
        ("cid", RAIN, "ticker", 2 * hour, 1, 7, Decimal("0")),
    ]
    days = [parse_terms(text).days for text in tables["invoices"].filter(pl.col("subscriber") == "cid")["terms"]]
    assert days == [(1, 15, 31), (16, 31, 31)]
    used = tables["usage"].filter(pl.col("subscriber") == "cid")
    assert used.select("billing_date", "connected_ms", "message_count").rows() == [
        ("2027-01-15", 2 * hour, 0),
        ("2027-01-16", 2 * hour, 1),
    ]


def test_late_rows_correct_the_part_of_the_month_that_was_issued(tmp_path: Path) -> None:
    first = invoices(tmp_path, ROWS)["invoices"]
    late = [*ROWS, sent(5 * 24 + 12.5, RAIN, 1, 6), sent(5 * 24 + 12.6, RAIN, 1, 7)]
    # The plans of today do not change what was issued under others.
    changed = BILLING.replace('last_day = "2027-01-15"', 'last_day = "2027-01-20"').replace("01-16", "01-21")
    second = invoices(tmp_path, late, changed, invoices=first)["invoices"]
    assert second.filter(pl.col("correction_number") == 0).equals(first)
    (correction,) = second.filter(pl.col("kind") == "correction").to_dicts()
    assert (correction["subscriber"], correction["plan_name"], correction["message_count"]) == ("cid", "ticker", 2)
    assert (correction["amount"], parse_terms(correction["terms"]).days) == (Decimal("0.5"), (16, 31, 31))
    third = invoices(tmp_path, late, changed, invoices=second)["invoices"]
    assert third.equals(second)


def test_second_meter_and_repeated_rows_change_nothing(tmp_path: Path) -> None:
    again = [{**each, "peer": "r2", "run_id": "another"} for each in ROWS] + ROWS[2:8]
    one, two = invoices(tmp_path, ROWS)["invoices"], invoices(tmp_path, [*ROWS, *again])["invoices"]
    assert two["invoice_id"].to_list() == one["invoice_id"].to_list()


def test_subscriber_that_falls_silent_is_billed_while_it_is_in_the_roster(tmp_path: Path) -> None:
    rows = [row("joined", 0, "r"), *stay("a1", "ann", 0, 48, NFL), row("sent", 24 * 40, "r", sequence=1)]
    (invoice,) = invoices(tmp_path, rows)["invoices"].filter(pl.col("subscriber") == "ann").to_dicts()
    assert invoice["connected_ms"] == 48 * 3_600_000


def test_second_device_that_keeps_silent_is_billed_too(tmp_path: Path) -> None:
    consumer = {"role": "consumer"}
    rows = [row("joined", 0, "r"), *stay("a1", "ann", 0, 2, NFL), *stay("a2", "ann", 1, 9)]
    rows = [{**each, **consumer} if "name" in each else each for each in rows]
    # A producer of the same name is no subscriber.
    made = [{**each, "role": "producer"} for each in stay("a3", "ann", 20, 30)]
    every = invoices(tmp_path, [*rows, *made, row("sent", 24 * 40, "r", sequence=1)])["invoices"]
    (invoice,) = every.filter(pl.col("subscriber") == "ann").to_dicts()
    assert invoice["connected_ms"] == 9 * 3_600_000


def test_subscriber_that_never_identifies_itself_is_billed_for_the_topic_of_the_channel(tmp_path: Path) -> None:
    place = f'name = "bob"\nchannel = "{CHANNEL}"\ntopic = "weather/rain"'
    silent = [row for row in ROWS if not (row["kind"] == "identification" and row["author"] == "b1")]
    text = BILLING.replace('name = "bob"', place)
    rows = [{**each, "channel": CHANNEL} for each in silent]
    (invoice,) = invoices(tmp_path, rows, text)["invoices"].filter(pl.col("subscriber") == "bob").to_dicts()
    assert (invoice["topic"], invoice["payload_bytes"], invoice["amount"]) == (RAIN, 700_000, Decimal("1.4"))


def test_flat_price_of_a_topic_is_due_without_connect_time(tmp_path: Path) -> None:
    listed = f'''
[[subscribers]]
name = "dot"
channel = "{CHANNEL}"
topic = "{NFL}"
plan = "reader"
first_day = "2027-01-22"
last_day = "2027-02-14"
'''
    rows = [{**each, "channel": CHANNEL} for each in [*ROWS, row("sent", 24 * 80, "r", sequence=2)]]
    due = invoices(tmp_path, rows, BILLING + listed)["invoices"].filter(pl.col("subscriber") == "dot")
    assert due.select("billing_month", "topic", "amount").rows() == [
        ("2027-01", NFL, Decimal("10")),
        ("2027-02", NFL, Decimal("15.5")),
    ]


def test_forged_identification_bills_only_its_sender(tmp_path: Path) -> None:
    forged = row("identification", 1, "m1", "mallory", topic=NFL, attributes='{"name": "ann"}')
    claimed = {**row("identification", 1, "m2", topic=NFL), "name": "ann", "is_proven": False}
    members = [row("member_joined", 0.5, "m1", "mallory"), row("member_left", 9, "m1", "mallory")]
    tables = invoices(tmp_path, [*ROWS, *members, forged, claimed])
    before = invoices(tmp_path, ROWS)["invoices"].filter(pl.col("subscriber") == "ann")
    assert tables["invoices"].filter(pl.col("subscriber") == "ann").equals(before)
    (own,) = tables["invoices"].filter(pl.col("subscriber") == "mallory").to_dicts()
    assert own["connected_ms"] == 8.5 * 3_600_000


def test_audience_of_an_ad_is_that_of_its_topic(tmp_path: Path) -> None:
    ad = row("ad_impression", 2.5, "", topic=RAIN) | {"name": "spring-sale", "author": None}
    shown = invoices(tmp_path, [*ROWS, ad, {**ad, "topic": None, "name": "all"}, {**ad, "topic": NFL, "name": "nfl"}])
    counts = shown["ad_broadcasts"].select("ad_name", "audience_count").rows()
    # Without a topic all members count, each once: ann, bob, nfl and the recorder.
    assert dict(counts) == {"spring-sale": 2, "nfl": 1, "all": 4}


def naive_amount(quantity: int, price: Decimal, tiers: list[tuple[int, Decimal]], per: int) -> Decimal:
    total = Decimal(0)
    bounds = [0, *(above for above, _ in tiers), quantity]
    for at, cost in enumerate([price, *(cost for _, cost in tiers)]):
        low, high = bounds[at], min(bounds[at + 1], quantity)
        total += cost * max(0, high - low)
    return (total / per).quantize(Decimal("0.01"))


PRICE = st.decimals("0", "10", places=4)


@settings(max_examples=200)
@given(
    quantity=st.integers(0, 10**12),
    price=PRICE,
    tiers=st.lists(st.tuples(st.integers(1, 10**10), PRICE), max_size=4, unique_by=lambda each: each[0]),
    kind=st.sampled_from(["message", "byte"]),
)
def test_tiers_are_exact(quantity: int, price: Decimal, tiers: list[tuple[int, Decimal]], kind: str) -> None:
    ordered = sorted(tiers)
    terms = BillingTerms(kind, price, 1, 2, "half-even", tuple(Tier(*each) for each in ordered))
    assert parse_terms(terms.to_json()) == terms
    counts = np.array([quantity], dtype=np.int64)
    (due,) = amount_due(np.zeros(1, dtype=np.int64), terms, counts, counts)
    assert Decimal(int(due)).scaleb(-4) == naive_amount(quantity, price, ordered, 10**6 if kind == "byte" else 1)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"kind": "message", "message": 1, "tiers": [{"above": 5, "price": 1}, {"above": 5, "price": 2}]}, "rise"),
        ({"kind": "byte", "megabyte": 1, "free": -1}, "0 or more"),
        ({"kind": "hour", "hour": 1, "free": 2, "tiers": [{"above": 1, "price": 1}]}, "above the free quota"),
        ({"kind": "message", "message": 1, "unit_s": 5}, "unknown key 'unit_s'"),
    ],
)
def test_plan_that_cannot_work_is_rejected(plan: dict[str, Any], problem: str) -> None:
    with pytest.raises(BillingConfigError, match=problem):
        config.parse({"currency": "EUR", "plans": {"it": plan}})


def test_export_has_idempotency_keys_and_adds_up(tmp_path: Path) -> None:
    first = invoices(tmp_path, ROWS)["invoices"]
    late = [*ROWS, sent(5 * 24 + 12.5, RAIN, 1, 6)]
    every = invoices(tmp_path, late, invoices=first)["invoices"]
    rows = issued_rows(every.to_arrow())
    events = [json.loads(line) for line in lines(rows, ExportFormat.EVENTS)]
    assert len({each["identifier"] for each in events}) == len(events) == 6
    assert sum(Decimal(each["payload"]["value"]) for each in events) == every["amount"].sum()
    written = list(csv.DictReader(lines(rows, ExportFormat.CSV)))
    assert [each["invoice_id"] for each in written] == [each["identifier"] for each in events]
    assert "'=cmd()" in list(lines([{**rows[0], "subscriber": "=cmd()"}], ExportFormat.CSV))[1]
