"""How much is said, how fast it goes, and what goes wrong, over time."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from weft.lab.figures import Sample
from weft.web.pages.frame import every, guarded, heading, nothing_here, say, section, soon
from weft.web.sources import Sources

LOOK_S = 2.0
POINTS_MAX = 400
"""Of one line; of more, every second or third is shown."""
SPANS = {120: "Last 2 minutes", 600: "Last 10 minutes", 3600: "Last hour"}

BLUE, ORANGE, GREEN, PINK = "#3a8ccf", "#d97a1f", "#149c74", "#c4529f"
"""Told apart by the colour-blind, on light and on dark."""
GREY = "#8a93a3"


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    field: str
    colour: str
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    question: str
    unit: str
    lines: tuple[Line, ...]


CHARTS = (
    Chart(
        "Messages",
        "How much is said, and how much arrives at all peers together?",
        "/s",
        (Line("sent", "sent_per_s", BLUE), Line("delivered", "delivered_per_s", ORANGE)),
    ),
    Chart(
        "Delay",
        "How long does a message take from its author to a receiver?",
        "ms",
        (Line("half within", "latency_p50_ms", BLUE), Line("99 % within", "latency_p99_ms", ORANGE, is_dashed=True)),
    ),
    Chart(
        "Hops",
        "How many links does a message travel?",
        "",
        (Line("half within", "hops_p50", BLUE), Line("most", "hops_max", ORANGE, is_dashed=True)),
    ),
    Chart(
        "Copies",
        "How many copies come for each message? One is the least, a flood over four links brings three.",
        "",
        (Line("copies", "redundancy", GREEN),),
    ),
    Chart(
        "Trouble",
        "Who does not keep up, and how many messages were peers told they will not get?",
        "",
        (Line("slow peers", "slow_peers", BLUE), Line("missed", "missed", PINK, is_dashed=True)),
    ),
    Chart(
        "Links",
        "How many links came up and went down in each second?",
        "",
        (Line("made", "links_made", GREEN), Line("lost", "links_lost", PINK, is_dashed=True)),
    ),
)


def build(sources: Sources) -> None:
    if sources.lab is not None:
        heading("Traffic", "Second by second, of all peers together.")
        _live(sources.lab.figures)
    elif sources.heard is not None:
        heading("Traffic", "Second by second, as one peer sees it. It cannot know when others sent: there is no delay.")
        _live(sources.heard.figures)
    elif names := list(sources.tapes()):
        heading("Traffic", "Of a tape, by the clocks of those who wrote it.")
        _of_tapes(sources, names)
    else:
        heading("Traffic")
        nothing_here("There is no traffic to show.", "Start `weft demo`, or `weft web CHANNEL`, or give a tape.")


def _live(figures: Callable[[], Sequence[Sample]]) -> None:
    with ui.element("div").classes("w-row"):
        span = ui.select(SPANS, value=120, label="Time").props("outlined dense options-dense").classes("w-select")
    told = say("", "w-quiet")
    charts = _charts()

    def look() -> None:
        samples = figures()[-int(span.value) :]
        if not samples:
            told.set_text("The first figures come in a moment.")
            return
        told.set_text(_summary(samples[-1]))
        _show(charts, samples)

    span.on_value_change(guarded(look))
    every(LOOK_S, look)


def _of_tapes(sources: Sources, names: list[str]) -> None:
    with ui.element("div").classes("w-row"):
        choice = (
            ui.select(names, value=names[0], label="Tape").props("outlined dense options-dense").classes("w-select")
        )
    told = say("Reading …", "w-quiet")
    charts = _charts()

    async def look() -> None:
        from weft.web.tape_traffic import traffic_of

        replay = await sources.replay(str(choice.value))
        samples = await asyncio.to_thread(traffic_of, replay.path, replay.channel)
        told.set_text(f"{len(samples):,} samples." if samples else "Nobody said anything on this tape.")
        _show(charts, samples)

    choice.on_value_change(guarded(look))
    soon(look)


def _summary(last: Sample) -> str:
    delay = "" if math.isnan(last.latency_p50_ms) else f", half of them within {last.latency_p50_ms:.1f} ms"
    return f"Now {last.sent_per_s:,.1f} messages a second sent and {last.delivered_per_s:,.0f} delivered{delay}."


def _charts() -> list[ui.echart]:
    charts = []
    with ui.element("div").classes("w-charts"):
        for chart in CHARTS:
            with section(chart.title):
                say(chart.question, "w-quiet w-small")
                shown = ui.echart(_options(chart)).classes("w-chart")
                shown.props(f'role=img aria-label="{chart.title} over time. {chart.question}"')
                charts.append(shown)
    return charts


def _options(chart: Chart) -> dict[str, Any]:
    axis = {"axisLabel": {"color": GREY}, "axisLine": {"lineStyle": {"color": GREY}}, "splitLine": {"show": False}}
    return {
        "animation": False,
        "grid": {"left": 8, "right": 14, "top": 30, "bottom": 6, "containLabel": True},
        "legend": {"top": 0, "left": 0, "itemHeight": 8, "textStyle": {"color": GREY}},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time", **axis, "axisLabel": {"color": GREY, "hideOverlap": True}},
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 0 if chart.unit else 1,
            "axisLabel": {"color": GREY, "formatter": f"{{value}} {chart.unit}".strip()},
            "splitLine": {"lineStyle": {"color": GREY, "opacity": 0.2}},
        },
        "series": [
            {
                "type": "line",
                "name": line.name,
                "showSymbol": False,
                "data": [],
                "itemStyle": {"color": line.colour},
                "lineStyle": {"color": line.colour, "width": 2, "type": "dashed" if line.is_dashed else "solid"},
            }
            for line in chart.lines
        ],
    }


def _show(charts: list[ui.echart], samples: Sequence[Sample]) -> None:
    step = max(1, math.ceil(len(samples) / POINTS_MAX))
    chosen = samples[::-1][::step][::-1]
    for chart, shown in zip(CHARTS, charts, strict=True):
        for line, series in zip(chart.lines, shown.options["series"], strict=True):
            series["data"] = [[round(each.at_s * 1000), _value(getattr(each, line.field))] for each in chosen]
        shown.update()


def _value(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
