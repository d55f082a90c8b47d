"""The result of the audit, one row per channel."""

import polars as pl

from broadloom.pipeline.table import CHANNEL, COUNT, FLAG, TEXT, ChannelInputs, Stage, Table, TableColumn, schema_of
from broadloom.pipeline.tables.audit_findings import FINDINGS
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind

NOT_JUDGED = {
    "pending_at_end_count": "sent shortly before the end of the tapes",
    "unknown_dropped_rows_count": "possibly among rows that are not on the tapes",
    "unknown_clock_count": "sent too close to a join for the clocks to order them",
}

COLUMNS = (
    CHANNEL,
    TableColumn("has_passed", FLAG, "Whether every guarantee held, as far as the tapes show."),
    TableColumn("message_count", COUNT, "Messages on the tapes."),
    TableColumn("peer_count", COUNT, "Peers that recorded."),
    TableColumn("due_count", COUNT, "Deliveries that were due and could be judged."),
    TableColumn("delivered_count", COUNT, "Messages delivered, counted once per receiver."),
    *(TableColumn(f"{name}_count", COUNT, f"Findings `{name}`: {about}") for name, about in FINDINGS.items()),
    *(TableColumn(name, COUNT, f"Deliveries not judged: {reason}.") for name, reason in NOT_JUDGED.items()),
    TableColumn("dropped_row_count", COUNT, "Rows dropped by recorders, according to `rows_dropped` events."),
    TableColumn("quarantined_file_count", COUNT, "Files of this channel in the table `quarantine`."),
    TableColumn("notes", TEXT, "What could not be judged, and why; null if everything was."),
)

SUMMED = ("due_count", "delivered_count", *NOT_JUDGED)
"""Columns of `delivery_balances` that are summed up."""


def build(inputs: ChannelInputs) -> pa.Table:
    messages, peers = inputs["messages"], inputs["recorded_peers"]
    if not messages.num_rows and not peers.num_rows:
        return schema_of(COLUMNS).empty_table()
    sums, findings = inputs.scan("balance_sums"), inputs["audit_findings"]
    counts = dict.fromkeys(FINDINGS, 0) | {
        each["values"]: each["counts"] for each in findings["finding"].value_counts().to_pylist()
    }
    dropped = inputs.scan("membership").filter(pl.col("kind") == EventKind.ROWS_DROPPED.value)
    row = {
        "channel": inputs.channel,
        "has_passed": True not in findings["is_violation"].to_pylist(),
        "message_count": messages.num_rows,
        "peer_count": peers.num_rows,
        **{name: int(sums[name].sum()) for name in SUMMED},
        **{f"{name}_count": count for name, count in counts.items()},
        "dropped_row_count": int(dropped["event_count"].sum()),
        "quarantined_file_count": inputs.quarantine.num_rows,
    }
    notes = [f"{row[name]} deliveries: {reason}" for name, reason in NOT_JUDGED.items() if row[name]]
    if peers["joined_time"].null_count:
        notes.append(f"{peers['joined_time'].null_count} peers whose join is not on the tapes")
    return pa.Table.from_pylist([{**row, "notes": "; ".join(notes) or None}], schema=schema_of(COLUMNS))


TABLE = Table(
    "audit_summary",
    "Did every guarantee hold?",
    COLUMNS,
    Stage.FINISH,
    build,
    depends_on=("quarantine", "messages", "recorded_peers", "delivery_balances", "audit_findings"),
)
