"""Discovery: who arrives says so, and hears of all groups; lists that differ are made equal.

An arrival tells hashes of what the newcomer knows already. Everyone who finds a difference would answer; each waits for
a random time and keeps quiet if an answer makes its own needless: one of the same lists, or one that, with what else
was heard meanwhile, leaves nothing to add. After the answer, the newcomer says what only it knew. The same exchange is
started by anybody who sees, from the hash in a presence, that its lists differ from another's and stay so.
"""

from typing import TYPE_CHECKING

from weft.groups.directory import Change, pages
from weft.groups.events import Greeted
from weft.groups.fields import Roster, Stand, unpack_rosters
from weft.groups.limits import BUCKETS_MAX, ENTRIES_MAX, PENDING_MAX
from weft.groups.messages import Arrival, Listing, Presence, Standing
from weft.groups.names import GroupId, MemberId
from weft.wire import PeerId
from weft.wire.errors import WireError

if TYPE_CHECKING:
    from weft.groups.medium import Timer
    from weft.groups.participant import Participant

HASHES_KEPT = 256
"""Our own lists were like this lately: whoever's are, is only a little behind."""
AGAIN_S = 30.0
"""Who arrives again within this time, knowing the same, waits twice as long for the answer each time."""
STRIKES_MAX = 6
COMPARE_EVERY_S = 20.0
"""A difference seen in a presence is looked into so often at most."""


class _Pending:
    """An arrival that we would answer."""

    __slots__ = ("answered", "differing", "empty", "of", "since", "timer")

    def __init__(self, of: int, differing: list[int], empty: bool, since: float, timer: "Timer") -> None:
        self.of = of
        """Buckets that the asker gave."""
        self.differing = differing
        self.empty = empty
        """The asker knows nothing."""
        self.since = since
        self.timer = timer
        self.answered = False
        """Somebody's answer was heard to its end."""


