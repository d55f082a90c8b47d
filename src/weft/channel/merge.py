"""Several peers of one channel that act as one: one stream for the application, each message once, in order.

The first of them leads: it speaks for all, and where it began is where the stream begins. It misses nothing, so the
others can only be faster, or know what the leader could not get.
"""

from collections.abc import Callable

from weft.fabric.events import Batch, Missed
from weft.wire import PeerId

HELD_MAX = 10_000
"""Batches kept that came to another peer before the leader had the one in front. More are left to the leader."""


class Merge:
    def __init__(self, deliver: Callable[[Batch], None], missed: Callable[[Missed], None]) -> None:
        self._deliver = deliver
        self._missed = missed
        self._marks: dict[PeerId, int] = {}
        self._held: dict[tuple[PeerId, int], Batch] = {}
        self._given_up: dict[PeerId, Missed] = {}
        """What each author's last gap was, as the leader told it."""
        self._own: PeerId | None = None

    def led_by(self, leader: PeerId) -> None:
        """What the leader says comes back through the others, and is no news."""
        self._own = leader

    def from_leader(self, batch: Batch) -> None:
        mark = self._marks.get(batch.author)
        if mark is None or self._was_given_up(batch):
            self._advance(batch)
        elif batch.last > mark:
            self._advance(batch.above(mark))
        else:
            self._release(batch.author, mark)

    def _was_given_up(self, batch: Batch) -> bool:
        """The leader has been told a tale of messages that did not exist, found out, and goes on before them."""
        missed = self._given_up.get(batch.author)
        if missed is None or not missed.first <= batch.first <= missed.last:
            return False
        del self._given_up[batch.author]
        return True

    def from_other(self, batch: Batch) -> None:
        author, first = batch.author, batch.first
        if author == self._own:
            return
        mark = self._marks.get(author)
        if mark is not None and first <= mark + 1:
            if batch.last > mark:
                self._advance(batch.above(mark))
        elif len(self._held) < HELD_MAX:
            self._held[author, first] = batch

    def missed_by_leader(self, missed: Missed) -> None:
        """Unless another peer has it."""
        author, first, last = missed
        first = max(first, self._marks.get(author, 0) + 1)
        for start in sorted(held for name, held in self._held if name == author and held <= last):
            batch = self._held.pop((author, start))
            if batch.last < first:
                continue
            batch = batch.above(first - 1)
            if batch.first > first:
                self._missed(Missed(author, first, batch.first - 1))
            self._marks[author] = batch.last
            self._deliver(batch)
            first = batch.last + 1
        if first <= last:
            self._marks[author] = last
            self._given_up[author] = Missed(author, first, last)
            self._missed(self._given_up[author])
        self._release(author, self._marks.get(author, last))

    def _advance(self, batch: Batch) -> None:
        self._marks[batch.author] = batch.last
        self._held.pop((batch.author, batch.first), None)
        self._deliver(batch)
        self._release(batch.author, batch.last)

    def _release(self, author: PeerId, mark: int) -> None:
        """What was held and comes next; what was held and has passed."""
        while (held := self._held.pop((author, mark + 1), None)) is not None:
            mark = self._marks[author] = held.last
            self._deliver(held)
        if len(self._held) >= HELD_MAX // 2:
            self._held = {name: batch for name, batch in self._held.items() if batch.last > self._marks.get(name[0], 0)}
