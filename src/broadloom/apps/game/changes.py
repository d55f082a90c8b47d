"""What a program learns from a game: iterate over a `Play` to get them."""

from collections.abc import Iterator
from typing import NamedTuple

from broadloom.apps.game.game import Action, Result
from broadloom.apps.game.table import Phase, Table
from broadloom.apps.missed import Missed


class Arrived(NamedTuple):
    """A player has taken a role."""

    role: str
    name: str


class Left(NamedTuple):
    """A player has given up its role."""

    role: str
    name: str


class StoodIn(NamedTuple):
    """A member's automaton acts for this role."""

    role: str
    actor: int


class Back(NamedTuple):
    """The player acts for its role itself again."""

    role: str
    name: str


class Started(NamedTuple):
    round: int


class Acted(NamedTuple):
    role: str
    action: Action


class Refused(NamedTuple):
    """An action of this program has no effect: an earlier one of another player made it illegal."""

    action: Action
    reason: str


class Over(NamedTuple):
    result: Result


class Rewound(NamedTuple):
    """Some actions were taken back: the game goes on as the larger side of a partition played it."""

    reason: str


class Diverged(NamedTuple):
    """This program had another state than the others; it continues with theirs."""

    reason: str


class Said(NamedTuple):
    """A message from another player to this one."""

    name: str
    peer_id: int
    text: str


Change = Arrived | Left | StoodIn | Back | Started | Acted | Refused | Over | Rewound | Diverged | Said | Missed


def changes_between(before: Table, after: Table) -> Iterator[Change]:
    """What is different in the seats and the phase."""
    is_same = after.seats is before.seats  # actions do not change them
    for role, seat in () if is_same else after.seats.items():
        old = before.seats[role]
        if old.name and old.name != seat.name:
            yield Left(role, old.name)
        if seat.name and old.name != seat.name:
            yield Arrived(role, seat.name)
        if seat.is_stood_in and seat.actor != old.actor:
            yield StoodIn(role, seat.actor)
        elif seat.name == old.name and seat.actor == seat.player != 0 and old.actor != seat.actor:
            yield Back(role, seat.name)
    if after.round > before.round:
        yield Started(after.round)
    if after.result is not None and after.result != before.result and after.phase is Phase.OVER:
        yield Over(after.result)
