"""Who is there. Each member says so now and then; who dies without a word is noticed.

Two ways lead to it. A neighbour of the dead peer loses its link and says so (`Suspect`); if the suspect does not speak
up, all show its member as gone, within seconds. If all its neighbours died too, its silence tells, after some of its
periods. With many members each speaks less often, so that the channel carries a fixed number of such messages a second,
not one for each member.

What this part says of a member is an opinion, and changes when the member is heard again; the lists of a group do not
depend on it.
"""

from typing import TYPE_CHECKING

from weft.groups.backoff import MANY, backoff_s
from weft.groups.events import MemberBack, MemberGone
from weft.groups.limits import PEERS_MAX, PENDING_MAX, SUSPECTS_MAX
from weft.groups.messages import Farewell, Presence, Suspect
from weft.groups.names import Member, MemberId
from weft.wire import PeerId

if TYPE_CHECKING:
    from weft.groups.medium import Timer
    from weft.groups.participant import Participant

HOLDINGS_TOLD = 64
"""Groups whose messages are compared by one presence; others take their turns."""
NEW_PERIODS = 2
"""After so many periods all who speak that often were heard."""
ACCUSE_S = 30.0
"""The while in which one peer may suspect `SUSPECTS_MAX` others."""
REPLY_EVERY_S = 1.0
"""Who is suspected, again and again, says so often that it is here."""


