"""`MeetingState`: everything that a meeting has agreed on, a pure function of its entries.

No clock, no roster, no IO: every member that has applied the same entries has an equal state. Actions that are not
permitted are ignored, by all alike.
"""

from copy import copy
from dataclasses import dataclass, field, fields, replace
from math import dist

from broadloom.apps.conference.actions import (
    Action,
    Annotate,
    Arrive,
    ClosePoll,
    HandOver,
    KeepFloor,
    Leave,
    LoadPart,
    Measure,
    OpenPoll,
    Point,
    Publish,
    RaiseHand,
    ReleaseFloor,
    ReportGone,
    RequestFloor,
    SentAction,
    SetAgenda,
    SetView,
    TakeBack,
    UnloadPart,
    Value,
    Viewpoint,
    Vote,
    item_id,
)
from broadloom.apps.conference.floor import Floor

OPTIONS_MIN = 2
GUEST = "guest"
"""The name of participants that have none."""


@dataclass(frozen=True, slots=True)
class ParticipantRecord:
    name: str
    arrived_ms: int
    left_ms: int | None = None
    """None if it is still there, or was lost."""


@dataclass(frozen=True, slots=True)
class Note:
    """An annotation. Replies have the part of the note that they reply to."""

    id: str
    author: int
    at_ms: int
    part: str
    text: str
    at: Point | None
    reply_to: str | None


