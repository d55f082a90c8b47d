"""What was said? One row a message, deduplicated over all observers."""

from typing import TYPE_CHECKING

from weft.pipeline.arrow import messages
from weft.pipeline.buckets import bucket_count, hashed, in_buckets, in_chunks
from weft.pipeline.table import Inputs, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(inputs: Inputs) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    rows = inputs.events.where(F.col("kind").isin(*messages.KINDS)).select(*messages.EVENT_COLUMNS)
    parts = in_chunks(rows, messages.gathered, TABLE.ddl)
    buckets = bucket_count(parts, inputs.rows // 4)
    return TABLE.shaped(in_buckets(parts, hashed(buckets, *messages.KEYS), buckets, messages.merged, TABLE.ddl))


TABLE = Table("messages", "What was said?", messages.COLUMNS, build)