class Attendance:
    def __init__(self, participant: "Participant") -> None:
        self._part = participant
        self._medium = participant.medium
        self._settings = participant.settings
        self._peers: dict[PeerId, tuple[MemberId, float]] = {}
        """Which member a peer is, and when it was heard last; the one heard last stands at the end."""
        self._heard_at: dict[MemberId, float] = {}
        """Of a member never heard, when we learned of it."""
        self._period_s: dict[MemberId, float] = {}
        self._gone: dict[MemberId, None] = {}
        self._suspected: dict[PeerId, float] = {}
        self._accusers: dict[PeerId, tuple[float, int]] = {}
        """When one began to suspect others, and how many since."""
        self._replied_at = -REPLY_EVERY_S
        self._turn = 0
        self._came_at = participant.medium.now()
        self._told_listeners = 0
        self._timer: Timer | None = None

    # -- what is known

    def is_gone(self, member: MemberId) -> bool:
        return member in self._gone

    @property
    def gone(self) -> tuple[MemberId, ...]:
        return tuple(self._gone)

    @property
    def peers_about(self) -> int:
        """How many may be listening."""
        return max(len(self._peers), len(self._heard_at) - len(self._gone)) + 1

    @property
    def listeners(self) -> int:
        """How many may answer a question. Who is new has heard few of them: it goes by what the channel knows, or by
        what it was told, and else thinks of many."""
        few = self._medium.few
        if few is not None:
            return few
        is_new = self._medium.now() < self._came_at + NEW_PERIODS * self._settings.presence_s
        return max(self.peers_about, self._told_listeners or (MANY if is_new else 0))

    def told_listeners(self, count: int) -> None:
        """By somebody who was here before us."""
        self._told_listeners = min(count, PEERS_MAX)

    def member_of(self, peer: PeerId) -> MemberId | None:
        found = self._peers.get(peer)
        return found[0] if found is not None else None

    @property
    def period_s(self) -> float:
        return max(self._settings.presence_s, self.peers_about / self._settings.presence_per_s)

    # -- speaking

    def start(self) -> None:
        """The first presence comes soon, so that those who missed the arrival learn who we are."""
        self.stop()
        self._came_at, self._told_listeners = self._medium.now(), 0
        self._timer = self._medium.after(self.period_s * self._medium.random.random(), self._beat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        period_s = self.period_s
        self._timer = self._medium.after(period_s * (0.75 + self._medium.random.random() / 2), self._beat)
        self.speak()
        self._sweep()

    def speak(self) -> None:
        talks = list(self._part.conversations.values())
        told = [talks[(self._turn + each) % len(talks)] for each in range(min(len(talks), HOLDINGS_TOLD))]
        self._turn += len(told)
        for talk in told:
            talk.prune()  # what is kept for a time only goes even if nobody speaks
        me = self._part.me
        self._part.say(
            Presence(
                me.id,
                me.name,
                int(1000 * self.period_s),
                self._part.directory.hash,
                tuple(talk.holding() for talk in told),
            )
        )

    # -- hearing

    def heard(self, peer: PeerId, member: MemberId | None = None) -> None:
        """A sign of life."""
        now = self._medium.now()
        if member is None:
            known = self._peers.get(peer)
            if known is None:
                return
            member = known[0]
        self._peers.pop(peer, None)
        self._peers[peer] = (member, now)
        if len(self._peers) > PEERS_MAX:
            del self._peers[next(iter(self._peers))]
        if self._suspected:
            self._suspected.pop(peer, None)
        if member in self._heard_at or self._part.directory_knows(member):
            self._heard_at[member] = now
        if member in self._gone:
            del self._gone[member]
            self._tell(member, back=True)

    def learned(self, member: MemberId) -> None:
        """It stands in a list: it is taken to be here until it has been silent for long."""
        self._heard_at.setdefault(member, self._medium.now())

    def hinted_gone(self, members: tuple[MemberId, ...], since: float) -> None:
        """Somebody who was here before us believes so; whom we have heard ourselves since we came, we know better."""
        alive = {member for member, _ in self._peers.values()}
        for member in members:
            if member in self._heard_at and member not in alive and self._heard_at[member] >= since:
                self._mark_gone(member)

    def on_presence(self, peer: PeerId, note: Presence) -> None:
        if note.member in self._heard_at:
            self._period_s[note.member] = note.period_ms / 1000

    def on_farewell(self, peer: PeerId, note: Farewell) -> None:
        if self.member_of(peer) == note.member:
            del self._peers[peer]
            self._mark_gone(note.member)

    # -- noticing

    def on_neighbour_lost(self, peer: PeerId) -> None:
        """Say so, unless another neighbour of it does."""
        lost_at = self._medium.now()
        self._medium.after(self._settings.suspect_s / 2 * self._medium.random.random(), self._say_lost, peer, lost_at)

    def _say_lost(self, peer: PeerId, lost_at: float) -> None:
        member, heard_at = self._peers.get(peer, (0, 0.0))
        if peer not in self._suspected and heard_at <= lost_at:
            self._part.say(Suspect(peer, member))
            self._suspect(peer, member)

    def on_suspect(self, peer: PeerId, note: Suspect) -> None:
        now = self._medium.now()
        if self._slanders(peer, now):
            return
        if note.peer == self._medium.me:
            if now >= self._replied_at + REPLY_EVERY_S:
                self._replied_at = now
                self.speak()
            return
        known = self.member_of(note.peer)
        if note.member == 0 and known is not None:
            wait_s = backoff_s(self._medium.random, self._settings.suspect_s, self.listeners)
            self._medium.after(wait_s, self._name_suspect, note.peer, now)
        self._suspect(note.peer, known if known is not None else note.member)

    def _slanders(self, peer: PeerId, now: float) -> bool:
        """It suspects more than it can have lost."""
        begun, count = self._accusers.pop(peer, (now, 0))
        if now > begun + ACCUSE_S:
            begun, count = now, 0
        self._accusers[peer] = (begun, count + 1)
        if len(self._accusers) > PENDING_MAX:
            del self._accusers[next(iter(self._accusers))]
        return count >= SUSPECTS_MAX

    def _name_suspect(self, peer: PeerId, since: float) -> None:
        """Those who came late do not know which member that peer is."""
        if self._suspected.get(peer) == since and (member := self.member_of(peer)) is not None:
            self._part.say(Suspect(peer, member))

    def _suspect(self, peer: PeerId, member: MemberId) -> None:
        if len(self._suspected) < PENDING_MAX:
            now = self._suspected[peer] = self._medium.now()
            self._medium.after(self._settings.suspect_s, self._verdict, peer, member, now)

    def _verdict(self, peer: PeerId, member: MemberId, since: float) -> None:
        if self._suspected.get(peer) != since:
            return  # it spoke up, or was suspected again
        del self._suspected[peer]
        known, heard_at = self._peers.get(peer, (member, since - self._settings.suspect_s))
        if heard_at > since - self._settings.suspect_s:
            # Perhaps its answer overtook the suspicion on the way to us: whoever thinks so too, one of us asks again.
            wait_s = backoff_s(self._medium.random, self._settings.suspect_s, self.listeners)
            self._medium.after(wait_s, self._say_lost, peer, since)
            return
        self._peers.pop(peer, None)
        if self._heard_at.get(known, since) < since:
            self._mark_gone(known)

    def _sweep(self) -> None:
        now, periods, own_s = self._medium.now(), self._settings.silent_periods, self.period_s
        for member, heard_at in list(self._heard_at.items()):
            if now - heard_at > periods * max(self._period_s.get(member, 0.0), own_s):
                self._mark_gone(member)

    def _mark_gone(self, member: MemberId) -> None:
        if member not in self._gone and member != self._part.me.id and member in self._heard_at:
            self._gone[member] = None
            self._tell(member, back=False)

    def _tell(self, member: MemberId, *, back: bool) -> None:
        name = self._part.shared_name(member)
        if name is not None:
            who = Member(member, name)
            self._medium.tell(MemberBack(who) if back else MemberGone(who))
