"""Crossings of links by messages: from the time a peer has a message to the time its neighbor gets it from there.

A peer has a message when it sends it (`sent`) or receives its first copy (`received`), and relays it at once. So for
every `received` event the time at the sending neighbor is known, if that neighbor records too. The difference is the
time over one link, as shown by two clocks.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import minute_of
from broadloom.pipeline.engine.events import plain
from broadloom.pipeline.engine.keys import MessageKeys

KINDS = ("sent", "received")
COLUMNS = ("kind", "run_id", "event_time", "peer", "author", "sequence", "neighbor")
CROSSED = ("neighbor", "receiver", "run_from", "run_to", "from_us", "to_us")

FASTEST = pl.Schema(
    {
        "run_from": pl.String,
        "run_to": pl.String,
        "minute_us": pl.Int64,
        "fastest_us": pl.Int64,
        "at_us": pl.Int64,
        "sample_count": pl.Int64,
    }
)
"""The fastest crossing between two runs in a minute. `minute_us` and `at_us` are by the clock of the run whose ID sorts
first, so that both directions of a pair use the same minutes."""


CLOCK_ROWS = 200_000
"""Events of a channel from which its clocks are estimated; of a larger one, those of some messages."""

_SAMPLE_SEED = 11


def sampled(events: pl.DataFrame, event_count: int) -> pl.DataFrame:
    """The events of `KINDS` of enough messages of a channel with this many events.

    Every part chooses the same messages.
    """
    is_kind = pl.col("kind").is_in(KINDS)
    one_in = max(event_count // CLOCK_ROWS, 1)
    authors = events["author"].unique().drop_nulls()
    if one_in == 1 or not len(authors):
        return events.select(COLUMNS).filter(is_kind)
    # A phase per author, so that authors of few messages have some in the sample too.
    phase = (authors.cast(pl.String).hash(_SAMPLE_SEED) % one_in).cast(pl.Int64)
    codes = authors.to_physical()
    phases = pl.Series([0], dtype=pl.Int64).new_from_index(0, int(codes.max() or 0) + 1)  # type: ignore[arg-type]
    place = events["sequence"] + phases.scatter(codes, phase).gather(events["author"].to_physical())
    return events.select(COLUMNS).filter(place % one_in == 0).filter(is_kind)


def crossings(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per first copy that came from a recording peer: both ends, both runs, both times in microseconds.

    `rows` has all events of `KINDS` of some messages of a channel.
    """
    time = pl.col("event_time").dt.timestamp("us")
    keys = MessageKeys([rows["author"], rows["peer"], rows["neighbor"]], [rows["sequence"]])
    holders = rows.select(key=keys.delivery(receiver="peer"), run_from="run_id", from_us=time)
    if holders["key"].n_unique() < holders.height:
        holders = holders.unique("key", keep="first", maintain_order=True)
    received = rows.filter(pl.col("kind") == "received").select(
        "neighbor", key=keys.delivery(receiver="neighbor"), receiver="peer", run_to="run_id", to_us=time
    )
    return received.join(holders, on="key").select(CROSSED)


def fastest(crossed: pl.DataFrame) -> pl.DataFrame:
    """The fastest crossings between different runs, by pair, direction and minute."""
    rows = plain(crossed.select("run_from", "run_to").unique().filter(pl.col("run_from") != pl.col("run_to")))
    ahead = rows.with_columns(is_first=pl.col("run_from") < pl.col("run_to"))
    pairs = ahead.with_columns(pl.col("run_from", "run_to").cast(crossed.schema["run_from"]))
    both = crossed.join(pairs, on=["run_from", "run_to"])
    both = both.select(
        *("run_from", "run_to"),
        at_us=pl.when("is_first").then("from_us").otherwise("to_us"),
        took_us=pl.col("to_us") - pl.col("from_us"),
    ).with_columns(minute_us=minute_of("at_us"))
    return merge_fastest(
        plain(
            both.group_by("run_from", "run_to", "minute_us").agg(
                fastest_us=pl.col("took_us").min(),
                at_us=pl.col("at_us").filter(pl.col("took_us") == pl.col("took_us").min()).min(),
                sample_count=pl.len().cast(pl.Int64),
            )
        )
    )


def merge_fastest(parts: pl.DataFrame) -> pl.DataFrame:
    """One row per pair, direction and minute, from several results of `fastest`."""
    keys = ["run_from", "run_to", "minute_us"]
    sums = parts.group_by(keys).agg(pl.col("sample_count").sum())
    best = parts.sort("fastest_us", "at_us").unique(keys, keep="first", maintain_order=True).drop("sample_count")
    return best.join(sums, on=keys).select(FASTEST.names())
