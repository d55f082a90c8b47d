"""Event-time watermarks: whether an event is on time, late, or from the future.

Each channel has its own watermark: the newest event time minus `lateness_s`. A window that ends before it is final. An
event older than the watermark before its batch is late: it changes no table and is counted. An event further ahead of
the clock than `future_s` does not move the watermark (one wrong clock would make all others late), and is counted too.
So every event is either in the tables or in the count.
"""

from dataclasses import dataclass

import polars as pl

from broadloom.pipeline.analysis.frames import MICROSECONDS_PER_S
from broadloom.pipeline.quarantine import FUTURE_TOLERANCE_S

WINDOW_S = 10.0
LATENESS_S = 180.0
"""A tape file covers a minute, so events are a minute old when they can be read; and clocks differ."""


@dataclass(frozen=True, slots=True)
class WatermarkRules:
    window_s: float = WINDOW_S
    lateness_s: float = LATENESS_S
    """How much older than the newest event of its channel an event may be."""
    future_s: float | None = FUTURE_TOLERANCE_S
    """How far ahead of this machine's clock an event may be; None for tapes of a simulation, which has its own time."""

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
    """The newest event time."""
    window_us: int

    def window_of(self, column: str) -> pl.Expr:
        """Start of the window that a time belongs to."""
        return pl.col(column).floordiv(self.window_us) * self.window_us

    def is_final(self, window: str) -> pl.Expr:
        """Whether a window can no longer change: any further event in it would be late."""
        return pl.col(window) + self.window_us <= self.after_us

    def is_final_time(self, column: str) -> pl.Expr:
        """Whether the window of this time is final."""
        return self.window_of(column) + self.window_us <= self.after_us


def split_by_watermark(
    events: pl.DataFrame, before_us: int | None, newest_us: int | None, now_us: int, rules: WatermarkRules
) -> tuple[pl.DataFrame, pl.DataFrame, Watermark | None]:
    """The events that are on time; the others, with `excluded_reason`; and the watermark, or None without any event."""
    future_us = None if rules.future_s is None else now_us + round(rules.future_s * MICROSECONDS_PER_S)
    time, reason = pl.col("event_time"), pl.lit(None, pl.String)
    if before_us is not None:
        reason = pl.when(time < before_us).then(pl.lit("late")).otherwise(reason)
    if future_us is not None:
        reason = pl.when(time > future_us).then(pl.lit("future")).otherwise(reason)
    judged = events.with_columns(excluded_reason=reason)
    on_time = judged.filter(pl.col("excluded_reason").is_null()).drop("excluded_reason")
    excluded = judged.filter(pl.col("excluded_reason").is_not_null())
    newest = on_time["event_time"].max()
    if isinstance(newest, int):
        newest_us = newest if newest_us is None else max(newest_us, newest)
    if newest_us is None:
        return on_time, excluded, None
    after_us = newest_us - rules.lateness_us
    return on_time, excluded, Watermark(before_us, max(after_us, before_us or after_us), newest_us, rules.window_us)
