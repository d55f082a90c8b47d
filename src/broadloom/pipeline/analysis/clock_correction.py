"""Corrects times for the clock offsets found in the table `clock_offsets`.

Times of runs with the same reference can be compared after the correction. Others cannot, and never are.
"""

import polars as pl

from broadloom.pipeline.analysis.frames import in_us

WINDOW_US = 3_600_000_000
"""A clock is assumed to run evenly in a window. Longer would miss NTP adjustments, shorter has few crossings."""

_OFFSET_COLUMNS = "reference_run_id", "offset_time", "offset_ms", "drift_ppm", "error_ms"


class ClockCorrection:
    """The clock offsets of all runs, ready to be applied. Small: one row per run and hour."""

    def __init__(self, clock_offsets: pl.DataFrame) -> None:
        known = in_us(clock_offsets)
        self._offsets = known.select("run_id", "start_time", *_OFFSET_COLUMNS)
        self.is_one_clock = known["reference_run_id"].n_unique() <= 1 and not (known["offset_ms"] != 0).any()
        """All times are by the same clock, so there is nothing to correct."""
        self._reference = known["reference_run_id"][0] if known.height else ""
        self.references: dict[str, str] = dict(known.select("run_id", "reference_run_id").unique().iter_rows())
        """By run."""
        errors_us = pl.col("error_ms").fill_null(0.0).max() * 1000
        self.errors_us: dict[str, float] = dict(known.group_by("run_id").agg(errors_us).iter_rows())
        """Largest error of each run."""

    def apply(self, frame: pl.DataFrame, run: str, time: str) -> pl.DataFrame:
        """Convert column `time` to the reference clock; add `<time>_reference` (whose clock) and `<time>_error_us`."""
        if self.is_one_clock:
            same = pl.lit(self._reference, dtype=pl.String).cast(frame.schema[run]).alias(f"{time}_reference")
            return frame.with_columns(same, pl.lit(0.0).alias(f"{time}_error_us"))
        window = "_window"
        known = self._offsets.rename({"run_id": run, "start_time": window})
        kind = frame.schema[run]
        known = known.with_columns(pl.col(run, "reference_run_id").cast(kind))
        joined = frame.with_columns((pl.col(time).floordiv(WINDOW_US) * WINDOW_US).alias(window)).join(
            known, on=[run, window], how="left", maintain_order="left"
        )
        offset_us = pl.col("offset_ms") * 1000 + pl.col("drift_ppm") * (pl.col(time) - pl.col("offset_time")) / 1e6
        return joined.with_columns(
            (pl.col(time) - offset_us.fill_null(0.0).round().cast(pl.Int64)).alias(time),
            # A run without a known offset keeps its own clock.
            pl.coalesce("reference_run_id", run).alias(f"{time}_reference"),
            (pl.col("error_ms") * 1000).fill_null(0.0).alias(f"{time}_error_us"),
        ).drop(window, *_OFFSET_COLUMNS)
