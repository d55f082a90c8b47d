"""`Table`: who has which role, and the state of the game. Pure: every player applies the same entries to it.

At every place of the history, a role has at most one *actor*, and only the actions of the actor count. So it does not
matter which members believe that they stand in for a player: exactly one of them does.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from broadloom.apps.game.chance import Chance
from broadloom.apps.game.entry import Entry, Kind, to_json
from broadloom.apps.game.errors import IllegalActionError
from broadloom.apps.game.game import Action, Game, GameOrder, Result, State
from broadloom.apps.nesting import levels_of

STATE_NESTING_MAX = 64
"""Levels of lists and dictionaries in a state: more than in the values of an action, from which it may be made."""


class Phase(StrEnum):
    OPEN = "open"
    """Players take roles. The game starts when all are taken, or when a player says so."""
    RUNNING = "running"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Seat:
    """One role."""

    name: str = ""
    """The player who has it; empty if nobody has."""
    player: int = 0
    """The peer of that player."""
    actor: int = 0
    """The peer that acts for it: of the player, or of a stand-in; 0 if nobody does."""

    @property
    def is_stood_in(self) -> bool:
        return self.actor not in (0, self.player)

    @property
    def player_text(self) -> str:
        """The player, for screens."""
        if self.is_stood_in:
            return f"stand-in for {self.name}" if self.name else "stand-in"
        return self.name or "open"


@dataclass(frozen=True, slots=True)
class Table:
    seats: Mapping[str, Seat]
    phase: Phase = Phase.OPEN
    round: int = 0
    state: State = field(default_factory=dict)
    """Empty before the first game."""
    result: Result | None = None

    @classmethod
    def new(cls, game: Game) -> "Table":
        return cls({role: Seat() for role in game.seats()})

    def role_of(self, peer_id: int) -> str | None:
        """The role of this player."""
        return next((role for role, seat in self.seats.items() if seat.player == peer_id), None)

    def open_roles(self) -> list[str]:
        return [role for role, seat in self.seats.items() if not seat.name]

    # -- applying entries

    def apply(self, game: Game, entry: Entry, seed: str) -> "Table":
        """Raises `IllegalActionError`, whatever else goes wrong in the game: at all players alike."""
        # Nobody can choose these: the index that the order gives, or the number that follows the author's last one.
        is_agreed = game.order is GameOrder.AGREED
        chance = Chance(seed, entry.time) if is_agreed else Chance(seed, entry.author, entry.number)
        match entry.kind:
            case Kind.SIT:
                return self._sit(game, entry, chance)
            case Kind.LEAVE:
                return self._leave(entry)
            case Kind.STAND_IN:
                return self._stand_in(entry)
            case Kind.START:
                if self.phase is Phase.RUNNING:
                    raise IllegalActionError("the game is running")
                if self.role_of(entry.author) is None:
                    raise IllegalActionError("only a player can start the game: take a role first")
                return self._begin(game, chance)
            case Kind.ACT:
                return self._act(game, entry, chance)

    def _seat(self, role: str) -> Seat:
        if role not in self.seats:
            raise IllegalActionError(f"there is no role {role!r}: choose one of {', '.join(self.seats)}")
        return self.seats[role]

    def _with_seat(self, role: str, seat: Seat) -> "Table":
        return replace(self, seats={**self.seats, role: seat})

    def _sit(self, game: Game, entry: Entry, chance: Chance) -> "Table":
        seat = self._seat(entry.role)
        if not entry.name.strip():
            raise IllegalActionError("a player needs a name")
        if seat.name not in ("", entry.name):
            raise IllegalActionError(f"{entry.role} is taken by {seat.name}")
        seats = {role: Seat() if each.player == entry.author else each for role, each in self.seats.items()}
        table = replace(self, seats=seats)._with_seat(entry.role, Seat(entry.name, entry.author, entry.author))
        is_full = table.phase is Phase.OPEN and not table.open_roles()
        return table._begin(game, chance) if is_full else table

    def _leave(self, entry: Entry) -> "Table":
        player = self._seat(entry.role).player
        if not player or entry.values.get("player") != player:
            raise IllegalActionError(f"another player has the role {entry.role}, or nobody")
        table = self._with_seat(entry.role, Seat())
        if self.phase is Phase.RUNNING and not any(seat.name for seat in table.seats.values()):
            return replace(table, phase=Phase.OVER, result=Result(None, "all players have left"))
        return table

    def _stand_in(self, entry: Entry) -> "Table":
        seat = self._seat(entry.role)
        if self.phase is not Phase.RUNNING:
            raise IllegalActionError("the game is not running")
        if seat.actor != entry.values.get("instead_of"):
            raise IllegalActionError(f"another member acts for {entry.role}")
        return self._with_seat(entry.role, replace(seat, actor=entry.author))

    def _begin(self, game: Game, chance: Chance) -> "Table":
        try:
            state = game.begin(list(self.seats), chance)
            _check_json({}, state, None)
        except Exception as problem:
            raise IllegalActionError(f"{game.title} cannot begin: {problem!r}") from None
        return replace(self, phase=Phase.RUNNING, round=self.round + 1, state=state, result=None)

    def _act(self, game: Game, entry: Entry, chance: Chance) -> "Table":
        if self.phase is not Phase.RUNNING:
            raise IllegalActionError("the game is not running; start it")
        if self._seat(entry.role).actor != entry.author:
            raise IllegalActionError(f"you do not act for {entry.role}")
        try:
            state = game.apply(self.state, Action(entry.name, entry.values), entry.role, chance)
            result = game.over(state)
            _check_json(self.state, state, result)
        except IllegalActionError:
            raise
        except Exception as problem:
            # Values of a modified program, which the game did not expect.
            raise IllegalActionError(f"{game.title} cannot apply {entry.name!r}: {problem!r}") from None
        # The usual entry, where `replace` would take as long as all the rest.
        return Table(self.seats, self.phase if result is None else Phase.OVER, self.round, state, result)

    # -- as JSON

    def as_dict(self) -> dict[str, Any]:
        return {
            "seats": {role: [seat.name, seat.player, seat.actor] for role, seat in self.seats.items()},
            "phase": self.phase,
            "round": self.round,
            "state": self.state,
            "result": list(self.result) if self.result is not None else None,
        }

    @classmethod
    def parse(cls, values: Any) -> "Table":
        """Raises `ValueError`."""
        to_json(values)
        try:
            _check_values(values["state"])
            return cls(
                {str(role): Seat(str(name), int(player), int(actor)) for role, (name, player, actor)
                 in values["seats"].items()},
                Phase(values["phase"]),
                int(values["round"]),
                dict(values["state"]),
                _result_of(values["result"]),
            )  # fmt: skip
        except (AttributeError, KeyError, TypeError) as problem:
            raise ValueError(f"not the state of a game: {problem!r}") from None

    def hash(self) -> str:
        """Equal at two players exactly if they have the same table."""
        text = json.dumps(self.as_dict(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _check_json(before: State, after: State, result: Result | None) -> None:
    """Raises `ValueError`. What `apply` has kept as it is was checked before: large states are rarely new as a
    whole."""
    changed = {key: value for key, value in after.items() if key not in before or value is not before[key]}
    to_json([changed, result])
    _check_values(changed)


def _check_values(state: State) -> None:
    """Raises `ValueError` for what JSON would change, and for too many levels."""
    for number, level in enumerate(levels_of(state), 1):
        if number > STATE_NESTING_MAX:
            raise ValueError(f"a state has at most {STATE_NESTING_MAX} levels of lists and dictionaries")
        if any(isinstance(each, tuple) for each in level):
            raise ValueError("a state has lists instead of tuples")
        if not all(isinstance(key, str) for each in level if isinstance(each, dict) for key in each):
            raise ValueError("a dictionary in a state has text as keys")


def _result_of(values: Any) -> Result | None:
    if values is None:
        return None
    winner, text = values
    if not isinstance(winner, str | None) or not isinstance(text, str):
        raise ValueError("not the result of a game")
    return Result(winner, text)
