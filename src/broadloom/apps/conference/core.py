"""`MeetingCore`: one program's part in a meeting, without IO. It applies entries, knows whether this program leads, and
says what the program has to submit by itself.

- **A leader that is gone** is reported by the sequencer, which is one program at a time, so it is reported once. The
  report counts only if nothing was heard of the leader that the reporter did not know: after a partition a report of
  the other side is ordered again, and must not depose a leader that is there.
- **A leader that others may have lost** says so (`KeepFloor`), because members are missing in its own roster.
- **A leader that is asked to give the floor back** hands it over.

This program leads if the entries say so, no action of its own that gives the floor away is under way, and the last
report or rewind is a moment ago: a leader that was reported gone by mistake has got the entry by then.
"""

from collections.abc import Callable
from typing import NamedTuple

from broadloom.apps.conference.actions import (
    GIVE_AWAY,
    Action,
    HandOver,
    KeepFloor,
    ReportGone,
    SentAction,
    decode,
    encode,
)
from broadloom.apps.conference.state import MeetingState
from broadloom.order.model import Entry, Rewound

KEEP_INTERVAL_S = 1.0
"""A leader says at most this often that it is there."""
EPOCH_GRACE_S = 1.0
"""After a merge the rosters of the two sides become one only after the orders have. A new sequencer waits for this."""
HEARD_GRACE_S = 1.5
"""A participant of which an entry came in this time is not gone, even if the roster does not have it, or its layer,
yet."""
PRESENCE_INTERVAL_S = 1.0
"""The sequencer looks this often whether the leader is there: no event says that it has only left the meeting."""
HOLD_S = 1.0
"""Nobody leads for this long after a leader was reported gone, or after a rewind."""


class Done(NamedTuple):
    """An action at its place in the order."""

    author: int
    sent: SentAction
    is_permitted: bool
    was_leader: bool
    """The author had the floor before."""


class Duties(NamedTuple):
    actions: list[Action]
    """To be submitted now."""
    again_in_s: float | None
    """Ask again after this time."""


class MeetingCore:
    def __init__(self, me: int) -> None:
        self.me = me
        self.state = MeetingState()
        self._entries: list[tuple[int, int, SentAction]] = []
        """Index, author and action: to apply them again after a rewind."""
        self._last_number = 0
        self._giving_away: dict[int, None] = {}
        """Own actions that give the floor away, submitted and not ordered."""
        self._has_lost_members = False
        self._kept_at = float("-inf")
        self._epoch: object = None
        self._epoch_since = 0.0
        self._heard_at: dict[int, float] = {}
        """The time of the last entry of each author."""
        self._held_until = float("-inf")
        self._reported: tuple[object, int, int] | None = None
        """Epoch, term of the floor and last action of its holder: to report it once."""

    def is_leader(self, now: float) -> bool:
        return self.state.floor.holder == self.me and not self._giving_away and now >= self._held_until

    def prepare(self, action: Action, at_ms: int) -> tuple[int, bytes]:
        """Number and encoding of an action of this program, which submits it now. Raises `ValueError` if it cannot be
        encoded."""
        # On a channel on which this program was in the meeting before, its numbers continue.
        number = max(self._last_number, self.state.numbers.get(self.me, 0)) + 1
        sent = SentAction(number, at_ms, action)
        data = encode(sent)
        self._last_number = sent.number
        if isinstance(action, GIVE_AWAY):
            self._giving_away[sent.number] = None
        return sent.number, data

    def withdraw(self, number: int) -> None:
        """This action was not submitted."""
        self._giving_away.pop(number, None)

    # -- what the order reports

    def on_entry(self, entry: Entry, now: float) -> Done | None:
        sent = decode(entry.data)
        if sent is None:
            return None
        self._entries.append((entry.index, entry.author, sent))
        if entry.author == self.me:
            self._giving_away.pop(sent.number, None)
        was_leader = self.state.floor.holder == entry.author
        is_permitted = self.state.apply(entry.author, sent)
        if isinstance(sent.action, ReportGone) and is_permitted:
            self._held_until = now + HOLD_S
        self._heard_at[entry.author] = now
        return Done(entry.author, sent, is_permitted, was_leader)

    def on_rewound(self, rewound: Rewound, now: float) -> None:
        """Our own revoked actions are ordered again."""
        while self._entries and self._entries[-1][0] > rewound.to_index:
            _, author, sent = self._entries.pop()
            if author == self.me and isinstance(sent.action, GIVE_AWAY):
                self._giving_away[sent.number] = None
        self.state = MeetingState()
        for _, author, sent in self._entries:
            self.state.apply(author, sent)
        self._held_until = now + HOLD_S

    def on_member_lost(self) -> None:
        self._has_lost_members = True

    def was_heard(self, peer_id: int, now: float) -> bool:
        """Whether an entry of this participant came a moment ago."""
        return now < self._heard_at.get(peer_id, float("-inf")) + HEARD_GRACE_S

    # -- what this program has to do

    def duties(self, now: float, epoch: object, *, is_sequencer: bool, is_present: Callable[[int], bool]) -> Duties:
        if epoch != self._epoch:
            self._epoch, self._epoch_since = epoch, now
        floor = self.state.floor
        if floor.holder == self.me:
            return self._duties_of_leader(now)
        self._has_lost_members = False
        if floor.holder is None or not is_sequencer:
            return Duties([], None)
        if is_present(floor.holder):
            return Duties([], PRESENCE_INTERVAL_S)
        heard_at = self._heard_at.get(floor.holder, float("-inf"))
        wait_s = max(self._epoch_since + EPOCH_GRACE_S, heard_at + HEARD_GRACE_S) - now
        if wait_s > 0:
            return Duties([], wait_s)
        number = self.state.numbers.get(floor.holder, 0)
        report = (epoch, floor.term, number)
        if report == self._reported:
            return Duties([], None)
        self._reported = report
        return Duties([ReportGone(floor.holder, number)], None)

    def _duties_of_leader(self, now: float) -> Duties:
        floor = self.state.floor
        if self._giving_away:
            return Duties([], None)
        if now < self._held_until:
            return Duties([], self._held_until - now)
        if floor.is_recalled and floor.lender is not None:
            return Duties([HandOver(floor.lender)], None)
        if not self._has_lost_members:
            return Duties([], None)
        wait_s = self._kept_at + KEEP_INTERVAL_S - now
        if wait_s > 0:
            return Duties([], wait_s)
        self._kept_at, self._has_lost_members = now, False
        return Duties([KeepFloor()], None)
