"""What a participant can be asked: groups and their members, as known and seen from here."""

from typing import TYPE_CHECKING

from broadloom.errors import GroupNotFoundError
from broadloom.groups.directory_sync import backoff_s, window_s
from broadloom.groups.model import GroupId, GroupInfo, Member, MemberId, MemberStatus

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation
    from broadloom.groups.directory import GroupDirectory
    from broadloom.groups.presence import Presence
    from broadloom.groups.runtime import GroupRuntime
    from broadloom.groups.settings import GroupSettings
    from broadloom.groups.store import Store


class Queries:
    """What `Participant` is on its side that only answers."""

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
        """All who answer a question do so within this."""
        return window_s(self.settings.reply_window_s, self.presence.responder_count)

    def backoff_s(self) -> float:
        """How long to wait before we answer."""
        return backoff_s(self.runtime.random, self.reply_window_s, self.presence.responder_count)

    def is_in(self, group: GroupId) -> bool:
        """As a member; not if we only listen."""
        return group in self.conversations and group not in self._listening

    def held_count(self, group: GroupId) -> int:
        """Messages of it that we hold."""
        return self.store.history(group).count

    def groups(self) -> list[GroupInfo]:
        return [self.info(group) for group, entry in self.directory.entries.items() if entry.descriptor is not None]

    def info(self, group: GroupId) -> GroupInfo:
        entry = self.directory.entries.get(group)
        if entry is None or entry.descriptor is None:
            raise GroupNotFoundError(f"no group {group:016x} is known here")
        members = [member_record.member for member_record in entry.members.values() if member_record.version % 2]
        present = sum(not self.presence.is_offline(member) for member in members)
        joined, rejected = self.is_in(group), group in self._declined
        descriptor = entry.descriptor
        return GroupInfo(group, descriptor.description, descriptor.retention, joined, rejected, present, len(members))

    def members(self, group: GroupId) -> dict[Member, MemberStatus]:
        """Present and past."""
        entry = self.directory.entries.get(group)
        found: dict[Member, MemberStatus] = {}
        for member_record in (
            sorted(entry.members.values(), key=lambda each: (each.name, each.member)) if entry is not None else ()
        ):
            status = MemberStatus.LEFT
            if member_record.version % 2:
                status = MemberStatus.OFFLINE if self.presence.is_offline(member_record.member) else MemberStatus.ONLINE
            found[Member(member_record.member, member_record.name)] = status
        return found

    def shares_group_with(self, member: MemberId) -> bool:
        """Whether it is in any group that we are in."""
        return self.shared_name(member) is not None

    def shared_name(self, member: MemberId) -> str | None:
        """Its name, if it is in a group with us."""
        for group in self.conversations:
            member_record = self.directory.entries[group].members.get(member)
            if member_record is not None and member_record.version % 2:
                return member_record.name
        return None
