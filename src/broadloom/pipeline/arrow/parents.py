"""Finds replies that were delivered before the message they reply to (a violation of causal order).

Judged by ordinals, where both were delivered to the same peer in one run. A parent that never arrived was either not
due (sent before the peer joined) or is reported as missing by itself.
"""

import polars as pl

from broadloom.pipeline.arrow.audit_findings import SCHEMA
from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.record.arrow_import import pa

KEYS = ["channel", "receiver", "key_author", "key_sequence"]
"""Identifies the parent: in a reply, the message it replies to; in a row of a parent, the message itself."""


def replies_before_parent(rows: pa.Table) -> pa.Table:
    """`rows` are replies (with `author` and `sequence`) and deliveries or sendings of parents (without)."""
    every = frame(rows)
    parents = every.filter(pl.col("author").is_null()).sort("ordinal").unique([*KEYS, "run_id"], keep="first")
    parents = parents.select(*KEYS, "run_id", pl.col("ordinal").alias("parent_ordinal"))
    replies = every.filter(pl.col("author").is_not_null())
    both = replies.join(parents, [*KEYS, "run_id"], "inner")
    early = both.filter(pl.col("parent_ordinal") > pl.col("ordinal"))
    return to_schema(
        early.with_columns(
            pl.lit("reply_before_parent").alias("finding"),
            pl.lit(True).alias("is_violation"),
            pl.format("delivered before {}#{}, which it replies to", "key_author", "key_sequence").alias("detail"),
        ),
        SCHEMA,
    )
