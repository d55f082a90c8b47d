"""`Participant`: one program in all groups of a channel. The sans-IO core: it owns the parts and dispatches messages.

Sockets, clock and randomness come from the runtime. Nothing received is trusted: malformed messages are counted and
dropped.
"""

from collections import Counter
from typing import TYPE_CHECKING

from broadloom.errors import GroupNotFoundError
from broadloom.groups import creator_proofs
from broadloom.groups.codec import GroupWireMessage, decode, encode, is_group_message
from broadloom.groups.conversation import Conversation
from broadloom.groups.directory import DirectoryChange, GroupDirectory
from broadloom.groups.directory_sync import DirectorySync
from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MembershipRecord, pack_group_records
from broadloom.groups.messages import (
    DirectoryPage,
    DirectoryRequest,
    GoingOffline,
    HistoryPage,
    HistoryRequest,
    MembershipChange,
    PostMessage,
    PostRequest,
    PresenceHeartbeat,
    Suspect,
)
from broadloom.groups.model import (
    GroupDiscovered,
    GroupId,
    GroupInfo,
    GroupMessage,
    LimitReached,
    Member,
    MemberId,
    MemberJoined,
    MemberLeft,
    MemberStatus,
    MessageId,
)
from broadloom.groups.page_queue import PageQueue
from broadloom.groups.presence import Presence
from broadloom.groups.proofs import member_id
from broadloom.groups.runtime import DelayedCall
from broadloom.groups.settings import (
    DESCRIPTION_BYTES_MAX,
    NAME_BYTES_MAX,
    GroupSettings,
    RetentionPolicy,
    check_data,
    check_text,
)
from broadloom.groups.store import MemoryStore, Store, StoredGroup
from broadloom.groups.suppression import TokenBucket
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.groups.runtime import GroupRuntime

SAVE_DELAY_S = 0.5
"""Changes are committed to the store after this delay."""
HISTORY_REQUESTS_PER_S = 20.0
"""Spreads the requests of a member of many groups."""


