"""What a participant can be asked: groups and their members, as known and seen from here."""

from typing import TYPE_CHECKING

from weft.groups.backoff import backoff_s, window_s
from weft.groups.errors import NoSuchGroup
from weft.groups.events import GroupInfo, Here
from weft.groups.names import GroupId, Member, MemberId

if TYPE_CHECKING:
    from weft.groups.attendance import Attendance
    from weft.groups.conversation import Conversation
    from weft.groups.directory import Directory
    from weft.groups.history import Store
    from weft.groups.medium import Medium
    from weft.groups.settings import Settings


class Known:
    """What `Participant` is on its side that only answers."""

    directory: "Directory"
    attendance: "Attendance"
    medium: "Medium"
    settings: "Settings"
    conversations: "dict[GroupId, Conversation]"
    store: "Store"
    _rejected: dict[GroupId, None]
    _listening: dict[GroupId, None]

    @property
    def answers_s(self) -> float:
        """All who answer a question do so within this."""
        return window_s(self.settings.answer_s, self.attendance.listeners)

    def backoff_s(self) -> float:
        """How long to wait before we answer."""
        return backoff_s(self.medium.random, self.answers_s, self.attendance.listeners)

    def is_in(self, group: GroupId) -> bool:
        """As a member; not if we only listen."""
        return group in self.conversations and group not in self._listening

    def held(self, group: GroupId) -> int:
        """Messages of it that we hold."""
        return self.store.history(group).count

    def groups(self) -> list[GroupInfo]:
        return [self.info(group) for group, book in self.directory.books.items() if book.charter is not None]

    def info(self, group: GroupId) -> GroupInfo:
        book = self.directory.books.get(group)
        if book is None or book.charter is None:
            raise NoSuchGroup(f"no group {group:016x} is known here")
        members = [stand.member for stand in book.stands.values() if stand.step % 2]
        present = sum(not self.attendance.is_gone(member) for member in members)
        joined, rejected = self.is_in(group), group in self._rejected
        charter = book.charter
        return GroupInfo(group, charter.description, charter.keep, joined, rejected, present, len(members))

    def members(self, group: GroupId) -> dict[Member, Here]:
        """Present and past."""
        book = self.directory.books.get(group)
        found: dict[Member, Here] = {}
        for stand in (
            sorted(book.stands.values(), key=lambda each: (each.name, each.member)) if book is not None else ()
        ):
            here = Here.LEFT
            if stand.step % 2:
                here = Here.GONE if self.attendance.is_gone(stand.member) else Here.PRESENT
            found[Member(stand.member, stand.name)] = here
        return found

    def directory_knows(self, member: MemberId) -> bool:
        """Whether it is in any group that we are in."""
        return self.shared_name(member) is not None

    def shared_name(self, member: MemberId) -> str | None:
        """Its name, if it is in a group with us."""
        for group in self.conversations:
            stand = self.directory.books[group].stands.get(member)
            if stand is not None and stand.step % 2:
                return stand.name
        return None
