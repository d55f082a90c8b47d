"""`DirectorySync`: discovery of groups, and anti-entropy between directories.

A new member broadcasts the bucket hashes of its directory. Every member that sees a difference schedules a reply
after a randomized back-off (suppression.py) and drops it if others have sent all of it by then. After the reply, the
requester sends what only it knows. A member whose directory hash keeps differing from that in a heartbeat starts the
same exchange.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.groups.creator_proofs import Check, check
from broadloom.groups.directory import DirectoryChange, pack_pages
from broadloom.groups.message_fields import GroupRecord, MembershipRecord, unpack_group_records
from broadloom.groups.messages import DirectoryPage, DirectoryRequest, MembershipChange, PresenceHeartbeat
from broadloom.groups.model import DirectorySynced, GroupId, MemberId
from broadloom.groups.runtime import DelayedCall
from broadloom.groups.settings import BUCKETS_MAX, ENTRIES_MAX, PENDING_MAX
from broadloom.groups.suppression import RecentDict, RepeatPenalty
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.groups.participant import Participant

RECENT_HASHES_MAX = 256
"""Recent hashes of our own directory: a member that reports one of them is only slightly behind."""
REPEAT_WINDOW_S = 30.0
"""A peer that repeats the same request within this time waits longer for each reply."""
COMPARE_INTERVAL_S = 20.0
"""Minimum time between requests caused by a heartbeat."""


@dataclass(slots=True)
class _PendingReply:
    """A request that we would answer."""

    bucket_count: int
    """Number of buckets in the request."""
    differing: list[int]
    requester_is_empty: bool
    since: float
    timer: DelayedCall
    is_answered: bool = False
    """Another member's reply was heard to its end."""


