"""The cluster page: faults and traffic for peers that this program started, and the guarantees, checked live."""

import random

from nicegui import ui

from broadloom.errors import BroadloomError
from broadloom.testing.checks.live_guarantees import GuaranteeStatus
from broadloom.testing.checks.settling import Verdict
from broadloom.testing.cluster.cluster import LocalCluster
from broadloom.testing.cluster.config import NO_TRAFFIC, TrafficRates
from broadloom.web.pages.fabric_view import FabricView
from broadloom.web.pages.layout import button, empty_state, every, heading, paragraph, section
from broadloom.web.sources import LIVE, Sources

REFRESH_S = 1.0
ADDED_MAX = 200
"""Per click."""

RATES = (
    ("chat_per_s", "Chat", "messages per second in conversations"),
    ("ticks_per_s", "Ticks", "prices per second"),
    ("identifications_per_s", "Identifications", "per second"),
    ("ads_per_s", "Ads", "per second"),
)


STATES = {
    Verdict.HELD: ("holds", "✓ holds"),
    Verdict.BROKEN: ("violated", "✗ violated"),
    Verdict.UNSETTLED: ("pending", "… pending"),
}


class PeerNotFoundError(BroadloomError):
    """No peer has this name, or none is running."""


def build(sources: Sources) -> None:
    cluster = sources.cluster
    if cluster is None:
        heading("Cluster")
        empty_state(
            "No cluster is running.",
            "Start one with `broadloom demo`.",
        )
        return
    heading("Cluster", "Real peers on this machine. The guarantees below must hold whatever you do to them.")
    with ui.element("div").classes("bl-cluster"):
        with ui.element("div").classes("bl-cluster-controls"):
            _peers(cluster)
            _network(cluster)
            _traffic(cluster)
        with ui.element("div").classes("bl-cluster-view"):
            FabricView(LIVE, compact=True)
            _guarantees(cluster)


def _peers(cluster: LocalCluster) -> None:
    with section("Peers"):
        with ui.element("div").classes("bl-do"):
            added = _number("Peers to add", 5, 1, ADDED_MAX)
            button("Add", lambda: cluster.add(_int_value(added)), "add")
        with ui.element("div").classes("bl-do"):
            killed = _number("Peers to kill", 5, 1, 1000)
            button("Kill", lambda: cluster.kill_random(_int_value(killed)), "kill", is_destructive=True)
        with ui.element("div").classes("bl-do"):
            name_input = ui.input("Peer", placeholder="any").props("outlined dense stack-label")
            name_input.props('aria-label="Peer to pause: its name, or empty for any"')

            async def pause() -> None:
                await cluster.pause(_peer(cluster, name_input.value or ""))

            button("Pause", pause, "pause", is_destructive=True)
            button("Resume all", lambda: _resume_all(cluster), "resume")
        paragraph("Kill sends SIGKILL. Pause sends SIGSTOP and stops every peer in that process.", "bl-quiet bl-small")


def _network(cluster: LocalCluster) -> None:
    with section("Network"):
        with ui.element("div").classes("bl-do"):
            button("Partition", cluster.partition, "partition", is_destructive=True)
            button("Heal", cluster.heal, "heal")
        paragraph(
            "Blocks all traffic between two halves. After healing they must merge by themselves.",
            "bl-quiet bl-small",
        )


def _traffic(cluster: LocalCluster) -> None:
    with section("Traffic"):
        fields: dict[str, ui.number] = {}
        with ui.element("div").classes("bl-do bl-rates"):
            for name, label, about in RATES:
                field = ui.number(label, value=round(getattr(cluster.rates, name), 2), min=0, max=10_000, step=0.5)
                field.props(f'outlined dense stack-label suffix="/s" aria-label="{label}: {about}"')
                fields[name] = field

        async def start() -> None:
            cluster.set_traffic(TrafficRates(**{name: float(field.value or 0) for name, field in fields.items()}))

        async def stop() -> None:
            cluster.set_traffic(NO_TRAFFIC)

        with ui.element("div").classes("bl-do"):
            button("Apply", start, "traffic")
            button("Stop", stop, "stop")
        status_label = paragraph("", "bl-quiet bl-small")
        shown = [cluster.rates]

        def refresh() -> None:
            rates = cluster.rates
            status_label.set_text(f"{rates.total_per_s:.1f} messages per second in total.")
            if rates != shown[0]:
                shown[0] = rates
                for name, field in fields.items():
                    field.set_value(round(getattr(rates, name), 2))

        every(REFRESH_S, refresh)


def _guarantees(cluster: LocalCluster) -> None:
    with section("Guarantees, checked live"):
        container = ui.element("ul").classes("bl-guarantees")
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
    """One guarantee."""

    def __init__(self) -> None:
        with ui.element("li") as self._row:
            self._icon = ui.element("span").classes("bl-sign")
            with self._icon:
                self._state_label = ui.label()
            with ui.element("div"):
                self._name = ui.label().classes("bl-guarantee")
                self._sentence = ui.label().classes("bl-quiet")

    def show(self, guarantee: GuaranteeStatus) -> None:
        state, text = STATES[guarantee.verdict]
        self._state_label.set_text(text)
        self._row.props(f"data-state={state}")
        self._name.set_text(guarantee.name)
        self._sentence.set_text(guarantee.summary)


def _number(label: str, value: int, least: int, most: int) -> ui.number:
    field = ui.number(label, value=value, min=least, max=most, step=1, precision=0)
    return field.props(f'outlined dense stack-label aria-label="{label}: how many"')


def _int_value(field: ui.number) -> int:
    return int(field.value or 0)


def _peer(cluster: LocalCluster, name: str) -> int:
    """The peer with this name; without a name, a random one that is not paused."""
    views = cluster.now()
    if name.strip():
        for peer, view in views.items():
            if view.name == name.strip():
                return peer
        raise PeerNotFoundError(f"no peer is named {name.strip()}; hover over a peer to see its name")
    running = [peer for peer, view in views.items() if not view.is_paused]
    if not running:
        raise PeerNotFoundError("all peers are paused; resume them first")
    return random.choice(running)


async def _resume_all(cluster: LocalCluster) -> None:
    for peer, view in cluster.now().items():
        if view.is_paused:
            await cluster.resume(peer)
