"""The fabric over time as a page element; the component is in `static/fabric.js`."""

from nicegui.element import Element


class FabricView(Element, component="../static/fabric.js"):
    """`source` is `live` or the name of a tape; `compact` hides the table and some figures."""

    def __init__(self, source: str, *, compact: bool = False) -> None:
        super().__init__()
        self._props["source"] = source
        self._props["compact"] = compact
