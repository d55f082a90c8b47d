"""All times of a channel by one clock.

Runs that exchange messages both ways have a common reference clock (`clock_offsets`). Where messages went one way only,
links relate the clocks: both ends of a link record its start within moments. So the clocks of any two machines whose
peers were linked can be compared, with an error. Runs that nothing relates keep their own clocks.
"""

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import polars as pl

from broadloom.pipeline.analysis.clock_correction import ClockCorrection
from broadloom.testing.checks.settling import SETTLE_S

if TYPE_CHECKING:
    from broadloom.pipeline.table import ChannelInputs

LINK_ERROR_US_MAX = SETTLE_S * 1e6
"""The two ends of a link record its start within this time of each other."""

_ENDS = ["peer", "neighbor"]


class ChannelClock:
    """`links_up` has all `link_up` events of the channel."""

    def __init__(self, clocks: ClockCorrection, links_up: pl.DataFrame) -> None:
        self._clocks = clocks
        shifts = _shifts(clocks, links_up) if len(set(clocks.references.values())) > 1 else {}
        self._shift_us = {run: round(shifts.get(reference, 0.0)) for run, reference in clocks.references.items()}
        self.errors_us = {
            run: clocks.errors_us[run] + min(abs(shift_us), LINK_ERROR_US_MAX)
            for run, shift_us in self._shift_us.items()
        }
        """Largest error of each run's times."""

    @classmethod
    def of(cls, inputs: "ChannelInputs") -> "ChannelClock":
        return cls(inputs.clocks, inputs.scan("membership").filter(pl.col("kind") == "link_up"))

    @classmethod
    def by_links(cls, runs: pl.Series, links_up: pl.DataFrame) -> "ChannelClock":
        """Before offsets are estimated: only by links."""
        zero = {name: pl.lit(0.0) for name in ("offset_ms", "drift_ppm", "error_ms")}
        zero |= {name: pl.lit(0).cast(pl.Datetime("us", "UTC")) for name in ("start_time", "offset_time")}
        own = runs.unique().sort().to_frame("run_id").with_columns(reference_run_id="run_id", **zero)
        return cls(ClockCorrection(own), links_up)

    @property
    def error_us_max(self) -> float:
        return max(self.errors_us.values(), default=0.0)

    def apply(self, frame: pl.DataFrame, run: str, time: str) -> pl.DataFrame:
        """Convert column `time`, times or microseconds. The order of rows is kept."""
        if self._clocks.is_one_clock:
            return frame
        kind = frame.schema[time]
        columns = frame.columns
        is_time = isinstance(kind, pl.Datetime)
        corrected = frame.with_columns(pl.col(time).dt.timestamp("us")) if is_time else frame
        corrected = self._clocks.apply(corrected, run, time)
        if any(self._shift_us.values()):
            shift = pl.col(run).cast(pl.String).replace_strict(self._shift_us, default=0, return_dtype=pl.Int64)
            corrected = corrected.with_columns(pl.col(time) - shift)
        return corrected.select(columns).with_columns(pl.col(time).cast(kind))


def _shifts(clocks: ClockCorrection, links_up: pl.DataFrame) -> dict[str, float]:
    """How far each reference clock is ahead of that of most peers, as the links between their peers show."""
    ups = links_up.select("run_id", *_ENDS, "ordinal", at_us=pl.col("event_time").dt.timestamp("us"))
    ups = clocks.apply(ups, "run_id", "at_us").sort("run_id", "ordinal")
    ups = ups.with_columns(place=pl.int_range(pl.len()).over(_ENDS), count=pl.len().over(_ENDS))
    ends = ups.select(*_ENDS, "place", "count", "at_us", reference="at_us_reference")
    other = ends.rename({"peer": "neighbor", "neighbor": "peer", "at_us": "other_us", "reference": "other"})
    # If one end recorded more links than the other, rows are missing, and it is not known which.
    both = ends.join(other, on=[*_ENDS, "place", "count"]).filter(pl.col("reference") != pl.col("other"))
    found = both.group_by("reference", "other").agg(ahead=(pl.col("other_us") - pl.col("at_us")).median())
    near: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for reference, others, ahead in found.sort("reference", "other").iter_rows():
        near[reference].append((others, ahead))
    shifts: dict[str, float] = {}
    for root in ends.group_by("reference").len().sort("len", "reference", descending=[True, False])["reference"]:
        pending = deque([root] if root not in shifts else [])
        shifts.setdefault(root, 0.0)
        while pending:
            one = pending.popleft()
            for others, ahead in near[one]:
                if others not in shifts:
                    shifts[others] = shifts[one] + ahead
                    pending.append(others)
    return shifts
