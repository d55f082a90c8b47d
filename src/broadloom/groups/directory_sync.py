"""Discovery: who arrives says so, and hears of all groups; lists that differ are made equal.

An arrival tells hashes of what the newcomer knows already. Everyone who finds a difference would answer; each waits for
a random time and keeps quiet if an answer makes its own needless: one of the same lists, or one that, with what else
was heard meanwhile, leaves nothing to add. After the answer, the newcomer says what only it knew. The same exchange is
started by anybody who sees, from the hash in a presence, that its lists differ from another's and stay so.
"""

from math import exp, log
from typing import TYPE_CHECKING

from broadloom.groups.directory import DirectoryChange, pack_pages
from broadloom.groups.message_fields import GroupRecord, MemberRecord, unpack_group_records
from broadloom.groups.messages import DirectoryPage, DirectoryRequest, MembershipChange, PresenceHeartbeat
from broadloom.groups.model import DirectorySynced, GroupId, MemberId
from broadloom.groups.settings import BUCKETS_MAX, ENTRIES_MAX, PENDING_MAX
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from random import Random

    from broadloom.groups.participant import Participant
    from broadloom.groups.runtime import Timer


RECENT_HASHES_MAX = 256
"""Our own lists were like this lately: whoever's are, is only a little behind."""
REPEAT_WINDOW_S = 30.0
"""Who arrives again within this time, knowing the same, waits twice as long for the answer each time."""
STRIKES_MAX = 6
COMPARE_INTERVAL_S = 20.0
"""A difference seen in a presence is looked into so often at most."""


class _PendingReply:
    """An arrival that we would answer."""

    __slots__ = ("bucket_count", "differing", "is_answered", "requester_is_empty", "since", "timer")

    def __init__(
        self, bucket_count: int, differing: list[int], requester_is_empty: bool, since: float, timer: "Timer"
    ) -> None:
        self.bucket_count = bucket_count
        """Buckets that the asker gave."""
        self.differing = differing
        self.requester_is_empty = requester_is_empty
        """The asker knows nothing."""
        self.since = since
        self.timer = timer
        self.is_answered = False
        """Somebody's answer was heard to its end."""


