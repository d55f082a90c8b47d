"""The games that come with Broadloom, by name, and those whose programs were loaded (`package.py`)."""

from collections.abc import Callable
from typing import NamedTuple

from broadloom.apps.game.errors import NoGameError
from broadloom.apps.game.game import Game
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.game.games.gems import Gems

GAMES: dict[str, type[Chain] | type[Gems]] = {each.name: each for each in (Chain, Gems)}
PLAYERS_MIN, PLAYERS_MAX = 2, 4


class Program(NamedTuple):
    """The program of a game that was loaded."""

    make: Callable[[int], Game]
    sha256: str


PROGRAMS: dict[str, Program] = {}


def make_game(name: str, players: int) -> Game:
    """Raises `NoGameError`."""
    if name in PROGRAMS and name not in GAMES:
        try:
            return PROGRAMS[name].make(players)
        except Exception as problem:
            raise NoGameError(f"{name} cannot be made for {players} players: {problem!r}") from None
    if name not in GAMES:
        names = ", ".join(GAMES)
        raise NoGameError(f"there is no game {name!r}: choose one of {names}, or load its program (`game download`)")
    if not PLAYERS_MIN <= players <= PLAYERS_MAX:
        raise NoGameError(f"{name} has {PLAYERS_MIN} to {PLAYERS_MAX} players, not {players}")
    return GAMES[name](players)
