"""A tape, watched again: play, pause, faster, slower, back."""

from nicegui import ui

from broadloom.web.error_messages import describe_error
from broadloom.web.pages.fabric_view import FabricView
from broadloom.web.pages.layout import button, call_soon, empty_state, heading, paragraph
from broadloom.web.sources import Sources


def build(sources: Sources) -> None:
    names = list(sources.tapes())
    if not names:
        heading("Replay")
        empty_state(
            "There is no tape here.",
            "Make one with `broadloom sim kill --peers 200 --seeds 7 --tape tapes/kill`, "
            "then: `broadloom web --tape tapes`.",
        )
        return
    heading("Replay", "A tape of real or simulated peers, from the first to the last event on it.")
    TapePicker(sources, names)


class TapePicker:
    """A choice of tapes, and the one that was chosen."""

    def __init__(self, sources: Sources, names: list[str]) -> None:
        self._sources = sources
        self._name = names[0]
        with ui.element("div").classes("w-row"):
            choice = ui.select(names, value=names[0], label="Tape").props("outlined dense options-dense")
            choice.classes("w-select").on_value_change(lambda event: self._choose(str(event.value)))
            button("Read anew", self._reload, "read")
        self._container = ui.element("div").classes("w-replay")
        call_soon(self._show)

    async def _show(self) -> None:
        self._container.clear()
        with self._container:
            wait = paragraph(f"Reading {self._name} …", "w-quiet")
        try:
            replay = await self._sources.replay(self._name)
        except Exception as problem:
            wait.set_text(describe_error(problem))
            return
        self._container.clear()
        with self._container:
            paragraph(replay.sentence, "w-quiet")
            FabricView(self._name)

    async def _choose(self, name: str) -> None:
        self._name = name
        await self._show()

    async def _reload(self) -> None:
        self._sources.forget_replay(self._name)
        await self._show()
