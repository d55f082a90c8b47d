"""Copies received per message, compared with flooding: (r-1)N+1.

When flooding, the author sends r copies and each of the other N-1 peers relays r-1, so (r-1)N+1 copies arrive per
message; in a full mesh, r is N-1. Each copy is a `received` event or counted in a `duplicates` event. Those are written
about once a second and for no message in particular, so copies are counted by time, not by message.
"""

import numpy as np
import polars as pl

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.pipeline.analysis.frames import conform, in_us, minute_of
from broadloom.pipeline.table import CHANNEL, NUMBER, ChannelInputs, Stage, Table, column

COLUMNS = (
    CHANNEL,
    column("start_time", "Minute in which messages were sent and copies received."),
    column("message_count", "Messages sent."),
    column("peer_count_mean", "Mean number of peers present when they were sent."),
    column("degree", "Links that each peer should have: r."),
    column("first_copy_count", "First copies received."),
    column("duplicate_count", "Further copies received; recorded once a second, so some count a minute later."),
    column("copy_count", "All copies received."),
    column("flood_copy_count", "Copies that flooding would bring to the recorded peers: (r-1)N+1.", NUMBER),
    column("copies_per_message", "Copies per message sent; null if none was sent.", NUMBER),
    column("flood_ratio", "Copies relative to flooding: 1 when flooding, less with Plumtree."),
)


def redundancy(seconds: pl.DataFrame, intervals: pl.DataFrame, correction: ClockCorrection) -> pl.DataFrame:
    """By minute, for one channel. `seconds` has one row per run and second (`event_time`) with `message_count`,
    `first_copy_count`, `duplicate_count` and the channel's `degree`; `intervals` is `membership_intervals`."""
    rows = correction.apply(in_us(seconds), "run_id", "event_time")
    members = in_us(intervals)
    peers, recorded = (_peer_count(part, rows["event_time"]) for part in (members, members.filter("is_recorded")))
    degree = np.minimum(rows["degree"].fill_null(0).to_numpy(), np.maximum(peers - 1, 0))
    flood = np.maximum((degree - 1) * peers + 1, 0) * recorded / np.maximum(peers, 1)
    messages = pl.col("message_count")
    rows = rows.with_columns(
        start_time=minute_of("event_time"),
        peers=pl.Series(peers, dtype=pl.Float64),
        flood=pl.Series(flood, dtype=pl.Float64) * messages,
    )
    by_minute = rows.group_by("channel", "start_time").agg(
        # Weighted by messages; if there are none, by seconds.
        peer_count_mean=pl.coalesce(
            (pl.col("peers") * messages).sum() / messages.sum().replace(0, None), pl.col("peers").mean()
        ),
        message_count=messages.sum(),
        degree=pl.col("degree").max(),
        first_copy_count=pl.col("first_copy_count").sum(),
        duplicate_count=pl.col("duplicate_count").sum(),
        flood_copy_count=pl.col("flood").sum(),
    )
    copies = pl.col("first_copy_count") + pl.col("duplicate_count")
    by_minute = by_minute.with_columns(
        copy_count=copies,
        copies_per_message=copies / messages.replace(0, None),
        flood_ratio=copies / pl.col("flood_copy_count").replace(0.0, None),
    )
    return conform(by_minute.sort("channel", "start_time"), COLUMNS)


def _peer_count(members: pl.DataFrame, times: pl.Series) -> np.ndarray:
    """Number of peers present at each time."""
    moments = times.to_numpy()
    started = np.searchsorted(np.sort(members["start_time"].to_numpy()), moments, side="right")
    ended = np.searchsorted(np.sort(members["end_time"].drop_nulls().to_numpy()), moments, side="right")
    return np.asarray(started - ended)


def build(inputs: ChannelInputs) -> pl.DataFrame:
    degree = inputs["fabric_snapshots"]["degree"].max()
    # The peers of a run may be in several parts.
    seconds = inputs.scan("seconds").group_by("channel", "run_id", "event_time").agg(pl.all().sum())
    seconds = seconds.with_columns(degree=pl.lit(degree, pl.Int64))
    return redundancy(seconds, inputs["membership_intervals"], inputs.clocks)


TABLE = Table(
    "redundancy",
    "How many copies arrived per message, compared with flooding?",
    COLUMNS,
    Stage.CHANNEL,
    build,
    depends_on=("clock_offsets", "membership_intervals", "fabric_snapshots"),
)
