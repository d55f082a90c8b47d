"""The panels of the picture of a channel, each a function of rows that draws on axes.

Lines are labeled where they end, so that no legend has to be matched by color. Gray is context, blue is what the
panel is about, and orange is trouble.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET, GRID = "#1d2b36", "#6b7a86", "#e3e8ec"
LINE, BAND, TROUBLE, SECOND = "#1f6f9f", "#cfe2ee", "#f8dcc6", "#7fae9b"

BINS = 60
"""Intervals of a chart over time."""
MINUTES_MIN = 5
"""With fewer minutes than this, latency is drawn in shorter intervals, from the deliveries."""
MONTHS_MAX = 12

_TIMES = ["%Y", "%b", "%b %d", "%H:%M", "%H:%M", "%H:%M:%S"]
"""Labels of the time axis, from years to seconds."""

Rows = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    subtitle: str
    tables: tuple[str, ...]
    plot: "Callable[[Axes, Rows, datetime, datetime], str]"
    """Returns why there is nothing to see; empty if there is."""
    is_over_time: bool = True

    def draw(self, axes: "Axes", rows: Rows, begin: datetime, end: datetime) -> None:
        axes.set_title(self.title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=20)
        axes.text(0, 1.03, self.subtitle, transform=axes.transAxes, fontsize=8.5, color=QUIET)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(QUIET)
        axes.tick_params(colors=QUIET, labelsize=8.5, length=0)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        nothing = self.plot(axes, rows, begin, end)
        if nothing:
            axes.set(xticks=[], yticks=[])
            axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", va="center", color=QUIET, fontsize=9)
        elif self.is_over_time:
            margin = (end - begin) * 0.09 or np.timedelta64(1, "s")  # room for the labels of lines
            axes.set_xlim(begin, end + margin)  # type: ignore[arg-type]
            locator = AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_locator(locator)
            formatter = ConciseDateFormatter(locator, formats=_TIMES, show_offset=False)  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_formatter(formatter)
            axes.set_ylim(bottom=0)


def _fabric(axes: "Axes", rows: Rows, begin: datetime, end: datetime) -> str:
    found = rows["fabric_snapshots"].sort("snapshot_time")
    if not found.height:
        return "no fabric was recorded"
    times = [*found["snapshot_time"], max(end, found["snapshot_time"][-1])]
    peers = [*found["peer_count"], found["peer_count"][-1]]
    is_broken = ~(found["is_regular"].fill_null(False) & (found["component_count"].fill_null(2) <= 1))
    spans = zip(times, times[1:], is_broken, strict=False)
    for shaded, group in groupby(spans, key=lambda span: span[2]):  # one area, or seams would show
        if shaded:
            together = list(group)
            axes.axvspan(together[0][0], together[-1][1], color=TROUBLE, linewidth=0)
    axes.step(times, peers, where="post", color=LINE, linewidth=1.8)
    _label(axes, times[-1], peers[-1], f"{peers[-1]:,}", LINE)
    axes.set_ylim(top=1.15 * max(peers))
    return ""


def _latency(axes: "Axes", rows: Rows, begin: datetime, end: datetime) -> str:
    by_minute = rows["latency"].drop_nulls("latency_p50_ms").sort("start_time")
    found = by_minute if by_minute.height >= MINUTES_MIN else _short_intervals(rows["deliveries"], begin, end)
    if not found.height:
        return "no delivery with a known time of sending"
    times = found["start_time"].to_list()
    p50, p90, p99 = (found[f"latency_{each}_ms"].to_numpy() for each in ("p50", "p90", "p99"))
    axes.fill_between(times, p50, p90, color=BAND, linewidth=0)
    axes.plot(times, p99, color=QUIET, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.plot(times, p50, color=LINE, linewidth=1.8)
    _labels(axes, times[-1], [(p50[-1], "median", LINE), (p90[-1], "p90", QUIET), (p99[-1], "p99", QUIET)])
    return ""


def _short_intervals(deliveries: pl.DataFrame, begin: datetime, end: datetime) -> pl.DataFrame:
    """The columns of the table `latency`, for recordings of a few minutes."""
    step_us = max(int((end - begin).total_seconds() * 1e6 / BINS), 1)
    latency_ms = _latencies_ms()
    return (
        deliveries.drop_nulls(["sent_time", "delivered_time"])
        .group_by(start_time=pl.col("sent_time").dt.truncate(f"{step_us}us"))
        .agg(
            latency_p50_ms=latency_ms.quantile(0.5),
            latency_p90_ms=latency_ms.quantile(0.9),
            latency_p99_ms=latency_ms.quantile(0.99),
        )
        .sort("start_time")
    )


def _latencies_ms() -> pl.Expr:
    return (pl.col("delivered_time") - pl.col("sent_time")).dt.total_microseconds() / 1000


def _audience(axes: "Axes", rows: Rows, begin: datetime, end: datetime) -> str:
    found = rows["sessions"].drop_nulls(["start_time", "end_time"])
    if not found.height:
        return "nobody was connected, as far as the tapes say"
    is_open = pl.col("end_status") == "open"
    changes = pl.concat(
        [
            found.select(at="start_time", change=pl.lit(1)),
            found.filter(~is_open).select(at="end_time", change=pl.lit(-1)),
        ]
    )
    connected = changes.group_by("at").agg(pl.col("change").sum()).sort("at").with_columns(pl.col("change").cum_sum())
    times = [begin, *connected["at"], max(end, connected["at"][-1])]
    counts = [0, *connected["change"], connected["change"][-1]]
    axes.fill_between(times, counts, step="post", color=BAND, linewidth=0)
    axes.step(times, counts, where="post", color=LINE, linewidth=1.8)
    _label(axes, times[-1], counts[-1], f"{counts[-1]:,}", LINE)
    peak = int(np.argmax(counts))
    if counts[peak] != counts[-1]:
        axes.annotate(
            f"peak {counts[peak]:,}",
            (times[peak], counts[peak]),
            (0, 4),
            textcoords="offset points",
            fontsize=8.5,
            color=LINE,
        )
    axes.set_ylim(top=1.2 * max(counts))
    return ""


def _revenue(axes: "Axes", rows: Rows, _begin: datetime, _end: datetime) -> str:
    month = "billing_month"
    fees = rows["invoices"].filter(pl.col("amount") != 0).group_by(month).agg(fees=pl.col("amount").sum().cast(float))
    ads = rows["ad_fees"].group_by(month).agg(ads=pl.col("fee").sum().cast(float))
    found = fees.join(ads, on=month, how="full", coalesce=True).fill_null(0.0).sort(month).tail(MONTHS_MAX)
    if not found.height or not (found["fees"].sum() or found["ads"].sum()):
        return "nothing was billed; prices come from --set billing_file=FILE"
    currencies = {*rows["invoices"]["currency"].drop_nulls(), *rows["ad_fees"]["currency"].drop_nulls()}
    places = np.arange(found.height)
    connect, advertising = found["fees"].to_numpy(), found["ads"].to_numpy()
    axes.bar(places, connect, width=0.6, color=LINE)
    axes.bar(places, advertising, width=0.6, bottom=connect, color=SECOND)
    for place, total in zip(places, connect + advertising, strict=True):
        axes.text(float(place), total, f"{total:,.2f}\n", ha="center", va="center", fontsize=8.5, color=INK)
    axes.set_xticks(places, found[month].to_list())
    axes.set_xlim(-0.7, max(found.height - 0.3, 2.7))
    axes.set_ylim(top=1.18 * max(connect + advertising))
    axes.text(1, 1.03, "connect time", transform=axes.transAxes, ha="right", fontsize=8.5, color=LINE, weight="bold")
    axes.text(0.8, 1.03, "ads", transform=axes.transAxes, ha="right", fontsize=8.5, color=SECOND, weight="bold")
    axes.set_ylabel(", ".join(sorted(currencies)), fontsize=8.5, color=QUIET)
    return ""


def _latency_by_hops(axes: "Axes", rows: Rows, _begin: datetime, _end: datetime) -> str:
    known = rows["deliveries"].drop_nulls(["hops", "sent_time", "delivered_time"])
    if not known.height:
        return "no delivery with a known number of links"
    latency_ms = _latencies_ms()
    found = known.group_by("hops").agg(
        low=latency_ms.quantile(0.1), mid=latency_ms.median(), high=latency_ms.quantile(0.9)
    )
    found = found.sort("hops")
    hops = found["hops"].to_numpy()
    axes.vlines(hops, found["low"].to_numpy(), found["high"].to_numpy(), color=BAND, linewidth=9)
    axes.plot(hops, found["mid"].to_numpy(), color=LINE, linewidth=1.8, marker="o", markersize=4)
    axes.set_xlabel("links traveled", fontsize=8.5, color=QUIET)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    return ""


def _repairs(axes: "Axes", rows: Rows, _begin: datetime, _end: datetime) -> str:
    seconds = rows["repairs"]["duration_ms"].drop_nulls().to_numpy() / 1000
    if not len(seconds):
        return "no peer was lost"
    counts, *_ = axes.hist(seconds, bins=24, range=(0, 1.05 * max(seconds.max(), 1e-3)), color=LINE, rwidth=0.9)
    axes.set_ylim(top=1.25 * np.max(counts))
    axes.set_xlim(left=0)
    middle = float(np.median(seconds))
    axes.axvline(middle, color=INK, linewidth=1.0)
    text = f" median {middle:.2g} s" if middle < 10 else f" median {middle:,.0f} s"
    on_left = bool(middle > 0.5 * seconds.max())
    axes.text(
        middle,
        0.97,
        text + " " * on_left,
        transform=axes.get_xaxis_transform(),
        ha="right" if on_left else "left",
        va="top",
        fontsize=8.5,
        color=INK,
    )
    axes.set_xlabel("seconds", fontsize=8.5, color=QUIET)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return ""


def _label(axes: "Axes", x: Any, y: float, text: str, color: str) -> None:
    """A label at the end of a line."""
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=8.5, color=color)


def _labels(axes: "Axes", x: Any, ends: list[tuple[float, str, str]]) -> None:
    """Labels of several lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    height = 0.06 * (high - low)
    at = -np.inf
    for y, text, color in sorted(ends):
        at = max(float(y), at + height)
        _label(axes, x, at, text, color)


PANELS = (
    Panel("Fabric", "peers present; shaded while not regular and connected", ("fabric_snapshots",), _fabric),
    Panel("Latency", "ms from sending to delivery; band from median to p90", ("latency", "deliveries"), _latency),
    Panel("Audience", "subscribers connected at the same time", ("sessions",), _audience),
    Panel("Revenue", "per month", ("invoices", "ad_fees"), _revenue, is_over_time=False),
    Panel(
        "Distance",
        "latency in ms by links traveled: median, and 10th to 90th percentile",
        ("deliveries",),
        _latency_by_hops,
        is_over_time=False,
    ),
    Panel(
        "Repairs", "time until the fabric was whole again after a lost peer", ("repairs",), _repairs, is_over_time=False
    ),
)
