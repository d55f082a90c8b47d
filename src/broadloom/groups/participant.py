"""One program's part in all groups of a channel: the parts meet here, and notes go to the part that handles them.

No sockets, no clock, no randomness: all of it comes from the medium. Nothing that comes from there is trusted: what is
malformed is counted and dropped.
"""

from collections import Counter
from typing import TYPE_CHECKING

from broadloom.errors import GroupNotFoundError
from broadloom.groups.codec import GroupWireMessage, decode, encode, is_group_message
from broadloom.groups.conversation import Conversation
from broadloom.groups.directory import DirectoryChange, GroupDirectory
from broadloom.groups.directory_sync import DirectorySync
from broadloom.groups.history_server import TokenBucket
from broadloom.groups.message_fields import GroupDescriptor, GroupRecord, MemberRecord, pack_group_records
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
    GroupMessage,
    LimitReached,
    Member,
    MemberJoined,
    MemberLeft,
    MessageId,
)
from broadloom.groups.presence import Presence
from broadloom.groups.queries import Queries
from broadloom.groups.settings import DESCRIPTION_BYTES_MAX, NAME_BYTES_MAX, GroupSettings, RetentionPolicy
from broadloom.groups.store import MemoryStore, Store, StoredGroup
from broadloom.wire import PeerId
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.groups.runtime import GroupRuntime, Timer

SAVE_DELAY_S = 0.5
"""Changes reach the store's file after this."""


