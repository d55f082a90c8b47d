"""The promises of Weft, checked while a lab runs.

Each peer checks by itself what it is given, at each delivery: once, in order, no gap (`ledger.py`). What must be
compared between peers is compared every second or two: what each author had sent a moment ago has to be with everyone
who was there. What is late is not lost: while a part is frozen or apart, and for a while after, it is on its way.

Judged as in a trial (`trial.audit.owed`): a living author's messages are owed to everyone who was a member when they
were sent; those of one that left in peace as well; a dead one's as far as any survivor has them.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.lab import shape
from weft.trial.audit import Gone, owed
from weft.trial.ledger import Head

if TYPE_CHECKING:
    from weft.lab.figures import Figures
    from weft.lab.repairs import Repairs
    from weft.lab.roster import Roster

DUE_S = 2.0
"""What was sent so long ago should be with everyone, if nothing is wrong."""
LOST_S = 60.0
"""What is still lacking so long after the fabric was whole is not late any more."""
REPAIR_S = 120.0
"""A fabric that is not whole so long after it was disturbed has broken its promise."""
TOLD_MAX = 20
GONE_KEPT_MAX = 5000
DEATHS_KEPT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Promise:
    name: str
    holds: bool
    sentence: str
    """For people, with the counts: "12,345 deliveries checked, 0 wrong"."""
    is_pending: bool = False
    """It holds so far, and something is under way that it will be judged by: a repair, messages on their way."""


class Promises:
    """What is known of who said what, and what was found wrong."""

    def __init__(self) -> None:
        self.wrong = 0
        self.broken: deque[str] = deque(maxlen=TOLD_MAX)
        """In words."""
        self.faults: deque[str] = deque(maxlen=TOLD_MAX)
        """Exceptions inside peers that nobody caught, processes that ended by themselves."""
        self.fault_count = 0
        self.lost = 0
        self.lacking = 0
        """Messages, or rather authors and receivers, that are behind at present."""
        self.lacking_told: list[str] = []
        self.compared = 0
        """Pairs of author and receiver that were compared, since the beginning."""
        self.overfull = 0
        self._wrong_by: dict[int, int] = {}
        self._marks: dict[int, Head] = {}
        self._gone: dict[int, Gone] = {}
        self._deaths_ns: deque[int] = deque(maxlen=DEATHS_KEPT_MAX)
        self._rolls: deque[tuple[float, dict[int, Head]]] = deque()
        self._due: dict[int, Head] = {}
        self._lacking_since_s: float | None = None

    # -- told by processes

    def counted(self, hand: int, told: dict[str, Any]) -> None:
        for peer, sent, sent_ns in told["marks"]:
            self._marks[peer] = Head(sent, sent_ns)
        count = told["broken_count"]
        self.wrong += count - self._wrong_by.get(hand, 0)
        self._wrong_by[hand] = count

    def fault(self, text: str) -> None:
        self.fault_count += 1
        self.faults.append(text)

    def went(self, peer: int, *, in_good_order: bool, sent: int = 0, sent_ns: int = 0) -> None:
        at_ns = time.monotonic_ns()
        if not in_good_order:
            self._deaths_ns.append(at_ns)
        elif sent:
            self._marks[peer] = Head(sent, sent_ns)
        self._gone[peer] = Gone(in_good_order, at_ns, sent, sent_ns)
        if len(self._gone) > GONE_KEPT_MAX:
            forgotten = next(iter(self._gone))
            del self._gone[forgotten]
            self._marks.pop(forgotten, None)

    @property
    def gone(self) -> list[int]:
        return list(self._gone)

    # -- comparing

    def roll(self, heads: list[dict[str, Any]]) -> list[list[int]]:
        """What should be with everyone by now: author, last message, when that was sent. `heads` is what everyone has
        said and heard (`trial.testimony.heads`)."""
        now_s = time.monotonic()
        self._rolls.append((now_s, self._owed(heads)))
        while self._rolls and now_s - self._rolls[0][0] >= DUE_S:
            self._due = self._rolls.popleft()[1]
        return _plain(self._due)

    def exact_roll(self, heads: list[dict[str, Any]]) -> list[list[int]]:
        """The same with all that was said up to now."""
        return _plain(self._owed(heads))

    def _owed(self, heads: list[dict[str, Any]]) -> dict[int, Head]:
        for answer in heads:
            for peer, sent, sent_ns in answer["living"]:
                self._marks[peer] = Head(sent, sent_ns)
        living = {peer: head for peer, head in self._marks.items() if peer not in self._gone}
        held = {}
        for peer, last, _ in (each for answer in heads for each in answer["gone"]):
            mark = self._marks.get(peer)
            # Further than it could tell before it died, it is not known when it was sent, and so to whom it is owed.
            if mark is not None and last >= mark.last:
                held[peer] = mark
        return owed(living, self._gone, held, self._deaths_ns)

    def checked(self, answers: list[dict[str, Any]], *, is_calm: bool) -> None:
        """What everyone lacks of the roll. `is_calm`: nobody is frozen, nothing apart, the fabric whole."""
        self.compared += sum(answer["pairs"] for answer in answers)
        self.lacking = sum(answer["lacking_count"] for answer in answers)
        self.lacking_told = [text for answer in answers for text in answer["lacking"]][:TOLD_MAX]
        now_s = time.monotonic()
        if not self.lacking or not is_calm:
            self._lacking_since_s = None
            if not self.lacking:
                self.lost = 0
        elif self._lacking_since_s is None:
            self._lacking_since_s = now_s
        elif now_s - self._lacking_since_s > LOST_S:
            self.lost = self.lacking


def _plain(roll: dict[int, Head]) -> list[list[int]]:
    return [[author, head.last, head.last_ns] for author, head in roll.items()]


def told(
    found: Promises, figures: "Figures", roster: "Roster", repairs: "Repairs", degree: int, *, is_split: bool
) -> list[Promise]:
    """Each promise, whether it holds, and a sentence with the counts."""
    return [
        _once_in_order(found, figures),
        _everything(found),
        _told_of_missed(figures),
        _links(found, roster, repairs, degree),
        _one_fabric(roster, repairs, is_split=is_split),
    ]


def _once_in_order(found: Promises, figures: "Figures") -> Promise:
    text = f"{figures.delivered:,} deliveries checked, {found.wrong:,} wrong"
    if found.broken:
        text += f": {found.broken[0]}"
    return Promise("Every message once, each author's in order", not found.wrong, text)


def _everything(found: Promises) -> Promise:
    text = f"{found.compared:,} times an author and a receiver were compared"
    if found.lost:
        text += f"; {found.lost:,} lack something: {'; '.join(found.lacking_told[:2])}"
    elif found.lacking:
        text += f"; {found.lacking:,} wait for messages that are on their way"
    else:
        text += ", nothing is lacking"
    return Promise("Everyone who was there gets everything", not found.lost, text, bool(found.lacking))


def _told_of_missed(figures: "Figures") -> Promise:
    """A gap that was not told is one of those that are wrong above."""
    text = (
        f"{figures.missed:,} messages could not be had in time, and each was told"
        if figures.missed
        else ("no message had to be given up")
    )
    return Promise("Nothing is lost silently", True, text)


def _links(found: Promises, roster: "Roster", repairs: "Repairs", degree: int) -> Promise:
    members = roster.members
    over, holes = shape.overfull(members, degree), sum(shape.holes(members, degree).values())
    late = holes > 0 and repairs.restless_s > REPAIR_S
    if found.overfull or over:
        text = f"{found.overfull:,} times somebody had more than {degree}"
    elif holes:
        text = f"{holes} links are lacking; repair is under way since {repairs.restless_s:.1f} s"
    else:
        fewest = min((len(view.neighbours) for view in members.values()), default=0)
        text = f"all {len(members)} peers have {degree if fewest >= degree else 'as many as there are others'}"
    return Promise(f"Everyone keeps {degree} links, never more", not (late or found.overfull or over), text, holes > 0)


def _one_fabric(roster: "Roster", repairs: "Repairs", *, is_split: bool) -> Promise:
    sizes = shape.parts(roster.members)
    if len(sizes) <= 1:
        return Promise("One fabric", True, f"all {sum(sizes)} peers can be reached from each other")
    text = f"{len(sizes)} parts, of {', '.join(map(str, sizes[:6]))} peers"
    if is_split:
        return Promise("One fabric", True, f"{text}: split on purpose; they merge when that is healed", True)
    late = repairs.restless_s > REPAIR_S
    return Promise("One fabric", not late, f"{text}: they look for each other", True)
