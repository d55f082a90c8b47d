"""The pages, one file each. A page is a function that builds it from the sources."""

from weft.web.pages import conversations, fabric, frame, lab, replay, tables, traffic
from weft.web.sources import Sources

PAGES = (
    frame.Page("/", "Fabric", fabric.build),
    frame.Page("/lab", "Lab", lab.build),
    frame.Page("/traffic", "Traffic", traffic.build),
    frame.Page("/conversations", "Conversations", conversations.build),
    frame.Page("/tables", "Audit and tables", tables.build),
    frame.Page("/replay", "Replay", replay.build),
)


def register(sources: Sources) -> None:
    for page in PAGES:
        frame.register(page, PAGES, sources)
