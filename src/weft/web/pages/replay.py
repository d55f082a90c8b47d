"""A tape, watched again: play, pause, faster, slower, back."""

from nicegui import ui

from weft.web.pages.fabric_view import FabricView
from weft.web.pages.frame import button, heading, nothing_here, say, soon
from weft.web.sources import Sources
from weft.web.wrong import told


def build(sources: Sources) -> None:
    names = list(sources.tapes())
    if not names:
        heading("Replay")
        nothing_here(
            "There is no tape here.",
            "Make one with `weft sim kill --peers 200 --seeds 7 --tape tapes/kill`, then: `weft web --tape tapes`.",
        )
        return
    heading("Replay", "A tape of real or simulated peers, from the first to the last event on it.")
    Tapes(sources, names)


class Tapes:
    """A choice of tapes, and the one that was chosen."""

    def __init__(self, sources: Sources, names: list[str]) -> None:
        self._sources = sources
        self._name = names[0]
        with ui.element("div").classes("w-row"):
            choice = ui.select(names, value=names[0], label="Tape").props("outlined dense options-dense")
            choice.classes("w-select").on_value_change(lambda event: self._choose(str(event.value)))
            button("Read anew", self._read_anew, "read")
        self._place = ui.element("div").classes("w-replay")
        soon(self._show)

    async def _show(self) -> None:
        self._place.clear()
        with self._place:
            wait = say(f"Reading {self._name} …", "w-quiet")
        try:
            replay = await self._sources.replay(self._name)
        except Exception as problem:
            wait.set_text(told(problem))
            return
        self._place.clear()
        with self._place:
            say(replay.sentence, "w-quiet")
            FabricView(self._name)

    async def _choose(self, name: str) -> None:
        self._name = name
        await self._show()

    async def _read_anew(self) -> None:
        self._sources.forget(self._name)
        await self._show()
