"""The traffic page: throughput, latency, redundancy and problems over time."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from broadloom.testing.cluster.metrics import MetricsSample
from broadloom.web.pages.layout import call_soon, empty_state, every, guarded, heading, paragraph, section
from broadloom.web.sources import Sources

REFRESH_S = 2.0
POINTS_MAX = 400
"""Per series; longer ones are thinned out."""
SPANS = {120: "Last 2 minutes", 600: "Last 10 minutes", 3600: "Last hour"}

BLUE, ORANGE, GREEN, PINK = "#3a8ccf", "#d97a1f", "#149c74", "#c4529f"
"""Distinguishable for color-blind readers, on light and dark."""
GRAY = "#8a93a3"


@dataclass(frozen=True, slots=True)
class ChartSeries:
    name: str
    field: str
    color: str
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    question: str
    unit: str
    series: tuple[ChartSeries, ...]


CHARTS = (
    Chart(
        "Throughput",
        "How many messages are sent and delivered per second?",
        "/s",
        (ChartSeries("sent", "sent_per_s", BLUE), ChartSeries("delivered", "delivered_per_s", ORANGE)),
    ),
    Chart(
        "Latency",
        "How long does a message take from its author to a receiver?",
        "ms",
        (
            ChartSeries("p50", "latency_p50_ms", BLUE),
            ChartSeries("p99", "latency_p99_ms", ORANGE, is_dashed=True),
        ),
    ),
    Chart(
        "Hops",
        "How many links does a message travel?",
        "",
        (ChartSeries("p50", "hops_p50", BLUE), ChartSeries("max", "hops_max", ORANGE, is_dashed=True)),
    ),
    Chart(
        "Redundancy",
        "How many copies of each message arrive? One is the minimum; flooding over four links brings three.",
        "",
        (ChartSeries("copies", "redundancy", GREEN),),
    ),
    Chart(
        "Slow peers and missed messages",
        "How many peers are slow, and how many messages were missed?",
        "",
        (ChartSeries("slow peers", "slow_peers", BLUE), ChartSeries("missed", "missed", PINK, is_dashed=True)),
    ),
    Chart(
        "Link changes",
        "How many links came up and went down per second?",
        "",
        (ChartSeries("made", "links_made", GREEN), ChartSeries("lost", "links_lost", PINK, is_dashed=True)),
    ),
)


def build(sources: Sources) -> None:
    if sources.cluster is not None:
        heading("Traffic", "All peers, second by second.")
        _live(sources.cluster.samples, sources)
    elif sources.peer_timeline is not None:
        heading(
            "Traffic",
            "As one peer sees it, second by second. A peer does not know when others sent, so there is no latency.",
        )
        _live(sources.peer_timeline.metrics, sources)
    elif names := list(sources.tapes()):
        heading("Traffic", "From a tape, by the clocks of the recording peers.")
        _of_tapes(sources, names)
    else:
        heading("Traffic")
        empty_state(
            "Nothing to show yet.", "Start `broadloom demo` or `broadloom web CHANNEL`, or open a tape with `--tapes`."
        )


def _live(get_samples: Callable[[], Sequence[MetricsSample]], sources: Sources) -> None:
    with ui.element("div").classes("bl-row"):
        span = ui.select(SPANS, value=120, label="Time").props("outlined dense options-dense").classes("bl-select")
    summary_label = paragraph("", "bl-quiet")
    charts = _charts()

    def refresh() -> None:
        sources.check_live()
        samples = get_samples()[-int(span.value) :]
        if not samples:
            summary_label.set_text("Waiting for the first sample.")
            return
        summary_label.set_text(_summary(samples[-1]))
        _show(charts, samples)

    span.on_value_change(guarded(refresh))
    every(REFRESH_S, refresh)


def _of_tapes(sources: Sources, names: list[str]) -> None:
    with ui.element("div").classes("bl-row"):
        choice = (
            ui.select(names, value=names[0], label="Tape").props("outlined dense options-dense").classes("bl-select")
        )
    summary_label = paragraph("Reading …", "bl-quiet")
    charts = _charts()

    async def refresh() -> None:
        from broadloom.web.tape_metrics import tape_metrics

        summary_label.set_text("")
        replay = await sources.replay(str(choice.value))
        samples = await asyncio.to_thread(tape_metrics, replay.path, replay.channel)
        summary_label.set_text(f"{len(samples):,} samples." if samples else "This tape has no messages.")
        _show(charts, samples)

    choice.on_value_change(guarded(refresh))
    call_soon(refresh)


def _summary(last: MetricsSample) -> str:
    latency = "" if math.isnan(last.latency_p50_ms) else f", median latency {last.latency_p50_ms:.1f} ms"
    return f"{last.sent_per_s:,.1f} messages per second sent, {last.delivered_per_s:,.0f} delivered{latency}."


def _charts() -> list[ui.echart]:
    charts = []
    with ui.element("div").classes("bl-charts"):
        for chart in CHARTS:
            with section(chart.title):
                paragraph(chart.question, "bl-quiet bl-small")
                shown = ui.echart(_options(chart)).classes("bl-chart")
                shown.props(f'role=img aria-label="{chart.title} over time. {chart.question}"')
                charts.append(shown)
    return charts


def _options(chart: Chart) -> dict[str, Any]:
    axis = {"axisLabel": {"color": GRAY}, "axisLine": {"lineStyle": {"color": GRAY}}, "splitLine": {"show": False}}
    return {
        "animation": False,
        "grid": {"left": 8, "right": 14, "top": 30, "bottom": 6, "containLabel": True},
        "legend": {"top": 0, "left": 0, "itemHeight": 8, "textStyle": {"color": GRAY}},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time", **axis, "axisLabel": {"color": GRAY, "hideOverlap": True}},
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 0 if chart.unit else 1,
            "axisLabel": {"color": GRAY, "formatter": f"{{value}} {chart.unit}".strip()},
            "splitLine": {"lineStyle": {"color": GRAY, "opacity": 0.2}},
        },
        "series": [
            {
                "type": "line",
                "name": series.name,
                "showSymbol": False,
                "data": [],
                "itemStyle": {"color": series.color},
                "lineStyle": {"color": series.color, "width": 2, "type": "dashed" if series.is_dashed else "solid"},
            }
            for series in chart.series
        ],
    }


def _show(charts: list[ui.echart], samples: Sequence[MetricsSample]) -> None:
    step = max(1, math.ceil(len(samples) / POINTS_MAX))
    chosen = samples[::-1][::step][::-1]
    for chart, shown in zip(CHARTS, charts, strict=True):
        for chart_series, series in zip(chart.series, shown.options["series"], strict=True):
            series["data"] = [[round(each.at_s * 1000), _value(getattr(each, chart_series.field))] for each in chosen]
        shown.update()


def _value(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
