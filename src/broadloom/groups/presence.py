"""Who is there. Each member says so now and then; who dies without a word is noticed.

Two ways lead to it. A neighbour of the dead peer loses its link and says so (`Suspect`); if the suspect does not speak
up, all show its member as gone, within seconds. If all its neighbours died too, its silence tells, after some of its
periods. With many members each speaks less often, so that the channel carries a fixed number of such messages a second,
not one for each member.

What this part says of a member is an opinion, and changes when the member is heard again; the lists of a group do not
depend on it.
"""

from typing import TYPE_CHECKING

from broadloom.groups.directory_sync import ASSUMED_PEERS, backoff_s
from broadloom.groups.messages import GoingOffline, PresenceHeartbeat, Suspect
from broadloom.groups.model import Member, MemberId, MemberOffline, MemberOnline
from broadloom.groups.settings import PEERS_MAX, PENDING_MAX, SUSPECTS_MAX
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.participant import Participant
    from broadloom.groups.runtime import Timer

DIGESTS_PER_HEARTBEAT = 64
"""Groups whose messages are compared by one presence; others take their turns."""
WARMUP_INTERVALS = 2
"""After so many periods all who speak that often were heard."""
SUSPICION_WINDOW_S = 30.0
"""The while in which one peer may suspect `SUSPECTS_MAX` others."""
REFUTE_INTERVAL_S = 1.0
"""Who is suspected, again and again, says so often that it is here."""


