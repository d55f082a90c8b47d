"""`Directory`: the tree of topics, as one program knows it. It has no IO: the mailboxes of the service fill it.

Entries are found by the path of a topic, by a pattern, by a category (all topics below it), or by words.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from broadloom.apps.delivery.entry import Entry
from broadloom.channel.topics import PatternTrie, checked_pattern

MAILBOX_PREFIX = "topics/"
PRICES_MAILBOX = "prices"
"""What plans cost, in words."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One leaf of the tree."""

    path: str
    entry: Entry

    @property
    def title(self) -> str:
        return self.entry.offer.title

    @property
    def producers(self) -> tuple[str, ...]:
        return self.entry.producers(self.path)

    def as_dict(self) -> dict[str, Any]:
        """What a reader wants to know, as JSON-serializable values."""
        offer = self.entry.offer
        return {
            "path": self.path,
            "title": offer.title,
            "category": self.entry.path if self.entry.path != self.path else None,
            "level": offer.level.value,
            "producers": list(self.producers),
            "plans": list(offer.plans),
            "qualifications": list(offer.qualifications),
            "identify_s": offer.identify_s,
            "creator": self.entry.creator,
        }


class Directory:
    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._topics: dict[str, Entry] = {}
        self._listeners: list[Callable[[], None]] = []

    def __len__(self) -> int:
        """Number of topics."""
        return len(self._topics)

    def put(self, entry: Entry) -> None:
        """Add an entry, or replace the one with the same path. A closed one stays known, but has no topics."""
        self._remove_topics(entry.path)
        self._entries[entry.path] = entry
        if not entry.is_closed:
            for path in entry.offer.topics:
                # Desks do not create two entries with one topic. After a partition, the smaller path keeps it.
                other = self._topics.get(path)
                if other is None or entry.path <= other.path:
                    self._topics[path] = entry
        self._changed()

    def remove(self, path: str) -> None:
        self._remove_topics(path)
        self._entries.pop(path, None)
        self._changed()

    def _remove_topics(self, path: str) -> None:
        known = self._entries.get(path)
        for topic in known.offer.topics if known is not None else ():
            if self._topics.get(topic) is known:
                del self._topics[topic]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change. Returns a function that removes it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def _changed(self) -> None:
        for callback in tuple(self._listeners):
            callback()

    # -- finding

    def entry(self, path: str) -> Entry | None:
        """The entry that was created under this path, also if it is closed."""
        return self._entries.get(path)

    def topic(self, path: str) -> Topic | None:
        entry = self._topics.get(path)
        return Topic(path, entry) if entry is not None else None

    def topics(self, pattern: str = "**") -> list[Topic]:
        """The topics that a path or a pattern stands for, sorted. The path of a category stands for all below it."""
        checked_pattern(pattern)
        if pattern == "**":
            return [Topic(path, self._topics[path]) for path in sorted(self._topics)]
        if (exact := self.topic(pattern)) is not None:
            return [exact]
        trie: PatternTrie[bool] = PatternTrie()
        trie.add(pattern if "*" in pattern else f"{pattern}/**", True)
        return [Topic(path, self._topics[path]) for path in sorted(self._topics) if any(trie._match(path))]

    def search(self, text: str) -> list[Topic]:
        """The topics whose path or title contains each of these words, also within other words, in any case."""
        words = text.casefold().split()
        return [
            Topic(path, self._topics[path])
            for path in sorted(self._topics)
            if all(word in f"{path} {self._topics[path].offer.title}".casefold() for word in words)
        ]

    def tree(self, below: str = "") -> Iterator[tuple[int, str, Topic | None]]:
        """Depth, name and topic (None for a category) of each node, in the order of a printed tree."""
        prefix = f"{below}/" if below else ""
        shown: list[str] = []
        for path in sorted(self._topics, key=lambda each: each.split("/")):
            if below and path != below and not path.startswith(prefix):
                continue
            levels = path.split("/")
            common = 0
            while common < min(len(shown), len(levels) - 1) and shown[common] == levels[common]:
                common += 1
            for depth in range(common, len(levels) - 1):
                yield depth, levels[depth], self.topic("/".join(levels[: depth + 1]))
            is_shown = len(shown) >= len(levels) and shown[: len(levels)] == levels
            if not is_shown:
                yield len(levels) - 1, levels[-1], self.topic(path)
            shown = levels
