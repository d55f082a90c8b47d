"""`Game`: the rules of one game, as a pure class. docs/games.md shows how to write one.

The state of a game is a dictionary of JSON values: dictionaries with text as keys, lists, text, whole numbers, floats,
booleans and None; no tuples and no sets. `apply` returns a new state and leaves the given one as it is. Nothing here
may use a clock, randomness of its own, or anything but its arguments: then every player computes the same state, and a
game log replays it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from broadloom.apps.game.chance import Chance
from broadloom.apps.game.entry import is_text
from broadloom.apps.game.errors import IllegalActionError

State = dict[str, Any]


class GameOrder(StrEnum):
    """In which order actions take effect."""

    AGREED = "agreed"
    """In the order that all players agree on (docs/order.md): an action counts when it has its place."""
    FREE = "free"
    """By logical time. An action counts at once; players that get it late go back and play the following ones again."""


class Input(StrEnum):
    """What a player types."""

    LINE = "line"
    KEYS = "keys"


class Action(NamedTuple):
    name: str
    values: dict[str, Any]


class Result(NamedTuple):
    """How a game ended."""

    winner: str | None
    """The role that has won; None for a draw."""
    text: str


class Cell(NamedTuple):
    """One cell of the board, for all screens."""

    kind: str = "floor"
    """`floor`, `wall`, `orbs`, `gem` or `player`."""
    role: str = ""
    number: int = 0


class Game(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    help: ClassVar[str]
    """What a player can type."""
    order: ClassVar[GameOrder]
    input: ClassVar[Input] = Input.LINE
    pace_s: ClassVar[float] = 1.0
    """Time between two actions of a stand-in."""
    roles: Mapping[str, int]
    """How many players each role has."""

    def seats(self) -> list[str]:
        """One name per player: the role, numbered if several players have it."""
        return [
            role if count == 1 else f"{role} {number}"
            for role, count in self.roles.items()
            for number in range(1, count + 1)
        ]

    @abstractmethod
    def begin(self, players: Sequence[str], chance: Chance) -> State:
        """The first state, for these roles."""

    @abstractmethod
    def apply(self, state: State, action: Action, by: str, chance: Chance) -> State:
        """The state after an action of the role `by`. Raises `IllegalActionError`: then it has no effect anywhere."""

    @abstractmethod
    def over(self, state: State) -> Result | None:
        """The result, if the game is over."""

    def view(self, state: State, player: str | None) -> State:
        """What this role may see; None is a spectator."""
        return state

    def stand_in(self, state: State, role: str, chance: Chance) -> Action | None:
        """What an automaton does for a role; None to wait."""
        return None

    # -- for screens

    def score(self, state: State) -> dict[str, int]:
        return {}

    def turn(self, state: State) -> str | None:
        """The role whose turn it is; None if all may act."""
        return None

    def board(self, state: State) -> list[list[Cell]]:
        """The rows of the board."""
        return []

    def typed(self, state: State, role: str, text: str) -> Action:
        """What a player means by a line or a key. Raises `IllegalActionError`."""
        raise IllegalActionError(f"{self.title} does not know {text!r}")


def identity_of(game: Game) -> str:
    """Members whose games have the same one play together."""
    return f"{game.name}/{len(game.seats())}"


def is_identity(text: str) -> bool:
    """Whether text of another member can be one, and can be shown."""
    name, _, players = text.rpartition("/")
    return bool(name) and is_text(text) and text.isprintable() and players.isascii() and players.isdigit()


class GameCheckError(AssertionError):
    """A game is not what `check` asks for."""


def check(game: Game, *, actions: int = 200, seeds: Sequence[int] = range(5)) -> None:
    """Play with the stand-ins of a game: its states must be JSON, it must not change the state that it is given, and
    the same actions must give the same state. Raises `GameCheckError`, also if no stand-in acts: then there is nothing
    to test."""
    applied_count = 0
    for seed in seeds:
        state = game.begin(game.seats(), Chance(seed))
        text = _checked_json(game, state)
        for number in range(actions):
            role = game.turn(state) or Chance(seed, number).choice(game.seats())
            if game.over(state) is not None:
                break
            action = game.stand_in(state, role, Chance(seed, number, role))
            if action is None:
                continue
            copies = [game.apply(each, action, role, Chance(seed, number)) for each in (state, json.loads(text))]
            if state != json.loads(text):
                raise GameCheckError(f"{game.title}: apply changes the state that it is given; return a new one")
            if copies[0] != copies[1]:
                raise GameCheckError(f"{game.title}: {action} of {role} has two results: apply must be pure")
            state, applied_count = copies[0], applied_count + 1
            text = _checked_json(game, state)
    if not applied_count:
        raise GameCheckError(f"{game.title}: no stand-in acts, so apply was not tested: write stand_in")


def _checked_json(game: Game, state: State) -> str:
    try:
        text = json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise GameCheckError(f"{game.title}: the state is not JSON: {problem}: {state!r}") from None
    if json.loads(text) != state:
        raise GameCheckError(f"{game.title}: the state has values that JSON does not keep: {state!r}")
    return text
