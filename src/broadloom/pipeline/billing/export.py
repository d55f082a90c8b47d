"""Issued invoices for other systems: as rows for a spreadsheet, and as meter events for a payment provider.

Every event has an idempotency key, the ID of its invoice or correction: a provider that gets it twice counts it once.
A correction is an event of its own with the difference, so the sum of all events is what is due.
"""

import csv
import io
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from broadloom.record.arrow_import import pa

ISSUED = ("invoice", "correction", "sale")
COLUMNS = (
    *("invoice_id", "kind", "correction_number", "billing_month", "subscriber", "topic", "channel", "plan_name"),
    *("connected_ms", "message_count", "payload_bytes", "amount", "currency", "start_time", "end_time"),
    *("corrected_invoice_id", "is_proven"),
)
EVENT_NAME = "broadloom_usage"


class ExportFormat(StrEnum):
    CSV = "csv"
    EVENTS = "events"


def issued_rows(invoices: pa.Table) -> list[dict[str, Any]]:
    """What was issued; open and unbilled months are left out."""
    return [row for row in invoices.to_pylist() if row["kind"] in ISSUED]


def lines(rows: list[dict[str, Any]], format: ExportFormat) -> Iterator[str]:
    """The lines of the export, without line ends."""
    if format is ExportFormat.EVENTS:
        for row in rows:
            yield json.dumps(_event(row), ensure_ascii=False)
        return
    yield _csv_line(COLUMNS)
    for row in rows:
        yield _csv_line([_text(row[name]) for name in COLUMNS])


def _event(row: dict[str, Any]) -> dict[str, Any]:
    payload = {
        "customer": row["subscriber"],
        "value": str(row["amount"]),
        "currency": row["currency"],
        "month": row["billing_month"],
        "topic": row["topic"],
        "plan": row["plan_name"],
        "corrects": row["corrected_invoice_id"],
    }
    return {
        "identifier": row["invoice_id"],
        "event_name": EVENT_NAME,
        "timestamp": int(row["end_time"].timestamp()) - 1,
        "payload": payload,
    }


def _text(value: Any) -> str:
    """A text that begins like a formula would run as one in a spreadsheet."""
    if value is None:
        return ""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _csv_line(cells: Any) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(cells)
    return buffer.getvalue()