class Participant(Queries):
    """Driven by its medium; the application calls `create`, `join`, `listen`, `reject`, `leave`, `post`."""

    def __init__(
        self, runtime: "GroupRuntime", name: str, store: Store | None = None, settings: GroupSettings | None = None
    ) -> None:
        _check_text("name", name, NAME_BYTES_MAX)
        self.runtime = runtime
        self.settings = settings or GroupSettings()
        self.store = store or MemoryStore()
        known = self.store.member()
        self.me = Member(known.id if known is not None else runtime.random.getrandbits(64) or 1, name)
        if known != self.me:
            self.store.set_member(self.me)
        self.directory = GroupDirectory()
        self.conversations: dict[GroupId, Conversation] = {}
        self.history_tokens = TokenBucket(
            self.settings.history_bytes_per_s, self.settings.history_burst_bytes, runtime.now()
        )
        self.presence = Presence(self)
        self.directory_sync = DirectorySync(self)
        self._declined: dict[GroupId, None] = {}
        self._listening: dict[GroupId, None] = {}
        """Groups that we hear and are not in."""
        self._unsaved: dict[GroupId, None] = {}
        self._save_timer: Timer | None = None
        self._reported_limits: dict[str, None] = {}
        self._is_open = False
        self.malformed_messages = 0
        """Notes that were dropped."""
        self.sent_counts: Counter[str] = Counter()
        """Notes by kind, ..."""
        self.sent_bytes: Counter[str] = Counter()
        for kept in self.store.groups():
            self.directory.merge(kept.record)
            for member_record in kept.record.members:
                if member_record.version % 2:
                    self.presence.add_member(member_record.member)
            if kept.is_joined:
                self._open_conversation(kept.record.group)

    # -- coming and going

    def announce(self) -> None:
        """We have just connected: tell, and ask. What was rejected before may be offered again."""
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
            self.runtime.call_later(
                number / self.settings.history_requests_per_s, self._begin_catch_up, conversation, always_report
            )

    def _begin_catch_up(self, conversation: Conversation, always_report: bool) -> None:
        if self._is_open and self.conversations.get(conversation.group) is conversation:
            conversation.history_client.begin(always_report=always_report)

    def go_offline(self) -> None:
        """We are about to disconnect, and stay a member of our groups."""
        if self._is_open:
            self.send(GoingOffline(self.me.id))
        self.stop()

    def stop(self) -> None:
        """Nothing is said any more; everything is saved."""
        self._is_open = False
        self.presence.stop()
        for conversation in self.conversations.values():
            conversation.stop()
            conversation.prune()
        self._save()

    # -- groups

    def create(
        self, description: str, retention: RetentionPolicy | None = None, group: GroupId | None = None
    ) -> GroupId:
        """A new group with us in it."""
        _check_text("description", description, DESCRIPTION_BYTES_MAX)
        if group is None:
            group = self.runtime.random.getrandbits(64) or 1
        if self.is_in(group):
            return group
        descriptor = GroupDescriptor(self.me.id, description, retention or RetentionPolicy())
        self._merge_own_record(GroupRecord(group, descriptor, ()))
        self._next_version(group, joins=True)
        self.send_record(self.directory.group_record(group))
        self._open_conversation(group).history_client.begin(always_report=True)
        return group

    def join(self, group: GroupId) -> None:
        if self.is_in(group):
            return
        self._check_known(group)
        self._declined.pop(group, None)
        member_record = self._next_version(group, joins=True)
        self.send(MembershipChange(group, member_record.member, member_record.name, member_record.version))
        self._open_conversation(group).history_client.begin(always_report=True)

    def listen(self, group: GroupId) -> None:
        """Hear a group without being in it: nobody is told, and its lists stay as they are."""
        self._check_known(group)
        self._open_conversation(group, listening=not self.is_in(group)).history_client.begin(always_report=True)

    def leave(self, group: GroupId) -> None:
        """For good: our history of it stays in the store, and we get nothing more of it."""
        conversation = self.conversations.pop(group, None)
        if conversation is None:
            raise GroupNotFoundError(f"group {group:016x} was not joined")
        conversation.stop()
        if group in self._listening:
            del self._listening[group]
            return
        member_record = self._next_version(group, joins=False)
        self.send(MembershipChange(group, member_record.member, member_record.name, member_record.version))

    def decline(self, group: GroupId) -> None:
        """Not offered again until we next arrive."""
        self._declined[group] = None

    def post(self, group: GroupId, data: bytes, parent_id: MessageId | None = None) -> GroupMessage:
        """Say something in a group; it is delivered to us at once, like anybody's."""
        if not self.is_in(group):
            raise GroupNotFoundError(f"group {group:016x} was not joined: join it before speaking")
        return self.conversations[group].send(data, parent_id)

    def _check_known(self, group: GroupId) -> None:
        entry = self.directory.entries.get(group)
        if entry is None or entry.descriptor is None:
            raise GroupNotFoundError(f"no group {group:016x} is known here; wait until it is offered, or create it")

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

    def _next_version(self, group: GroupId, *, joins: bool) -> MemberRecord:
        """Our own next step: in or out."""
        old = self.directory.entries[group].members.get(self.me.id)
        version = (old.version if old is not None else 0) + 1
        version += (version % 2 == 1) != joins
        member_record = MemberRecord(self.me.id, self.me.name, version)
        self._merge_own_record(GroupRecord(group, None, (member_record,)))
        return member_record

    def _merge_own_record(self, record: GroupRecord) -> None:
        self.directory.merge(record)
        self._unsaved[record.group] = None
        self.has_changed()

    # -- told by the medium

    def on_message(self, peer: PeerId, data: bytes) -> None:
        """A payload of the channel. What is no group message is none of our business."""
        if not is_group_message(data) or not self._is_open or peer == self.runtime.peer_id:
            return
        try:
            self._handle(peer, decode(data), len(data))
        except WireError:
            self.malformed_messages += 1

    def _handle(self, peer: PeerId, message: GroupWireMessage, size: int) -> None:
        presence = self.presence
        match message:
            case PostMessage():
                presence.on_activity(peer, message.post.author)
                if (conversation := self.conversations.get(message.group)) is not None:
                    conversation.on_post_message(peer, message)
            case HistoryPage():
                presence.on_activity(peer)
                if (conversation := self.conversations.get(message.group)) is not None:
                    conversation.on_history_page(peer, message, size)
                else:
                    self.history_tokens.consume(size, self.runtime.now())
            case HistoryRequest():
                presence.on_activity(peer)
                if (conversation := self.conversations.get(message.group)) is not None:
                    conversation.on_history_request(peer, message)
            case PostRequest():
                presence.on_activity(peer)
                if (conversation := self.conversations.get(message.group)) is not None:
                    conversation.on_post_request(peer, message)
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

    def on_missed(self) -> None:
        """The channel could not give us everything: compare lists and ask in all groups."""
        if self._is_open:
            self.directory_sync.announce(is_initial=False)
            self._request_history_everywhere(always_report=False)

    def on_neighbor_lost(self, peer: PeerId) -> None:
        """A link broke without a word."""
        if self._is_open:
            self.presence.on_neighbor_lost(peer)

    # -- for the parts

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
        """Lists have changed by what somebody said."""
        group = change.group
        conversation = self.conversations.get(group)
        if conversation is not None and (descriptor := self.directory.entries[group].descriptor) is not None:
            conversation.retention = descriptor.retention
        for old, new in change.members:
            if new.member == self.me.id:
                self._refute(group, new)
                continue
            if new.version % 2:
                self.presence.add_member(new.member)
            was_in = old is not None and old.version % 2 == 1
            if conversation is not None and was_in != (new.version % 2 == 1):
                changed_member = Member(new.member, new.name)
                self.runtime.emit(MemberLeft(group, changed_member) if was_in else MemberJoined(group, changed_member))
        if change.is_new_group and conversation is None and group not in self._declined:
            self.runtime.emit(GroupDiscovered(self.info(group)))
        self._unsaved[group] = None
        self.has_changed()

    def _refute(self, group: GroupId, reported: MemberRecord) -> None:
        """Only we decide where we stand. (Or our own store was lost, or is an old copy.)"""
        is_in = self.is_in(group)
        if is_in != (reported.version % 2 == 1):
            member_record = self._next_version(group, joins=is_in)
            self.send(MembershipChange(group, member_record.member, member_record.name, member_record.version))

    def has_changed(self) -> None:
        if self._save_timer is None and self._is_open:
            self._save_timer = self.runtime.call_later(SAVE_DELAY_S, self._save)

    def _save(self) -> None:
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        for group in self._unsaved:
            self.store.save_group(StoredGroup(self.directory.group_record(group), self.is_in(group)))
        self._unsaved.clear()
        self.store.commit()


def _check_text(label: str, text: str, bytes_max: int) -> None:
    if len(text.encode()) > bytes_max or "\0" in text:
        raise ValueError(f"a {label} has at most {bytes_max} bytes, and no NUL in it")
