"""Games without a server: every player has the rules and the state, and all states are equal.

The plan of the package (docs/games.md is for its users):

- **Rules** (`game.py`, `chance.py`, `games/`): a `Game` is a pure class. `check` tests one.
- **State** (`entry.py`, `table.py`, `timeline.py`): entries are what players and stand-ins do. A `Table` is who has
  which role, and the state of the game; it changes by entries only. A `Timeline` applies them in order.
- **Participant** (`participant.py`, `stand_ins.py`, `runtime.py`, `changes.py`): one program in one game, without IO:
  both orders, late joiners, stand-ins, comparing states.
- **Play** (`play.py`): a participant on a channel, which programs use: `game.join(...)`.
- **Game logs** (`game_log.py`): what one player saw, to be replayed.
- **Lobby** (`lobby.py`, `monitor.py`, `package.py`): games that are registered on a channel, what players and monitors
  report of them, and programs of games to download.
"""

from broadloom.apps.game.chance import Chance
from broadloom.apps.game.changes import (
    Acted,
    Arrived,
    Back,
    Change,
    Diverged,
    Left,
    Over,
    Refused,
    Rewound,
    Said,
    Started,
    StoodIn,
)
from broadloom.apps.game.errors import GameError, IllegalActionError, NoGameError, NoRoleError, RoleTakenError
from broadloom.apps.game.game import Action, Cell, Game, GameCheckError, GameOrder, Input, Result, State, check
from broadloom.apps.game.game_log import replay
from broadloom.apps.game.games import GAMES, make_game
from broadloom.apps.game.play import Play, join
from broadloom.apps.game.seating import ANY_ROLE
from broadloom.apps.game.table import Phase, Seat, Table
from broadloom.apps.missed import Missed

__all__ = [
    "ANY_ROLE",
    "GAMES",
    "Acted",
    "Action",
    "Arrived",
    "Back",
    "Cell",
    "Chance",
    "Change",
    "Diverged",
    "Game",
    "GameCheckError",
    "GameError",
    "GameOrder",
    "IllegalActionError",
    "Input",
    "Left",
    "Missed",
    "NoGameError",
    "NoRoleError",
    "Over",
    "Phase",
    "Play",
    "Refused",
    "Result",
    "Rewound",
    "RoleTakenError",
    "Said",
    "Seat",
    "Started",
    "State",
    "StoodIn",
    "Table",
    "check",
    "join",
    "make_game",
    "replay",
]
