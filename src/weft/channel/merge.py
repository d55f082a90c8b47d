"""Several peers of one channel that act as one: one stream for the application, each message once, in order.

The first of them leads: it speaks for all, and where it began is where the stream begins. It misses nothing, so the
others can only be faster, or know what the leader could not get.
"""

from collections.abc import Callable

from weft.fabric.events import Message, Missed
from weft.wire import PeerId

HELD_MAX = 10_000
"""Messages kept that came to another peer before the leader had the one in front. More are left to the leader."""


class Merge:
    def __init__(self, deliver: Callable[[Message], None], missed: Callable[[Missed], None]) -> None:
        self._deliver = deliver
        self._missed = missed
        self._marks: dict[PeerId, int] = {}
        self._held: dict[tuple[PeerId, int], Message] = {}
        self._given_up: dict[PeerId, Missed] = {}
        """What each author's last gap was, as the leader told it."""
        self._own: PeerId | None = None

    def led_by(self, leader: PeerId) -> None:
        """What the leader says comes back through the others, and is no news."""
        self._own = leader

    def from_leader(self, message: Message) -> None:
        mark = self._marks.get(message.author)
        if mark is None or message.sequence > mark or self._was_given_up(message):
            self._advance(message)
        else:
            self._release(message.author, mark)

    def _was_given_up(self, message: Message) -> bool:
        """The leader has been told a tale of messages that did not exist, found out, and goes on before them."""
        missed = self._given_up.get(message.author)
        if missed is None or not missed.first <= message.sequence <= missed.last:
            return False
        del self._given_up[message.author]
        return True

    def from_other(self, message: Message) -> None:
        author, sequence = message.author, message.sequence
        if author == self._own:
            return
        mark = self._marks.get(author)
        if mark is not None and sequence == mark + 1:
            self._advance(message)
        elif (mark is None or sequence > mark) and len(self._held) < HELD_MAX:
            self._held[author, sequence] = message

    def missed_by_leader(self, missed: Missed) -> None:
        """Unless another peer has it."""
        author, first, last = missed
        first = max(first, self._marks.get(author, 0) + 1)
        for sequence in sorted(held for name, held in self._held if name == author and first <= held <= last):
            if sequence > first:
                self._missed(Missed(author, first, sequence - 1))
            message = self._held.pop((author, sequence))
            self._marks[author] = sequence
            self._deliver(message)
            first = sequence + 1
        if first <= last:
            self._marks[author] = last
            self._given_up[author] = Missed(author, first, last)
            self._missed(self._given_up[author])
        self._release(author, self._marks.get(author, last))

    def _advance(self, message: Message) -> None:
        self._marks[message.author] = message.sequence
        self._held.pop((message.author, message.sequence), None)
        self._deliver(message)
        self._release(message.author, message.sequence)

    def _release(self, author: PeerId, mark: int) -> None:
        """What was held and comes next; what was held and has passed."""
        while (held := self._held.pop((author, mark + 1), None)) is not None:
            mark += 1
            self._marks[author] = mark
            self._deliver(held)
        if len(self._held) >= HELD_MAX // 2:
            self._held = {
                name: message for name, message in self._held.items() if name[1] > self._marks.get(name[0], 0)
            }
