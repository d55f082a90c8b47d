"""Invoices over several builds: an issued invoice never changes."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from broadloom.pipeline import build
from broadloom.pipeline.results import Results
from broadloom.pipeline.tables import table
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import file_schema

CHANNEL = 4 * "0123456789abcdef"
TOML = """
time_zone = "Europe/Berlin"
currency = "EUR"
[plans.visitor]
kind = "hour"
hour = 0.45
[[subscribers]]
name = "ann"
plan = "visitor"
"""


def record(tapes: Path, run: str, *times: datetime) -> None:
    """Write a tape file in which ann identifies herself at these times of one day."""
    schema = file_schema(CHANNEL, run)
    rows = [
        {"ordinal": place, "run_id": run, "kind": "identification", "event_time": time, "peer": 16 * "b", "name": "ann"}
        for place, time in enumerate(times)
    ]
    for row in rows:
        row["author"] = 16 * "a"
    folder = tapes / f"channel={CHANNEL[:16]}" / f"event_date={times[0].date().isoformat()}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / f"{run}-000001.parquet")


def test_issued_invoice_stays_over_builds_and_late_rows_are_corrected(spark, tmp_path: Path) -> None:
    tapes, out, billing = tmp_path / "tapes", tmp_path / "out", tmp_path / "billing.toml"
    billing.write_text(TOML)
    january = datetime(2026, 1, 10, 8, tzinfo=UTC)
    record(tapes, "20260110T080000-00000001", *(january + timedelta(hours=each) for each in range(4)))
    record(tapes, "20260310T080000-00000002", datetime(2026, 3, 10, 8, tzinfo=UTC))

    def invoices() -> list[dict]:
        chosen = {"billing_file": str(billing)}
        build.build_tables(tapes, out, only=["invoices"], settings=chosen, spark=spark)
        rows: list[dict] = Results(out).read(table("invoices")).to_pylist()
        return [row for row in rows if row["billing_month"] == "2026-01"]

    (first,) = invoices()
    assert (first["kind"], first["amount"]) == ("invoice", Decimal("1.8"))
    assert invoices() == [first]

    record(tapes, "20260111T080000-00000003", datetime(2026, 1, 11, 8, tzinfo=UTC))
    build.build_tables(
        tapes, out, only=["channels"], settings={"billing_file": str(billing)}, spark=spark
    )  # must keep the issued invoices
    issued, correction = invoices()
    assert issued == first
    assert (correction["kind"], correction["amount"], correction["corrected_invoice_id"]) == (
        "correction",
        Decimal("0.45"),
        first["invoice_id"],
    )
