"""The tree of a conversation as a reader sees it: branches folded or not, messages read or not, found or not.

No terminal and no channel here. It takes messages in any order, ignores those it has, shows one whose parent is not
held as the beginning of a thread, and hangs it below its parent should that come later. Nothing recurses: a thread may
be 100,000 answers deep.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from weft.apps.chat.sequence import Line, Sequence
from weft.groups import Message, MessageId

SHOWN_MAX = 100_000
"""Messages of one group that are held for showing; the oldest give way, and stay in the store."""


class Node(Line):
    """One message in the tree."""

    __slots__ = ("answers", "cache", "fold", "has_sibling", "is_shown", "last_answer", "message", "parent")

    def __init__(self, message: Message, unread: bool) -> None:
        super().__init__(unread)
        self.message = message
        self.parent: Node | None = None
        """What it is drawn below; None for the beginning of a thread."""
        self.answers = 0
        self.last_answer: Node | None = None
        self.has_sibling = False
        """Whether another answer to the same message follows."""
        self.fold = False
        self.is_shown = True
        """False once it had to give way to newer ones."""
        self.cache: object = None
        """For whoever draws it."""

    @property
    def above(self) -> "Node | None":
        """The parent, unless that had to give way."""
        return self.parent if self.parent is not None and self.parent.is_shown else None

    @property
    def is_severed(self) -> bool:
        """It responds to something that is not here."""
        return self.message.parent is not None and self.above is None


class Tree:
    def __init__(self, shown_max: int = SHOWN_MAX) -> None:
        self._shown_max = shown_max
        self._sequence = Sequence()
        self._nodes: dict[MessageId, Node] = {}
        self._arrived: deque[Node] = deque()
        self._waiting: dict[MessageId, list[Node]] = {}
        """Those whose parent is not here, by that parent."""
        self.dropped = 0
        """Messages that gave way to newer ones."""

    def __len__(self) -> int:
        return self._sequence.lines

    def __contains__(self, named: MessageId) -> bool:
        return named in self._nodes

    def get(self, named: MessageId) -> Node | None:
        return self._nodes.get(named)

    # -- growing

    def add(self, message: Message, *, unread: bool) -> Node | None:
        """None if it is there already."""
        if (known := self._nodes.get(message.id)) is not None:
            if known.message.hollow and not message.hollow:
                known.message, known.cache = message, None
            return None
        node = self._nodes[message.id] = Node(message, unread)
        self._arrived.append(node)
        parent = self._nodes.get(message.parent) if message.parent is not None else None
        if parent is None:
            self._sequence.append(node)
            if message.parent is not None:
                self._waiting.setdefault(message.parent, []).append(node)
        else:
            self._sequence.insert(node, parent.close, hidden=parent.fold)
            self._hang(node, parent)
        for orphan in self._waiting.pop(message.id, ()) if self._waiting else ():
            if orphan.is_shown and not self._is_below(node, orphan):
                self._sequence.move(orphan, node.close, hidden=node.fold)
                self._hang(orphan, node)
        while self._sequence.lines > self._shown_max:
            self._give_way()
        return node

    @staticmethod
    def _hang(node: Node, parent: Node) -> None:
        node.parent = parent
        parent.answers += 1
        if parent.last_answer is not None:
            parent.last_answer.has_sibling = True
        parent.last_answer = node

    @staticmethod
    def _is_below(node: Node | None, other: Node) -> bool:
        """Nobody honest responds to an answer to himself."""
        while node is not None:
            if node is other:
                return True
            node = node.above
        return False

    def _give_way(self) -> None:
        """The oldest. Answers to it become threads of their own, where they stand."""
        node = self._arrived.popleft()
        self.unfold(node)
        self._sequence.remove(node)
        if (above := node.above) is not None:
            above.answers -= 1
            if above.last_answer is node:
                above.last_answer = None
        node.is_shown = False
        node.parent = node.last_answer = None
        del self._nodes[node.message.id]
        wanted = node.message.parent
        if wanted is not None and node in self._waiting.get(wanted, ()):
            self._waiting[wanted].remove(node)
            if not self._waiting[wanted]:
                del self._waiting[wanted]
        self.dropped += 1

    # -- looking

    @property
    def rows(self) -> int:
        """Lines that can be seen."""
        return self._sequence.rows

    def at(self, row: int) -> Node | None:
        found = self._sequence.at(row)
        assert found is None or isinstance(found, Node)
        return found

    def row_of(self, node: Node) -> int:
        return self._sequence.row_of(node)

    def seen_from(self, node: Node | None, *, backward: bool = False) -> Iterator[Node]:
        """Lines that can be seen, from this one on."""
        return (each for each in self._sequence.seen_from(node, backward=backward) if isinstance(each, Node))

    @property
    def last(self) -> Node | None:
        """The last line that can be seen."""
        return next(self.seen_from(None, backward=True), None)

    def stands(self, node: Node) -> Node:
        """Itself if it can be seen, else the folded message that hides it."""
        if self._sequence.is_open(node):
            return node
        found, above = node, node.above
        while above is not None:
            if above.fold:
                found = above
            above = above.above
        return found

    def above(self, node: Node, levels_max: int) -> tuple[list[Node], bool]:
        """What it is drawn below, nearest first, and whether there is more than so many."""
        found: list[Node] = []
        above = node.above
        while above is not None and len(found) < levels_max:
            found.append(above)
            above = above.above
        return found, above is not None

    def below(self, node: Node) -> tuple[int, int]:
        """Answers, and answers to those, and so on: how many, and how many of them are unread."""
        return self._sequence.below(node)

    # -- folding

    def folded(self, node: Node, fold: bool) -> None:
        if node.fold != fold and (node.answers or not fold):
            node.fold = fold
            self._sequence.hide(node, 1 if fold else -1)

    def unfold(self, node: Node) -> None:
        self.folded(node, False)

    def reveal(self, node: Node) -> None:
        """Unfold what hides it."""
        above = node.above
        while above is not None and not self._sequence.is_open(node):
            self.unfold(above)
            above = above.above

    def fold_threads(self, fold: bool) -> None:
        """All threads, or none and nothing in them either."""
        for node in list(self):
            if node.fold != fold and (not fold or node.above is None):
                self.folded(node, fold)

    # -- reading

    @property
    def unread(self) -> int:
        return self._sequence.unread

    def next_unread(self, node: Node | None, *, backward: bool = False) -> Node | None:
        """The next after this one, folded or not; at the end it goes on from the beginning."""
        found = self._sequence.next_unread(node, backward=backward)
        assert found is None or isinstance(found, Node)
        return found

    def mark_read(self, node: Node) -> None:
        self._sequence.set_read(node)

    def unread_below(self, node: Node) -> list[Node]:
        """Of the whole branch, itself included."""
        return [each for each in self._sequence.unread_of(node) if isinstance(each, Node)]

    def __iter__(self) -> Iterator[Node]:
        """All messages in the order in which they are read, hidden ones too."""
        return (each for each in self._sequence.all() if isinstance(each, Node))


class Found(NamedTuple):
    """A place in what was found."""

    node: Node
    number: int
    """From 1 on, in the order in which messages are read."""
    total: int


def find(tree: Tree, words: str, node: Node | None, *, backward: bool = False) -> Found | None:
    """The next message after (or before) this one with these words in its text or its author's name, in any case. At
    the end it goes on from the beginning."""
    wanted, passed = words.casefold(), 0
    found: list[Node] = []
    for each in tree:
        if each is node:
            passed = len(found)
        message = each.message
        if wanted in message.data.decode(errors="replace").casefold() or wanted in message.name.casefold():
            found.append(each)
    if not wanted or not found:
        return None
    if backward:
        passed -= 1
    elif passed < len(found) and found[passed] is node:
        passed += 1
    at = passed % len(found)
    return Found(found[at], at + 1, len(found))
