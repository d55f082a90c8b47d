"""The games that come with Broadloom, by name."""

from broadloom.apps.game.errors import NoGameError
from broadloom.apps.game.game import Game
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.game.games.gems import Gems

GAMES: dict[str, type[Chain] | type[Gems]] = {each.name: each for each in (Chain, Gems)}
PLAYERS_MIN, PLAYERS_MAX = 2, 4


def make_game(name: str, players: int) -> Game:
    """Raises `NoGameError`."""
    if name not in GAMES:
        raise NoGameError(f"there is no game {name!r}: choose one of {', '.join(GAMES)}")
    if not PLAYERS_MIN <= players <= PLAYERS_MAX:
        raise NoGameError(f"{name} has {PLAYERS_MIN} to {PLAYERS_MAX} players, not {players}")
    return GAMES[name](players)
