"""`Queries`: the read-only side of a participant."""

from typing import TYPE_CHECKING

from broadloom.errors import GroupNotFoundError
from broadloom.groups.message_fields import MemberRecord
from broadloom.groups.model import GroupId, GroupInfo, Member, MemberId, MemberStatus
from broadloom.groups.suppression import backoff_s, window_s

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation
    from broadloom.groups.directory import GroupDirectory
    from broadloom.groups.presence import Presence
    from broadloom.groups.runtime import GroupRuntime
    from broadloom.groups.settings import GroupSettings
    from broadloom.groups.store import Store


class Queries:
    directory: "GroupDirectory"
    presence: "Presence"
    runtime: "GroupRuntime"
    settings: "GroupSettings"
    conversations: "dict[GroupId, Conversation]"
    store: "Store"
    _declined: dict[GroupId, None]
    _listening: dict[GroupId, None]

    @property
    def reply_window_s(self) -> float:
        """Every member that answers a request does so within this time."""
        return window_s(self.settings.reply_window_s, self.presence.responder_count)

    def backoff_s(self) -> float:
        """A random delay before we answer a request."""
        return backoff_s(self.runtime.random, self.reply_window_s, self.presence.responder_count)

    def is_in(self, group: GroupId) -> bool:
        """Whether we are a member, as opposed to a listener."""
        return group in self.conversations and group not in self._listening

    def held_count(self, group: GroupId) -> int:
        return self.store.history(group).count

    def groups(self) -> list[GroupInfo]:
        return [self.info(group) for group, entry in self.directory.entries.items() if entry.descriptor is not None]

    def info(self, group: GroupId) -> GroupInfo:
        entry = self.directory.entries.get(group)
        if entry is None or entry.descriptor is None:
            raise GroupNotFoundError(f"unknown group {group:016x}")
        members = [record.member for record in entry.members.values() if record.is_member]
        return GroupInfo(
            group,
            entry.descriptor.description,
            entry.descriptor.retention,
            is_joined=self.is_in(group),
            is_declined=group in self._declined,
            online_count=sum(not self.presence.is_offline(member) for member in members),
            member_count=len(members),
        )

    def members(self, group: GroupId) -> dict[Member, MemberStatus]:
        """Current and former members, sorted by name."""
        entry = self.directory.entries.get(group)
        records = entry.members.values() if entry is not None else ()
        return {
            Member(record.member, record.name): self._status(record)
            for record in sorted(records, key=lambda each: (each.name, each.member))
        }

    def _status(self, record: MemberRecord) -> MemberStatus:
        if not record.is_member:
            return MemberStatus.LEFT
        return MemberStatus.OFFLINE if self.presence.is_offline(record.member) else MemberStatus.ONLINE

    def shares_group_with(self, member: MemberId) -> bool:
        return self.shared_name(member) is not None

    def shared_name(self, member: MemberId) -> str | None:
        """The name of a member that is in one of our groups; else None."""
        for group in self.conversations:
            record = self.directory.entries[group].members.get(member)
            if record is not None and record.is_member:
                return record.name
        return None