class DirectorySync:
    def __init__(self, participant: "Participant") -> None:
        self._participant = participant
        self._runtime = participant.runtime
        self._settings = participant.settings
        self._directory = participant.directory
        self._pending: dict[PeerId, _PendingReply] = {}
        self._recent_versions: dict[GroupId, dict[MemberId, tuple[int, float]]] = {}
        """Version and time of member records heard while a reply is pending."""
        self._recent_descriptors: dict[GroupId, float] = {}
        self._penalty = RepeatPenalty(REPEAT_WINDOW_S, is_repeat=operator.eq)
        self._recent_hashes: RecentDict[int, None] = RecentDict(RECENT_HASHES_MAX)
        self._compare_timer = DelayedCall(participant.runtime)
        self._compared_at = -COMPARE_INTERVAL_S
        self._exchanged_at = -COMPARE_INTERVAL_S
        """The last directory message of any member."""
        self._requested_at = -COMPARE_INTERVAL_S
        """Our own last request."""
        self.is_synced = False
        """Whether a request of ours was answered."""

    # -- requests

    def announce(self, *, is_initial: bool) -> None:
        me, directory = self._participant.me, self._directory
        self._exchanged_at = self._requested_at = self._runtime.now()
        self._participant.send(
            DirectoryRequest(me.id, me.name, is_initial, directory.hash_buckets(directory.bucket_count))
        )

    def on_directory_request(self, peer: PeerId, message: DirectoryRequest) -> None:
        count = len(message.buckets)
        if not count or count & (count - 1) or count > BUCKETS_MAX:
            raise WireError(f"number of buckets is not a power of two: {count}")
        self._exchanged_at = self._runtime.now()
        old = self._pending.pop(peer, None)
        if old is not None:
            old.timer.cancel()
        differing = self._directory.differing_buckets(message.buckets)
        if not differing or len(self._pending) >= PENDING_MAX:
            return
        penalty_s = self._penalty.delay_s(peer, hash(message.buckets), self._runtime.now())
        timer, empty = DelayedCall(self._runtime), not any(message.buckets)
        timer.start(self._participant.presence.backoff_s() + penalty_s, self._reply, peer)
        self._pending[peer] = _PendingReply(count, differing, empty, self._runtime.now(), timer)

    # -- replies

    def _reply(self, peer: PeerId) -> None:
        wait_s = self._participant.history_tokens.wait_s(self._runtime.now())
        if wait_s:
            self._pending[peer].timer.start(wait_s, self._reply, peer)
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
        """Our records in these buckets that no member has sent since `since`."""
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
            is_last = number == len(bodies) - 1
            self._participant.history_tokens.consume(len(body), self._runtime.now())
            self._participant.send(
                DirectoryPage(
                    requester,
                    self._directory.hash,
                    is_complete,
                    is_last,
                    self._participant.presence.peer_count_estimate,
                    buckets if is_last else (),
                    offline if number == 0 else (),
                    body,
                )
            )

    def on_directory_page(self, peer: PeerId, message: DirectoryPage) -> None:
        if self._participant.pages.is_ignored(peer):
            return
        self._exchanged_at = self._runtime.now()
        own_id = self._runtime.peer_id
        self._participant.history_tokens.consume(len(message.body), self._runtime.now())
        if self._pending or message.directory_hash != self._directory.hash:
            # What the page says of itself may be false: only the records in it need not be sent again.
            self.merge(tuple(self.verified(unpack_group_records(message.body), peer)))
        for requester, pending in self._pending.items():
            if message.is_last and (requester == message.requester or (message.is_complete and message.requester)):
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

    def _send_surplus(self, buckets: tuple[int, ...]) -> None:
        """Send what the member that answered us does not know."""
        count = len(buckets)
        if not count or count & (count - 1):
            return
        differing = self._directory.differing_buckets(buckets)
        surplus = self._unsent_records(differing, count, self._requested_at)
        if surplus:
            self._send_pages(surplus, requester=0, is_complete=False, buckets=())

    # -- merging

    def verified(self, records: tuple[GroupRecord, ...], page_of: PeerId | None = None) -> Iterator[GroupRecord]:
        """The records, without proofs that are not valid here. A forged proof ends the page of a peer, and so does the
        rate limit: the directories still differ then, and are compared again."""
        signer, pages = self._runtime.post_signer, self._participant.pages
        for record in records:
            descriptor, entry = record.descriptor, self._directory.entries.get(record.group)
            if descriptor is None or not descriptor.proof or (entry is not None and entry.descriptor == descriptor):
                yield record
                continue
            if page_of is not None:
                if pages.is_exhausted:
                    return
                pages.on_verification()
            result = check(signer, record.group, descriptor) if signer is not None else Check.UNPROVEN
            if result is Check.PROVEN:
                yield record
            elif result is Check.UNPROVEN or page_of is None:
                yield record._replace(descriptor=descriptor._replace(proof=b"", credential=b""))
            else:
                self._participant.forged_messages += 1
                pages.on_forged(page_of)
                return

    def merge(self, records: tuple[GroupRecord, ...]) -> None:
        now = self._runtime.now()
        is_tracking = bool(self._pending) or now < self._requested_at + 4 * self._settings.reply_window_s
        before = self._directory.rejected_count
        for record in records:
            if is_tracking:
                versions = self._recent_versions.setdefault(record.group, {})
                for member_record in record.members:
                    versions[member_record.member] = (member_record.version, now)
            change = self._directory.merge(record)
            if is_tracking and record.descriptor is not None:
                entry = self._directory.entries.get(record.group)
                if entry is not None and entry.descriptor == record.descriptor:  # else ours is still to be sent
                    self._recent_descriptors[record.group] = now
            if change is not None:
                self._on_change(change)
        if self._directory.rejected_count > before:
            self._participant.report_limit("too many groups or members")

    def _on_change(self, change: DirectoryChange) -> None:
        self._recent_hashes.put(self._directory.hash, None)
        self._participant.on_directory_change(change)

    def on_membership_change(self, peer: PeerId, message: MembershipChange) -> None:
        self.merge(
            (GroupRecord(message.group, None, (MembershipRecord(message.member, message.name, message.version),)),)
        )

    def _forget_recent(self) -> None:
        if not self._pending and self._runtime.now() > self._requested_at + 4 * self._settings.reply_window_s:
            self._recent_versions.clear()
            self._recent_descriptors.clear()

    # -- comparing directories

    def on_presence_heartbeat(self, peer: PeerId, message: PresenceHeartbeat) -> None:
        """Transient differences are normal. If one persists, the member whose back-off ends first makes a request."""
        if self._differs(message.directory_hash) and not self._compare_timer.is_pending:
            now = self._runtime.now()
            wait_s = self._participant.presence.backoff_s() + max(
                2 * self._settings.reply_window_s, self._compared_at + COMPARE_INTERVAL_S - now
            )
            self._compare_timer.start(wait_s, self._request_if_different, message.directory_hash, now)

    def _request_if_different(self, directory_hash: int, since: float) -> None:
        if self._differs(directory_hash) and self._exchanged_at <= since:
            self._compared_at = self._runtime.now()
            self.announce(is_initial=False)

    def _differs(self, directory_hash: int) -> bool:
        return directory_hash != self._directory.hash and directory_hash not in self._recent_hashes


def _was_sent(member_record: MembershipRecord, versions: dict[MemberId, tuple[int, float]], since: float) -> bool:
    version, at = versions.get(member_record.member, (0, 0.0))
    return version >= member_record.version and at >= since
