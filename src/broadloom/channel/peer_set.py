"""Several peers of one channel that act as one: one stream for the application, each message once, in order.

The first of them leads: it speaks for all, and where it began is where the stream begins. It misses nothing, so the
others can only be faster, or know what the leader could not get.
"""

from collections.abc import Callable

from broadloom.protocol.events import Batch, Missed
from broadloom.wire import PeerId

HELD_MAX = 10_000
"""Batches kept that came to another peer before the leader had the one in front. More are left to the leader."""


class PeerSetMerge:
    def __init__(self, deliver: Callable[[Batch], None], report_missed: Callable[[Missed], None]) -> None:
        self._deliver = deliver
        self._report_missed = report_missed
        self._last_contiguous: dict[PeerId, int] = {}
        self._held: dict[tuple[PeerId, int], Batch] = {}
        self._last_missed: dict[PeerId, Missed] = {}
        """What each author's last gap was, as the leader told it."""
        self._primary: PeerId | None = None

    def set_primary(self, primary: PeerId) -> None:
        """What the leader says comes back through the others, and is no news."""
        self._primary = primary

    def on_primary_batch(self, batch: Batch) -> None:
        last_contiguous = self._last_contiguous.get(batch.author)
        if last_contiguous is None or self._was_reported_missed(batch):
            self._advance(batch)
        elif batch.last_sequence > last_contiguous:
            self._advance(batch.after(last_contiguous))
        else:
            self._release(batch.author, last_contiguous)

    def _was_reported_missed(self, batch: Batch) -> bool:
        """The leader has been told a tale of messages that did not exist, found out, and goes on before them."""
        missed = self._last_missed.get(batch.author)
        if missed is None or not missed.first_sequence <= batch.first_sequence <= missed.last_sequence:
            return False
        del self._last_missed[batch.author]
        return True

    def on_secondary_batch(self, batch: Batch) -> None:
        author, first = batch.author, batch.first_sequence
        if author == self._primary:
            return
        last_contiguous = self._last_contiguous.get(author)
        if last_contiguous is not None and first <= last_contiguous + 1:
            if batch.last_sequence > last_contiguous:
                self._advance(batch.after(last_contiguous))
        elif len(self._held) < HELD_MAX:
            self._held[author, first] = batch

    def on_primary_missed(self, missed: Missed) -> None:
        """Unless another peer has it."""
        author, first, last = missed
        first = max(first, self._last_contiguous.get(author, 0) + 1)
        for start in sorted(held for name, held in self._held if name == author and held <= last):
            batch = self._held.pop((author, start))
            if batch.last_sequence < first:
                continue
            batch = batch.after(first - 1)
            if batch.first_sequence > first:
                self._report_missed(Missed(author, first, batch.first_sequence - 1))
            self._last_contiguous[author] = batch.last_sequence
            self._deliver(batch)
            first = batch.last_sequence + 1
        if first <= last:
            self._last_contiguous[author] = last
            self._last_missed[author] = Missed(author, first, last)
            self._report_missed(self._last_missed[author])
        self._release(author, self._last_contiguous.get(author, last))

    def _advance(self, batch: Batch) -> None:
        self._last_contiguous[batch.author] = batch.last_sequence
        self._held.pop((batch.author, batch.first_sequence), None)
        self._deliver(batch)
        self._release(batch.author, batch.last_sequence)

    def _release(self, author: PeerId, last_contiguous: int) -> None:
        """What was held and comes next; what was held and has passed."""
        while (held := self._held.pop((author, last_contiguous + 1), None)) is not None:
            last_contiguous = self._last_contiguous[author] = held.last_sequence
            self._deliver(held)
        if len(self._held) >= HELD_MAX // 2:
            self._held = {
                name: batch
                for name, batch in self._held.items()
                if batch.last_sequence > self._last_contiguous.get(name[0], 0)
            }
