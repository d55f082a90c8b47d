"""`Seating`: a player takes the role that it wants, and keeps it."""

from typing import TYPE_CHECKING

from broadloom.apps.game.entry import Kind

if TYPE_CHECKING:
    from broadloom.apps.game.participant import Participant

ANY_ROLE = "*"
NAMESAKE_S = 3.0
"""How long a player waits for a role whose player has the same name and is there: after a crash, that is itself."""


class Seating:
    def __init__(self, participant: "Participant", name: str, wanted: str) -> None:
        self._participant = participant
        self.name = name
        self.wanted = wanted
        """The role that the player wants, `ANY_ROLE`, or empty for a spectator."""
        self.has_sat = False
        self._namesake_since: float | None = None

    @property
    def has_namesake(self) -> bool:
        """Whether another program has the role, under the name of this player, and stays."""
        now = self._participant.runtime.now()
        return self._namesake_since is not None and now >= self._namesake_since + NAMESAKE_S

    def want(self, role: str, name: str) -> None:
        self.wanted, self.name, self.has_sat = role, name, False

    def want_nothing(self) -> None:
        self.wanted = ""

    def sit(self, members: list[int]) -> None:
        """Called several times a second."""
        participant, role, me = self._participant, self.wanted, self._participant.runtime.peer_id
        seats = participant.table.seats
        namesake_since, self._namesake_since = self._namesake_since, None
        if not role:
            if (held := participant.table.role_of(me)) is not None:  # ordered after nobody wanted it any longer
                participant.submit_or_skip(("leave", held), (Kind.LEAVE, held, "", {"player": me}))
            return
        if role == ANY_ROLE:
            mine = next((each for each, seat in seats.items() if seat.name == self.name), None)
            role = mine or next(iter(participant.table.open_roles()), "")
            if not role and not participant.has_players:
                role, absent = next(iter(seats.items()))  # all players are gone: begin with their roles
                entry = (Kind.LEAVE, role, "", {"player": absent.player})
                participant.submit_or_skip(("free", role, absent.player), entry)
                return
        seat = seats.get(role)
        if seat is None:
            return
        if seat.actor == me and seat.player == me:
            self.has_sat, self.wanted = True, role
        elif seat.name == self.name and seat.player in members and seat.player != me:
            if self.has_sat:
                self.wanted = ""  # two programs with this name took the role at once, or on two sides of a partition
            else:
                self._namesake_since = participant.runtime.now() if namesake_since is None else namesake_since
        elif seat.name in ("", self.name):
            participant.submit_or_skip(("sit", role), (Kind.SIT, role, self.name, {}))
        elif self.has_sat:
            self.wanted = ANY_ROLE  # another player took the role on the other side of a partition
