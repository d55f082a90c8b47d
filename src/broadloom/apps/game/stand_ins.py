"""`StandIns`: the automatons of one member, which act for roles whose actor is gone.

Which member replaces an actor follows from the roster; which one has done it, from the history: at each of its places,
a role has one actor.
"""

import hashlib
import logging
from typing import TYPE_CHECKING

from broadloom.apps.game.chance import Chance
from broadloom.apps.game.entry import Entry, Kind
from broadloom.apps.game.game import State

if TYPE_CHECKING:
    from broadloom.apps.game.participant import Participant

log = logging.getLogger("broadloom")

ABSENT_S = 0.5
"""An actor that is missing in the roster for this long is replaced."""
RETURNING_S = 2.0
"""One that takes a role while it is missing is back after a freeze or a partition: the roster lists it soon."""
CHECK_S = 0.5
"""A member that should have replaced it this long ago is asked whether it plays this game."""


class StandIns:
    def __init__(self, participant: "Participant") -> None:
        self._participant = participant
        self._replace_at: dict[tuple[str, int], float] = {}
        """Roles with an actor that is missing."""
        self._members: list[int] | None = None
        """At the last check."""
        self._next_act_at: dict[str, float] = {}
        self._has_failed = False
        """Whether the automaton of this game has raised: that is logged once."""

    def replace_absent(self, members: list[int], now: float) -> None:
        seats, me = self._participant.table.seats, self._participant.runtime.peer_id
        vacant = [(role, seat.actor) for role, seat in seats.items() if seat.actor not in members]
        before, self._members = self._members or [actor for _, actor in vacant], members
        self._replace_at = {
            (role, actor): self._replace_at.get(
                (role, actor), now + (RETURNING_S if actor and actor not in before else ABSENT_S)
            )
            for role, actor in vacant
        }
        for (role, actor), replace_at in self._replace_at.items():
            if now < replace_at:
                continue
            if (chosen := stand_in_for(role, members)) == me:
                entry = (Kind.STAND_IN, role, "", {"instead_of": actor})
                self._participant.submit_or_skip(("stand in", role, actor), entry)
            elif now >= replace_at + CHECK_S:
                self._participant.introduction.check(chosen)

    def act(self, now: float) -> None:
        """For the roles that this member stands in for, while there is a player to play with."""
        participant, table = self._participant, self._participant.table
        me = participant.runtime.peer_id
        mine = [role for role, seat in table.seats.items() if seat.actor == me and seat.is_stood_in]
        due = [role for role in mine if now >= self._next_act_at.get(role, 0.0)]
        if not due or not participant.has_players:
            return
        for role in due:
            if (entry := self._entry_for(role, table.state)) is not None:
                self._next_act_at[role] = now + participant.game.pace_s
                participant.submit(entry)

    def _entry_for(self, role: str, state: State) -> Entry | None:
        participant, timeline = self._participant, self._participant.timeline
        try:
            chance = Chance(timeline.seed, "stand-in", role, *timeline.tip_key)
            action = participant.game.stand_in(state, role, chance)
            return participant.new_entry(Kind.ACT, role, *action) if action is not None else None
        except Exception:  # of a game that does not come with Broadloom: other roles act, and its players play on
            if not self._has_failed:
                log.exception("%s: the stand-in for %s failed, and does not act", participant.game.title, role)
            self._has_failed = True
            return None


def stand_in_for(role: str, members: list[int]) -> int:
    """The member that stands in for a role: the one with the smallest hash of role and id."""
    return min(members, key=lambda each: hashlib.sha256(f"{role}\0{each:016x}".encode()).digest())
