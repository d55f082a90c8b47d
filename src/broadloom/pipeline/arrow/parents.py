"""Responses that were delivered before what they respond to.

Judged where both were delivered to the same peer, in one run, by ordinals. A parent that never came is either not owed
(it was sent before the peer joined) or found missing by itself.
"""

import polars as pl

from broadloom.pipeline.arrow.audit_findings import SCHEMA
from broadloom.pipeline.arrow.exact import frame, to_schema
from broadloom.record.arrow_import import pa

KEYS = ["channel", "receiver", "key_author", "key_sequence"]
"""The parent; a row that is a parent itself has its own name there."""


def replies_before_parent(rows: pa.Table) -> pa.Table:
    """`rows` are responses (with `author` and `sequence`), and deliveries, or sendings, of parents (without)."""
    got = frame(rows)
    parents = got.filter(pl.col("author").is_null()).sort("ordinal").unique([*KEYS, "run"], keep="first")
    answers = got.filter(pl.col("author").is_not_null())
    both = answers.join(
        parents.select(*KEYS, "run", pl.col("ordinal").alias("parent_ordinal")), [*KEYS, "run"], "inner"
    )
    early = both.filter(pl.col("parent_ordinal") > pl.col("ordinal"))
    return to_schema(
        early.with_columns(
            pl.lit("before_parent").alias("finding"),
            pl.lit(True).alias("guilty"),
            pl.format("delivered before {}#{}, which it responds to", "key_author", "key_sequence").alias("detail"),
        ),
        SCHEMA,
    )
