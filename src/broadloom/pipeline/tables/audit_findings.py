"""One row per delivery that breaks a guarantee, and per message that was reported as missed."""

import polars as pl

from broadloom.pipeline.arrow.frames import to_schema
from broadloom.pipeline.engine.events import TEXT as TEXT_CODES
from broadloom.pipeline.engine.events import plain
from broadloom.pipeline.engine.keys import MessageKeys
from broadloom.pipeline.table import (
    CHANNEL,
    COUNT,
    FLAG,
    ID,
    TEXT,
    TIME,
    ChannelInputs,
    Stage,
    Table,
    TableColumn,
    schema_of,
)
from broadloom.record.arrow_import import pa

FINDINGS = {
    "missing": "due to the receiver, but neither delivered nor reported as missed.",
    "duplicate": "delivered to the application more than once.",
    "out_of_order": "delivered after a later message of its author, or after it was reported as missed.",
    "reply_before_parent": "delivered before the message it replies to.",
    "receiver_not_member": "delivered to a peer that had no link yet, or had left.",
    "delivered_to_author": "delivered to its own author.",
    "never_sent": "delivered, but its author recorded no such message.",
    "reported_missed": "not delivered, and reported as missed to the application: no violation.",
}

NON_VIOLATIONS = ("reported_missed",)

COLUMNS = (
    CHANNEL,
    TableColumn("finding", TEXT, "One of " + ", ".join(f"`{name}`" for name in FINDINGS) + "."),
    TableColumn("is_violation", FLAG, "Whether it breaks a guarantee."),
    TableColumn("author", ID, "Author of the message."),
    TableColumn("sequence", COUNT, "Sequence number of the message."),
    TableColumn("receiver", ID, "Peer that got the message, or should have."),
    TableColumn("event_time", TIME, "Time of the delivery or report; for `missing`, of the sending."),
    TableColumn("detail", TEXT, "Explanation."),
)
SCHEMA = schema_of(COLUMNS)


def findings_of_balances(balances: pl.DataFrame) -> pl.DataFrame:
    """The findings listed in `delivery_balances`, one row each."""
    found = balances.filter(pl.col("findings").list.len() > 0).select("author", "receiver", "findings")
    found = found.explode("findings").unnest("findings")
    return found.with_columns(is_violation=~pl.col("finding").is_in(NON_VIOLATIONS))


def replies_before_parent(deliveries: pl.DataFrame, keys: MessageKeys, messages: pl.DataFrame) -> pl.DataFrame:
    """Replies that were delivered before the message they reply to (a violation of causal order).

    Judged by ordinals, where both were delivered to the same peer in one run, or the peer sent the parent itself. A
    parent that never arrived was either not due (sent before the peer joined) or is reported as missing by itself.
    """
    delivered = deliveries.filter(pl.col("delivery_count") > 0)
    replies = delivered.filter("is_reply").with_columns(
        parent_key=keys.delivery("parent_author", "receiver", "parent_sequence")
    )
    parents = delivered.select("key", "run_id", parent_ordinal="ordinal")
    is_early = pl.col("parent_ordinal") > pl.col("ordinal")
    early = replies.join(parents, left_on=["parent_key", "run_id"], right_on=["key", "run_id"]).filter(is_early)
    by_itself = replies.filter(pl.col("parent_author") == pl.col("receiver"))
    sent = messages.filter("is_recorded").select(
        pl.col("author", "run_id").cast(TEXT_CODES), "sequence", parent_ordinal="ordinal"
    )
    own = by_itself.join(
        sent, left_on=["parent_author", "parent_sequence", "run_id"], right_on=["author", "sequence", "run_id"]
    ).filter(is_early)
    columns = ("author", "sequence", "receiver", "parent_author", "parent_sequence", "delivered_time")
    found = pl.concat([early.select(columns), own.select(columns)]).unique(["author", "sequence", "receiver"])
    return plain(found).select(
        *("author", "receiver"),
        pl.lit("reply_before_parent").alias("finding"),
        "sequence",
        pl.col("delivered_time").alias("event_time"),
        pl.format("delivered before {}#{}, which it replies to", "parent_author", "parent_sequence").alias("detail"),
        pl.lit(True).alias("is_violation"),
    )


def build(inputs: ChannelInputs) -> pa.Table:
    findings = inputs.scan("findings").sort("finding", "author", "sequence", "receiver", "detail")
    return to_schema(findings, SCHEMA)


TABLE = Table(
    "audit_findings",
    "Which deliveries break a guarantee?",
    COLUMNS,
    Stage.FINISH,
    build,
    depends_on=("messages", "deliveries", "delivery_balances"),
)