class Discovery:
    def __init__(self, participant: "Participant") -> None:
        self._part = participant
        self._medium = participant.medium
        self._settings = participant.settings
        self._directory = participant.directory
        self._pending: dict[PeerId, _Pending] = {}
        self._heard: dict[GroupId, dict[MemberId, tuple[int, float]]] = {}
        """What was said of groups while somebody waits for an answer: step and time."""
        self._charters: dict[GroupId, float] = {}
        self._strikes: dict[PeerId, tuple[float, int, int]] = {}
        """When a peer arrived last, what it knew, and how often it has come again."""
        self._hashes: dict[int, None] = {}
        self._compare: Timer | None = None
        self._compared_at = -COMPARE_EVERY_S
        self._exchanged_at = -COMPARE_EVERY_S
        """An arrival or a listing was heard."""
        self._asked_at = -COMPARE_EVERY_S
        """Our own arrival, or comparison."""
        self.is_greeted = False
        """Somebody has answered it."""

    # -- arriving

    def arrive(self, *, first: bool) -> None:
        me, directory = self._part.me, self._directory
        self._exchanged_at = self._asked_at = self._medium.now()
        self._part.say(Arrival(me.id, me.name, first, directory.fold(directory.buckets_wanted)))

    def on_arrival(self, peer: PeerId, note: Arrival) -> None:
        count = len(note.buckets)
        if not count or count & (count - 1) or count > BUCKETS_MAX:
            raise WireError(f"{count} buckets are no power of two")
        self._exchanged_at = self._medium.now()
        old = self._pending.pop(peer, None)
        if old is not None:
            old.timer.cancel()
        differing = self._directory.differing(note.buckets)
        if not differing or len(self._pending) >= PENDING_MAX:
            return
        wait_s = self._part.backoff_s() + self._penalty_s(peer, hash(note.buckets))
        timer = self._medium.after(wait_s, self._answer, peer)
        empty = not any(note.buckets)
        self._pending[peer] = _Pending(count, differing, empty, self._medium.now(), timer)

    def _penalty_s(self, peer: PeerId, known: int) -> float:
        now = self._medium.now()
        before, knew, strikes = self._strikes.pop(peer, (0.0, known, -1))
        strikes = min(strikes + 1, STRIKES_MAX) if known == knew and now < before + AGAIN_S else 0
        self._strikes[peer] = (now, known, strikes)
        if len(self._strikes) > PENDING_MAX:
            del self._strikes[next(iter(self._strikes))]
        return float(2**strikes - 1) if strikes > 1 else 0.0

    # -- answering

    def _answer(self, peer: PeerId) -> None:
        wait_s = self._part.budget.wait_s(self._medium.now())
        if wait_s:
            self._pending[peer].timer = self._medium.after(wait_s, self._answer, peer)
            return
        pending = self._pending.pop(peer)
        surplus = self._unsaid(pending.differing, pending.of, pending.since)
        if surplus or not pending.answered:
            self._list(surplus, asker=peer, whole=pending.empty, buckets=self._directory.fold(pending.of))
        self._forget_heard()

    def _unsaid(self, numbers: list[int], of: int, since: float) -> list[Roster]:
        """What we know in these buckets and nobody has said since."""
        unsaid: list[Roster] = []
        for group in self._directory.groups_in(numbers, of):
            roster = self._directory.roster(group)
            heard = self._heard.get(group)
            if heard is None:
                unsaid.append(roster)
                continue
            stands = tuple(each for each in roster.stands if not _was_said(each, heard, since))
            charter = roster.charter if self._charters.get(group, -1.0) < since else None
            if stands or charter is not None:
                unsaid.append(Roster(group, charter, stands))
        return unsaid

    def _list(self, rosters: list[Roster], *, asker: PeerId, whole: bool, buckets: tuple[int, ...]) -> None:
        bodies = list(pages(rosters, self._settings.page_bytes))
        gone = self._part.attendance.gone[:ENTRIES_MAX] if asker else ()
        for number, body in enumerate(bodies):
            last = number == len(bodies) - 1
            self._part.budget.spend(len(body), self._medium.now())
            lists = self._directory.hash
            self._part.say(
                Listing(
                    asker,
                    lists,
                    whole,
                    last,
                    self._part.attendance.peers_about,
                    buckets if last else (),
                    gone if number == 0 else (),
                    body,
                )
            )

    def found(self, group: GroupId) -> None:
        """A group that we have just created."""
        self._part.say_roster(self._directory.roster(group))

    def on_listing(self, peer: PeerId, note: Listing) -> None:
        self._exchanged_at = self._medium.now()
        mine = self._medium.me
        self._part.budget.spend(len(note.body), self._medium.now())
        if note.lists == self._directory.hash:
            self._same_was_said(note)
        else:
            self.merge(unpack_rosters(note.body))
        pending = self._pending.get(note.asker)
        if pending is not None and note.last:
            pending.answered = True
        if note.asker == mine:
            self._part.attendance.hinted_gone(note.gone, self._asked_at)
            self._part.attendance.told_listeners(note.peers)
            if note.last and note.lists != self._directory.hash:
                self._say_surplus(note.buckets)
            if note.last and not self.is_greeted:
                self.is_greeted = True
                self._medium.tell(Greeted(len(self._part.groups())))
        self._forget_heard()

    def _same_was_said(self, note: Listing) -> None:
        """By one whose lists are ours: nothing for us, and nothing to add for whoever is answered by it."""
        if not note.last:
            return
        for peer, pending in list(self._pending.items()):
            if peer == note.asker or (note.whole and note.asker):
                pending.timer.cancel()
                del self._pending[peer]

    def _say_surplus(self, buckets: tuple[int, ...]) -> None:
        """What only we know, beyond the one who answered us."""
        count = len(buckets)
        if not count or count & (count - 1):
            return
        differing = self._directory.differing(buckets)
        surplus = self._unsaid(differing, count, self._asked_at)
        if surplus:
            self._list(surplus, asker=0, whole=False, buckets=())

    # -- merging

    def merge(self, rosters: tuple[Roster, ...]) -> None:
        now = self._medium.now()
        keeps_record = bool(self._pending) or now < self._asked_at + 4 * self._settings.answer_s
        before = self._directory.refused
        for roster in rosters:
            if keeps_record:
                heard = self._heard.setdefault(roster.group, {})
                for stand in roster.stands:
                    heard[stand.member] = (stand.step, now)
                if roster.charter is not None:
                    self._charters[roster.group] = now
            change = self._directory.merge(roster)
            if change is not None:
                self._changed(change)
        if self._directory.refused > before:
            self._part.refuse("more groups or members than are kept track of")

    def _changed(self, change: Change) -> None:
        self._hashes[self._directory.hash] = None
        if len(self._hashes) > HASHES_KEPT:
            del self._hashes[next(iter(self._hashes))]
        self._part.on_change(change)

    def on_standing(self, peer: PeerId, note: Standing) -> None:
        self.merge((Roster(note.group, None, (Stand(note.member, note.name, note.step),)),))

    def _forget_heard(self) -> None:
        if not self._pending and self._medium.now() > self._asked_at + 4 * self._settings.answer_s:
            self._heard.clear()
            self._charters.clear()

    # -- comparing

    def on_presence(self, peer: PeerId, note: Presence) -> None:
        """Differences of a moment are natural; one that stays is looked into, by whoever's time comes first."""
        lists = note.lists
        if lists == self._directory.hash or lists in self._hashes or self._compare is not None:
            return
        now = self._medium.now()
        wait_s = self._part.backoff_s() + max(2 * self._settings.answer_s, self._compared_at + COMPARE_EVERY_S - now)
        self._compare = self._medium.after(wait_s, self._compared, lists, now)

    def _compared(self, lists: int, since: float) -> None:
        self._compare = None
        if lists != self._directory.hash and lists not in self._hashes and self._exchanged_at <= since:
            self._compared_at = self._medium.now()
            self.arrive(first=False)


def _was_said(stand: Stand, heard: dict[MemberId, tuple[int, float]], since: float) -> bool:
    step, at = heard.get(stand.member, (0, 0.0))
    return step >= stand.step and at >= since
