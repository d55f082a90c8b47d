"""Charts of a channel, from results."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from starlette.applications import Starlette

from broadloom.pipeline.plot import NothingToPlotError, channel_svg, plot_channel
from broadloom.pipeline.plot_panels import PANELS
from broadloom.pipeline.results import Results, ResultsManifest, TableBuild
from broadloom.pipeline.tables import table
from broadloom.record.arrow_import import pa, pq
from broadloom.web.api import download_routes
from broadloom.web.sources import Sources

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def results(folder: Path, *channels: str, **tables: list[dict[str, Any]]) -> Path:
    """Results with these rows for each channel; columns that are not given are null."""
    with Results(folder).transaction() as transaction:
        built = {}
        for name, rows in tables.items():
            blank = dict.fromkeys(table(name).schema.names)
            place = transaction.staging_path / name
            place.mkdir(parents=True)
            filled = [{**blank, **row, "channel": channel} for channel in channels for row in rows]
            pq.write_table(pa.Table.from_pylist(filled, schema=table(name).schema), place / "part.parquet")
            built[name] = TableBuild(transaction.build, "", len(filled), 0, 0.0)
        transaction.commit(ResultsManifest(built))
    return folder


HISTORY: dict[str, list[dict[str, Any]]] = {
    "channels": [{"start_time": BEGIN, "end_time": after(90)}],
    "fabric_snapshots": [
        {"snapshot_time": after(each), "peer_count": 5 - each % 2, "is_regular": each % 3 > 0, "component_count": 1}
        for each in range(9)
    ],
    "latency": [{"start_time": BEGIN, "latency_p50_ms": 1, "latency_p90_ms": 2, "latency_p99_ms": 3}],
    "deliveries": [
        {"sent_time": BEGIN, "delivered_time": after(each / 100), "hops": each % 4 + 1} for each in range(40)
    ],
    "repairs": [{"duration_ms": 2500}, {"duration_ms": None}],
    "sessions": [
        {"start_time": BEGIN, "end_time": after(50), "end_status": "left"},
        {"start_time": after(20), "end_time": after(90), "end_status": "open"},
    ],
    "invoices": [{"billing_month": "2026-01", "amount": Decimal("12.50"), "currency": "EUR"}],
    "ad_fees": [{"billing_month": "2026-01", "fee": Decimal("3.00"), "currency": "EUR"}],
}


def test_plot_is_reproducible(tmp_path: Path) -> None:
    out = results(tmp_path / "out", "one", **HISTORY)
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    assert plot_channel(out, first) == "one"
    assert plot_channel(out, second, "one") == "one"
    assert first.read_bytes() == second.read_bytes()
    assert plot_channel(out, tmp_path / "chart.png") == "one"


def test_empty_channel_can_be_plotted(tmp_path: Path) -> None:
    nothing: dict[str, list[dict[str, Any]]] = {name: [] for name in HISTORY if name != "channels"}
    out = results(tmp_path / "out", "one", channels=HISTORY["channels"], **nothing)
    assert plot_channel(out, tmp_path / "empty.svg") == "one"


def test_every_panel_shows_its_rows(tmp_path: Path) -> None:
    frames = {name: pl.DataFrame(_filled(name, rows)) for name, rows in HISTORY.items()}
    for panel in PANELS:
        axes = Figure().subplots()
        assert panel.plot(axes, frames, BEGIN, after(90)) == ""
        assert axes.lines or axes.patches, panel.title
    (audience,) = (each for each in PANELS if each.title == "Audience")
    axes = Figure().subplots()
    audience.plot(axes, frames, BEGIN, after(90))
    assert np.array_equal(axes.lines[0].get_ydata(), [0, 1, 2, 1, 1])


def _filled(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    blank = dict.fromkeys(table(name).schema.names)
    return pa.Table.from_pylist([{**blank, **row} for row in rows], schema=table(name).schema)


def test_tables_that_were_not_built_leave_empty_panels(tmp_path: Path) -> None:
    out = results(tmp_path / "out", "one", channels=HISTORY["channels"], latency=HISTORY["latency"])
    assert plot_channel(out, tmp_path / "few.svg") == "one"


def test_pages_serve_the_picture_of_a_channel(tmp_path: Path) -> None:
    out = results(tmp_path / "out", "one", **HISTORY)

    async def get(*names: str) -> list[httpx.Response]:
        transport = httpx.ASGITransport(Starlette(routes=download_routes(Sources(results_dir=out))))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return [await client.get(f"/data-plots/{name}.svg") for name in names]

    drawn, unknown = asyncio.run(get("one", "two"))
    assert (drawn.status_code, drawn.headers["content-type"]) == (200, "image/svg+xml")
    assert drawn.content == channel_svg(out)
    assert unknown.status_code == 404


def test_plot_errors_name_the_channels(tmp_path: Path) -> None:
    out = results(tmp_path / "out", "one", "two", **HISTORY)
    with pytest.raises(NothingToPlotError, match="choose one of the channels: one, two"):
        plot_channel(out, tmp_path / "a.svg")
    with pytest.raises(NothingToPlotError, match="unknown channel 'x'; channels: one, two"):
        plot_channel(out, tmp_path / "a.svg", "x")
    with pytest.raises(NothingToPlotError, match="cannot be written"):
        plot_channel(out, tmp_path / "a.txt", "two")
