"""Gems: a race through a maze, in real time and in free order.

Walk over a gem to take it: one point, and one snowball. A snowball flies straight ahead; a player that is hit starts
again in its corner and loses a point to the thrower. The first player with ten points wins.
"""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from broadloom.apps.game.chance import Chance
from broadloom.apps.game.errors import IllegalActionError
from broadloom.apps.game.game import Action, Cell, Game, GameOrder, Input, Result, State

MAP = (
    "...............",
    ".#.###...###.#.",
    ".#.....#.....#.",
    "...##..#..##...",
    ".#....###....#.",
    ".#.#.......#.#.",
    ".#....###....#.",
    "...##..#..##...",
    ".#.....#.....#.",
    ".#.###...###.#.",
    "...............",
)
WIDTH, HEIGHT = len(MAP[0]), len(MAP)
HOMES = {"red": (0, 0), "blue": (WIDTH - 1, HEIGHT - 1), "green": (WIDTH - 1, 0), "yellow": (0, HEIGHT - 1)}
DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
KEYS = {"w": "up", "s": "down", "a": "left", "d": "right"} | {each: each for each in DIRECTIONS}
GEMS = 6
POINTS = 10
SNOWBALLS_MAX = 3
FLOOR = [(x, y) for y, row in enumerate(MAP) for x, cell in enumerate(row) if cell == "."]


