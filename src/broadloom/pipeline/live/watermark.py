"""How far the time of a channel has come, and what follows for a row: on time, late, or from the future.

The rule: each channel has a watermark of its own, the newest time seen less `lateness_s`. A window that ends before it
is final. A row older than the watermark that its batch found is late: it changes no table, and is counted. A row that
is further ahead of the clock than `future_s` moves no watermark (one wrong clock would make all others late), and is
counted too. So every row that was read is in the tables or in the count.
"""

from dataclasses import dataclass

import polars as pl

from broadloom.pipeline.arrow.frames import MICROSECONDS_PER_S
from broadloom.pipeline.quarantine import FUTURE_TOLERANCE_S

WINDOW_S = 10.0
LATENESS_S = 180.0
"""A tape's file is a minute long, so rows are a minute old when they can be read; and clocks differ."""


@dataclass(frozen=True, slots=True)
class WatermarkRules:
    window_s: float = WINDOW_S
    """Length of the windows that rates, latency and fabric are told for."""
    lateness_s: float = LATENESS_S
    """How much older than the newest row of its channel a row may be."""
    future_s: float | None = FUTURE_TOLERANCE_S
    """How far ahead of this machine's clock a row may be; None for tapes of a simulation, which has its own time."""

    @property
    def window_us(self) -> int:
        return round(self.window_s * MICROSECONDS_PER_S)

    @property
    def lateness_us(self) -> int:
        return round(self.lateness_s * MICROSECONDS_PER_S)


@dataclass(frozen=True, slots=True)
class Watermark:
    """The watermark of a channel before and after a batch."""

    before_us: int | None
    """None before the first batch: nothing is late then."""
    after_us: int
    newest_us: int
    """The newest time that was seen."""
    window_us: int

    def window_of(self, column: str) -> pl.Expr:
        """The beginning of a time's window."""
        return pl.col(column).floordiv(self.window_us) * self.window_us

    def is_final(self, window: str) -> pl.Expr:
        """Whether a window can change no more: whatever belongs into it would be late."""
        return pl.col(window) + self.window_us <= self.after_us

    def is_final_time(self, column: str) -> pl.Expr:
        """Whether the window of this time is final."""
        return self.window_of(column) + self.window_us <= self.after_us


def split_by_watermark(
    events: pl.DataFrame, before_us: int | None, newest_us: int | None, now_us: int, rules: WatermarkRules
) -> tuple[pl.DataFrame, pl.DataFrame, Watermark | None]:
    """Rows that are on time; the others, with the reason in `why`; and the tide, or None if there never was a row."""
    future_us = None if rules.future_s is None else now_us + round(rules.future_s * MICROSECONDS_PER_S)
    why = pl.lit(None, pl.String)
    if before_us is not None:
        why = pl.when(pl.col("time") < before_us).then(pl.lit("late")).otherwise(why)
    if future_us is not None:
        why = pl.when(pl.col("time") > future_us).then(pl.lit("future")).otherwise(why)
    judged = events.with_columns(aside=why)
    good = judged.filter(pl.col("aside").is_null()).drop("aside")
    aside = judged.filter(pl.col("aside").is_not_null())
    seen = good["time"].max()
    if isinstance(seen, int):
        newest_us = seen if newest_us is None else max(newest_us, seen)
    if newest_us is None:
        return good, aside, None
    after_us = newest_us - rules.lateness_us
    return good, aside, Watermark(before_us, max(after_us, before_us or after_us), newest_us, rules.window_us)
