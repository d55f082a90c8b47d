"""The replay page: a tape with playback controls."""

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
            f"No tapes in {sources.tapes_dir}." if sources.tapes_dir is not None else "No tape selected.",
            "Record one with `broadloom sim run kill --peers 200 --seeds 7 --tape tapes/kill`, "
            "then run `broadloom web --tapes tapes`.",
        )
        return
    heading("Replay", "A tape of real or simulated peers, from the first event to the last.")
    TapePicker(sources, names)


class TapePicker:
    """A list of tapes and the selected one."""

    def __init__(self, sources: Sources, names: list[str]) -> None:
        self._sources = sources
        self._name = names[0]
        with ui.element("div").classes("bl-row"):
            choice = ui.select(names, value=names[0], label="Tape").props("outlined dense options-dense")
            choice.classes("bl-select").on_value_change(lambda event: self._choose(str(event.value)))
            button("Reload", self._reload, "read")
        self._container = ui.element("div").classes("bl-replay")
        call_soon(self._show)

    async def _show(self) -> None:
        self._container.clear()
        with self._container:
            paragraph(f"Reading {self._name} …", "bl-quiet")
        try:
            replay = await self._sources.replay(self._name)
        except Exception as problem:
            self._container.clear()
            with self._container:
                paragraph(describe_error(problem), "bl-problem").props("role=alert")
            return
        self._container.clear()
        with self._container:
            paragraph(replay.sentence, "bl-quiet")
            FabricView(self._name)

    async def _choose(self, name: str) -> None:
        self._name = name
        await self._show()

    async def _reload(self) -> None:
        self._sources.forget_replay(self._name)
        await self._show()
