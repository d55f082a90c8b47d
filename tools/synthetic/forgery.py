"""Forges single rows of a tape: another author, another sequence number, or a row about a message that nobody sent.

A forged row keeps the rest of its content, as if its author or number had been overwritten. One forged row is one
finding of the audit: neither the peer that is now missing a delivery nor any other is to blame.
"""

import random

import polars as pl

from broadloom.record.schema import INT64_MAX

FAR_NUMBERS = (10_000, 1 << 31, 1 << 40, INT64_MAX - 1, INT64_MAX)
"""Sequence numbers that no author of a tape has."""


def forged_author(row: pl.DataFrame, rows: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    """The row with an author that does not exist, or with another author of the channel."""
    author = f"{rng.getrandbits(64):016x}"
    if rng.random() < 0.5:
        authors = rows.filter(pl.col("kind") == "sent")["author"].unique().sort()
        others = [each for each in authors if each not in (row["author"][0], row["peer"][0])]
        author = rng.choice(others) if others else author
    return row.with_columns(pl.lit(author).alias("author"))


def forged_sequence(row: pl.DataFrame, rows: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    """The row with another number of its author: a little or far beyond the last one, or one that exists."""
    own = rows.filter((pl.col("kind") == "sent") & (pl.col("author") == row["author"][0]))["sequence"]
    numbers = [each for each in own.unique().sort() if each != row["sequence"][0]]
    last = max(int(row["sequence"][0]), *numbers, 0)
    number = rng.choice([rng.choice(numbers) if numbers else last + 1, last + 1, last + 7, rng.choice(FAR_NUMBERS)])
    return row.with_columns(pl.lit(number, pl.Int64).alias("sequence"))


def forged(row: pl.DataFrame, rows: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    return rng.choice([forged_author, forged_sequence])(row, rows, rng)
