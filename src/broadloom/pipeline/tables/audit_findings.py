"""One row per delivery that breaks a guarantee, and per message that was reported as missed."""

import polars as pl

from broadloom.pipeline.analysis.forged_rows import unrecorded_sendings
from broadloom.pipeline.analysis.frames import conform
from broadloom.pipeline.analysis.request_guarantees import FINDINGS as REQUEST_FINDINGS
from broadloom.pipeline.analysis.request_guarantees import request_findings
from broadloom.pipeline.engine.events import TEXT as TEXT_CODES
from broadloom.pipeline.engine.events import plain
from broadloom.pipeline.engine.keys import MessageKeys
from broadloom.pipeline.table import CHANNEL, ChannelInputs, Stage, Table, column
from broadloom.pipeline.tables.recorded_peers import SETTLE

FINDINGS = {
    "missing": "due to the receiver, but neither delivered nor reported as missed.",
    "duplicate": "delivered to the application more than once.",
    "out_of_order": "delivered after a later message of its author, or after it was reported as missed.",
    "reply_before_parent": "delivered before the message it replies to.",
    "receiver_not_member": "delivered to a peer that had no link yet, or had left.",
    "delivered_to_author": "delivered to its own author.",
    "forged": "a row about a message that was never sent, or with a wrong author or number.",
    "not_recorded": "sent and delivered, but missing on the tape of its author, which is complete otherwise.",
    "reported_missed": "not delivered, and reported as missed to the application: no violation.",
    **REQUEST_FINDINGS,
}

NON_VIOLATIONS = ("reported_missed",)

FINDING_COLUMNS = ("author", "receiver", "finding", "sequence", "event_time", "detail", "is_violation")

COLUMNS = (
    CHANNEL,
    column("finding", "One of " + ", ".join(f"`{name}`" for name in FINDINGS) + "."),
    column("is_violation", "Whether it breaks a guarantee."),
    column("author", "Author of the message, or sender of the request."),
    column("sequence", "Sequence number of the message or request."),
    column(
        "receiver",
        "Peer that got the message, or should have; of a sending, the peer that recorded it; of a request, its handler "
        "or sender.",
    ),
    column("event_time", "Time of the delivery or report; for `missing`, of the sending; of a request, its end."),
    column("detail", "Explanation."),
)


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
    columns = ("author", "sequence", "receiver", "parent_author", "parent_sequence", "delivered_time")
    replies = deliveries.filter(pl.col("is_reply") & (pl.col("delivery_count") > 0)).select(
        *columns, "run_id", "ordinal"
    )
    replies = replies.with_columns(parent_key=keys.delivery("parent_author", "receiver", "parent_sequence"))
    # The ordinal is null where nothing was delivered.
    parents = deliveries.select(parent_key="key", parent_run_id="run_id", parent_ordinal="ordinal")
    is_early = pl.col("parent_ordinal") > pl.col("ordinal")
    by_others = replies.filter(pl.col("parent_author") != pl.col("receiver"))
    early = by_others.join(parents, on="parent_key").filter(is_early, pl.col("parent_run_id") == pl.col("run_id"))
    by_itself = replies.filter(pl.col("parent_author") == pl.col("receiver"))
    sent = messages.filter("is_recorded").select(
        pl.col("author", "run_id").cast(TEXT_CODES), "sequence", parent_ordinal="ordinal"
    )
    own = by_itself.join(
        sent, left_on=["parent_author", "parent_sequence", "run_id"], right_on=["author", "sequence", "run_id"]
    ).filter(is_early)
    found = pl.concat([early.select(columns), own.select(columns)]).unique(["author", "sequence", "receiver"])
    return plain(found).select(
        *("author", "receiver"),
        pl.lit("reply_before_parent").alias("finding"),
        "sequence",
        pl.col("delivered_time").alias("event_time"),
        pl.format("delivered before {}#{}, which it replies to", "parent_author", "parent_sequence").alias("detail"),
        pl.lit(True).alias("is_violation"),
    )


def forged_findings(forged: pl.DataFrame) -> pl.DataFrame:
    """The forged rows that `pair_deliveries` found; one per message and receiver."""
    rows = forged.with_columns(
        finding=pl.lit("forged"), is_violation=pl.lit(True), detail=pl.format("{}: {}", "kind", "detail")
    )
    return rows.sort("ordinal").unique(["author", "sequence", "receiver"], keep="last").select(FINDING_COLUMNS)


def sending_findings(odd: pl.DataFrame, messages: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """Forged sendings, and sendings that are missing on a tape."""
    key = ["author", "sequence"]
    skipping = odd.filter(~pl.col("is_forged")).join(messages, key, "anti")
    forged = pl.concat([odd.filter("is_forged"), skipping]).select(
        *key,
        receiver="peer",
        finding=pl.lit("forged"),
        event_time="event_time",
        detail=pl.when(pl.col("author") != pl.col("peer"))
        .then(pl.lit("sent: recorded by another peer than its author"))
        .otherwise(pl.lit("sent: its number is out of line with the others of its author")),
    )
    absent = unrecorded_sendings(messages, odd, peers).select(
        *key,
        receiver="author",
        finding=pl.lit("not_recorded"),
        event_time="first_seen_time",
        detail=pl.lit("the tape of its author has later messages, and no rows of it are missing"),
    )
    return pl.concat([forged, absent]).with_columns(is_violation=pl.lit(True)).select(FINDING_COLUMNS)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    messages, peers = inputs["messages"], inputs["recorded_peers"]
    findings = pl.concat(
        [
            inputs.scan("findings").select(FINDING_COLUMNS),
            sending_findings(inputs.scan("odd_sendings"), messages, peers),
            request_findings(inputs["requests"], peers, float(inputs.settings[SETTLE.name])).select(FINDING_COLUMNS),
        ]
    )
    findings = findings.with_columns(channel=pl.lit(inputs.channel)).sort(
        "finding", "author", "sequence", "receiver", "detail"
    )
    return conform(findings, COLUMNS)


TABLE = Table(
    "audit_findings",
    "Which deliveries break a guarantee?",
    COLUMNS,
    Stage.FINISH,
    build,
    depends_on=("recorded_peers", "messages", "deliveries", "delivery_balances", "requests"),
    settings=(SETTLE,),
)
