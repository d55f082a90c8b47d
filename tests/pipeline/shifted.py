"""A recorded history as several machines with wrong clocks would have recorded it."""

import random

import polars as pl

from broadloom.record.arrow_import import pa


def on_machines(
    rows: pa.Table, offsets_s: list[float], drifts_ppm: list[float] | None = None, seed: int = 1
) -> pa.Table:
    """Each peer on a random machine; a machine is a run, with its own clock."""
    drifts_ppm = drifts_ppm or [0.0] * len(offsets_s)
    frame = pl.DataFrame(pl.from_arrow(rows))
    rng = random.Random(seed)
    machine = {peer: rng.randrange(len(offsets_s)) for peer in sorted(frame["peer"].drop_nulls().unique())}
    number = pl.col("peer").replace_strict(machine, default=0, return_dtype=pl.Int64)
    offset = number.replace_strict({n: float(each) for n, each in enumerate(offsets_s)}, return_dtype=pl.Float64)
    drift = number.replace_strict({n: float(each) for n, each in enumerate(drifts_ppm)}, return_dtype=pl.Float64)
    since_us = (pl.col("event_time") - pl.col("event_time").min()).dt.total_microseconds()
    shift_us = (offset * 1e6 + drift * since_us / 1e6).round().cast(pl.Int64)
    moved = frame.with_columns(
        run_id=pl.format("machine-{}", number),
        event_time=pl.col("event_time") + pl.duration(microseconds=shift_us),
    )
    return moved.to_arrow().cast(rows.schema)
