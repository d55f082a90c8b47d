"""Things to do to peers that this program started, and the promises while they are done."""

import random

from nicegui import ui

from weft.errors import WeftError
from weft.lab.lab import Lab
from weft.lab.plan import SILENCE, Rates
from weft.lab.promises import Promise
from weft.web.pages.fabric_view import FabricView
from weft.web.pages.frame import button, every, heading, nothing_here, say, section
from weft.web.sources import LIVE, Sources

LOOK_S = 1.0
ADDED_MAX = 200
"""At one click."""

RATES = (
    ("chat_per_s", "Chat", "lines a second, in conversations"),
    ("ticks_per_s", "Ticks", "prices a second"),
    ("idents_per_s", "Idents", "identifications a second"),
    ("adverts_per_s", "Adverts", "a second"),
)


class NoSuchPeer(WeftError):
    """The text says what to do."""


def build(sources: Sources) -> None:
    lab = sources.lab
    if lab is None:
        heading("Lab")
        nothing_here(
            "There are no peers here that this page may kill.",
            "It does so only to peers that its own program started: run `weft demo`.",
        )
        return
    heading("Lab", "Real peers on this machine. Whatever is done to them here, the promises below have to hold.")
    with ui.element("div").classes("w-lab"):
        with ui.element("div").classes("w-lab-controls"):
            _peers(lab)
            _parts(lab)
            _traffic(lab)
        with ui.element("div").classes("w-lab-view"):
            FabricView(LIVE, compact=True)
            _promises(lab)


def _peers(lab: Lab) -> None:
    with section("Peers"):
        with ui.element("div").classes("w-do"):
            added = _number("Newcomers", 5, 1, ADDED_MAX)
            button("Add", lambda: lab.add(_whole(added)), "add")
        with ui.element("div").classes("w-do"):
            killed = _number("Victims", 5, 1, 1000)
            button("Kill", lambda: lab.kill_some(_whole(killed)), "kill", is_harmful=True)
        with ui.element("div").classes("w-do"):
            named = ui.input("Which peer", placeholder="any").props("outlined dense stack-label")
            named.props('aria-label="Which peer to freeze: its name, or empty for any"')

            async def freeze() -> None:
                await lab.freeze(_peer(lab, named.value or ""))

            button("Freeze", freeze, "freeze", is_harmful=True)
            button("Thaw all", lambda: _thaw_all(lab), "thaw")
        say("Killed without a word; frozen with SIGSTOP, with all peers of the same process.", "w-quiet w-small")


def _parts(lab: Lab) -> None:
    with section("The fabric"):
        with ui.element("div").classes("w-do"):
            button("Split in two", lab.split, "split", is_harmful=True)
            button("Heal", lab.heal, "heal")
        say(
            "Two halves that cannot reach each other; once healed, they have to find each other by themselves.",
            "w-quiet w-small",
        )


def _traffic(lab: Lab) -> None:
    with section("Traffic"):
        fields: dict[str, ui.number] = {}
        with ui.element("div").classes("w-do w-rates"):
            for name, label, about in RATES:
                field = ui.number(label, value=round(getattr(lab.rates, name), 2), min=0, max=10_000, step=0.5)
                field.props(f'outlined dense stack-label suffix="/s" aria-label="{label}: {about}"')
                fields[name] = field

        async def start() -> None:
            lab.traffic(Rates(**{name: float(field.value or 0) for name, field in fields.items()}))

        async def stop() -> None:
            lab.traffic(SILENCE)

        with ui.element("div").classes("w-do"):
            button("Set", start, "traffic")
            button("Silence", stop, "silence")
        told = say("", "w-quiet w-small")
        shown = [lab.rates]

        def look() -> None:
            rates = lab.rates
            told.set_text(f"Now {rates.total_per_s:.1f} messages a second, of all peers together.")
            if rates != shown[0]:
                shown[0] = rates
                for name, field in fields.items():
                    field.set_value(round(getattr(rates, name), 2))

        every(LOOK_S, look)


def _promises(lab: Lab) -> None:
    with section("Promises, checked live"):
        place = ui.element("ul").classes("w-promises")
        lines: list[_Line] = []

        def look() -> None:
            promises = lab.promises()
            if len(lines) != len(promises):
                place.clear()
                with place:
                    lines[:] = [_Line() for _ in promises]
            for line, promise in zip(lines, promises, strict=True):
                line.show(promise)

        every(LOOK_S, look)


class _Line:
    """One promise."""

    def __init__(self) -> None:
        with ui.element("li") as self._line:
            self._sign = ui.element("span").classes("w-sign")
            with self._sign:
                self._verdict = ui.label()
            with ui.element("div"):
                self._name = ui.label().classes("w-promise")
                self._sentence = ui.label().classes("w-quiet")

    def show(self, promise: Promise) -> None:
        state = "broken" if not promise.holds else "pending" if promise.is_pending else "holds"
        self._verdict.set_text({"broken": "✗ broken", "pending": "… under way", "holds": "✓ holds"}[state])
        self._line.props(f"data-state={state}")
        self._name.set_text(promise.name)
        self._sentence.set_text(promise.sentence)


def _number(label: str, value: int, least: int, most: int) -> ui.number:
    field = ui.number(label, value=value, min=least, max=most, step=1, precision=0)
    return field.props(f'outlined dense stack-label aria-label="{label}: how many"')


def _whole(field: ui.number) -> int:
    return int(field.value or 0)


def _peer(lab: Lab, name: str) -> int:
    """The one that is called so; any that is awake, if nothing was said."""
    views = lab.now()
    if name.strip():
        for peer, view in views.items():
            if view.name == name.strip():
                return peer
        raise NoSuchPeer(f"there is no peer called {name.strip()}: point at one in the drawing to see its name")
    awake = [peer for peer, view in views.items() if not view.is_frozen]
    if not awake:
        raise NoSuchPeer("nobody is awake: thaw them first")
    return random.choice(awake)


async def _thaw_all(lab: Lab) -> None:
    for peer, view in lab.now().items():
        if view.is_frozen:
            await lab.thaw(peer)
