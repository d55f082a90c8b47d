"""The result of the audit, one row per channel."""

from datetime import datetime

import polars as pl

from broadloom.pipeline.arrow.channel_clock import ChannelClock
from broadloom.pipeline.arrow.fabric_timeline import FabricTimeline
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    TEXT,
    TIME,
    ChannelInputs,
    Stage,
    Table,
    TableColumn,
    schema_of,
)
from broadloom.pipeline.tables.audit_findings import FINDINGS
from broadloom.pipeline.tables.fabric_snapshots import DEGREE
from broadloom.pipeline.tables.recorded_peers import SETTLE, disruptions
from broadloom.record.arrow_import import pa
from broadloom.record.schema import EventKind
from broadloom.testing.checks.settling import FabricState, Verdict, verdict

NOT_JUDGED = {
    "pending_at_end_count": "sent shortly before the end of the tapes",
    "unknown_dropped_rows_count": "possibly among rows that are not on the tapes",
    "unknown_clock_count": "sent too close to a join for the clocks to order them",
}

COLUMNS = (
    CHANNEL,
    TableColumn(
        "verdict",
        TEXT,
        "`held`, `broken` (a guarantee was violated), `unsettled` (a partition or a repair delays deliveries) or "
        "`unjudged` (nothing was due).",
    ),
    TableColumn("verdict_time", TIME, "Time of the last event on the tapes: what the verdict is about."),
    TableColumn("waits_for", TEXT, "What an unsettled verdict waits for; else null."),
    TableColumn("message_count", COUNT, "Messages on the tapes."),
    TableColumn("peer_count", COUNT, "Peers that recorded."),
    TableColumn("due_count", COUNT, "Deliveries that were due and could be judged."),
    TableColumn("delivered_count", COUNT, "Messages delivered, counted once per receiver."),
    *(TableColumn(f"{name}_count", COUNT, f"Findings `{name}`: {about}") for name, about in FINDINGS.items()),
    TableColumn("unsettled_count", COUNT, "Deliveries that wait for a partition or a repair to end."),
    *(TableColumn(name, COUNT, f"Deliveries not judged: {reason}.") for name, reason in NOT_JUDGED.items()),
    TableColumn("dropped_row_count", COUNT, "Rows dropped by recorders, according to `rows_dropped` events."),
    TableColumn("quarantined_file_count", COUNT, "Files of this channel in the table `quarantine`."),
    TableColumn("notes", TEXT, "What could not be judged, and why; null if everything was."),
)

SUMMED = ("due_count", "delivered_count", "unsettled_count", *NOT_JUDGED)
"""Columns of `delivery_balances` that are summed up."""


def tapes_end(inputs: ChannelInputs, clock: ChannelClock) -> datetime:
    """Time of the last event."""
    spans = inputs.scan("peer_spans").select("run_id", "last_time")
    end_time = clock.apply(spans, "run_id", "last_time")["last_time"].max()
    assert isinstance(end_time, datetime)
    return end_time


def fabric_at(time: datetime, inputs: ChannelInputs, clock: ChannelClock) -> FabricState:
    """How far the fabric is repaired."""
    lost = disruptions(clock.apply(inputs.scan("membership"), "run_id", "event_time"))
    times = lost["last_disruption_time"].dt.timestamp("us").to_numpy()
    if not len(times):
        return FabricState()
    timeline = FabricTimeline(inputs["links"], inputs["membership_intervals"], int(inputs.settings[DEGREE.name]))
    now = pl.Series([time]).dt.timestamp("us")[0]
    return timeline.state_at(now, times, float(inputs.settings[SETTLE.name]))


def build(inputs: ChannelInputs) -> pa.Table:
    messages, peers = inputs["messages"], inputs["recorded_peers"]
    if not messages.num_rows and not peers.num_rows:
        return schema_of(COLUMNS).empty_table()
    sums, findings = inputs.scan("balance_sums"), inputs["audit_findings"]
    counts = dict.fromkeys(FINDINGS, 0) | {
        each["values"]: each["counts"] for each in findings["finding"].value_counts().to_pylist()
    }
    dropped = inputs.scan("membership").filter(pl.col("kind") == EventKind.ROWS_DROPPED.value)
    waiting = int(sums["unsettled_count"].sum())
    was_due = bool(sums["due_count"].sum())
    found = verdict(findings["is_violation"].to_pylist().count(True), waiting, was_due=was_due)
    clock = ChannelClock.of(inputs)
    end_time = tapes_end(inputs, clock)
    waits_for = None
    if found is Verdict.UNSETTLED:
        waits_for = f"{waiting:,} deliveries wait for {fabric_at(end_time, inputs, clock).waits_for}"
    row = {
        "channel": inputs.channel,
        "verdict": found.value,
        "verdict_time": end_time,
        "waits_for": waits_for,
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
    depends_on=("quarantine", "messages", "recorded_peers", "links", "delivery_balances", "audit_findings"),
    settings=(SETTLE, DEGREE),
)
