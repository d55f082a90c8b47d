"""Charts of a channel: peers and state of the fabric, latency over time and by hops, and repair times. Drawn from
results, without Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from broadloom.errors import BroadloomError
from broadloom.pipeline.results import Results
from broadloom.pipeline.tables import table

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes

NEEDED = ("channels", "fabric_snapshots", "latency", "deliveries", "repairs")
"""Tables the charts are drawn from."""
ROWS_MAX = 200_000
"""Rows read per table; of more, the first ones."""
SIZE_INCHES = (10.0, 6.5)
_UNITS = (("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86400))
_BAND, _DISRUPTED, _LINE = "#d5e3ec", "#e8b4a0", "#2f6690"


class NothingToPlotError(BroadloomError):
    """The channel does not exist, or there are several and none was named."""


def plot_channel(out: Path, image: Path, channel: str = "") -> str:
    """Write the image, SVG or PNG by its suffix. Returns the channel it shows."""
    results = Results(out)
    channel = _select_channel(results, channel)
    figure = Figure(figsize=SIZE_INCHES, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"channel {channel}")
    begin = _rows(results, "channels", channel)["start_time"][0]
    parts: tuple[tuple[str, Callable[[Any, pl.DataFrame, Any], None]], ...] = (
        ("fabric_snapshots", _fabric),
        ("latency", _latency),
        ("deliveries", _latency_by_hops),
        ("repairs", _repairs),
    )
    for axes, (name, part) in zip(figure.subplots(2, 2).flat, parts, strict=True):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        part(axes, _rows(results, name, channel), begin)
    # Otherwise matplotlib uses random IDs in an SVG, and signs and dates the file.
    metadata = dict.fromkeys(("Date", "Creator") if image.suffix.lower() == ".svg" else ("Software",))
    with matplotlib.rc_context({"svg.hashsalt": "broadloom"}):
        try:
            figure.savefig(image, dpi=150, metadata=metadata)
        except (OSError, ValueError) as problem:
            raise NothingToPlotError(f"{image} cannot be written: {problem}") from problem
    return channel


def _select_channel(results: Results, wanted: str) -> str:
    known: list[str] = results.scan(table("channels")).collect()["channel"].to_list()
    if wanted and wanted not in known:
        raise NothingToPlotError(f"unknown channel {wanted!r}; channels: {', '.join(known)}")
    if not wanted and len(known) != 1:
        raise NothingToPlotError(f"choose one of the channels: {', '.join(known)}")
    return wanted or known[0]


def _rows(results: Results, name: str, channel: str) -> "pl.DataFrame":
    import polars as pl

    return results.scan(table(name)).filter(pl.col("channel") == channel).head(ROWS_MAX).collect()


def _elapsed(axes: "Axes", times: "pl.Series", begin: Any) -> Any:
    """Times since the start, in a suitable unit."""
    seconds = (times - begin).dt.total_microseconds().to_numpy() / 1e6
    most = float(seconds.max()) if len(seconds) else 0.0
    unit, size = next(each for each in _UNITS if most <= 200 * each[1] or each is _UNITS[-1])
    axes.set_xlabel(f"{unit} since {begin:%Y-%m-%d %H:%M:%S} UTC", fontsize=8)
    return seconds / size


def _fabric(axes: "Axes", rows: "pl.DataFrame", begin: Any) -> None:
    axes.set_title("Peers; shaded while the fabric was not regular and connected", fontsize=9)
    rows = rows.sort("snapshot_time")
    times, peers = _elapsed(axes, rows["snapshot_time"], begin), rows["peer_count"].to_numpy()
    broken = ~(rows["is_regular"].to_numpy() & (rows["component_count"].to_numpy() <= 1))
    if len(times):
        axes.fill_between(
            times, 0, 1, where=broken, transform=axes.get_xaxis_transform(), color=_DISRUPTED, step="post"
        )
    axes.step(times, peers, where="post", color=_LINE)
    axes.set_ylim(bottom=0)


def _latency(axes: "Axes", rows: "pl.DataFrame", begin: Any) -> None:
    axes.set_title("Latency by minute, ms", fontsize=9)
    rows = rows.sort("start_time")
    times = _elapsed(axes, rows["start_time"], begin)
    if len(times) == 1:  # otherwise the axis would show fractions of a second
        axes.set_xlim(times[0] - 60, times[0] + 60)
    for name, label in (("latency_p50_ms", "p50"), ("latency_p90_ms", "p90"), ("latency_p99_ms", "p99")):
        axes.plot(times, rows[name].to_numpy(), marker=".", label=label)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def _latency_by_hops(axes: "Axes", rows: "pl.DataFrame", _begin: Any) -> None:
    axes.set_title("Latency by hops, ms (median, and 10th to 90th percentile)", fontsize=9)
    known = rows.drop_nulls(["hops", "sent_time", "delivered_time"])
    hops = known["hops"].to_numpy()
    latencies = (known["delivered_time"] - known["sent_time"]).dt.total_microseconds().to_numpy() / 1000
    found = sorted(set(hops.tolist()))
    percentiles = np.array([np.percentile(latencies[hops == each], [10, 50, 90]) for each in found]).reshape(-1, 3)
    if found:
        axes.fill_between(found, percentiles[:, 0], percentiles[:, 2], color=_BAND)
    axes.plot(found, percentiles[:, 1], color=_LINE, marker=".")
    axes.set_xlabel("hops", fontsize=8)


def _repairs(axes: "Axes", rows: "pl.DataFrame", _begin: Any) -> None:
    axes.set_title("Repair time after a lost peer, seconds", fontsize=9)
    seconds = rows["duration_ms"].drop_nulls().to_numpy() / 1000
    axes.hist(seconds, bins=20, range=(0, 1.1 * max(seconds, default=1.0)), color=_LINE)
    axes.set_ylabel("repairs", fontsize=8)
