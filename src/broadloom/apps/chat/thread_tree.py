"""The tree of a conversation as a reader sees it: folding, read state, search.

No terminal and no channel here. Messages are added in any order; known ones are ignored. A message whose parent is
missing starts a thread, and moves below its parent if that arrives later. Nothing recurses: a thread may be 100,000
replies deep.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from broadloom.apps.chat.line_index import LineIndex, LineMarker
from broadloom.groups import GroupMessage, MessageId

SHOWN_MAX = 100_000
"""Messages in memory per group; the oldest are dropped and stay in the store."""


class ThreadNode(LineMarker):
    """One message in the tree."""

    __slots__ = ("cache", "has_sibling", "is_folded", "is_shown", "last_reply", "message", "parent", "reply_count")

    def __init__(self, message: GroupMessage, unread: bool) -> None:
        super().__init__(unread)
        self.message = message
        self.parent: ThreadNode | None = None
        """The node above; None at the root of a thread."""
        self.reply_count = 0
        self.last_reply: ThreadNode | None = None
        self.has_sibling = False
        """Whether another reply to the same message follows."""
        self.is_folded = False
        self.is_shown = True
        """False after it was dropped."""
        self.cache: object = None
        """Cache of the renderer."""

    @property
    def visible_parent(self) -> "ThreadNode | None":
        """The parent, unless it was dropped."""
        return self.parent if self.parent is not None and self.parent.is_shown else None

    @property
    def has_missing_parent(self) -> bool:
        """It replies to a message that is not available."""
        return self.message.parent_id is not None and self.visible_parent is None


class ThreadTree:
    def __init__(self, shown_max: int = SHOWN_MAX) -> None:
        self._shown_max = shown_max
        self._index = LineIndex(ThreadNode)
        self._nodes: dict[MessageId, ThreadNode] = {}
        self._arrived: deque[ThreadNode] = deque()
        self._orphans: dict[MessageId, list[ThreadNode]] = {}
        """Nodes whose parent is missing, by parent."""
        self.dropped_count = 0
        """Number of messages dropped."""

    def __len__(self) -> int:
        return self._index.lines

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self._nodes

    def get(self, message_id: MessageId) -> ThreadNode | None:
        return self._nodes.get(message_id)

    # -- adding

    def add(self, message: GroupMessage, *, unread: bool) -> ThreadNode | None:
        """None if it is known."""
        if (known := self._nodes.get(message.id)) is not None:
            if known.message.is_stripped and not message.is_stripped:
                known.message, known.cache = message, None
            return None
        node = self._nodes[message.id] = ThreadNode(message, unread)
        self._arrived.append(node)
        parent = self._nodes.get(message.parent_id) if message.parent_id is not None else None
        if parent is None:
            self._index.append(node)
            if message.parent_id is not None:
                self._orphans.setdefault(message.parent_id, []).append(node)
        else:
            self._index.insert(node, parent.end_marker, hidden=parent.is_folded)
            self._attach(node, parent)
        for orphan in self._orphans.pop(message.id, ()) if self._orphans else ():
            if orphan.is_shown and not self._is_below(node, orphan):
                self._index.move(orphan, node.end_marker, hidden=node.is_folded)
                self._attach(orphan, node)
        while self._index.lines > self._shown_max:
            self._evict_oldest()
        return node

    @staticmethod
    def _attach(node: ThreadNode, parent: ThreadNode) -> None:
        node.parent = parent
        parent.reply_count += 1
        if parent.last_reply is not None:
            parent.last_reply.has_sibling = True
        parent.last_reply = node

    @staticmethod
    def _is_below(node: ThreadNode | None, other: ThreadNode) -> bool:
        """A message cannot reply to its own descendant."""
        while node is not None:
            if node is other:
                return True
            node = node.visible_parent
        return False

    def _evict_oldest(self) -> None:
        """Drop the oldest. Its replies become threads where they are."""
        node = self._arrived.popleft()
        self.unfold(node)
        self._index.remove(node)
        if (above := node.visible_parent) is not None:
            above.reply_count -= 1
            if above.last_reply is node:
                above.last_reply = None
        node.is_shown = False
        node.parent = node.last_reply = None
        del self._nodes[node.message.id]
        wanted = node.message.parent_id
        if wanted is not None and node in self._orphans.get(wanted, ()):
            self._orphans[wanted].remove(node)
            if not self._orphans[wanted]:
                del self._orphans[wanted]
        self.dropped_count += 1

    # -- navigation

    @property
    def rows(self) -> int:
        """Number of visible lines."""
        return self._index.rows

    def node_at(self, row: int) -> ThreadNode | None:
        return self._index.line_at(row)

    def row_of(self, node: ThreadNode) -> int:
        return self._index.row_of(node)

    def visible_from(self, node: ThreadNode | None, *, backward: bool = False) -> Iterator[ThreadNode]:
        """Visible lines from this one on."""
        return self._index.visible_from(node, backward=backward)

    @property
    def last(self) -> ThreadNode | None:
        """The last visible line."""
        return next(self.visible_from(None, backward=True), None)

    def visible_ancestor(self, node: ThreadNode) -> ThreadNode:
        """The node if visible, otherwise the folded one that hides it."""
        if self._index.is_visible(node):
            return node
        found, above = node, node.visible_parent
        while above is not None:
            if above.is_folded:
                found = above
            above = above.visible_parent
        return found

    def ancestors(self, node: ThreadNode, levels_max: int) -> tuple[list[ThreadNode], bool]:
        """Ancestors, nearest first, and whether there are more."""
        found: list[ThreadNode] = []
        above = node.visible_parent
        while above is not None and len(found) < levels_max:
            found.append(above)
            above = above.visible_parent
        return found, above is not None

    def count_below(self, node: ThreadNode) -> tuple[int, int]:
        """All descendants: total and unread."""
        return self._index.count_below(node)

    # -- folding

    def set_folded(self, node: ThreadNode, is_folded: bool) -> None:
        if node.is_folded != is_folded and (node.reply_count or not is_folded):
            node.is_folded = is_folded
            self._index.hide(node, 1 if is_folded else -1)

    def unfold(self, node: ThreadNode) -> None:
        self.set_folded(node, False)

    def reveal(self, node: ThreadNode) -> None:
        """Unfold its ancestors."""
        above = node.visible_parent
        while above is not None and not self._index.is_visible(node):
            self.unfold(above)
            above = above.visible_parent

    def fold_threads(self, is_folded: bool) -> None:
        """Fold or unfold all threads."""
        for node in list(self):
            if node.is_folded != is_folded and (not is_folded or node.visible_parent is None):
                self.set_folded(node, is_folded)

    # -- reading

    @property
    def unread(self) -> int:
        return self._index.unread

    def next_unread(self, node: ThreadNode | None, *, backward: bool = False) -> ThreadNode | None:
        """The next one, folded or not, wrapping around."""
        return self._index.next_unread(node, backward=backward)

    def mark_read(self, node: ThreadNode) -> None:
        self._index.mark_read(node)

    def unread_in_branch(self, node: ThreadNode) -> list[ThreadNode]:
        """The whole branch, including the node."""
        return self._index.unread_in_branch(node)

    def __iter__(self) -> Iterator[ThreadNode]:
        """All messages in reading order, including hidden ones."""
        return iter(self._index)


class SearchHit(NamedTuple):
    """A search result."""

    node: ThreadNode
    number: int
    """Counted from 1 in reading order."""
    total: int


def find_text(tree: ThreadTree, text: str, node: ThreadNode | None, *, backward: bool = False) -> SearchHit | None:
    """The next (or previous) message with this text in its body or author's name, ignoring case, wrapping around."""
    wanted, passed = text.casefold(), 0
    found: list[ThreadNode] = []
    for each in tree:
        if each is node:
            passed = len(found)
        message = each.message
        if wanted in message.data.decode(errors="replace").casefold() or wanted in message.author_name.casefold():
            found.append(each)
    if not wanted or not found:
        return None
    if backward:
        passed -= 1
    elif passed < len(found) and found[passed] is node:
        passed += 1
    at = passed % len(found)
    return SearchHit(found[at], at + 1, len(found))
