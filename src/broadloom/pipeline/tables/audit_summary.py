"""Did every promise hold? One row a channel."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow.audit_findings import FINDINGS
from broadloom.pipeline.table import COUNT, FLAG, TEXT, Table, TableColumn, TableInputs
from broadloom.record.schema import EventKind

if TYPE_CHECKING:
    from pyspark.sql import Column as ColumnExpression
    from pyspark.sql import DataFrame

_UNKNOWN = {
    "unjudged_end": "sent too shortly before the tapes end",
    "unjudged_gap": "possibly among rows that are lacking",
    "unjudged_clock": "sent too close to a joining for the clocks to tell",
}

COLUMNS = (
    TableColumn("channel", TEXT, "First 16 digits of the channel's id."),
    TableColumn("clean", FLAG, "Whether every promise held, as far as can be judged."),
    TableColumn("messages", COUNT, "Messages that are known of."),
    TableColumn("members", COUNT, "Peers that recorded."),
    TableColumn("owed", COUNT, "Deliveries that were owed, and could be judged."),
    TableColumn("delivered", COUNT, "Messages that members got, each counted once a member."),
    *(TableColumn(name, COUNT, f"How many: {about[0].lower()}{about[1:]}") for name, about in FINDINGS.items()),
    TableColumn(
        "unjudged_end", COUNT, "Deliveries not judged: sent so shortly before the end that they may be on their way."
    ),
    TableColumn("unjudged_gap", COUNT, "Deliveries not judged: they may be among rows that are lacking."),
    TableColumn("unjudged_clock", COUNT, "Deliveries not judged: sent too close to a joining for the clocks to tell."),
    TableColumn("lost_rows", COUNT, "Rows that recorders lost, as they say themselves."),
    TableColumn("set_aside", COUNT, "Files of this channel of which rows were set aside; see the table quarantine."),
    TableColumn("remarks", TEXT, "What could not be judged, and why, for a person; null if everything was."),
)


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    sums = [F.sum(name).alias(name) for name in ("owed", "delivered", *_UNKNOWN)]
    accounts = inputs["accounts"].groupBy("channel").agg(*sums)
    counts = [F.sum((F.col("finding") == name).cast("bigint")).alias(name) for name in FINDINGS]
    found = inputs["audit"].groupBy("channel").agg(*counts, F.max("guilty").alias("guilty"))
    messages = inputs["messages"].groupBy("channel").agg(F.count("*").alias("messages"))
    members = (
        inputs["members"]
        .groupBy("channel")
        .agg(F.count("*").alias("members"), F.sum(F.col("joined").isNull().cast("bigint")).alias("unknown"))
    )
    lost = (
        inputs.events.where(f"kind = '{EventKind.ROWS_DROPPED.value}'")
        .groupBy("channel")
        .agg(F.sum("count").alias("lost_rows"))
    )
    aside = inputs["quarantine"].where("channel IS NOT NULL").groupBy("channel").agg(F.count("*").alias("set_aside"))
    channels = messages.join(members, "channel", "full")
    for each in (accounts, found, lost, aside):
        channels = channels.join(each, "channel", "left")
    numbers = [each.name for each in COLUMNS if each.type == COUNT]
    filled = channels.fillna(0, subset=[*numbers, "unknown"]).withColumn("clean", ~F.coalesce("guilty", F.lit(False)))
    remarks = [_note(F.col(name), f" deliveries: {why}") for name, why in _UNKNOWN.items()]
    remarks.append(_note(F.col("unknown"), " members whose joining is not on the tapes"))
    told = F.concat_ws("; ", *remarks)
    return TABLE.conform(filled.withColumn("remarks", F.when(told != "", told)).orderBy("channel"))


def _note(count: "ColumnExpression", text: str) -> "ColumnExpression":
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(count > 0, F.concat(count.cast("string"), F.lit(text)))


TABLE = Table(
    "verdict",
    "Did every promise hold?",
    COLUMNS,
    build,
    depends_on=("quarantine", "messages", "members", "accounts", "audit"),
)