class Gems(Game):
    name: ClassVar[str] = "gems"
    title: ClassVar[str] = "Gems"
    about: ClassVar[str] = f"Race through the maze for {POINTS} gems, and stop the others with snowballs."
    help: ClassVar[str] = "w a s d or arrows to walk, space to throw a snowball"
    order: ClassVar[GameOrder] = GameOrder.FREE
    input: ClassVar[Input] = Input.KEYS
    pace_s: ClassVar[float] = 0.45

    def __init__(self, players: int = 2) -> None:
        self.roles = dict.fromkeys(list(HOMES)[:players], 1)

    def begin(self, players: Sequence[str], chance: Chance) -> State:
        free = [cell for cell in FLOOR if cell not in HOMES.values()]
        return {
            "at": {role: list(HOMES[role]) for role in players},
            "facing": {role: [0, 1] if HOMES[role][1] == 0 else [0, -1] for role in players},
            "score": dict.fromkeys(players, 0),
            "snowballs": dict.fromkeys(players, 1),
            "gems": [list(cell) for cell in chance.sample(free, GEMS)],
            "shot": None,
        }

    def apply(self, state: State, action: Action, by: str, chance: Chance) -> State:
        values = [action.values.get(name) for name in (("x", "y") if action.name == "moved" else ("dx", "dy"))]
        if not all(type(each) is int for each in values):
            raise IllegalActionError(f"{action.name} needs two whole numbers")
        one, two = (each for each in values if isinstance(each, int))
        if action.name == "moved":
            return self._moved(state, by, one, two, chance)
        if action.name == "shot":
            return self._shot(state, by, one, two)
        raise IllegalActionError(f"Gems has no action {action.name!r}")

    def _moved(self, state: State, by: str, x: int, y: int, chance: Chance) -> State:
        at = state["at"][by]
        step = (x - at[0], y - at[1])
        if step not in DIRECTIONS.values():
            raise IllegalActionError("a step goes to the next cell")
        if (x, y) not in _FLOOR or [x, y] in state["at"].values():
            raise IllegalActionError("that cell is not free")
        found: State = {
            **state,
            "at": {**state["at"], by: [x, y]},
            "facing": {**state["facing"], by: list(step)},
            "shot": None,
        }
        if [x, y] in state["gems"]:
            gems = [gem for gem in state["gems"] if gem != [x, y]]
            taken = [*gems, *found["at"].values()]
            found["gems"] = [*gems, list(chance.choice([cell for cell in FLOOR if list(cell) not in taken]))]
            found["score"] = {**state["score"], by: state["score"][by] + 1}
            balls = min(SNOWBALLS_MAX, state["snowballs"][by] + 1)
            found["snowballs"] = {**state["snowballs"], by: balls}
        return found

    def _shot(self, state: State, by: str, dx: int, dy: int) -> State:
        if (dx, dy) not in DIRECTIONS.values():
            raise IllegalActionError("a snowball flies in one of four directions")
        if not state["snowballs"][by]:
            raise IllegalActionError("no snowball left: a gem brings one")
        victim, end = _target(state, by, dx, dy)
        found: State = {
            **state,
            "snowballs": {**state["snowballs"], by: state["snowballs"][by] - 1},
            "facing": {**state["facing"], by: [dx, dy]},
            "shot": [*state["at"][by], *end],
        }
        if victim is not None:
            score = dict(state["score"])
            lost = min(1, score[victim])
            score[victim] -= lost
            score[by] += lost
            found["score"] = score
            taken = [cell for role, cell in state["at"].items() if role != victim]
            home = next(cell for cell in (HOMES[victim], *FLOOR) if list(cell) not in taken)
            found["at"] = {**state["at"], victim: list(home)}
        return found

    def over(self, state: State) -> Result | None:
        winner = next((role for role, points in state["score"].items() if points >= POINTS), None)
        return Result(winner, f"{winner} has {POINTS} points") if winner is not None else None

    def stand_in(self, state: State, role: str, chance: Chance) -> Action | None:
        """Throw if somebody is in the way, else walk to the nearest gem."""
        if state["snowballs"][role]:
            for dx, dy in DIRECTIONS.values():
                if _target(state, role, dx, dy)[0] is not None:
                    return Action("shot", {"dx": dx, "dy": dy})
        step = _step_to_gem(state, role)
        return Action("moved", {"x": step[0], "y": step[1]}) if step is not None else None

    # -- for screens

    def score(self, state: State) -> dict[str, int]:
        return dict(state["score"])

    def board(self, state: State) -> list[list[Cell]]:
        cells = [[Cell("wall" if each == "#" else "floor") for each in row] for row in MAP]
        for x, y in state["gems"]:
            cells[y][x] = Cell("gem")
        for role, (x, y) in state["at"].items():
            cells[y][x] = Cell("player", role, state["snowballs"][role])
        return cells

    def typed(self, state: State, role: str, text: str) -> Action:
        key = text.strip().lower()
        if key in KEYS:
            (x, y), (dx, dy) = state["at"][role], DIRECTIONS[KEYS[key]]
            return Action("moved", {"x": x + dx, "y": y + dy})
        if key in ("", "f", "space"):
            dx, dy = state["facing"][role]
            return Action("shot", {"dx": dx, "dy": dy})
        raise IllegalActionError(f"type {self.help}, not {text!r}")


_FLOOR = frozenset(FLOOR)


def _target(state: State, by: str, dx: int, dy: int) -> tuple[str | None, tuple[int, int]]:
    """The player that a snowball hits, and where it ends."""
    at = {tuple(cell): role for role, cell in state["at"].items()}
    x, y = state["at"][by]
    while (x + dx, y + dy) in _FLOOR:
        x, y = x + dx, y + dy
        if (x, y) in at:
            return at[x, y], (x, y)
    return None, (x, y)


def _step_to_gem(state: State, role: str) -> tuple[int, int] | None:
    """The first step of a shortest way (breadth-first search)."""
    start = tuple(state["at"][role])
    taken = {tuple(cell) for cell in state["at"].values()}
    gems = {tuple(gem) for gem in state["gems"]}
    queue: deque[tuple[tuple[int, int], tuple[int, int] | None]] = deque([((start[0], start[1]), None)])
    seen = {start}
    while queue:
        (x, y), first = queue.popleft()
        if (x, y) in gems:
            return first
        for dx, dy in DIRECTIONS.values():
            step = (x + dx, y + dy)
            if step in _FLOOR and step not in seen and step not in taken:
                seen.add(step)
                queue.append((step, first or step))
    return None
