"""Invoices: issued once, corrected beside, adding up to the cent; and nobody is dropped."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.pipeline.billing import config, months
from broadloom.pipeline.billing.config import BillingConfig
from broadloom.pipeline.tables import invoices
from broadloom.pipeline.tables.invoices import new_invoices
from tests.pipeline.building import build_in_memory
from tests.pipeline.event_rows import event_table

HOUR_US = 3_600_000_000
CHANNEL = "00000000000000cc"
OTHER = "00000000000000dd"
BILLING = config.parse(
    {
        "time_zone": "Europe/Berlin",
        "currency": "EUR",
        "plans": {
            "reader": {"kind": "flat", "month": "9.90"},
            "visitor": {"kind": "hour", "hour": "0.45", "unit_s": 60},
        },
        "subscribers": [
            {"name": "ann", "plan": "reader"},
            {"name": "bob", "plan": "visitor"},
            {"name": "bob", "plan": "reader", "channel": OTHER, "last_month": "2027-01"},
            {"name": "cid", "plan": "raeder"},
            {"name": "dot", "plan": "visitor", "first_month": "2027-02"},
        ],
    }
)
BEFORE = datetime(2026, 12, 1, tzinfo=UTC)
LATER = datetime(2027, 3, 15, tzinfo=UTC)
BILLING_STATE = {
    **dict.fromkeys(
        ("channel", "subscriber", "billing_month", "issued_id", "issued_plan", "issued_terms"), pl.String()
    ),
    **dict.fromkeys(("connected_us", "session_count", "issued_count", "issued_us"), pl.Int64()),
    **dict.fromkeys(("issued_sessions", "issued_amount"), pl.Int64()),
    **dict.fromkeys(("tape_start_time", "tapes_end_time", "issued_tape_start_time"), pl.Datetime("us", "UTC")),
    "is_proven": pl.Boolean(),
}


def month_state(subscriber: str, connected_us: int, **more: object) -> dict:
    """A month as the tapes tell it, nothing issued yet."""
    blank = dict.fromkeys(BILLING_STATE)
    told = {
        "channel": CHANNEL,
        "subscriber": subscriber,
        "billing_month": "2027-01",
        "connected_us": connected_us,
        "session_count": 1,
    }
    return {**blank, **told, "tape_start_time": BEFORE, "tapes_end_time": LATER, **more}


def new_invoices_of(*billing_state: dict, billing: BillingConfig = BILLING) -> list[dict]:
    return new_invoices(pl.DataFrame(list(billing_state), schema=BILLING_STATE), billing).to_dicts()


def connected_us(row: dict) -> int:
    return int(row["connected_ms"] * 1000)


def issued(rows: list[dict]) -> dict:
    """What the next run finds of these rows."""
    return {
        "issued_count": len(rows),
        "issued_id": "id of the first",
        "issued_plan": rows[0]["plan_name"],
        "issued_terms": rows[0]["terms"],
        "issued_us": sum(connected_us(row) for row in rows),
        "issued_sessions": sum(row["session_count"] for row in rows),
        "issued_amount": int(sum(row["amount"] for row in rows) * 10_000),
        "issued_tape_start_time": min(row["tape_start_time"] for row in rows),
    }


def test_invoice_follows_flat_and_hourly_plan() -> None:
    ann, bob = new_invoices_of(month_state("ann", 5 * HOUR_US), month_state("bob", 10 * HOUR_US + 1))
    assert (ann["kind"], ann["plan_name"], ann["amount"]) == ("invoice", "reader", Decimal("9.90"))
    assert (bob["kind"], bob["plan_name"]) == ("invoice", "visitor")
    assert bob["amount"] == Decimal("4.51")  # 10 hours and a started minute: 4.5075
    assert bob["start_time"] == datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert bob["end_time"] == datetime(2027, 1, 31, 23, tzinfo=UTC)


def test_plan_for_channel_takes_precedence_in_its_months() -> None:
    rows = new_invoices_of(
        month_state("bob", HOUR_US, channel=OTHER), month_state("bob", HOUR_US, channel=OTHER, billing_month="2027-02")
    )
    assert [row["plan_name"] for row in rows] == ["reader", "visitor"]


def test_subscriber_without_plan_is_unbilled_with_reason() -> None:
    unlisted, unknown, too_early = new_invoices_of(
        month_state("eve", HOUR_US), month_state("cid", HOUR_US), month_state("dot", HOUR_US)
    )
    assert {row["kind"] for row in (unlisted, unknown, too_early)} == {"unbilled"}
    assert {row["amount"] for row in (unlisted, unknown, too_early)} == {Decimal(0)}
    assert "not listed" in unlisted["reason"]
    assert "no plan raeder" in unknown["reason"]
    assert "not listed for this month" in too_early["reason"]


def test_default_plan_applies_to_unlisted_subscribers_only() -> None:
    billing = config.parse(
        {
            "currency": "EUR",
            "default_plan": "visitor",
            "plans": {"visitor": {"kind": "hour", "hour": 1}},
            "subscribers": [{"name": "cid", "plan": "raeder"}],
        }
    )
    eve, cid = new_invoices_of(month_state("eve", HOUR_US), month_state("cid", HOUR_US), billing=billing)
    assert (eve["kind"], eve["plan_name"], eve["amount"]) == ("invoice", "visitor", Decimal(1))
    assert cid["kind"] == "unbilled"


def test_month_is_open_until_tapes_extend_beyond_it() -> None:
    due = datetime(2027, 1, 31, 23, tzinfo=UTC) + timedelta(seconds=BILLING.issue_after_s)
    early, just = new_invoices_of(
        month_state("ann", HOUR_US, tapes_end_time=due - timedelta(microseconds=1)),
        month_state("ann", HOUR_US, tapes_end_time=due),
    )
    assert (early["kind"], just["kind"]) == ("open", "invoice")
    assert early["amount"] == just["amount"]


def test_issued_invoice_is_kept_and_late_time_is_a_correction() -> None:
    first = new_invoices_of(month_state("bob", 2 * HOUR_US))
    assert new_invoices_of(month_state("bob", 2 * HOUR_US, **issued(first))) == []
    (more,) = new_invoices_of(month_state("bob", 3 * HOUR_US, **issued(first)))
    assert (more["kind"], more["correction_number"], more["corrected_invoice_id"]) == (
        "correction",
        1,
        "id of the first",
    )
    assert (more["amount"], connected_us(more)) == (Decimal("0.45"), HOUR_US)
    (less,) = new_invoices_of(month_state("bob", HOUR_US, **issued([*first, more])))
    assert (less["kind"], less["correction_number"], less["amount"]) == ("correction", 2, Decimal("-0.90"))


def test_correction_uses_terms_of_its_invoice() -> None:
    first = new_invoices_of(month_state("bob", 2 * HOUR_US))
    dearer = config.parse(
        {"time_zone": "Europe/Berlin", "currency": "EUR", "plans": {"visitor": {"kind": "hour", "hour": 9}}}
    )
    assert new_invoices_of(month_state("bob", 2 * HOUR_US, **issued(first)), billing=dearer) == []
    (more,) = new_invoices_of(month_state("bob", 3 * HOUR_US, **issued(first)), billing=dearer)
    assert (more["amount"], more["terms"]) == (Decimal("0.45"), first[0]["terms"])


def test_removed_tapes_lead_to_no_correction() -> None:
    first = new_invoices_of(month_state("bob", 2 * HOUR_US))
    gone = datetime(2027, 1, 20, tzinfo=UTC)
    assert new_invoices_of(month_state("bob", 0, tape_start_time=gone, **issued(first))) == []
    assert new_invoices_of(month_state("bob", 0, tape_start_time=None, **issued(first))) == []
    (back,) = new_invoices_of(month_state("bob", 0, **issued(first)))
    assert back["amount"] == -first[0]["amount"]


@settings(max_examples=100, deadline=None)
@given(runs=st.lists(st.integers(0, 744 * HOUR_US), min_size=1, max_size=6))
def test_corrections_add_up_to_the_final_amount(runs: list[int]) -> None:
    rows = new_invoices_of(month_state("bob", runs[0]))
    for connected_us in runs[1:]:
        rows += new_invoices_of(month_state("bob", connected_us, **issued(rows)))
    at_once = new_invoices_of(month_state("bob", runs[-1]))
    assert sum(row["amount"] for row in rows) == at_once[0]["amount"]
    assert len({row["correction_number"] for row in rows}) == len(rows)
    assert new_invoices_of() == []


TOML = f"""
time_zone = "Europe/Berlin"
currency = "EUR"
[plans.reader]
kind = "flat"
month = 9.90
[plans.visitor]
kind = "hour"
hour = 0.45
[[subscribers]]
name = "ann"
plan = "visitor"
[[subscribers]]
name = "far"
plan = "reader"
channel = "{CHANNEL}"
first_month = "2027-02"
"""


def identifications(name: str, *hours: float) -> list[dict]:
    """Identifications so many hours after the new year in Berlin."""
    begin = datetime(2026, 12, 31, 23, tzinfo=UTC)
    return [
        {
            "kind": "identification",
            "channel": CHANNEL,
            "event_time": begin + timedelta(hours=each),
            "peer": "o",
            "author": name,
            "name": name,
        }
        for each in hours
    ]


def test_late_rows_lead_to_corrections(tmp_path: Path) -> None:
    (tmp_path / "billing.toml").write_text(TOML)
    # Ten hours over the end of January, an hour of somebody unknown, and rows of March, so that February is over.
    rows = [*identifications("ann", *range(740, 750)), *identifications("eve", 5), *identifications("ann", 24 * 70)]

    def drawn_up(events: list[dict], former: pl.DataFrame | None = None, folder: Path | None = None) -> pl.DataFrame:
        found = build_in_memory(
            event_table(*events),
            "invoices",
            invoices=former,
            billing_file=str(tmp_path / "billing.toml"),
            issued_invoices=str(folder or ""),
        )
        return found["invoices"]

    now = rows
    first = drawn_up(now)
    assert first.columns == [each.name for each in invoices.TABLE.columns]
    told = [(row["billing_month"], row["subscriber"], row["kind"], row["amount"]) for row in first.to_dicts()]
    assert told == [
        ("2027-01", "ann", "invoice", Decimal("1.8000")),
        ("2027-01", "eve", "unbilled", Decimal("0.0000")),
        ("2027-02", "ann", "invoice", Decimal("2.7000")),
        ("2027-02", "far", "invoice", Decimal("9.9000")),
        ("2027-03", "ann", "open", Decimal("0.0000")),
        ("2027-03", "far", "open", Decimal("9.9000")),
    ]
    folder = tmp_path / "invoices"
    folder.mkdir()
    first.write_parquet(folder / "part-0.parquet")
    assert content(drawn_up(now, former=first)) == content(first)
    assert content(drawn_up(now, folder=folder)) == content(first)

    late_rows = [*identifications("ann", 739, 738), *rows[::-1]]
    late = drawn_up(late_rows, former=first)
    was = [row for row in first.to_dicts() if row["invoice_id"]]
    assert [row for row in late.to_dicts() if row["kind"] == "invoice"] == was
    (correction,) = [row for row in late.to_dicts() if row["kind"] == "correction"]
    assert (correction["billing_month"], correction["amount"]) == ("2027-01", Decimal("0.9"))
    assert correction["corrected_invoice_id"] == was[0]["invoice_id"]
    assert len({row["invoice_id"] for row in late.to_dicts() if row["invoice_id"]}) == 4
    assert content(drawn_up(late_rows, former=late)) == content(late)

    (tmp_path / "billing.toml").write_text(TOML.replace("Berlin", "Paris"))
    with pytest.raises(
        invoices.IssuedInvoicesError, match="time zone Europe/Berlin, but the billing file has EUR and Europe/Paris"
    ):
        drawn_up(now, former=first)
    with pytest.raises(invoices.IssuedInvoicesError, match="no invoices found in"):
        drawn_up(now, folder=tmp_path / "nowhere")


def test_invoices_do_not_depend_on_row_order(tmp_path: Path) -> None:
    (tmp_path / "billing.toml").write_text(TOML)
    billing = str(tmp_path / "billing.toml")
    rows = [*identifications("ann", *range(740, 750)), *identifications("eve", 5), *identifications("bob", 24 * 70)]
    one, other = (
        build_in_memory(event_table(*events), "invoices", billing_file=billing)["invoices"]
        for events in (rows, rows[::-1])
    )
    assert len(one) == 6
    assert content(one) == content(other)


def content(table: pl.DataFrame) -> bytes:
    sink = BytesIO()
    table.write_parquet(sink)
    return sink.getvalue()


def test_january_in_berlin_has_744_hours() -> None:
    assert (
        months.month_start_us("2027-02", "Europe/Berlin") - months.month_start_us("2027-01", "Europe/Berlin")
        == 744 * HOUR_US
    )
