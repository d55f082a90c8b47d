"""How much is said, how fast it goes, and what goes wrong, over time."""

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
"""Of one line; of more, every second or third is shown."""
SPANS = {120: "Last 2 minutes", 600: "Last 10 minutes", 3600: "Last hour"}

BLUE, ORANGE, GREEN, PINK = "#3a8ccf", "#d97a1f", "#149c74", "#c4529f"
"""Told apart by the colour-blind, on light and on dark."""
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
        "Messages",
        "How much is said, and how much arrives at all peers together?",
        "/s",
        (ChartSeries("sent", "sent_per_s", BLUE), ChartSeries("delivered", "delivered_per_s", ORANGE)),
    ),
    Chart(
        "Delay",
        "How long does a message take from its author to a receiver?",
        "ms",
        (
            ChartSeries("half within", "latency_p50_ms", BLUE),
            ChartSeries("99 % within", "latency_p99_ms", ORANGE, is_dashed=True),
        ),
    ),
    Chart(
        "Hops",
        "How many links does a message travel?",
        "",
        (ChartSeries("half within", "hops_p50", BLUE), ChartSeries("most", "hops_max", ORANGE, is_dashed=True)),
    ),
    Chart(
        "Copies",
        "How many copies come for each message? One is the least, a flood over four links brings three.",
        "",
        (ChartSeries("copies", "redundancy", GREEN),),
    ),
    Chart(
        "Trouble",
        "Who does not keep up, and how many messages were peers told they will not get?",
        "",
        (ChartSeries("slow peers", "slow_peers", BLUE), ChartSeries("missed", "missed", PINK, is_dashed=True)),
    ),
    Chart(
        "Links",
        "How many links came up and went down in each second?",
        "",
        (ChartSeries("made", "links_made", GREEN), ChartSeries("lost", "links_lost", PINK, is_dashed=True)),
    ),
)


def build(sources: Sources) -> None:
    if sources.cluster is not None:
        heading("Traffic", "Second by second, of all peers together.")
        _live(sources.cluster.samples)
    elif sources.peer_timeline is not None:
        heading("Traffic", "Second by second, as one peer sees it. It cannot know when others sent: there is no delay.")
        _live(sources.peer_timeline.metrics)
    elif names := list(sources.tapes()):
        heading("Traffic", "Of a tape, by the clocks of those who wrote it.")
        _of_tapes(sources, names)
    else:
        heading("Traffic")
        empty_state(
            "There is no traffic to show.", "Start `broadloom demo`, or `broadloom web CHANNEL`, or give a tape."
        )


def _live(get_samples: Callable[[], Sequence[MetricsSample]]) -> None:
    with ui.element("div").classes("w-row"):
        span = ui.select(SPANS, value=120, label="Time").props("outlined dense options-dense").classes("w-select")
    summary_label = paragraph("", "w-quiet")
    charts = _charts()

    def refresh() -> None:
        samples = get_samples()[-int(span.value) :]
        if not samples:
            summary_label.set_text("The first figures come in a moment.")
            return
        summary_label.set_text(_summary(samples[-1]))
        _show(charts, samples)

    span.on_value_change(guarded(refresh))
    every(REFRESH_S, refresh)


def _of_tapes(sources: Sources, names: list[str]) -> None:
    with ui.element("div").classes("w-row"):
        choice = (
            ui.select(names, value=names[0], label="Tape").props("outlined dense options-dense").classes("w-select")
        )
    summary_label = paragraph("Reading …", "w-quiet")
    charts = _charts()

    async def refresh() -> None:
        from broadloom.web.tape_metrics import tape_metrics

        replay = await sources.replay(str(choice.value))
        samples = await asyncio.to_thread(tape_metrics, replay.path, replay.channel)
        summary_label.set_text(f"{len(samples):,} samples." if samples else "Nobody said anything on this tape.")
        _show(charts, samples)

    choice.on_value_change(guarded(refresh))
    call_soon(refresh)


def _summary(last: MetricsSample) -> str:
    delay = "" if math.isnan(last.latency_p50_ms) else f", half of them within {last.latency_p50_ms:.1f} ms"
    return f"Now {last.sent_per_s:,.1f} messages a second sent and {last.delivered_per_s:,.0f} delivered{delay}."


def _charts() -> list[ui.echart]:
    charts = []
    with ui.element("div").classes("w-charts"):
        for chart in CHARTS:
            with section(chart.title):
                paragraph(chart.question, "w-quiet w-small")
                shown = ui.echart(_options(chart)).classes("w-chart")
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
