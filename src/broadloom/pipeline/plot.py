"""The history of a channel as one picture: `broadloom pipeline plot` and the web UI. Drawn from results, without Spark.

Each panel answers one question and is a function of rows in `plot_panels`. A table that was not built, or is empty,
leaves a panel that says so.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from broadloom.errors import BroadloomError
from broadloom.pipeline import plot_panels
from broadloom.pipeline.results import Results, ResultsNotFoundError
from broadloom.pipeline.tables import table

if TYPE_CHECKING:
    import polars as pl

ROWS_MAX = 200_000
"""Rows read per table; of more, the first ones."""
SIZE_INCHES = (12.0, 10.0)
DOTS_PER_INCH = 150


class NothingToPlotError(BroadloomError):
    """The channel does not exist, or there are several and none was named."""


def plot_channel(out: Path, image: Path, channel: str = "") -> str:
    """Write the image, SVG or PNG by its suffix. Returns the channel it shows."""
    results = Results(out)
    channel = _select_channel(results, channel)
    figure = _figure(results, channel)
    try:
        image.write_bytes(render(figure, image.suffix.lower().removeprefix(".")))
    except (OSError, ValueError) as problem:
        raise NothingToPlotError(f"{image} cannot be written: {problem}") from problem
    return channel


def channel_svg(out: Path, channel: str = "") -> bytes:
    """The same picture, as SVG."""
    results = Results(out)
    return render(_figure(results, _select_channel(results, channel)), "svg")


def _figure(results: Results, channel: str) -> Figure:
    spacing = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12, hspace=0.04, wspace=0.04)
    figure = Figure(figsize=SIZE_INCHES, facecolor="white", layout=spacing)
    FigureCanvasAgg(figure)
    spans = _rows(results, "channels", channel)
    begin, end = spans["start_time"][0], spans["end_time"][0]
    figure.suptitle(
        f"Channel {channel}\n{begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC",
        x=0.012,
        ha="left",
        fontsize=13,
        color=plot_panels.INK,
    )
    for axes, panel in zip(figure.subplots(3, 2).flat, plot_panels.PANELS, strict=True):
        rows = {name: _rows(results, name, channel) for name in panel.tables}
        panel.draw(axes, rows, begin, end)
    return figure


def render(figure: Figure, kind: str) -> bytes:
    """An image as `svg` or `png`; equal figures give equal bytes."""
    # Otherwise matplotlib uses random IDs in an SVG, and signs and dates the file.
    metadata = dict.fromkeys(("Date", "Creator") if kind == "svg" else ("Software",))
    target = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "broadloom"}):
        figure.savefig(target, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
    return target.getvalue()


def _select_channel(results: Results, wanted: str) -> str:
    known: list[str] = results.scan(table("channels")).collect()["channel"].to_list()
    if wanted and wanted not in known:
        raise NothingToPlotError(f"unknown channel {wanted!r}; channels: {', '.join(known)}")
    if not wanted and len(known) != 1:
        raise NothingToPlotError(f"choose one of the channels: {', '.join(known)}")
    return wanted or known[0]


def _rows(results: Results, name: str, channel: str) -> "pl.DataFrame":
    import polars as pl

    try:
        rows = results.scan(table(name))
    except ResultsNotFoundError:
        empty = pl.from_arrow(table(name).schema.empty_table())
        assert isinstance(empty, pl.DataFrame)
        return empty
    return rows.filter(pl.col("channel") == channel).head(ROWS_MAX).collect()
