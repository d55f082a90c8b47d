"""Who is linked to whom, now and a while ago."""

from weft.web.pages.fabric_view import FabricView
from weft.web.pages.frame import heading, nothing_here
from weft.web.pages.replay import Tapes
from weft.web.sources import LIVE, Sources


def build(sources: Sources) -> None:
    heading("Fabric", sources.sentence)
    if sources.live is not None:
        FabricView(LIVE)
    elif names := list(sources.tapes()):
        Tapes(sources, names)
    else:
        nothing_here(
            "There is nothing to draw.",
            "Start `weft demo`, take part in a channel (`weft web CHANNEL`), or give a tape (`weft web --tape DIR`).",
        )
