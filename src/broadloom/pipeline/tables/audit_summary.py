"""The result of the audit, one row per channel."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow.audit_findings import FINDINGS
from broadloom.pipeline.table import CHANNEL, COUNT, FLAG, TEXT, Table, TableColumn, TableInputs
from broadloom.record.schema import EventKind

if TYPE_CHECKING:
    from pyspark.sql import Column as ColumnExpression
    from pyspark.sql import DataFrame

_NOT_JUDGED = {
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
    *(TableColumn(name, COUNT, f"Deliveries not judged: {reason}.") for name, reason in _NOT_JUDGED.items()),
    TableColumn("dropped_row_count", COUNT, "Rows dropped by recorders, according to `rows_dropped` events."),
    TableColumn("quarantined_file_count", COUNT, "Files of this channel in the table `quarantine`."),
    TableColumn("notes", TEXT, "What could not be judged, and why; null if everything was."),
)


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    sums = [F.sum(name).alias(name) for name in ("due_count", "delivered_count", *_NOT_JUDGED)]
    balances = inputs["delivery_balances"].groupBy("channel").agg(*sums)
    counts = [F.sum((F.col("finding") == name).cast("bigint")).alias(f"{name}_count") for name in FINDINGS]
    findings = inputs["audit_findings"].groupBy("channel").agg(*counts, F.max("is_violation").alias("has_violations"))
    messages = inputs["messages"].groupBy("channel").agg(F.count("*").alias("message_count"))
    without_join = F.sum(F.col("joined_time").isNull().cast("bigint")).alias("without_join_count")
    peers = inputs["recorded_peers"].groupBy("channel").agg(F.count("*").alias("peer_count"), without_join)
    dropped = (
        inputs.events.where(f"kind = '{EventKind.ROWS_DROPPED.value}'")
        .groupBy("channel")
        .agg(F.sum("event_count").alias("dropped_row_count"))
    )
    quarantined = (
        inputs["quarantine"]
        .where("channel IS NOT NULL")
        .groupBy("channel")
        .agg(F.count("*").alias("quarantined_file_count"))
    )
    channels = messages.join(peers, "channel", "full")
    for each in (balances, findings, dropped, quarantined):
        channels = channels.join(each, "channel", "left")
    numbers = [each.name for each in COLUMNS if each.type == COUNT]
    filled = channels.fillna(0, subset=[*numbers, "without_join_count"]).withColumn(
        "has_passed", ~F.coalesce("has_violations", F.lit(False))
    )
    notes = [_note(F.col(name), f" deliveries: {reason}") for name, reason in _NOT_JUDGED.items()]
    notes.append(_note(F.col("without_join_count"), " peers whose join is not on the tapes"))
    text = F.concat_ws("; ", *notes)
    return TABLE.conform(filled.withColumn("notes", F.when(text != "", text)).orderBy("channel"))


def _note(count: "ColumnExpression", text: str) -> "ColumnExpression":
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(count > 0, F.concat(count.cast("string"), F.lit(text)))


TABLE = Table(
    "audit_summary",
    "Did every guarantee hold?",
    COLUMNS,
    build,
    depends_on=("quarantine", "messages", "recorded_peers", "delivery_balances", "audit_findings"),
)
