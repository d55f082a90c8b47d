"""One row per delivery that breaks a guarantee, and per message that was reported as missed."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import audit_findings, parents
from broadloom.pipeline.buckets import bucket_count, hash_bucket, map_buckets
from broadloom.pipeline.table import Table, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    by_balance = (
        inputs["delivery_balances"]
        .where(F.size("findings") > 0)
        .select("channel", "author", "receiver", F.explode("findings").alias("found"))
        .select("channel", "author", "receiver", "found.*")
        .withColumn("is_violation", ~F.col("finding").isin(*audit_findings.NON_VIOLATIONS))
    )
    findings = TABLE.conform(by_balance)
    if not inputs["messages"].where("parent_author IS NOT NULL").isEmpty():
        findings = findings.unionByName(_replies_before_parent(inputs))
    return findings.orderBy("channel", "finding", "author", "sequence", "receiver")


def _replies_before_parent(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    parent_key = [F.col("parent_author").alias("key_author"), F.col("parent_sequence").alias("key_sequence")]
    own_key = [F.col("author").alias("key_author"), F.col("sequence").alias("key_sequence")]
    position = ["channel", "receiver", "run_id", "ordinal"]
    delivered = inputs["deliveries"].where("delivery_count > 0")
    replies = delivered.where("is_reply").select(
        *position, *parent_key, "author", "sequence", F.col("delivered_time").alias("event_time")
    )
    with_replies = inputs["messages"].where("parent_author IS NOT NULL").select("channel", *parent_key).distinct()
    sent = inputs["messages"].where("is_recorded").withColumn("receiver", F.col("author")).select(*position, *own_key)
    candidates = delivered.select(*position, *own_key).unionByName(sent)
    candidates = candidates.join(with_replies, ["channel", "key_author", "key_sequence"], "left_semi")
    rows = replies.unionByName(candidates, allowMissingColumns=True)
    buckets = bucket_count(rows, inputs.rows // 2)
    bucket = hash_bucket(buckets, *parents.KEYS)
    return TABLE.conform(map_buckets(rows, bucket, buckets, parents.replies_before_parent, TABLE.ddl))


TABLE = Table(
    "audit_findings",
    "Which deliveries break a guarantee?",
    audit_findings.COLUMNS,
    build,
    depends_on=("messages", "deliveries", "delivery_balances"),
)
