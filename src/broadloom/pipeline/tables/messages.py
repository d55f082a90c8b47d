"""One row per message, deduplicated over all recording peers."""

from typing import TYPE_CHECKING

from broadloom.pipeline.arrow import messages
from broadloom.pipeline.buckets import bucket_count, hash_bucket, map_buckets, map_chunks
from broadloom.pipeline.table import Table, TableInputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: TableInputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    rows = inputs.events.where(F.col("kind").isin(*messages.KINDS)).select(*messages.EVENT_COLUMNS)
    parts = map_chunks(rows, messages.gather_messages, TABLE.ddl)
    buckets = bucket_count(parts, inputs.rows // 4)
    return TABLE.conform(
        map_buckets(parts, hash_bucket(buckets, *messages.KEYS), buckets, messages.merge_messages, TABLE.ddl)
    )


TABLE = Table("messages", "Which messages were sent?", messages.COLUMNS, build)
