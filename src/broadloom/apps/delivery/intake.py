"""`Intake`: which messages of a channel become items. It has no IO.

A message counts if its topic was subscribed to, and if its author is a producer of that topic by its ticket: the owner
of the channel enforces who may send, but not on which topic. While a connection is replaced by one with a new ticket,
both get the same messages, and each counts once.
"""

from collections.abc import Iterable

from broadloom.apps.delivery.entry import Entry
from broadloom.protocol.identity import Identity, Role
from broadloom.protocol.owner.card import SecurityLevel

SEEN_MAX = 100_000
"""Messages that are remembered while a connection is replaced."""


class Intake:
    def __init__(self, entry: Entry, topics: Iterable[str]) -> None:
        self.entry = entry
        self.topics = tuple(topics)
        self.rejected_count = 0
        self._needs_ticket = entry.offer.level is SecurityLevel.TICKETS
        self._producers = {topic: frozenset(entry.producers(topic)) for topic in self.topics}
        self._seen: dict[tuple[int, int], None] | None = None

    def begin_handover(self) -> None:
        """From now on, until the handover after this one, messages are recognized."""
        self._seen = {}

    def producer(self, topic: str | None, author: int, sequence: int, identity: Identity | None) -> str | None:
        """The name of the producer; None if the message does not count."""
        if topic is None or topic not in self._producers:
            return None
        name = ""
        if self._needs_ticket:
            if identity is None or identity.role is not Role.PRODUCER or identity.name not in self._producers[topic]:
                self.rejected_count += 1
                return None
            name = identity.name
        if self._seen is not None:
            if (author, sequence) in self._seen:
                return None
            if len(self._seen) >= SEEN_MAX:
                del self._seen[next(iter(self._seen))]
            self._seen[author, sequence] = None
        return name