class DirectorySync:
    def __init__(self, participant: "Participant") -> None:
        self._participant = participant
        self._runtime = participant.runtime
        self._settings = participant.settings
        self._directory = participant.directory
        self._pending: dict[PeerId, _PendingReply] = {}
        self._recent_versions: dict[GroupId, dict[MemberId, tuple[int, float]]] = {}
        """What was said of groups while somebody waits for an answer: step and time."""
        self._recent_descriptors: dict[GroupId, float] = {}
        self._strikes: dict[PeerId, tuple[float, int, int]] = {}
        """When a peer arrived last, what it knew, and how often it has come again."""
        self._recent_hashes: dict[int, None] = {}
        self._compare_timer: Timer | None = None
        self._compared_at = -COMPARE_INTERVAL_S
        self._exchanged_at = -COMPARE_INTERVAL_S
        """An arrival or a listing was heard."""
        self._requested_at = -COMPARE_INTERVAL_S
        """Our own arrival, or comparison."""
        self.is_synced = False
        """Somebody has answered it."""

    # -- arriving

    def announce(self, *, is_initial: bool) -> None:
        me, directory = self._participant.me, self._directory
        self._exchanged_at = self._requested_at = self._runtime.now()
        self._participant.send(
            DirectoryRequest(me.id, me.name, is_initial, directory.hash_buckets(directory.bucket_count))
        )

    def on_directory_request(self, peer: PeerId, message: DirectoryRequest) -> None:
        count = len(message.buckets)
        if not count or count & (count - 1) or count > BUCKETS_MAX:
            raise WireError(f"{count} buckets are no power of two")
        self._exchanged_at = self._runtime.now()
        old = self._pending.pop(peer, None)
        if old is not None:
            old.timer.cancel()
        differing = self._directory.differing_buckets(message.buckets)
        if not differing or len(self._pending) >= PENDING_MAX:
            return
        wait_s = self._participant.backoff_s() + self._penalty_s(peer, hash(message.buckets))
        timer = self._runtime.call_later(wait_s, self._reply, peer)
        empty = not any(message.buckets)
        self._pending[peer] = _PendingReply(count, differing, empty, self._runtime.now(), timer)

    def _penalty_s(self, peer: PeerId, known_hash: int) -> float:
        now = self._runtime.now()
        before, known_before, strikes = self._strikes.pop(peer, (0.0, known_hash, -1))
        strikes = min(strikes + 1, STRIKES_MAX) if known_hash == known_before and now < before + REPEAT_WINDOW_S else 0
        self._strikes[peer] = (now, known_hash, strikes)
        if len(self._strikes) > PENDING_MAX:
            del self._strikes[next(iter(self._strikes))]
        return float(2**strikes - 1) if strikes > 1 else 0.0

    # -- answering

    def _reply(self, peer: PeerId) -> None:
        wait_s = self._participant.history_tokens.wait_s(self._runtime.now())
        if wait_s:
            self._pending[peer].timer = self._runtime.call_later(wait_s, self._reply, peer)
            return
        pending = self._pending.pop(peer)
        surplus = self._unsent_records(pending.differing, pending.bucket_count, pending.since)
        if surplus or not pending.is_answered:
            self._send_pages(
                surplus,
                requester=peer,
                is_complete=pending.requester_is_empty,
                buckets=self._directory.hash_buckets(pending.bucket_count),
            )
        self._forget_recent()

    def _unsent_records(self, bucket_numbers: list[int], bucket_count: int, since: float) -> list[GroupRecord]:
        """What we know in these buckets and nobody has said since."""
        unsent: list[GroupRecord] = []
        for group in self._directory.groups_in(bucket_numbers, bucket_count):
            record = self._directory.group_record(group)
            versions = self._recent_versions.get(group)
            if versions is None:
                unsent.append(record)
                continue
            member_records = tuple(each for each in record.members if not _was_sent(each, versions, since))
            descriptor = record.descriptor if self._recent_descriptors.get(group, -1.0) < since else None
            if member_records or descriptor is not None:
                unsent.append(GroupRecord(group, descriptor, member_records))
        return unsent

    def _send_pages(
        self, records: list[GroupRecord], *, requester: PeerId, is_complete: bool, buckets: tuple[int, ...]
    ) -> None:
        bodies = list(pack_pages(records, self._settings.history_page_bytes))
        offline = self._participant.presence.offline[:ENTRIES_MAX] if requester else ()
        for number, body in enumerate(bodies):
            last = number == len(bodies) - 1
            self._participant.history_tokens.consume(len(body), self._runtime.now())
            directory_hash = self._directory.hash
            self._participant.send(
                DirectoryPage(
                    requester,
                    directory_hash,
                    is_complete,
                    last,
                    self._participant.presence.peer_count_estimate,
                    buckets if last else (),
                    offline if number == 0 else (),
                    body,
                )
            )

    def announce_group(self, group: GroupId) -> None:
        """A group that we have just created."""
        self._participant.send_record(self._directory.group_record(group))

    def on_directory_page(self, peer: PeerId, message: DirectoryPage) -> None:
        self._exchanged_at = self._runtime.now()
        own_id = self._runtime.peer_id
        self._participant.history_tokens.consume(len(message.body), self._runtime.now())
        if message.directory_hash == self._directory.hash:
            self._cancel_duplicates(message)
        else:
            self.merge(unpack_group_records(message.body))
        pending = self._pending.get(message.requester)
        if pending is not None and message.is_last:
            pending.is_answered = True
        if message.requester == own_id:
            self._participant.presence.on_offline_hint(message.offline, self._requested_at)
            self._participant.presence.on_reported_peer_count(message.peer_count)
            if message.is_last and message.directory_hash != self._directory.hash:
                self._send_surplus(message.buckets)
            if message.is_last and not self.is_synced:
                self.is_synced = True
                self._runtime.emit(DirectorySynced(len(self._participant.groups())))
        self._forget_recent()

    def _cancel_duplicates(self, message: DirectoryPage) -> None:
        """By one whose lists are ours: nothing for us, and nothing to add for whoever is answered by it."""
        if not message.is_last:
            return
        for peer, pending in list(self._pending.items()):
            if peer == message.requester or (message.is_complete and message.requester):
                pending.timer.cancel()
                del self._pending[peer]

    def _send_surplus(self, buckets: tuple[int, ...]) -> None:
        """What only we know, beyond the one who answered us."""
        count = len(buckets)
        if not count or count & (count - 1):
            return
        differing = self._directory.differing_buckets(buckets)
        surplus = self._unsent_records(differing, count, self._requested_at)
        if surplus:
            self._send_pages(surplus, requester=0, is_complete=False, buckets=())

    # -- merging

    def merge(self, records: tuple[GroupRecord, ...]) -> None:
        now = self._runtime.now()
        is_tracking = bool(self._pending) or now < self._requested_at + 4 * self._settings.reply_window_s
        before = self._directory.rejected_count
        for record in records:
            if is_tracking:
                versions = self._recent_versions.setdefault(record.group, {})
                for member_record in record.members:
                    versions[member_record.member] = (member_record.version, now)
                if record.descriptor is not None:
                    self._recent_descriptors[record.group] = now
            change = self._directory.merge(record)
            if change is not None:
                self._on_change(change)
        if self._directory.rejected_count > before:
            self._participant.report_limit("more groups or members than are kept track of")

    def _on_change(self, change: DirectoryChange) -> None:
        self._recent_hashes[self._directory.hash] = None
        if len(self._recent_hashes) > RECENT_HASHES_MAX:
            del self._recent_hashes[next(iter(self._recent_hashes))]
        self._participant.on_directory_change(change)

    def on_membership_change(self, peer: PeerId, message: MembershipChange) -> None:
        self.merge((GroupRecord(message.group, None, (MemberRecord(message.member, message.name, message.version),)),))

    def _forget_recent(self) -> None:
        if not self._pending and self._runtime.now() > self._requested_at + 4 * self._settings.reply_window_s:
            self._recent_versions.clear()
            self._recent_descriptors.clear()

    # -- comparing

    def on_presence_heartbeat(self, peer: PeerId, message: PresenceHeartbeat) -> None:
        """Differences of a moment are natural; one that stays is looked into, by whoever's time comes first."""
        directory_hash = message.directory_hash
        if (
            directory_hash == self._directory.hash
            or directory_hash in self._recent_hashes
            or self._compare_timer is not None
        ):
            return
        now = self._runtime.now()
        wait_s = self._participant.backoff_s() + max(
            2 * self._settings.reply_window_s, self._compared_at + COMPARE_INTERVAL_S - now
        )
        self._compare_timer = self._runtime.call_later(wait_s, self._request_if_different, directory_hash, now)

    def _request_if_different(self, directory_hash: int, since: float) -> None:
        self._compare_timer = None
        if (
            directory_hash != self._directory.hash
            and directory_hash not in self._recent_hashes
            and self._exchanged_at <= since
        ):
            self._compared_at = self._runtime.now()
            self.announce(is_initial=False)