class Presence:
    def __init__(self, participant: "Participant") -> None:
        self._participant = participant
        self._runtime = participant.runtime
        self._settings = participant.settings
        self._peers: dict[PeerId, tuple[MemberId, float]] = {}
        """Which member a peer is, and when it was heard last; the one heard last stands at the end."""
        self._last_seen_at: dict[MemberId, float] = {}
        """Of a member never heard, when we learned of it."""
        self._member_intervals_s: dict[MemberId, float] = {}
        self._offline: dict[MemberId, None] = {}
        self._suspected: dict[PeerId, float] = {}
        self._accusers: dict[PeerId, tuple[float, int]] = {}
        """When one began to suspect others, and how many since."""
        self._refuted_at = -REFUTE_INTERVAL_S
        self._turn = 0
        self._started_at = participant.runtime.now()
        self._reported_peer_count = 0
        self._timer: Timer | None = None

    # -- what is known

    def is_offline(self, member: MemberId) -> bool:
        return member in self._offline

    @property
    def offline(self) -> tuple[MemberId, ...]:
        return tuple(self._offline)

    @property
    def peer_count_estimate(self) -> int:
        """How many may be listening."""
        return max(len(self._peers), len(self._last_seen_at) - len(self._offline)) + 1

    @property
    def responder_count(self) -> int:
        """How many may answer a question. Who is new has heard few of them: it goes by what the channel knows, or by
        what it was told, and else thinks of many."""
        known_peer_count = self._runtime.known_peer_count
        if known_peer_count is not None:
            return known_peer_count
        is_new = self._runtime.now() < self._started_at + WARMUP_INTERVALS * self._settings.presence_interval_s
        return max(self.peer_count_estimate, self._reported_peer_count or (ASSUMED_PEERS if is_new else 0))

    def on_reported_peer_count(self, count: int) -> None:
        """By somebody who was here before us."""
        self._reported_peer_count = min(count, PEERS_MAX)

    def member_of(self, peer: PeerId) -> MemberId | None:
        found = self._peers.get(peer)
        return found[0] if found is not None else None

    @property
    def interval_s(self) -> float:
        return max(
            self._settings.presence_interval_s, self.peer_count_estimate / self._settings.presence_messages_per_s_max
        )

    # -- speaking

    def start(self) -> None:
        """The first presence comes soon, so that those who missed the arrival learn who we are."""
        self.stop()
        self._started_at, self._reported_peer_count = self._runtime.now(), 0
        self._timer = self._runtime.call_later(self.interval_s * self._runtime.random.random(), self._on_timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        period_s = self.interval_s
        self._timer = self._runtime.call_later(period_s * (0.75 + self._runtime.random.random() / 2), self._on_timer)
        self.send_heartbeat()
        self._expire_silent()

    def send_heartbeat(self) -> None:
        conversations = list(self._participant.conversations.values())
        chosen = [
            conversations[(self._turn + each) % len(conversations)]
            for each in range(min(len(conversations), DIGESTS_PER_HEARTBEAT))
        ]
        self._turn += len(chosen)
        for conversation in chosen:
            conversation.prune()  # what is kept for a time only goes even if nobody speaks
        me = self._participant.me
        self._participant.send(
            PresenceHeartbeat(
                me.id,
                me.name,
                int(1000 * self.interval_s),
                self._participant.directory.hash,
                tuple(talk.history_digest() for talk in chosen),
            )
        )

    # -- hearing

    def on_activity(self, peer: PeerId, member: MemberId | None = None) -> None:
        """A sign of life."""
        now = self._runtime.now()
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
        if member in self._last_seen_at or self._participant.shares_group_with(member):
            self._last_seen_at[member] = now
        if member in self._offline:
            del self._offline[member]
            self._emit_status(member, is_online=True)

    def add_member(self, member: MemberId) -> None:
        """It stands in a list: it is taken to be here until it has been silent for long."""
        self._last_seen_at.setdefault(member, self._runtime.now())

    def on_offline_hint(self, members: tuple[MemberId, ...], since: float) -> None:
        """Somebody who was here before us believes so; whom we have heard ourselves since we came, we know better."""
        alive = {member for member, _ in self._peers.values()}
        for member in members:
            if member in self._last_seen_at and member not in alive and self._last_seen_at[member] >= since:
                self._mark_offline(member)

    def on_presence_heartbeat(self, peer: PeerId, message: PresenceHeartbeat) -> None:
        if message.member in self._last_seen_at:
            self._member_intervals_s[message.member] = message.interval_ms / 1000

    def on_going_offline(self, peer: PeerId, message: GoingOffline) -> None:
        if self.member_of(peer) == message.member:
            del self._peers[peer]
            self._mark_offline(message.member)

    # -- noticing

    def on_neighbor_lost(self, peer: PeerId) -> None:
        """Say so, unless another neighbour of it does."""
        lost_at = self._runtime.now()
        self._runtime.call_later(
            self._settings.suspicion_timeout_s / 2 * self._runtime.random.random(), self._report_lost, peer, lost_at
        )

    def _report_lost(self, peer: PeerId, lost_at: float) -> None:
        member, last_seen_at = self._peers.get(peer, (0, 0.0))
        if peer not in self._suspected and last_seen_at <= lost_at:
            self._participant.send(Suspect(peer, member))
            self._suspect(peer, member)

    def on_suspect(self, peer: PeerId, message: Suspect) -> None:
        now = self._runtime.now()
        if self._accuses_too_many(peer, now):
            return
        if message.peer == self._runtime.peer_id:
            if now >= self._refuted_at + REFUTE_INTERVAL_S:
                self._refuted_at = now
                self.send_heartbeat()
            return
        known = self.member_of(message.peer)
        if message.member == 0 and known is not None:
            wait_s = backoff_s(self._runtime.random, self._settings.suspicion_timeout_s, self.responder_count)
            self._runtime.call_later(wait_s, self._report_suspect, message.peer, now)
        self._suspect(message.peer, known if known is not None else message.member)

    def _accuses_too_many(self, peer: PeerId, now: float) -> bool:
        """It suspects more than it can have lost."""
        started_at, count = self._accusers.pop(peer, (now, 0))
        if now > started_at + SUSPICION_WINDOW_S:
            started_at, count = now, 0
        self._accusers[peer] = (started_at, count + 1)
        if len(self._accusers) > PENDING_MAX:
            del self._accusers[next(iter(self._accusers))]
        return count >= SUSPECTS_MAX

    def _report_suspect(self, peer: PeerId, since: float) -> None:
        """Those who came late do not know which member that peer is."""
        if self._suspected.get(peer) == since and (member := self.member_of(peer)) is not None:
            self._participant.send(Suspect(peer, member))

    def _suspect(self, peer: PeerId, member: MemberId) -> None:
        if len(self._suspected) < PENDING_MAX:
            now = self._suspected[peer] = self._runtime.now()
            self._runtime.call_later(self._settings.suspicion_timeout_s, self._on_suspicion_timeout, peer, member, now)

    def _on_suspicion_timeout(self, peer: PeerId, member: MemberId, since: float) -> None:
        if self._suspected.get(peer) != since:
            return  # it spoke up, or was suspected again
        del self._suspected[peer]
        known, last_seen_at = self._peers.get(peer, (member, since - self._settings.suspicion_timeout_s))
        if last_seen_at > since - self._settings.suspicion_timeout_s:
            # Perhaps its answer overtook the suspicion on the way to us: whoever thinks so too, one of us asks again.
            wait_s = backoff_s(self._runtime.random, self._settings.suspicion_timeout_s, self.responder_count)
            self._runtime.call_later(wait_s, self._report_lost, peer, since)
            return
        self._peers.pop(peer, None)
        if self._last_seen_at.get(known, since) < since:
            self._mark_offline(known)

    def _expire_silent(self) -> None:
        now, periods, own_s = self._runtime.now(), self._settings.offline_after_intervals, self.interval_s
        for member, last_seen_at in list(self._last_seen_at.items()):
            if now - last_seen_at > periods * max(self._member_intervals_s.get(member, 0.0), own_s):
                self._mark_offline(member)

    def _mark_offline(self, member: MemberId) -> None:
        if member not in self._offline and member != self._participant.me.id and member in self._last_seen_at:
            self._offline[member] = None
            self._emit_status(member, is_online=False)

    def _emit_status(self, member: MemberId, *, is_online: bool) -> None:
        name = self._participant.shared_name(member)
        if name is not None:
            described = Member(member, name)
            self._runtime.emit(MemberOnline(described) if is_online else MemberOffline(described))
