"""`Presence`: which members are online. Heartbeats, and failure detection by suspicion as in SWIM.

A failure is noticed in two ways. A neighbor of the failed peer loses its link and broadcasts `Suspect`; a peer that is
suspected wrongly refutes it with a heartbeat, otherwise all members show it as offline within seconds. If all neighbors
failed too, its silence shows after a few intervals. Heartbeats of all members together have a fixed maximum rate: with
many members, each sends less often.

Presence is a local opinion that changes when a member is heard again. Membership does not depend on it.
"""

from typing import TYPE_CHECKING

from broadloom.groups.messages import GoingOffline, PresenceHeartbeat, Suspect
from broadloom.groups.model import Member, MemberId, MemberOffline, MemberOnline
from broadloom.groups.runtime import DelayedCall
from broadloom.groups.settings import PEERS_MAX, PENDING_MAX, SUSPECTS_MAX
from broadloom.groups.suppression import ASSUMED_PEERS, RecentDict, backoff_s, window_s
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.participant import Participant

MESSAGES_PER_S_MAX = 2.0
"""Heartbeats of all members together: with many members, each sends less often."""
OFFLINE_AFTER_INTERVALS = 3.0
"""A member that is silent for this many of its intervals is shown as offline."""
DIGESTS_PER_HEARTBEAT = 64
"""Groups whose history is compared by one heartbeat, in rotation."""
WARMUP_INTERVALS = 2
"""After this many intervals, all online members have been heard."""
SUSPICION_WINDOW_S = 30.0
"""Within this time one peer may suspect `SUSPECTS_MAX` others."""
REFUTE_INTERVAL_S = 1.0
"""Minimum time between two refutations."""


