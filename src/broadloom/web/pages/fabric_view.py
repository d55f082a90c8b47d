"""The drawing of a fabric over time, as an element of a page. What it does is in `static/`."""

from nicegui.element import Element


class FabricView(Element, component="../static/fabric.js"):
    """`source` is `live`, or the name of a tape; `compact` leaves out what needs room."""

    def __init__(self, source: str, *, compact: bool = False) -> None:
        super().__init__()
        self._props["source"] = source
        self._props["compact"] = compact
