"""Catching up, the side that asks: say what we have, take pages, ask for more, and know when it is over.

The asker sets the pace: a holder sends a turn of pages and stops, and goes on when it is asked to. If it falls silent,
the question goes to all again. What is known to have been said and does not come is told to the application.
"""

from typing import TYPE_CHECKING

from weft.groups.events import CatchingUp, CaughtUp
from weft.groups.fields import Have
from weft.groups.intervals import Intervals
from weft.groups.limits import HAVES_MAX
from weft.groups.messages import Ask, Page
from weft.groups.names import MemberId
from weft.wire import PeerId

if TYPE_CHECKING:
    from weft.groups.conversation import Conversation
    from weft.groups.medium import Timer

JOURNEYS_S = 1.0
"""For a question to get there and an answer to come back, beside the time that the other waits."""
DIFFER_EVERY_S = 30.0
"""A difference seen in a presence is asked about so often at most."""


class Asking:
    def __init__(self, talk: "Conversation") -> None:
        self._talk = talk
        self._medium = talk.participant.medium
        self._settings = talk.participant.settings
        self.is_active = False
        self.received = 0
        """In this round of catching up."""
        self.remaining = 0
        self._question = 0
        self._rounds = 0
        self._moved = False
        """A page with something new came since the last question."""
        self._tells = False
        """The application is told of the end, even if nothing came."""
        self._timer: Timer | None = None
        self._later: Timer | None = None
        self._elsewhere: dict[MemberId, Intervals] = {}
        """What others have, by their own questions."""
        self._told_gone: dict[MemberId, Intervals] = {}
        """What the holder once had, and holds no more."""
        self._asked_at = -DIFFER_EVERY_S

    # -- beginning

    def begin(self, *, tells: bool) -> None:
        """Ask everyone."""
        self._tells = self._tells or tells
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if not self.is_active:
            self.is_active = True
            self.received = self.remaining = self._rounds = 0
            self._ask(0)

    def begin_later(self) -> None:
        """If we still lack something then: with luck another's question brings it."""
        if self._later is None and not self.is_active:
            wait_s = 2 * self._settings.answer_s + self._talk.participant.backoff_s()
            self._later = self._medium.after(wait_s, self._begin_if_lacking)

    def _begin_if_lacking(self) -> None:
        self._later = None
        if self._lacking():
            self.begin(tells=False)

    def heard_of(self, haves: dict[MemberId, Intervals]) -> None:
        """Somebody has these. What we lack of them is asked for, later, by whoever's time comes first."""
        order, lacks = self._talk.order, False
        for author, spans in haves.items():
            new = spans.minus(order.had.get(author))
            if new.count:
                lacks = True
                known = self._elsewhere.setdefault(author, Intervals())
                for first, last in new:
                    known.add_span(first, last)
        if lacks:
            if self._later is not None:
                self._later.cancel()  # another asks already: what it is sent, we hear
                self._later = None
            self.begin_later()

    def differs(self) -> None:
        """Another's messages seem not to be the same as ours."""
        now = self._medium.now()
        if now >= self._asked_at + DIFFER_EVERY_S:
            self._asked_at = now
            self.begin(tells=False)

    # -- asking

    def _ask(self, holder: PeerId) -> None:
        self._question += 1
        self._moved = False
        self._asked_at = self._medium.now()
        self._talk.participant.say(Ask(self._talk.group, self._question, holder, self._haves()))
        self._wait(self._settings.hold_s if holder else self._answered_s, self._stalled)

    @property
    def _answered_s(self) -> float:
        """Whoever has more than we has begun to answer."""
        return min(JOURNEYS_S + self._talk.participant.answers_s, self._settings.hold_s)

    def _haves(self) -> tuple[Have, ...]:
        haves, room = [], HAVES_MAX
        for author, had in self._talk.order.had.items():
            spans = tuple(had)[:room]
            room -= len(spans)
            if spans:
                haves.append(Have(author, spans))
            if room <= 0:
                break
        return tuple(haves)

    def _wait(self, delay_s: float, act: "object") -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._medium.after(delay_s, act)  # type: ignore[arg-type]

    def on_page(self, peer: PeerId, note: Page, fresh: int) -> None:
        """A page was taken; so many of its messages were new."""
        if not self.is_active:
            return
        self.received += fresh
        self._moved = self._moved or fresh > 0
        if note.asker != self._medium.me or note.question != self._question:
            return
        self.remaining = note.remaining
        for author, spans in note.gone:
            known = self._told_gone.setdefault(author, Intervals())
            for first, last in spans:
                known.add_span(first, last)
        if fresh:
            self._medium.tell(CatchingUp(self._talk.group, self.received, self.remaining))
        if not note.last:
            self._wait(self._settings.hold_s, self._stalled)
        elif note.remaining and self._moved:
            self._ask(peer)
        else:
            # The holder has no more; another may, and says so within its back-off.
            self._wait(self._answered_s, self._settle)

    def _stalled(self) -> None:
        """Nobody answers, or who did fell silent."""
        if self._moved or self.remaining:
            self._rounds = 0 if self._moved else self._rounds + 1
            if self._rounds <= self._settings.rounds_max:
                self.remaining = 0
                self._ask(0)
                return
        self._settle()

    def _settle(self) -> None:
        lacking = self._lacking()
        hoped_for = {author: spans.minus(self._told_gone.get(author)) for author, spans in lacking.items()}
        if any(spans.count for spans in hoped_for.values()) and self._rounds < self._settings.rounds_max:
            self._rounds = 0 if self._moved else self._rounds + 1
            self._ask(0)
            return
        self._end(lacking)

    def _lacking(self) -> dict[MemberId, Intervals]:
        """What must have been said, since an author's numbers have no gaps, or somebody told, and is not here."""
        order = self._talk.order
        lacking: dict[MemberId, Intervals] = {}
        for author, had in order.had.items():
            if len(had) != 1 or 1 not in had:
                self._add_lacking(lacking, author, Intervals([(1, had.last)] if had.last else []))
        for known in (self._elsewhere, self._told_gone):
            for author, spans in known.items():
                self._add_lacking(lacking, author, spans)
        return lacking

    def _add_lacking(self, lacking: dict[MemberId, Intervals], author: MemberId, spans: Intervals) -> None:
        order = self._talk.order
        rest = spans.minus(order.had.get(author)).minus(order.gone.get(author))
        if rest.count:
            known = lacking.setdefault(author, Intervals())
            for first, last in rest:
                known.add_span(first, last)

    def _end(self, lacking: dict[MemberId, Intervals]) -> None:
        self.is_active = False
        self._elsewhere.clear()
        self._told_gone.clear()
        self.remaining = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unavailable = self._talk.give_up(lacking)
        tells, self._tells = self._tells, False
        if tells or self.received or unavailable:
            self._medium.tell(CaughtUp(self._talk.group, self.received, unavailable))

    def stop(self) -> None:
        self.is_active = False
        for timer in (self._timer, self._later):
            if timer is not None:
                timer.cancel()
        self._timer = self._later = None
