"""The board of a game as a page element; the component is in `static/game_board.js`."""

from nicegui.element import Element

from broadloom.apps.game import Game, Input, Phase, Table


class GameBoard(Element, component="../static/game_board.js"):
    """Emits `typed` with what the player means: a cell, as in `b3`, or a key."""

    def __init__(self) -> None:
        super().__init__()
        self._props["rows"] = []

    def show(self, game: Game, table: Table, role: str | None, *, is_live: bool) -> None:
        """What this role sees; a table that is not live cannot be played on."""
        state = game.view(table.state, role) if table.state else {}
        turn = game.turn(state) if state else None
        self._props["rows"] = [[list(cell) for cell in row] for row in game.board(state)] if state else []
        self._props["role"] = role or ""
        self._props["cells"] = game.input is Input.LINE
        self._props["active"] = is_live and table.phase is Phase.RUNNING and role is not None and turn in (None, role)
        self._props["shot"] = state.get("shot") if state else None
        self.update()
