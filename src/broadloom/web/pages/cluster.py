"""Things to do to peers that this program started, and the promises while they are done."""

import random

from nicegui import ui

from broadloom.errors import BroadloomError
from broadloom.testing.checks.live_guarantees import GuaranteeStatus
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.config import NO_TRAFFIC, TrafficRates
from broadloom.web.pages.fabric_view import FabricView
from broadloom.web.pages.layout import button, empty_state, every, heading, paragraph, section
from broadloom.web.sources import LIVE, Sources

REFRESH_S = 1.0
ADDED_MAX = 200
"""At one click."""

RATES = (
    ("chat_per_s", "Chat", "lines a second, in conversations"),
    ("ticks_per_s", "Ticks", "prices a second"),
    ("identifications_per_s", "Idents", "identifications a second"),
    ("ads_per_s", "Adverts", "a second"),
)


class PeerNotFoundError(BroadloomError):
    """The text says what to do."""


def build(sources: Sources) -> None:
    cluster = sources.cluster
    if cluster is None:
        heading("Lab")
        empty_state(
            "There are no peers here that this page may kill.",
            "It does so only to peers that its own program started: run `broadloom demo`.",
        )
        return
    heading("Lab", "Real peers on this machine. Whatever is done to them here, the promises below have to hold.")
    with ui.element("div").classes("w-lab"):
        with ui.element("div").classes("w-lab-controls"):
            _peers(cluster)
            _network(cluster)
            _traffic(cluster)
        with ui.element("div").classes("w-lab-view"):
            FabricView(LIVE, compact=True)
            _guarantees(cluster)


def _peers(cluster: LocalCluster) -> None:
    with section("Peers"):
        with ui.element("div").classes("w-do"):
            added = _number("Newcomers", 5, 1, ADDED_MAX)
            button("Add", lambda: cluster.add(_int_value(added)), "add")
        with ui.element("div").classes("w-do"):
            killed = _number("Victims", 5, 1, 1000)
            button("Kill", lambda: cluster.kill_random(_int_value(killed)), "kill", is_destructive=True)
        with ui.element("div").classes("w-do"):
            name_input = ui.input("Which peer", placeholder="any").props("outlined dense stack-label")
            name_input.props('aria-label="Which peer to freeze: its name, or empty for any"')

            async def pause() -> None:
                await cluster.pause(_peer(cluster, name_input.value or ""))

            button("Freeze", pause, "freeze", is_destructive=True)
            button("Thaw all", lambda: _resume_all(cluster), "thaw")
        paragraph("Killed without a word; frozen with SIGSTOP, with all peers of the same process.", "w-quiet w-small")


def _network(cluster: LocalCluster) -> None:
    with section("The fabric"):
        with ui.element("div").classes("w-do"):
            button("Split in two", cluster.partition, "split", is_destructive=True)
            button("Heal", cluster.heal, "heal")
        paragraph(
            "Two halves that cannot reach each other; once healed, they have to find each other by themselves.",
            "w-quiet w-small",
        )


def _traffic(cluster: LocalCluster) -> None:
    with section("Traffic"):
        fields: dict[str, ui.number] = {}
        with ui.element("div").classes("w-do w-rates"):
            for name, label, about in RATES:
                field = ui.number(label, value=round(getattr(cluster.rates, name), 2), min=0, max=10_000, step=0.5)
                field.props(f'outlined dense stack-label suffix="/s" aria-label="{label}: {about}"')
                fields[name] = field

        async def start() -> None:
            cluster.set_traffic(TrafficRates(**{name: float(field.value or 0) for name, field in fields.items()}))

        async def stop() -> None:
            cluster.set_traffic(NO_TRAFFIC)

        with ui.element("div").classes("w-do"):
            button("Set", start, "traffic")
            button("Silence", stop, "silence")
        status_label = paragraph("", "w-quiet w-small")
        shown = [cluster.rates]

        def refresh() -> None:
            rates = cluster.rates
            status_label.set_text(f"Now {rates.total_per_s:.1f} messages a second, of all peers together.")
            if rates != shown[0]:
                shown[0] = rates
                for name, field in fields.items():
                    field.set_value(round(getattr(rates, name), 2))

        every(REFRESH_S, refresh)


def _guarantees(cluster: LocalCluster) -> None:
    with section("Promises, checked live"):
        container = ui.element("ul").classes("w-promises")
        rows: list[_GuaranteeRow] = []

        def refresh() -> None:
            guarantees = cluster.guarantees()
            if len(rows) != len(guarantees):
                container.clear()
                with container:
                    rows[:] = [_GuaranteeRow() for _ in guarantees]
            for row, guarantee in zip(rows, guarantees, strict=True):
                row.show(guarantee)

        every(REFRESH_S, refresh)


class _GuaranteeRow:
    """One promise."""

    def __init__(self) -> None:
        with ui.element("li") as self._row:
            self._icon = ui.element("span").classes("w-sign")
            with self._icon:
                self._state_label = ui.label()
            with ui.element("div"):
                self._name = ui.label().classes("w-promise")
                self._sentence = ui.label().classes("w-quiet")

    def show(self, guarantee: GuaranteeStatus) -> None:
        state = "broken" if not guarantee.holds else "pending" if guarantee.is_pending else "holds"
        self._state_label.set_text({"broken": "✗ broken", "pending": "… under way", "holds": "✓ holds"}[state])
        self._row.props(f"data-state={state}")
        self._name.set_text(guarantee.name)
        self._sentence.set_text(guarantee.summary)


def _number(label: str, value: int, least: int, most: int) -> ui.number:
    field = ui.number(label, value=value, min=least, max=most, step=1, precision=0)
    return field.props(f'outlined dense stack-label aria-label="{label}: how many"')


def _int_value(field: ui.number) -> int:
    return int(field.value or 0)


def _peer(cluster: LocalCluster, name: str) -> int:
    """The one that is called so; any that is awake, if nothing was said."""
    views = cluster.now()
    if name.strip():
        for peer, view in views.items():
            if view.name == name.strip():
                return peer
        raise PeerNotFoundError(f"there is no peer called {name.strip()}: point at one in the drawing to see its name")
    awake = [peer for peer, view in views.items() if not view.is_paused]
    if not awake:
        raise PeerNotFoundError("nobody is awake: thaw them first")
    return random.choice(awake)


async def _resume_all(cluster: LocalCluster) -> None:
    for peer, view in cluster.now().items():
        if view.is_paused:
            await cluster.resume(peer)