class Participant:
    def __init__(
        self, runtime: "GroupRuntime", name: str, store: Store | None = None, settings: GroupSettings | None = None
    ) -> None:
        check_text("name", name, NAME_BYTES_MAX)
        self.runtime = runtime
        self.settings = settings or GroupSettings()
        self.store = store or MemoryStore()
        known = self.store.member()
        drawn = Member(known.id if known is not None else MemberId(runtime.random.getrandbits(63) or 1), name)
        if known != drawn:
            self.store.set_member(drawn)
        signer = runtime.post_signer
        self.nonce = drawn.id
        """The number that the store has drawn; on a channel without tickets, our member id."""
        self.me = drawn if signer is None else Member(member_id(signer.name, drawn.id), name)
        self.directory = GroupDirectory(has_tickets=signer is not None)
        self.conversations: dict[GroupId, Conversation] = {}
        self.history_tokens = TokenBucket(
            self.settings.history_bytes_per_s, self.settings.history_burst_bytes, runtime.now()
        )
        self.pages = PageQueue(runtime, self._on_history_page)
        self.presence = Presence(self)
        self.directory_sync = DirectorySync(self)
        self._declined: dict[GroupId, None] = {}
        self._listening: dict[GroupId, None] = {}
        """Groups we receive without being a member."""
        self._unsaved: dict[GroupId, None] = {}
        self._save_timer = DelayedCall(runtime)
        self._reported_limits: dict[str, None] = {}
        self._is_open = False
        self.malformed_messages = 0
        self.forged_messages = 0
        """Posts in the name of a member with a ticket, without its signature."""
        self.sent_counts: Counter[str] = Counter()
        """Messages by type..."""
        self.sent_bytes: Counter[str] = Counter()
        """...and their bytes."""
        for stored in self.store.groups():
            for record in self.directory_sync.verified((stored.record,)):
                self.directory.merge(record)
            for member_record in stored.record.members:
                if member_record.is_member:
                    self.presence.add_member(member_record.member)
            if stored.is_joined:
                self._open_conversation(stored.record.group)

    # -- connecting and disconnecting

    def announce(self) -> None:
        """Called when the channel is connected. Groups that were declined before are reported again."""
        self._is_open = True
        self._declined.clear()
        self.directory_sync.announce(is_initial=True)
        self.presence.start()
        for group, entry in self.directory.entries.items():
            if entry.descriptor is not None and group not in self.conversations:
                self.runtime.emit(GroupDiscovered(self.info(group)))
        self._request_history_everywhere(always_report=True)

    def _request_history_everywhere(self, *, always_report: bool) -> None:
        for number, conversation in enumerate(self.conversations.values()):
            delay_s = number / HISTORY_REQUESTS_PER_S
            self.runtime.call_later(delay_s, self._begin_catch_up, conversation, always_report)

    def _begin_catch_up(self, conversation: Conversation, always_report: bool) -> None:
        if self._is_open and self.conversations.get(conversation.group) is conversation:
            conversation.history_client.begin(always_report=always_report)

    def go_offline(self) -> None:
        """Announce that we disconnect and stay a member of our groups."""
        if self._is_open:
            self.send(GoingOffline(self.me.id))
        self.stop()

    def stop(self) -> None:
        """Stop sending and save everything."""
        self._is_open = False
        self.presence.stop()
        self.pages.stop()
        for conversation in self.conversations.values():
            conversation.stop()
            conversation.prune()
        self._save()

    # -- groups

    def create(
        self, description: str, retention: RetentionPolicy | None = None, group: GroupId | None = None
    ) -> GroupId:
        check_text("description", description, DESCRIPTION_BYTES_MAX)
        descriptor = GroupDescriptor(self.me.id, description, retention or RetentionPolicy())
        if group is None:
            group, descriptor = self._new_group(descriptor)
        if self.is_in(group):
            return group
        self._merge_own_record(GroupRecord(group, descriptor, ()))
        self._next_version(group, joins=True)
        self.send_record(self.directory.group_record(group))
        self._open_conversation(group).history_client.begin(always_report=True)
        return group

    def _new_group(self, descriptor: GroupDescriptor) -> tuple[GroupId, GroupDescriptor]:
        """A new id, and the descriptor with the proof that the group is ours."""
        signer = self.runtime.post_signer
        if signer is None:
            return GroupId(self.runtime.random.getrandbits(64) or 1), descriptor
        created_at_ms = int(1000 * self.runtime.wall_time_s())
        while creator_proofs.group_id(self.me.id, created_at_ms) in self.directory.entries:
            created_at_ms += 1
        group = creator_proofs.group_id(self.me.id, created_at_ms)
        return group, creator_proofs.signed(signer, self.nonce, created_at_ms, descriptor)

    def join(self, group: GroupId) -> None:
        if self.is_in(group):
            return
        self._descriptor(group)
        self._declined.pop(group, None)
        self._announce_membership(group, joins=True)
        self._open_conversation(group).history_client.begin(always_report=True)

    def listen(self, group: GroupId) -> None:
        """Receive a group without becoming a member. Nothing is announced."""
        self._descriptor(group)
        self._open_conversation(group, listening=not self.is_in(group)).history_client.begin(always_report=True)

    def leave(self, group: GroupId) -> None:
        """Leave permanently. The history stays in the store."""
        conversation = self.conversations.pop(group, None)
        if conversation is None:
            raise GroupNotFoundError(f"group {group:016x} is not joined")
        conversation.stop()
        if group in self._listening:
            del self._listening[group]
        else:
            self._announce_membership(group, joins=False)

    def decline(self, group: GroupId) -> None:
        """Do not report this group again until the next `announce`."""
        self._declined[group] = None

    def post(self, group: GroupId, data: bytes, parent_id: MessageId | None = None) -> GroupMessage:
        """Post a message. It is stored, broadcast and returned, but not delivered to us."""
        if not self.is_in(group):
            raise GroupNotFoundError(f"group {group:016x} is not joined; join it before you send")
        return self.conversations[group].send(check_data(data), parent_id)

    def _open_conversation(self, group: GroupId, *, listening: bool = False) -> Conversation:
        self._listening.pop(group, None)
        if listening:
            self._listening[group] = None
        if group not in self.conversations:
            descriptor = self.directory.entries[group].descriptor
            self.conversations[group] = Conversation(
                self, group, descriptor.retention if descriptor is not None else RetentionPolicy()
            )
        return self.conversations[group]

    def _announce_membership(self, group: GroupId, *, joins: bool) -> None:
        self.send(MembershipChange(group, *self._next_version(group, joins=joins)))

    def _next_version(self, group: GroupId, *, joins: bool) -> MembershipRecord:
        """Our own next membership record: odd version to join, even to leave."""
        old = self.directory.entries[group].members.get(self.me.id)
        version = (old.version if old is not None else 0) + 1
        version += (version % 2 == 1) != joins
        member_record = MembershipRecord(self.me.id, self.me.name, version)
        self._merge_own_record(GroupRecord(group, None, (member_record,)))
        return member_record

    def _merge_own_record(self, record: GroupRecord) -> None:
        self.directory.merge(record)
        self._unsaved[record.group] = None
        self.has_changed()

    # -- queries

    def is_in(self, group: GroupId) -> bool:
        """Whether we are a member, as opposed to a listener."""
        return group in self.conversations and group not in self._listening

    def groups(self) -> list[GroupInfo]:
        return [self.info(group) for group, entry in self.directory.entries.items() if entry.descriptor is not None]

    def info(self, group: GroupId) -> GroupInfo:
        descriptor, statuses = self._descriptor(group), list(self.members(group).values())
        return GroupInfo(
            group,
            descriptor.description,
            descriptor.retention,
            is_joined=self.is_in(group),
            is_declined=group in self._declined,
            online_count=statuses.count(MemberStatus.ONLINE),
            member_count=len(statuses) - statuses.count(MemberStatus.LEFT),
        )

    def _descriptor(self, group: GroupId) -> GroupDescriptor:
        entry = self.directory.entries.get(group)
        if entry is None or entry.descriptor is None:
            raise GroupNotFoundError(f"unknown group {group:016x}; wait for its `GroupDiscovered` event, or create it")
        return entry.descriptor

    def members(self, group: GroupId) -> dict[Member, MemberStatus]:
        """Current and former members, sorted by name."""
        entry = self.directory.entries.get(group)
        records = entry.members.values() if entry is not None else ()
        return {
            Member(record.member, record.name): self._status(record)
            for record in sorted(records, key=lambda each: (each.name, each.member))
        }

    def _status(self, record: MembershipRecord) -> MemberStatus:
        if not record.is_member:
            return MemberStatus.LEFT
        return MemberStatus.OFFLINE if self.presence.is_offline(record.member) else MemberStatus.ONLINE

    def shared_name(self, member: MemberId) -> str | None:
        """The name of a member that is in one of our groups; else None."""
        for group in self.conversations:
            record = self.directory.entries[group].members.get(member)
            if record is not None and record.is_member:
                return record.name
        return None

    # -- called by the runtime

    def on_message(self, peer: PeerId, data: bytes) -> None:
        """Handle a channel payload. Payloads that are not group messages are ignored."""
        if not is_group_message(data) or not self._is_open or peer == self.runtime.peer_id:
            return
        try:
            self._handle(peer, decode(data), len(data))
        except WireError:
            self.malformed_messages += 1

    def _handle(self, peer: PeerId, message: GroupWireMessage, size: int) -> None:
        presence = self.presence
        match message:
            case PostMessage() | HistoryPage() | HistoryRequest() | PostRequest():
                presence.on_activity(peer, message.post.author if isinstance(message, PostMessage) else None)
                if isinstance(message, HistoryPage):
                    self.history_tokens.consume(size, self.runtime.now())
                    self.pages.put(peer, message, size)
                elif (conversation := self.conversations.get(message.group)) is not None:
                    conversation.on_message(peer, message)
            case PresenceHeartbeat():
                presence.on_activity(peer, message.member)
                presence.on_presence_heartbeat(peer, message)
                self.directory_sync.on_presence_heartbeat(peer, message)
                for digest in message.history_digests:
                    if (conversation := self.conversations.get(digest.group)) is not None:
                        conversation.on_history_digest(digest)
            case DirectoryRequest():
                presence.on_activity(peer, message.member)
                self.directory_sync.on_directory_request(peer, message)
            case DirectoryPage():
                presence.on_activity(peer)
                self.directory_sync.on_directory_page(peer, message)
            case MembershipChange():
                self.directory_sync.on_membership_change(peer, message)
                presence.on_activity(peer, message.member)
            case Suspect():
                presence.on_activity(peer)
                presence.on_suspect(peer, message)
            case GoingOffline():
                presence.on_going_offline(peer, message)

    def _on_history_page(self, peer: PeerId, page: HistoryPage) -> None:
        if (conversation := self.conversations.get(page.group)) is not None:
            try:
                conversation.on_history_page(peer, page)
            except WireError:
                self.malformed_messages += 1

    def on_missed(self) -> None:
        """The channel missed messages: compare directories and request history in all groups."""
        if self._is_open:
            self.directory_sync.announce(is_initial=False)
            self._request_history_everywhere(always_report=False)

    def on_neighbor_lost(self, peer: PeerId) -> None:
        """A link failed without notice."""
        if self._is_open:
            self.presence.on_neighbor_lost(peer)

    # -- called by the parts

    def send(self, message: GroupWireMessage) -> None:
        if self._is_open:
            data = encode(message)
            kind = type(message).__name__
            self.sent_counts[kind] += 1
            self.sent_bytes[kind] += len(data)
            self.runtime.broadcast(data)

    def send_record(self, record: GroupRecord) -> None:
        self.send(DirectoryPage(0, self.directory.hash, False, True, 0, (), (), pack_group_records([record])))

    def report_limit(self, limit: str) -> None:
        if limit not in self._reported_limits:
            self._reported_limits[limit] = None
            self.runtime.emit(LimitReached(limit))

    def on_directory_change(self, change: DirectoryChange) -> None:
        """Called after a record from another member was merged."""
        group = change.group
        conversation = self.conversations.get(group)
        if conversation is not None and (descriptor := self.directory.entries[group].descriptor) is not None:
            conversation.retention = descriptor.retention
        for old, new in change.members:
            if new.member == self.me.id:
                self._refute(group, new)
                continue
            if new.is_member:
                self.presence.add_member(new.member)
            was_member = old is not None and old.is_member
            if conversation is not None and was_member != new.is_member:
                self.runtime.emit((MemberLeft if was_member else MemberJoined)(group, Member(new.member, new.name)))
        if change.is_new_group and conversation is None and group not in self._declined:
            self.runtime.emit(GroupDiscovered(self.info(group)))
        self._unsaved[group] = None
        self.has_changed()

    def _refute(self, group: GroupId, reported: MembershipRecord) -> None:
        """Only we decide about our own membership. Another version comes from a liar, or from before our store was lost
        or replaced by an old copy."""
        is_in = self.is_in(group)
        if is_in != reported.is_member:
            self._announce_membership(group, joins=is_in)

    def has_changed(self) -> None:
        if not self._save_timer.is_pending and self._is_open:
            self._save_timer.start(SAVE_DELAY_S, self._save)

    def _save(self) -> None:
        self._save_timer.cancel()
        for group in self._unsaved:
            self.store.save_group(StoredGroup(self.directory.group_record(group), self.is_in(group)))
        self._unsaved.clear()
        self.store.commit()
