"""The fabric page: peers and links, now and earlier."""

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
            "Nothing to show yet.",
            "Start `broadloom demo`, join a channel (`broadloom web CHANNEL`), "
            "or open a tape (`broadloom web --tapes DIR`).",
        )
