"""How many copies of messages came, against what a flood sends: (r-1)N+1.

The author sends r copies and each of the other N-1 peers hands on r-1, so (r-1)N+1 copies come in for one message; in
the small regime r is N-1. Each copy is a `received` row or counted in a `duplicates` row. Those are written about once
a second and for no message in particular, so copies can be counted by time, not by message.
"""

import numpy as np
import polars as pl

from broadloom.pipeline.arrow.clock_correction import ClockCorrection
from broadloom.pipeline.arrow.frames import minute_of, to_arrow, to_polars
from broadloom.record.arrow_import import pa

_TIME = pa.timestamp("us", tz="UTC")

REDUNDANCY = pa.schema(
    [
        pa.field("channel", pa.string()),
        pa.field("minute", _TIME),
        pa.field("messages", pa.int64()),
        pa.field("peers", pa.float64()),
        pa.field("degree", pa.int64()),
        pa.field("received", pa.int64()),
        pa.field("duplicates", pa.int64()),
        pa.field("copies", pa.int64()),
        pa.field("copies_of_flood", pa.float64()),
        pa.field("copies_per_message", pa.float64()),
        pa.field("share_of_flood", pa.float64()),
    ]
)


def redundancy(seconds: pa.Table, intervals: pa.Table, correction: ClockCorrection) -> pa.Table:
    """By minute, for one channel. `seconds` has, for each run and second (`time`), the counts `sent`, `received` and
    `duplicates`, and the channel's `degree`; `lives` is the table of that name."""
    rows = correction.apply(to_polars(seconds), "run", "time")
    members = to_polars(intervals)
    peers, recorded = (_peer_count(part, rows["time"]) for part in (members, members.filter("is_recorded")))
    degree = np.minimum(rows["degree"].fill_null(0).to_numpy(), np.maximum(peers - 1, 0))
    flood = np.maximum((degree - 1) * peers + 1, 0) * recorded / np.maximum(peers, 1)
    rows = rows.with_columns(
        minute=minute_of("time"),
        peers=pl.Series(peers, dtype=pl.Float64),
        flood=pl.Series(flood, dtype=pl.Float64) * pl.col("sent"),
    )
    told = rows.group_by("channel", "minute").agg(
        messages=pl.col("sent").sum(),
        # As the messages saw it; without any, as the seconds did.
        peers=pl.coalesce(
            (pl.col("peers") * pl.col("sent")).sum() / pl.col("sent").sum().replace(0, None), pl.col("peers").mean()
        ),
        degree=pl.col("degree").max(),
        received=pl.col("received").sum(),
        duplicates=pl.col("duplicates").sum(),
        copies_of_flood=pl.col("flood").sum(),
    )
    copies = pl.col("received") + pl.col("duplicates")
    told = told.with_columns(
        copies=copies,
        copies_per_message=copies / pl.col("messages").replace(0, None),
        share_of_flood=copies / pl.col("copies_of_flood").replace(0.0, None),
    )
    return to_arrow(told.sort("channel", "minute"), REDUNDANCY)


def _peer_count(members: pl.DataFrame, times: pl.Series) -> np.ndarray:
    """How many peers are there at each time."""
    moments = times.to_numpy()
    came = np.searchsorted(np.sort(members["since"].to_numpy()), moments, side="right")
    went = np.searchsorted(np.sort(members["gone"].drop_nulls().to_numpy()), moments, side="right")
    return np.asarray(came - went)
