"""`Introduction`: a newcomer finds out which game the others play, because a channel has one.

The answer of a member that has been introduced itself decides. Among programs that start at the same moment there is
none: then the one with the smallest id decides.

Only on two sides of a partition can two games begin. Both go on when they meet, and the members of one do not count in
the other. A member is known by its answer and by what it broadcasts. Those on which something depends are asked.
"""

from typing import TYPE_CHECKING, NamedTuple

from broadloom.apps.game.entry import decode_message, to_json
from broadloom.apps.game.game import is_identity

if TYPE_CHECKING:
    from broadloom.apps.game.participant import Participant

ASK_TIMEOUT_S = 5.0
ASKED_AT_ONCE_MAX = 4
"""One by one would take long if many programs start together, and all of them many connections for one newcomer."""
ALONE_S = 1.0
"""A member that sees no other one for this long is the first: that of a program that started together with it is
listed by then."""


class Answer(NamedTuple):
    identity: str
    is_introduced: bool


class Introduction:
    def __init__(self, participant: "Participant") -> None:
        self._participant = participant
        self._answers: dict[int, Answer | None] = {}
        """Of the members that were asked; None without an answer."""
        self._pending_count = 0
        self._alone_since: float | None = None
        self._is_over = self._is_introduced = False
        self._is_elsewhere: dict[int, bool] = {}
        """Whether a member plays another game, as far as that is known."""

    def playing_here(self, members: list[int]) -> list[int]:
        """Without those that are known to play another game."""
        return [each for each in members if not self._is_elsewhere.get(each)]

    def note(self, member: int, identity: object) -> None:
        """A member says which game it plays."""
        self._is_elsewhere[member] = identity != self._participant.identity

    def check(self, member: int) -> None:
        """Ask a member on which something depends whether it plays this game."""
        if not self._is_over or member == self._participant.runtime.peer_id or member in self._is_elsewhere:
            return
        if self._participant.may_try(("check", member)):
            self._request(member)

    def ask(self, members: list[int]) -> None:
        """Called several times a second: a few other members are asked each time, until one decides; after that the
        first one, whose state may count."""
        self._is_elsewhere = {each: self._is_elsewhere[each] for each in members if each in self._is_elsewhere}
        if self._is_over:
            self.check(min(self.playing_here(members), default=self._participant.runtime.peer_id))
            return
        runtime = self._participant.runtime
        others = [each for each in members if each != runtime.peer_id]
        if not others:
            now = runtime.now()
            self._alone_since = now if self._alone_since is None else self._alone_since
            if now >= self._alone_since + ALONE_S:
                self._end(self._participant.identity)
            return
        if unasked := [each for each in others if each not in self._answers]:
            for each in sorted(unasked)[:ASKED_AT_ONCE_MAX]:
                self._request(each)
        elif not self._pending_count:
            self._decide(others)

    def answer(self) -> bytes:
        return to_json({"game": self._participant.identity, "is_introduced": self._is_introduced})

    def _request(self, other: int) -> None:
        self._answers[other] = None
        self._pending_count += 1
        question = to_json({"game": self._participant.identity})
        self._participant.runtime.request(other, question, ASK_TIMEOUT_S, lambda data: self._on_answer(other, data))

    def _on_answer(self, other: int, data: bytes | None) -> None:
        self._pending_count -= 1
        match decode_message(data or b""):
            case {"game": str(identity), "is_introduced": bool(is_introduced)} if is_identity(identity):
                self._answers[other] = Answer(identity, is_introduced)
                self.note(other, identity)
                if is_introduced and not self._is_over:
                    self._end(identity)

    def _decide(self, others: list[int]) -> None:
        """All have answered, or cannot, and none of them was introduced."""
        found = {each: answer for each in others if (answer := self._answers[each]) is not None}
        first = min(found, default=self._participant.runtime.peer_id)
        self._end(found[first].identity if first < self._participant.runtime.peer_id else self._participant.identity)

    def _end(self, identity: str) -> None:
        self._is_over = True
        self._is_introduced = identity == self._participant.identity
        if not self._is_introduced and not self._participant.is_closed:
            self._participant.runtime.on_other_game(identity)