class Presence:
    def __init__(self, participant: "Participant") -> None:
        self._participant = participant
        self._runtime = participant.runtime
        self._settings = participant.settings
        self._peers: RecentDict[PeerId, tuple[MemberId, float]] = RecentDict(PEERS_MAX)
        """Member and last activity of each peer, least recently active first."""
        self._last_seen_at: dict[MemberId, float] = {}
        """For a member never heard, the time we learned of it."""
        self._member_intervals_s: dict[MemberId, float] = {}
        self._offline: dict[MemberId, None] = {}
        self._suspected: dict[PeerId, float] = {}
        self._accusers: RecentDict[PeerId, tuple[float, int]] = RecentDict(PENDING_MAX)
        """Start of the suspicion window and number of suspicions, by sender."""
        self._refuted_at = -REFUTE_INTERVAL_S
        self._digest_rotation = 0
        self._started_at = participant.runtime.now()
        self._reported_peer_count = 0
        self._timer = DelayedCall(participant.runtime)

    def is_offline(self, member: MemberId) -> bool:
        return member in self._offline

    @property
    def offline(self) -> tuple[MemberId, ...]:
        return tuple(self._offline)

    @property
    def peer_count_estimate(self) -> int:
        return max(len(self._peers), len(self._last_seen_at) - len(self._offline)) + 1

    @property
    def responder_count(self) -> int:
        """Estimated number of members that may answer a request. A new member has heard only a few, so it uses what
        the channel knows or what another member reported, or else assumes many."""
        known_peer_count = self._runtime.known_peer_count
        if known_peer_count is not None:
            return known_peer_count
        is_new = self._runtime.now() < self._started_at + WARMUP_INTERVALS * self._settings.presence_interval_s
        return max(self.peer_count_estimate, self._reported_peer_count or (ASSUMED_PEERS if is_new else 0))

    @property
    def reply_window_s(self) -> float:
        """Every member that answers a request does so within this time."""
        return window_s(self._settings.reply_window_s, self.responder_count)

    def backoff_s(self, within_s: float | None = None) -> float:
        """A random delay before we answer a request; by default within the reply window."""
        within_s = self.reply_window_s if within_s is None else within_s
        return backoff_s(self._runtime.random, within_s, self.responder_count)

    def on_reported_peer_count(self, count: int) -> None:
        self._reported_peer_count = min(count, PEERS_MAX)

    def member_of(self, peer: PeerId) -> MemberId | None:
        found = self._peers.get(peer)
        return found[0] if found is not None else None

    @property
    def interval_s(self) -> float:
        return max(self._settings.presence_interval_s, self.peer_count_estimate / MESSAGES_PER_S_MAX)

    # -- heartbeats

    def start(self) -> None:
        """The first heartbeat comes early, for members that missed our directory request."""
        self._started_at, self._reported_peer_count = self._runtime.now(), 0
        self._timer.start(self.interval_s * self._runtime.random.random(), self._on_timer)

    def stop(self) -> None:
        self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer.start(self.interval_s * (0.75 + self._runtime.random.random() / 2), self._on_timer)
        self.send_heartbeat()
        self._expire_silent()

    def send_heartbeat(self) -> None:
        conversations = list(self._participant.conversations.values())
        chosen = [
            conversations[(self._digest_rotation + each) % len(conversations)]
            for each in range(min(len(conversations), DIGESTS_PER_HEARTBEAT))
        ]
        self._digest_rotation += len(chosen)
        for conversation in chosen:
            conversation.prune()  # retention by age applies to silent groups too
        me = self._participant.me
        self._participant.send(
            PresenceHeartbeat(
                me.id,
                me.name,
                int(1000 * self.interval_s),
                self._participant.directory.hash,
                tuple(conversation.history_digest() for conversation in chosen),
            )
        )

    # -- activity of others

    def on_activity(self, peer: PeerId, member: MemberId | None = None) -> None:
        now = self._runtime.now()
        if member is None:
            member = self.member_of(peer)
            if member is None:
                return
        self._peers.put(peer, (member, now))
        self._suspected.pop(peer, None)
        if member in self._last_seen_at or self._participant.shared_name(member) is not None:
            self._last_seen_at[member] = now
        if member in self._offline:
            del self._offline[member]
            self._emit_status(member, is_online=True)

    def add_member(self, member: MemberId) -> None:
        """A member is considered online until it has been silent for long."""
        self._last_seen_at.setdefault(member, self._runtime.now())

    def on_offline_hint(self, members: tuple[MemberId, ...], since: float) -> None:
        """Members that another member considers offline, except those we have heard ourselves since `since`."""
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

    # -- failure detection

    def on_neighbor_lost(self, peer: PeerId) -> None:
        """Broadcast a suspicion, unless another neighbor of the peer does so first."""
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
            wait_s = self.backoff_s(self._settings.suspicion_timeout_s)
            self._runtime.call_later(wait_s, self._report_suspect, message.peer, now)
        self._suspect(message.peer, known if known is not None else message.member)

    def _accuses_too_many(self, peer: PeerId, now: float) -> bool:
        """Whether it suspects more peers than it can have had as neighbors."""
        started_at, count = self._accusers.get(peer, (now, 0))
        if now > started_at + SUSPICION_WINDOW_S:
            started_at, count = now, 0
        self._accusers.put(peer, (started_at, count + 1))
        return count >= SUSPECTS_MAX

    def _report_suspect(self, peer: PeerId, since: float) -> None:
        """Late joiners do not know which member a peer is: repeat the suspicion with the member id."""
        if self._suspected.get(peer) == since and (member := self.member_of(peer)) is not None:
            self._participant.send(Suspect(peer, member))

    def _suspect(self, peer: PeerId, member: MemberId) -> None:
        if len(self._suspected) < PENDING_MAX:
            now = self._suspected[peer] = self._runtime.now()
            self._runtime.call_later(self._settings.suspicion_timeout_s, self._on_suspicion_timeout, peer, member, now)

    def _on_suspicion_timeout(self, peer: PeerId, member: MemberId, since: float) -> None:
        if self._suspected.get(peer) != since:
            return  # refuted, or suspected again
        del self._suspected[peer]
        known, last_seen_at = self._peers.get(peer, (member, since - self._settings.suspicion_timeout_s))
        if last_seen_at > since - self._settings.suspicion_timeout_s:
            # The refutation may have overtaken the suspicion on its way to us: one of the members asks again.
            wait_s = self.backoff_s(self._settings.suspicion_timeout_s)
            self._runtime.call_later(wait_s, self._report_lost, peer, since)
            return
        self._peers.pop(peer, None)
        if self._last_seen_at.get(known, since) < since:
            self._mark_offline(known)

    def _expire_silent(self) -> None:
        now, own_s = self._runtime.now(), self.interval_s
        for member, last_seen_at in list(self._last_seen_at.items()):
            if now - last_seen_at > OFFLINE_AFTER_INTERVALS * max(self._member_intervals_s.get(member, 0.0), own_s):
                self._mark_offline(member)

    def _mark_offline(self, member: MemberId) -> None:
        if member not in self._offline and member != self._participant.me.id and member in self._last_seen_at:
            self._offline[member] = None
            self._emit_status(member, is_online=False)

    def _emit_status(self, member: MemberId, *, is_online: bool) -> None:
        name = self._participant.shared_name(member)
        if name is not None:
            self._runtime.emit((MemberOnline if is_online else MemberOffline)(Member(member, name)))
