"""One joined group as the chat shows it: tree, members, unread messages, history transfer.

The tree is built from the history in slices when the group is shown. Until then messages are only counted.
"""

from collections import deque
from typing import NamedTuple

from broadloom.apps.chat.display_names import DisplayNames
from broadloom.apps.chat.read_state import ReadState
from broadloom.apps.chat.sanitize import clean_line
from broadloom.apps.chat.thread_tree import SHOWN_MAX, ThreadNode, ThreadTree
from broadloom.groups import Group, GroupMessage, Groups, Member, MemberId, MemberStatus
from broadloom.groups.intervals import IntervalSet
from broadloom.groups.model import Post
from broadloom.groups.store import History

SLICE_ROWS = 200
"""Messages processed between two looks at the clock."""
SCAN_ROWS = 4_000
"""Read from the store at once: seeking takes longer than reading on."""
READ_AFTER_S = 2.0
"""A message on the screen for this long counts as read."""


class CatchUpProgress(NamedTuple):
    """Progress of catching up."""

    received: int
    remaining: int


def title_of(description: str) -> str:
    """The first line of the description is the title; it may be missing."""
    return clean_line(description.partition("\n")[0]) or "(no name)"


def about_of(description: str) -> str:
    return clean_line(description.partition("\n")[2])


class GroupModel:
    def __init__(self, groups: Groups, group: Group, read_state: ReadState) -> None:
        self._groups = groups
        self.group = group
        self.id = group.id
        self._read_state = read_state
        self.tree: ThreadTree | None = None
        self.names = DisplayNames(groups.me)
        self.catching_up: CatchUpProgress | None = None
        self.unavailable = 0
        """Messages reported as unavailable by the last catch-up."""
        self._row = 0
        """History read up to here."""
        self._rows: deque[Post] = deque()
        """Read, but not in the tree yet."""
        self._sent: deque[GroupMessage] = deque()
        self._skip = 0
        """The first ones, if there are more than can be shown."""
        self.is_loading = False
        self._dropped = group.dropped_count
        self._visible_since: dict[ThreadNode, float] = {}
        self._unread = 0
        self._on_overflow()
        if group.info.retention.ids_only:
            self.open()  # the program's own queue is bounded

    @property
    def description(self) -> str:
        charter = self._groups._participant.directory.entries[self.id].descriptor
        return charter.description if charter is not None else ""

    @property
    def title(self) -> str:
        return title_of(self.description)

    @property
    def about(self) -> str:
        return about_of(self.description)

    @property
    def history(self) -> History:
        return self._groups._participant.conversations[self.id].history

    @property
    def unread(self) -> int:
        return self.tree.unread if self.tree is not None and not self.is_loading else self._unread

    def _recount_unread(self) -> None:
        conversation = self._groups._participant.conversations[self.id]
        forgotten = conversation.history.forgotten()
        held: dict[MemberId, IntervalSet] = {
            author: had.minus(forgotten.get(author))
            for author, had in conversation.order.received.items()
            if author != self._groups.me.id
        }
        self._unread = self._read_state.unread_count(self.id, held)

    # -- tree

    def open(self) -> ThreadTree:
        """Start building the tree, if there is none."""
        if self.tree is None:
            self.tree = ThreadTree()
            self._row = 0
            self._rows.clear()
            self._skip = max(0, self.history.count - SHOWN_MAX)
            self.is_loading = True
        return self.tree

    def close(self) -> None:
        """Drop the tree; it is rebuilt from the history when the group is shown again."""
        self._unread = self.unread
        self.tree, self.is_loading = None, False
        self._rows.clear()
        self._visible_since.clear()

    def work(self) -> bool:
        """One slice of work; False if there was nothing to do."""
        if self.group.dropped_count != self._dropped:
            self._on_overflow()
        if self.is_loading:
            self._load()
            return True
        return self._receive_new()

    def _on_overflow(self) -> None:
        """More arrived than the queue holds, or before the group was shown; the history has it."""
        self._dropped = self.group.dropped_count
        while self.group.receive_nowait() is not None:
            pass
        self._recount_unread()
        if self.tree is not None:
            self.tree = None
            self.open()

    def _load(self) -> None:
        assert self.tree is not None
        if not self._rows:
            found = self.history.scan(self._row, SCAN_ROWS)
            if not found:
                self.is_loading = False
                return
            self._row = found[-1][0]
            skipped = min(self._skip, len(found))
            self._skip -= skipped
            self.tree.dropped_count += skipped
            self._rows.extend(post for _, post in found[skipped:])
        conversation = self._groups._participant.conversations[self.id]
        names = conversation.history.names
        for _ in range(min(SLICE_ROWS, len(self._rows))):
            post = self._rows.popleft()
            self._add_to_tree(conversation.group_message(post, names.get(post.author, "")))

    def _receive_new(self) -> bool:
        taken = len(self._sent)
        while self._sent:
            sent = self._sent.popleft()
            if self.tree is not None:
                self._add_to_tree(sent)
        while taken < SLICE_ROWS and (message := self.group.receive_nowait()) is not None:
            taken += 1
            if self.tree is not None:
                self._add_to_tree(message)
            else:
                self._unread += self._is_unread(message)
        return taken > 0

    def add_sent(self, message: GroupMessage) -> None:
        """Our own messages are not received: show them with the next `work`."""
        self._sent.append(message)

    def _add_to_tree(self, message: GroupMessage) -> None:
        assert self.tree is not None
        self.names.learn(Member(message.author, message.author_name))
        self.tree.add(message, unread=self._is_unread(message))

    def _is_unread(self, message: GroupMessage) -> bool:
        return message.author != self._groups.me.id and not self._read_state.is_read(self.id, message.id)

    @property
    def loaded(self) -> tuple[int, int]:
        """How much of the history is in the tree, and its total."""
        return (len(self.tree) if self.tree is not None else 0), min(self.history.count, SHOWN_MAX)

    # -- reading

    def mark_read(self, node: ThreadNode) -> None:
        if node.unread and self.tree is not None:
            self._read_state.mark_read(self.id, node.message.id)
            self.tree.mark_read(node)

    def mark_branch_read(self, node: ThreadNode) -> int:
        found = self.tree.unread_in_branch(node) if self.tree is not None else []
        for each in found:
            self.mark_read(each)
        return len(found)

    def mark_all_read(self) -> int:
        found = [node for node in self.tree or () if node.unread]
        for node in found:
            self.mark_read(node)
        return len(found)

    def note_visible(self, nodes: list[ThreadNode], now: float) -> bool:
        """These messages are on the screen. True if any became read."""
        self._visible_since = {node: self._visible_since.get(node, now) for node in nodes if node.unread}
        done = [node for node, since in self._visible_since.items() if now - since >= READ_AFTER_S]
        for node in done:
            self.mark_read(node)
        return bool(done)

    # -- members

    def members(self) -> list[tuple[Member, MemberStatus]]:
        """Online members first, then offline ones, then those who left; each by name."""
        order = list(MemberStatus)
        found = sorted(self.group.members().items(), key=lambda each: order.index(each[1]))
        for member, _ in found:
            self.names.learn(member)
        return found
