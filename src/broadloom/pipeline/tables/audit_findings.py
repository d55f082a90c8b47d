"""Was every message delivered, once, in order? One row for each delivery of which that is not so."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import audit_findings, parents
from broadloom.pipeline.buckets import bucket_count, hash_bucket, map_buckets
from broadloom.pipeline.table import Table, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    by_account = (
        inputs["accounts"]
        .where(F.size("findings") > 0)
        .select("channel", "author", F.col("member").alias("receiver"), F.explode("findings").alias("found"))
        .select("channel", "author", "receiver", "found.*")
        .withColumn("guilty", ~F.col("finding").isin(*audit_findings.NON_VIOLATIONS))
    )
    found = TABLE.conform(by_account)
    if not inputs["messages"].where("parent_author IS NOT NULL").isEmpty():
        found = found.unionByName(_replies_before_parent(inputs))
    return found.orderBy("channel", "finding", "author", "sequence", "receiver")


def _replies_before_parent(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    named = [F.col("parent_author").alias("key_author"), F.col("parent_sequence").alias("key_sequence")]
    own_name = [F.col("author").alias("key_author"), F.col("sequence").alias("key_sequence")]
    place = ["channel", "receiver", "run", "ordinal"]
    got = inputs["deliveries"].where("copies > 0")
    answers = got.where("answers").select(*place, *named, "author", "sequence", F.col("delivered").alias("time"))
    answered = inputs["messages"].where("parent_author IS NOT NULL").select("channel", *named).distinct()
    keys = ["channel", "key_author", "key_sequence"]
    parents_got = got.select(*place, *own_name)
    sent = inputs["messages"].where("recorded").withColumn("receiver", F.col("author")).select(*place, *own_name)
    candidates = parents_got.unionByName(sent).join(answered, keys, "left_semi")
    together = answers.unionByName(candidates, allowMissingColumns=True)
    buckets = bucket_count(together, inputs.rows // 2)
    bucket = hash_bucket(buckets, *parents.KEYS)
    return TABLE.conform(map_buckets(together, bucket, buckets, parents.replies_before_parent, TABLE.ddl))


TABLE = Table(
    "audit",
    "Was every message delivered, once, in order?",
    audit_findings.COLUMNS,
    build,
    depends_on=("messages", "deliveries", "accounts"),
)
