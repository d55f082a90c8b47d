"""What happened on a channel, in one picture: who was there, whether the fabric was regular and whole, how long
messages took and over how many links, and how long repairs took. Drawn from results, without Spark."""

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

NEEDED = ("channels", "fabric", "latency", "deliveries", "repairs")
"""Tables that it is drawn from."""
ROWS_MAX = 200_000
"""Deliveries whose delay is shown; of more, the first ones."""
SIZE_INCHES = (10.0, 6.5)
_UNITS = (("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86400))
_CALM, _TROUBLE, _LINE = "#d5e3ec", "#e8b4a0", "#2f6690"


class NothingToPlotError(BroadloomError):
    """No such channel, or several and none was named; the text says which there are."""


def plot_channel(out: Path, image: Path, channel: str = "") -> str:
    """Writes the picture, SVG or PNG by its suffix; returns the channel that it shows."""
    results = Results(out)
    channel = _select_channel(results, channel)
    figure = Figure(figsize=SIZE_INCHES, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"channel {channel}")
    begin = _rows(results, "channels", channel)["first"][0]
    parts: tuple[tuple[str, Callable[[Any, pl.DataFrame, Any], None]], ...] = (
        ("fabric", _fabric),
        ("latency", _latency),
        ("deliveries", _latency_by_hops),
        ("repairs", _repairs),
    )
    for axes, (name, part) in zip(figure.subplots(2, 2).flat, parts, strict=True):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        part(axes, _rows(results, name, channel), begin)
    # Else matplotlib names the parts of an SVG at random, and signs and dates the file.
    metadata = dict.fromkeys(("Date", "Creator") if image.suffix.lower() == ".svg" else ("Software",))
    with matplotlib.rc_context({"svg.hashsalt": "broadloom"}):
        try:
            figure.savefig(image, dpi=150, metadata=metadata)
        except (OSError, ValueError) as problem:
            raise NothingToPlotError(f"{image} cannot be drawn: {problem}") from problem
    return channel


def _select_channel(results: Results, wanted: str) -> str:
    known: list[str] = results.scan(table("channels")).collect()["channel"].to_list()
    if wanted and wanted not in known:
        raise NothingToPlotError(f"there is no channel {wanted!r}; there are: {', '.join(known)}")
    if not wanted and len(known) != 1:
        raise NothingToPlotError(f"name one channel of: {', '.join(known)}")
    return wanted or known[0]


def _rows(results: Results, name: str, channel: str) -> "pl.DataFrame":
    import polars as pl

    return results.scan(table(name)).filter(pl.col("channel") == channel).head(ROWS_MAX).collect()


def _elapsed(axes: "Axes", times: "pl.Series", begin: Any) -> Any:
    """Times since the beginning, in the unit that suits them."""
    seconds = (times - begin).dt.total_microseconds().to_numpy() / 1e6
    most = float(seconds.max()) if len(seconds) else 0.0
    unit, size = next(each for each in _UNITS if most <= 200 * each[1] or each is _UNITS[-1])
    axes.set_xlabel(f"{unit} since {begin:%Y-%m-%d %H:%M:%S} UTC", fontsize=8)
    return seconds / size


def _fabric(axes: "Axes", rows: "pl.DataFrame", begin: Any) -> None:
    axes.set_title("Peers; shaded while the fabric was not regular and whole", fontsize=9)
    rows = rows.sort("time")
    times, peers = _elapsed(axes, rows["time"], begin), rows["peers"].to_numpy()
    broken = ~(rows["is_regular"].to_numpy() & (rows["components"].to_numpy() <= 1))
    if len(times):
        axes.fill_between(times, 0, 1, where=broken, transform=axes.get_xaxis_transform(), color=_TROUBLE, step="post")
    axes.step(times, peers, where="post", color=_LINE)
    axes.set_ylim(bottom=0)


def _latency(axes: "Axes", rows: "pl.DataFrame", begin: Any) -> None:
    axes.set_title("Delay from sending to delivery, by minute, ms", fontsize=9)
    rows = rows.sort("minute")
    times = _elapsed(axes, rows["minute"], begin)
    if len(times) == 1:  # else the axis would show fractions of a second around it
        axes.set_xlim(times[0] - 60, times[0] + 60)
    for name, label in (("delay_p50_us", "half"), ("delay_p90_us", "90 %"), ("delay_p99_us", "99 %")):
        axes.plot(times, rows[name].to_numpy() / 1000, marker=".", label=label)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def _latency_by_hops(axes: "Axes", rows: "pl.DataFrame", _begin: Any) -> None:
    axes.set_title("Delay by links travelled, ms (median, and from 10 to 90 %)", fontsize=9)
    known = rows.drop_nulls(["hops", "sent", "delivered"])
    hops = known["hops"].to_numpy()
    delays = (known["delivered"] - known["sent"]).dt.total_microseconds().to_numpy() / 1000
    found = sorted(set(hops.tolist()))
    shares = np.array([np.percentile(delays[hops == each], [10, 50, 90]) for each in found]).reshape(-1, 3)
    if found:
        axes.fill_between(found, shares[:, 0], shares[:, 2], color=_CALM)
    axes.plot(found, shares[:, 1], color=_LINE, marker=".")
    axes.set_xlabel("links", fontsize=8)


def _repairs(axes: "Axes", rows: "pl.DataFrame", _begin: Any) -> None:
    axes.set_title("Seconds until a loss was repaired", fontsize=9)
    seconds = rows["repair_s"].drop_nulls().to_numpy()
    axes.hist(seconds, bins=20, range=(0, 1.1 * max(seconds, default=1.0)), color=_LINE)
    axes.set_ylabel("losses", fontsize=8)