def _was_sent(member_record: MemberRecord, versions: dict[MemberId, tuple[int, float]], since: float) -> bool:
    version, at = versions.get(member_record.member, (0, 0.0))
    return version >= member_record.version and at >= since


# Random back-off: many could answer, one shall.
#
# Everyone waits for a random time and keeps quiet if it hears the answer of another meanwhile. With equal odds for all
# times, the answers would be as many as there are peers whose time falls into the first journey of a message. So early
# times are rare: the odds grow exponentially towards the end, the faster the more peers there are. Then a handful
# answer among ten or ten thousand (the truncated exponential timers of the multicast literature, as in RFC 5401).
#
# Where few listen, a storm is small whatever happens, and people wait for the answer: the window is shorter then.


ASSUMED_PEERS = 64
"""Who does not know how many there are may simply be new, and thinks of so many: too many costs some time, too few a
storm."""
FULL_WINDOW_PEERS = 32
"""So many need the whole window..."""
WINDOW_RATIO_MIN = 1 / 6
"""...and two or three this part of it, lest all of them send much before they hear each other."""


def window_s(full_s: float, peer_count: int) -> float:
    """The time in which they answer, if there are so many with us and the asker."""
    if peer_count <= 2:
        return 0.0  # nobody else can
    return full_s * min(max(peer_count / FULL_WINDOW_PEERS, WINDOW_RATIO_MIN), 1.0)


def backoff_s(random: "Random", window_s: float, peer_count: int) -> float:
    """How long to wait, at most `window_s`."""
    steep = log(peer_count) + 1
    return window_s * log(1 + random.random() * (exp(steep) - 1)) / steep
