"""The board of a game as a page element; the component is in `static/game_board.js`."""

from nicegui.element import Element

from broadloom.apps.game import Input, Play


class GameBoard(Element, component="../static/game_board.js"):
    """Emits `typed` with what the player means: a cell, as in `b3`, or a key."""

    def __init__(self) -> None:
        super().__init__()
        self._props["rows"] = []

    def show(self, play: Play) -> None:
        game, state = play.game, play.state
        turn = game.turn(state) if state else None
        is_running = play.table.phase.value == "running" and play.role is not None
        self._props["rows"] = [[list(cell) for cell in row] for row in game.board(state)] if state else []
        self._props["role"] = play.role or ""
        self._props["cells"] = game.input is Input.LINE
        self._props["active"] = is_running and turn in (None, play.role)
        self._props["shot"] = state.get("shot") if state else None
        self.update()