@dataclass(frozen=True, slots=True)
class Measurement:
    id: str
    author: int
    at_ms: int
    part: str
    start: Point
    end: Point

    @property
    def distance(self) -> float:
        return dist(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Result:
    """What a program has found out about a part: a calculation, or what a database has."""

    id: str
    author: int
    at_ms: int
    kind: str
    part: str
    values: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Poll:
    id: str
    author: int
    at_ms: int
    question: str
    options: tuple[str, ...]
    votes: dict[str, int]
    """Option by `MeetingState.voter`."""
    is_open: bool = True

    @property
    def counts(self) -> tuple[int, ...]:
        """Votes for each option."""
        given = list(self.votes.values())
        return tuple(given.count(option) for option in range(len(self.options)))


@dataclass(frozen=True, slots=True)
class Term:
    """The floor was given to a participant."""

    holder: int
    at_ms: int


@dataclass(slots=True)
class MeetingState:
    participants: dict[int, ParticipantRecord] = field(default_factory=dict)
    """All that have ever arrived, by peer id."""
    hands: dict[int, None] = field(default_factory=dict)
    """Raised hands, in the order in which they were raised. Of members that are gone, too."""
    floor: Floor = field(default_factory=Floor)
    terms: list[Term] = field(default_factory=list)
    viewpoint: Viewpoint | None = None
    parts: dict[str, int] = field(default_factory=dict)
    """Loaded parts, and who has loaded them."""
    notes: dict[str, Note] = field(default_factory=dict)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    polls: dict[str, Poll] = field(default_factory=dict)
    agenda: tuple[str, ...] = ()
    numbers: dict[int, int] = field(default_factory=dict)
    """The last action of each author."""

    def apply(self, author: int, sent: SentAction) -> bool:
        """Returns whether the action is permitted."""
        self.numbers[author] = max(sent.number, self.numbers.get(author, 0))
        term = self.floor.term
        is_done = self._apply_to_participants(author, sent.action, sent.at_ms)
        if is_done is None:
            is_done = self._apply_to_items(author, sent.action, item_id(author, sent.number), sent.at_ms)
        if self.floor.term != term and self.floor.holder is not None:
            self.terms.append(Term(self.floor.holder, sent.at_ms))
        return is_done

    def _apply_to_participants(self, author: int, action: Action, at_ms: int) -> bool | None:
        """None if the action concerns items."""
        floor, is_leader = self.floor, author == self.floor.holder
        match action:
            case Arrive(name):
                arrived_ms = self.participants[author].arrived_ms if author in self.participants else at_ms
                self.participants[author] = ParticipantRecord(name, arrived_ms)
                floor.leave(author)
            case Leave():
                if author not in self.participants:
                    return False
                self.participants[author] = replace(self.participants[author], left_ms=at_ms)
                self.hands.pop(author, None)
                floor.leave(author)
            case RaiseHand(is_up):
                self.hands.pop(author, None)
                if is_up:
                    self.hands[author] = None
            case RequestFloor():
                if not self.is_here(author):
                    return False
                floor.request(author)
            case ReleaseFloor():
                return floor.release(author)
            case HandOver(to):
                if not is_leader or not self.is_here(to):
                    return False
                floor.hand_over(author, to)
            case TakeBack():
                return floor.take_back(author)
            case KeepFloor():
                return is_leader
            case ReportGone(holder, number):
                if holder != floor.holder or number != self.numbers.get(holder, 0):
                    return False
                floor.release(holder)
            case SetView(eye, target):
                if not is_leader:
                    return False
                self.viewpoint = Viewpoint(eye, target)
            case _:
                return None
        return True

    def _apply_to_items(self, author: int, action: Action, item_id: str, at_ms: int) -> bool:
        match action:
            case LoadPart(part):
                self.parts.setdefault(part, author)
            case UnloadPart(part):
                return self.parts.pop(part, None) is not None
            case Measure(part, start, end):
                self.measurements[item_id] = Measurement(item_id, author, at_ms, part, start, end)
            case Publish(kind, part, values):
                self.results[item_id] = Result(item_id, author, at_ms, kind, part, values)
            case Annotate(part, text, at, reply_to):
                parent = self.notes.get(reply_to) if reply_to is not None else None
                if reply_to is not None and parent is None:
                    reply_to = None  # its author is gone, and the note with it: the reply stands for itself
                part = parent.part if parent is not None else part
                self.notes[item_id] = Note(item_id, author, at_ms, part, text, at, reply_to)
            case OpenPoll(question, options):
                if len(options) < OPTIONS_MIN:
                    return False
                self.polls[item_id] = Poll(item_id, author, at_ms, question, options, {})
            case Vote(poll_id, option):
                poll = self.polls.get(poll_id)
                voter = self.voter(author)
                if poll is None or not poll.is_open or option >= len(poll.options) or voter is None:
                    return False
                self.polls[poll_id] = replace(poll, votes={**poll.votes, voter: option})
            case ClosePoll(poll_id):
                poll = self.polls.get(poll_id)
                if poll is None or not poll.is_open or author not in (poll.author, self.floor.holder):
                    return False
                self.polls[poll_id] = replace(poll, is_open=False)
            case SetAgenda(items):
                self.agenda = items
        return True

    def is_here(self, peer_id: int) -> bool:
        """Whether this participant has arrived and has not left."""
        record = self.participants.get(peer_id)
        return record is not None and record.left_ms is None

    def voter(self, peer_id: int) -> str | None:
        """Under which key the votes of a participant count: its name, because one that connects again has another
        peer id. Guests have no name, so each of them counts. None if it has not arrived."""
        record = self.participants.get(peer_id)
        if record is None:
            return None
        return record.name if record.name != GUEST else f"{GUEST} {peer_id:016x}"

    def copy(self) -> "MeetingState":
        """A state that does not change any more. Items are immutable."""
        copied = {each.name: copy(getattr(self, each.name)) for each in fields(self)}
        copied["floor"] = replace(self.floor, queue=dict(self.floor.queue))
        return MeetingState(**copied)

    def name_of(self, peer_id: int) -> str:
        record = self.participants.get(peer_id)
        return record.name if record is not None else f"{peer_id:016x}"

    def replies(self) -> dict[str | None, list[Note]]:
        """Notes by the note that they reply to; those that begin a thread under None."""
        found: dict[str | None, list[Note]] = {}
        for note in self.notes.values():
            found.setdefault(note.reply_to, []).append(note)
        return found
