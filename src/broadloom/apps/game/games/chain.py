"""Chain: a board game of chain reactions, in turns and in agreed order.

In your turn you put an orb into an empty cell or one of your own. A cell with as many orbs as neighbors bursts: one orb
goes to each neighbor, and all orbs there become yours, which may burst in turn. The last player with orbs wins.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from broadloom.apps.game.chance import Chance
from broadloom.apps.game.errors import IllegalActionError
from broadloom.apps.game.game import Action, Cell, Game, GameOrder, Result, State

COLORS = "red", "blue", "green", "yellow"
WIDTH, HEIGHT = 8, 6

Cells = list[list[list[Any]]]


class Chain(Game):
    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "Chain"
    about: ClassVar[str] = "Fill a cell until it bursts and takes its neighbors. The last color on the board wins."
    help: ClassVar[str] = "a cell, as in b3"
    order: ClassVar[GameOrder] = GameOrder.AGREED
    pace_s: ClassVar[float] = 0.8

    def __init__(self, players: int = 2) -> None:
        self.roles = dict.fromkeys(COLORS[:players], 1)

    def begin(self, players: Sequence[str], chance: Chance) -> State:
        return {
            "turn": chance.choice(list(players)),
            "alive": list(players),
            "moved": [],
            "cells": [[["", 0] for _ in range(WIDTH)] for _ in range(HEIGHT)],
            "last": None,
            "bursts": 0,
        }

    def apply(self, state: State, action: Action, by: str, chance: Chance) -> State:
        if action.name != "place":
            raise IllegalActionError(f"Chain has no action {action.name!r}")
        if state["turn"] != by:
            raise IllegalActionError(f"it is the turn of {state['turn']}")
        x, y = action.values.get("x"), action.values.get("y")
        if type(x) is not int or type(y) is not int or not (0 <= x < WIDTH and 0 <= y < HEIGHT):
            raise IllegalActionError(f"the board has columns a to {chr(96 + WIDTH)} and rows 1 to {HEIGHT}")
        if state["cells"][y][x][0] not in ("", by):
            raise IllegalActionError(f"that cell belongs to {state['cells'][y][x][0]}")
        cells = [[list(cell) for cell in row] for row in state["cells"]]
        bursts = _place(cells, x, y, by)
        moved = [*state["moved"], *([] if by in state["moved"] else [by])]
        owners = {cell[0] for row in cells for cell in row}
        alive = [role for role in state["alive"] if role not in moved or role in owners]
        order = state["alive"]
        following = [*order[order.index(by) + 1 :], *order[: order.index(by) + 1]]
        turn = next(role for role in following if role in alive)
        return {"turn": turn, "alive": alive, "moved": moved, "cells": cells, "last": [x, y], "bursts": bursts}

    def over(self, state: State) -> Result | None:
        if len(state["alive"]) > 1:
            return None
        winner = state["alive"][0]
        return Result(winner, f"{winner} has the last orbs on the board")

    def stand_in(self, state: State, role: str, chance: Chance) -> Action | None:
        """Look one move ahead: win, else gain orbs, and rather hold corners and edges."""
        if state["turn"] != role:
            return None
        best: list[tuple[int, int]] = []
        best_value = -1_000_000
        for y, row in enumerate(state["cells"]):
            for x, (owner, _) in enumerate(row):
                if owner not in ("", role):
                    continue
                cells = [[list(cell) for cell in line] for line in state["cells"]]
                _place(cells, x, y, role)
                flat = [cell for line in cells for cell in line if cell[0]]
                own = sum(cell[1] for cell in flat if cell[0] == role)
                value = 2 * own - sum(cell[1] for cell in flat if cell[0] != role) - len(_neighbors(x, y))
                value -= sum(
                    3 for i, j in _neighbors(x, y) if cells[j][i][0] not in ("", role) and _is_critical(cells, i, j)
                )
                if value > best_value:
                    best, best_value = [], value
                if value == best_value:
                    best.append((x, y))
        x, y = chance.choice(best)
        return Action("place", {"x": x, "y": y})

    # -- for screens

    def score(self, state: State) -> dict[str, int]:
        return {role: sum(cell[1] for row in state["cells"] for cell in row if cell[0] == role) for role in self.roles}

    def turn(self, state: State) -> str | None:
        return str(state["turn"])

    def board(self, state: State) -> list[list[Cell]]:
        return [[Cell("orbs", owner, count) for owner, count in row] for row in state["cells"]]

    def typed(self, state: State, role: str, text: str) -> Action:
        text = text.strip().lower()
        if len(text) != 2 or not text[1].isdecimal() or not text[0].isascii() or not text[0].isalpha():
            raise IllegalActionError(f"type {self.help}, not {text!r}")
        return Action("place", {"x": ord(text[0]) - ord("a"), "y": int(text[1]) - 1})


def _neighbors(x: int, y: int) -> list[tuple[int, int]]:
    around = ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1))
    return [(i, j) for i, j in around if 0 <= i < WIDTH and 0 <= j < HEIGHT]


def _is_critical(cells: Cells, x: int, y: int) -> bool:
    return bool(cells[y][x][1] >= len(_neighbors(x, y)) - 1)


def _place(cells: Cells, x: int, y: int, role: str) -> int:
    """Put an orb, and let cells burst until none is full or all orbs have one color. Returns how many burst."""
    cells[y][x] = [role, cells[y][x][1] + 1]
    full, bursts = [(x, y)], 0
    while full:
        x, y = full.pop(0)
        around = _neighbors(x, y)
        left = cells[y][x][1] - len(around)
        if left < 0:
            continue
        bursts += 1
        cells[y][x] = [role, left] if left else ["", 0]
        for i, j in around:
            cells[j][i] = [role, cells[j][i][1] + 1]
            full.append((i, j))
        full.append((x, y))
        if not any(cell[0] not in ("", role) for row in cells for cell in row):
            break
    return bursts
