"""Who is linked to whom, now and a while ago."""

from broadloom.web.pages.fabric_view import FabricView
from broadloom.web.pages.layout import empty_state, heading
from broadloom.web.pages.replay import TapePicker
from broadloom.web.sources import LIVE, Sources


def build(sources: Sources) -> None:
    heading("Fabric", sources.sentence)
    if sources.live is not None:
        FabricView(LIVE)
    elif names := list(sources.tapes()):
        TapePicker(sources, names)
    else:
        empty_state(
            "There is nothing to draw.",
            "Start `broadloom demo`, take part in a channel (`broadloom web CHANNEL`), "
            "or give a tape (`broadloom web --tape DIR`).",
        )
