"""Did every promise hold? One row a channel."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow.findings import FINDINGS
from weft.pipeline.table import COUNT, FLAG, TEXT, Column, Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import Column as ColumnExpression
    from pyspark.sql import DataFrame

_UNJUDGED = {
    "unjudged_end": "sent too shortly before the tapes end",
    "unjudged_gap": "possibly among rows that are lacking",
    "unjudged_clock": "sent too close to a joining for the clocks to tell",
}

COLUMNS = (
    Column("channel", TEXT, "First 16 digits of the channel's id."),
    Column("clean", FLAG, "Whether every promise held, as far as can be judged."),
    Column("messages", COUNT, "Messages that are known of."),
    Column("members", COUNT, "Peers that recorded."),
    Column("owed", COUNT, "Deliveries that were owed, and could be judged."),
    Column("delivered", COUNT, "Messages that members got, each counted once a member."),
    *(Column(name, COUNT, f"How many: {about[0].lower()}{about[1:]}") for name, about in FINDINGS.items()),
    Column(
        "unjudged_end", COUNT, "Deliveries not judged: sent so shortly before the end that they may be on their way."
    ),
    Column("unjudged_gap", COUNT, "Deliveries not judged: they may be among rows that are lacking."),
    Column("unjudged_clock", COUNT, "Deliveries not judged: sent too close to a joining for the clocks to tell."),
    Column("lost_rows", COUNT, "Rows that recorders lost, as they say themselves."),
    Column("set_aside", COUNT, "Files of this channel of which rows were set aside; see the table quarantine."),
    Column("remarks", TEXT, "What could not be judged, and why, for a person; null if everything was."),
)


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    sums = [F.sum(name).alias(name) for name in ("owed", "delivered", *_UNJUDGED)]
    accounts = inputs["accounts"].groupBy("channel").agg(*sums)
    counts = [F.sum((F.col("finding") == name).cast("bigint")).alias(name) for name in FINDINGS]
    found = inputs["audit"].groupBy("channel").agg(*counts, F.max("guilty").alias("guilty"))
    messages = inputs["messages"].groupBy("channel").agg(F.count("*").alias("messages"))
    members = (
        inputs["members"]
        .groupBy("channel")
        .agg(F.count("*").alias("members"), F.sum(F.col("joined").isNull().cast("bigint")).alias("unknown"))
    )
    lost = inputs.events.where("kind = 'gap'").groupBy("channel").agg(F.sum("count").alias("lost_rows"))
    aside = inputs["quarantine"].where("channel IS NOT NULL").groupBy("channel").agg(F.count("*").alias("set_aside"))
    channels = messages.join(members, "channel", "full")
    for each in (accounts, found, lost, aside):
        channels = channels.join(each, "channel", "left")
    numbers = [each.name for each in COLUMNS if each.type == COUNT]
    filled = channels.fillna(0, subset=[*numbers, "unknown"]).withColumn("clean", ~F.coalesce("guilty", F.lit(False)))
    remarks = [_remark(F.col(name), f" deliveries: {why}") for name, why in _UNJUDGED.items()]
    remarks.append(_remark(F.col("unknown"), " members whose joining is not on the tapes"))
    told = F.concat_ws("; ", *remarks)
    return TABLE.shaped(filled.withColumn("remarks", F.when(told != "", told)).orderBy("channel"))


def _remark(count: "ColumnExpression", text: str) -> "ColumnExpression":
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(count > 0, F.concat(count.cast("string"), F.lit(text)))


TABLE = Table(
    "verdict",
    "Did every promise hold?",
    COLUMNS,
    build,
    needs=("quarantine", "messages", "members", "accounts", "audit"),
)
