"""One group that we are in, as the chat shows it: its tree, its members by name, what is unread, what is coming in.

The tree is made when somebody looks, from the history in slices, so that no one waits for it. Until then messages are
only counted.
"""

from collections import deque
from typing import NamedTuple

from weft.apps.chat.naming import Names
from weft.apps.chat.reading import Reading
from weft.apps.chat.safe import clean_line
from weft.apps.chat.tree import SHOWN_MAX, Node, Tree
from weft.groups import Group, GroupId, Groups, Here, Member, MemberId, Message
from weft.groups.history import History
from weft.groups.intervals import Intervals
from weft.groups.names import Post

SLICE_ROWS = 200
"""Messages taken from the history, or counted, between two looks at the clock."""
SCAN_ROWS = 4_000
"""Read from the store in one go: to find a place in it takes longer than to read on from there."""
READ_AFTER_S = 2.0
"""What was on the screen for so long was read."""


class Progress(NamedTuple):
    """History that comes in from the others."""

    received: int
    remaining: int


def title_of(description: str) -> str:
    """The first line of a description is the name of the group; there need not be one."""
    return clean_line(description.partition("\n")[0]) or "(no name)"


def about_of(description: str) -> str:
    return clean_line(description.partition("\n")[2])


def message_of(group: GroupId, post: Post, names: dict[MemberId, str]) -> Message:
    """One of the history, as it was delivered then."""
    name, marks = names.get(post.author, ""), (False, post.hollow, post.proven)
    return Message(group, post.id, name, post.parent, post.sent_ms, post.data, *marks)


class Talk:
    def __init__(self, here: Groups, group: Group, reading: Reading) -> None:
        self._here = here
        self.group = group
        self.id = group.id
        self._reading = reading
        self.tree: Tree | None = None
        self.names = Names(here.me)
        self.catching_up: Progress | None = None
        self.unavailable = 0
        """Messages that nobody holds any more, as told when we had caught up last."""
        self._row = 0
        """Of the history: up to here it was read, ..."""
        self._rows: deque[Post] = deque()
        """... and these are not in the tree yet."""
        self._skip = 0
        """The first ones, of more than can be shown."""
        self.is_loading = False
        self._dropped = group.dropped
        self._seen_since: dict[Node, float] = {}
        self._unread = 0
        self._overran()
        if group.info.keep.ids_only:
            self.open()  # what is said must be shown now or never

    @property
    def description(self) -> str:
        charter = self._here.participant.directory.books[self.id].charter
        return charter.description if charter is not None else ""

    @property
    def title(self) -> str:
        return title_of(self.description)

    @property
    def about(self) -> str:
        return about_of(self.description)

    @property
    def history(self) -> History:
        return self._here.participant.conversations[self.id].history

    @property
    def unread(self) -> int:
        return self.tree.unread if self.tree is not None and not self.is_loading else self._unread

    def _count_anew(self) -> None:
        talk = self._here.participant.conversations[self.id]
        forgotten = talk.history.forgotten()
        held: dict[MemberId, Intervals] = {
            author: had.minus(forgotten.get(author))
            for author, had in talk.order.had.items()
            if author != self._here.me.id
        }
        self._unread = self._reading.unread(self.id, held)

    # -- the tree

    def open(self) -> Tree:
        """Begin to make the tree, if there is none."""
        if self.tree is None:
            self.tree = Tree()
            self._row = 0
            self._rows.clear()
            self._skip = max(0, self.history.count - SHOWN_MAX)
            self.is_loading = True
        return self.tree

    def close(self) -> None:
        """Nobody looks for now: the tree is made again from the history when somebody does."""
        self._unread = self.unread
        self.tree, self.is_loading = None, False
        self._rows.clear()
        self._seen_since.clear()

    def work(self) -> bool:
        """One slice of what is to be done; False if there was nothing."""
        if self.group.dropped != self._dropped:
            self._overran()
        if self.is_loading:
            self._load()
            return True
        return self._take()

    def _overran(self) -> None:
        """More came than could wait here, or before anybody looked; the history has it."""
        self._dropped = self.group.dropped
        while self.group.acquire() is not None:
            pass
        self._count_anew()
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
            self.tree.dropped += skipped
            self._rows.extend(post for _, post in found[skipped:])
        names = self.history.names
        for _ in range(min(SLICE_ROWS, len(self._rows))):
            self._show(message_of(self.id, self._rows.popleft(), names))

    def _take(self) -> bool:
        taken = 0
        while taken < SLICE_ROWS and (message := self.group.acquire()) is not None:
            taken += 1
            if self.tree is not None:
                self._show(message)
            else:
                self._unread += self._is_unread(message)
        return taken > 0

    def _show(self, message: Message) -> None:
        assert self.tree is not None
        self.names.learn(Member(message.author, message.name))
        self.tree.add(message, unread=self._is_unread(message))

    def _is_unread(self, message: Message) -> bool:
        return message.author != self._here.me.id and not self._reading.was_read(self.id, message.id)

    @property
    def loaded(self) -> tuple[int, int]:
        """How much of the history stands in the tree, and how much there is of it."""
        return (len(self.tree) if self.tree is not None else 0), min(self.history.count, SHOWN_MAX)

    # -- reading

    def read(self, node: Node) -> None:
        if node.unread and self.tree is not None:
            self._reading.read(self.id, node.message.id)
            self.tree.mark_read(node)

    def read_branch(self, node: Node) -> int:
        found = self.tree.unread_below(node) if self.tree is not None else []
        for each in found:
            self.read(each)
        return len(found)

    def read_all(self) -> int:
        found = [node for node in self.tree or () if node.unread]
        for node in found:
            self.read(node)
        return len(found)

    def looked_at(self, nodes: list[Node], now: float) -> bool:
        """These are on the screen. What was there for long enough was read; True if there was any."""
        self._seen_since = {node: self._seen_since.get(node, now) for node in nodes if node.unread}
        done = [node for node, since in self._seen_since.items() if now - since >= READ_AFTER_S]
        for node in done:
            self.read(node)
        return bool(done)

    # -- members

    def members(self) -> list[tuple[Member, Here]]:
        """Present ones first, then those who are gone, then those who left; each by name."""
        order = list(Here)
        found = sorted(self.group.members().items(), key=lambda each: order.index(each[1]))
        for member, _ in found:
            self.names.learn(member)
        return found
