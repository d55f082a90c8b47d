"""Was every message delivered, once, in order? One row for each delivery of which that is not so."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import findings, parents
from weft.pipeline.buckets import bucket_count, hashed, in_buckets
from weft.pipeline.table import Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    by_account = (
        inputs["accounts"]
        .where(F.size("findings") > 0)
        .select("channel", "author", F.col("member").alias("receiver"), F.explode("findings").alias("found"))
        .select("channel", "author", "receiver", "found.*")
        .withColumn("guilty", ~F.col("finding").isin(*findings.INNOCENT))
    )
    found = TABLE.shaped(by_account)
    if not inputs["messages"].where("parent_author IS NOT NULL").isEmpty():
        found = found.unionByName(_before_parents(inputs))
    return found.orderBy("channel", "finding", "author", "sequence", "receiver")


def _before_parents(inputs: Inputs) -> "DataFrame":
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
    bucket = hashed(buckets, *parents.KEYS)
    return TABLE.shaped(in_buckets(together, bucket, buckets, parents.before_parent, TABLE.ddl))


TABLE = Table(
    "audit",
    "Was every message delivered, once, in order?",
    findings.COLUMNS,
    build,
    needs=("messages", "deliveries", "accounts"),
)
