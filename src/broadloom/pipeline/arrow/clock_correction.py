"""Times of different clocks made one: what the table `clocks` found is taken off.

The rule: times of runs with the same reference can be compared afterwards, others cannot, and are never compared.
"""

import polars as pl

from broadloom.pipeline.arrow.clock_offsets import WINDOW_US
from broadloom.pipeline.arrow.frames import to_polars
from broadloom.record.arrow_import import pa

_OFFSET_COLUMNS = "reference", "at", "offset_us", "drift_ppm", "error_us"


class ClockCorrection:
    """The clocks of all runs, ready to be applied. Small: a row for each run and hour."""

    def __init__(self, clocks: pa.Table) -> None:
        known = to_polars(clocks)
        self._offsets = known.select("run", "window", *_OFFSET_COLUMNS)
        self.is_one_clock = known["reference"].n_unique() <= 1 and not (known["offset_us"] != 0).any()
        """All times are by the same clock, so there is nothing to do."""
        self._reference = known["reference"][0] if known.height else ""

    def apply(self, frame: pl.DataFrame, run: str, time: str) -> pl.DataFrame:
        """`time` by the reference's clock; with `<time>_reference`, whose clock that is, and `<time>_error_us`."""
        if self.is_one_clock:
            same = pl.lit(self._reference, dtype=pl.String).alias(f"{time}_reference")
            return frame.with_columns(same, pl.lit(0.0).alias(f"{time}_error_us"))
        window = "_window"
        known = self._offsets.rename({"run": run, "window": window})
        joined = frame.with_columns((pl.col(time).floordiv(WINDOW_US) * WINDOW_US).alias(window)).join(
            known, on=[run, window], how="left", maintain_order="left"
        )
        offset = pl.col("offset_us") + pl.col("drift_ppm") * (pl.col(time) - pl.col("at")) / 1e6
        return joined.with_columns(
            (pl.col(time) - offset.fill_null(0.0).round().cast(pl.Int64)).alias(time),
            # A run of which nothing is known goes by its own clock.
            pl.coalesce("reference", run).alias(f"{time}_reference"),
            pl.col("error_us").fill_null(0.0).alias(f"{time}_error_us"),
        ).drop(window, *_OFFSET_COLUMNS)
