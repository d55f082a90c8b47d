"""Topics: which subscriptions a message goes to.

A topic is text in levels, as in `sports/nfl/scores`. In a pattern, `*` stands for one level and `**` for any number of
levels. The patterns form a trie, and the readers of a topic are remembered, so that the usual cost of a message is one
dictionary lookup, for ten subscriptions as for ten thousand.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from broadloom.wire.message_headers import checked_levels

ANY_LEVEL, ANY_LEVELS = "*", "**"
ANY_LEVELS_MAX = 2
"""Times `**` may occur in one pattern."""
REMEMBERED_TOPICS_MAX = 4096

R = TypeVar("R")


def checked_pattern(pattern: str) -> str:
    """Raises `ValueError` if this is not a pattern."""
    if not isinstance(pattern, str):
        raise TypeError(f"pattern must be text, not {pattern!r}")
    levels = checked_levels("pattern", pattern).split("/")
    for level in levels:
        if "*" in level and level not in (ANY_LEVEL, ANY_LEVELS):
            raise ValueError(f"pattern {pattern!r}: `*` and `**` stand for whole levels, as in sports/*/scores")
    if levels.count(ANY_LEVELS) > ANY_LEVELS_MAX:
        raise ValueError(f"pattern {pattern!r}: `**` is allowed {ANY_LEVELS_MAX} times")
    if not pattern.isprintable():
        raise ValueError(f"pattern {pattern!r}: control characters are not allowed")
    return pattern


class _Node(Generic[R]):
    __slots__ = ("children", "readers", "takes_any_levels")

    def __init__(self, takes_any_levels: bool) -> None:
        self.takes_any_levels = takes_any_levels
        self.children: dict[str, _Node[R]] = {}
        self.readers: list[R] = []


class PatternTrie(Generic[R]):
    """Patterns and their readers."""

    def __init__(self) -> None:
        self._root: _Node[R] = _Node(False)
        self._remembered: dict[str, tuple[R, ...]] = {}

    def add(self, pattern: str, reader: R) -> None:
        self._remembered.clear()
        node = self._root
        for level in pattern.split("/"):
            node = node.children.setdefault(level, _Node(level == ANY_LEVELS))
        node.readers.append(reader)

    def remove(self, pattern: str, reader: R) -> None:
        self._remembered.clear()
        path = [self._root]
        levels = pattern.split("/")
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].readers.remove(reader)
        for parent, level, node in zip(reversed(path[:-1]), reversed(levels), reversed(path), strict=False):
            if node.readers or node.children:
                break
            del parent.children[level]

    def readers(self, topic: str) -> tuple[R, ...]:
        """The readers whose pattern matches, each once."""
        found = self._remembered.get(topic)
        if found is None:
            if len(self._remembered) >= REMEMBERED_TOPICS_MAX:
                self._remembered.clear()
            found = self._remembered[topic] = tuple(self._match(topic))
        return found

    def _match(self, topic: str) -> Iterator[R]:
        """Walks all branches at once, each node at most once per level."""
        active = _with_empty_matches(self._root)
        for level in topic.split("/"):
            following: dict[_Node[R], None] = {}
            for node in active:
                if node.takes_any_levels:
                    following[node] = None
                for name in (level, ANY_LEVEL):
                    if name in node.children:
                        following.update(_with_empty_matches(node.children[name]))
            active = following
        for node in active:
            yield from node.readers


def _with_empty_matches(node: _Node[R]) -> dict[_Node[R], None]:
    """The node, and the nodes of `**` behind it: they match no level as well."""
    nodes = {node: None}
    while (behind := node.children.get(ANY_LEVELS)) is not None:
        nodes[behind] = None
        node = behind
    return nodes
