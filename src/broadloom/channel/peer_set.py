"""`PeerSetMerge`: several local peers of one channel, one ordered stream for the application.

The first peer is the primary: it sends for all, and the stream begins where it joined. The secondary peers can only
deliver a message earlier, or deliver one that the primary could not get.
"""

from collections.abc import Callable

from broadloom.protocol.events import Batch, Missed
from broadloom.wire import PeerId

HELD_MAX = 10_000
"""Batches held because a secondary got them before the primary had the previous one; beyond that, the primary's copy is
awaited."""


class PeerSetMerge:
    def __init__(
        self, primary: PeerId, deliver: Callable[[Batch], None], report_missed: Callable[[Missed], None]
    ) -> None:
        self._primary = primary
        self._deliver = deliver
        self._report_missed = report_missed
        self._last_contiguous: dict[PeerId, int] = {}
        self._held: dict[tuple[PeerId, int], Batch] = {}
        self._last_missed: dict[PeerId, Missed] = {}
        """Each author's last gap, as reported by the primary."""

    def positions(self) -> dict[PeerId, int]:
        """How far the stream is with each author that it has begun."""
        return dict(self._last_contiguous)

    def on_primary_batch(self, batch: Batch) -> None:
        last_contiguous = self._last_contiguous.get(batch.author)
        if last_contiguous is None or self._was_reported_missed(batch):
            self._advance(batch)
        elif batch.last_sequence > last_contiguous:
            self._advance(batch.after(last_contiguous))
        else:
            self._release(batch.author, last_contiguous)

    def _was_reported_missed(self, batch: Batch) -> bool:
        """Whether the primary goes back and delivers what it reported as missed: the gap was an unverified claim."""
        missed = self._last_missed.get(batch.author)
        if missed is None or not missed.first_sequence <= batch.first_sequence <= missed.last_sequence:
            return False
        del self._last_missed[batch.author]
        return True

    def on_secondary_batch(self, batch: Batch) -> None:
        author, first = batch.author, batch.first_sequence
        if author == self._primary:
            return  # our own messages
        last_contiguous = self._last_contiguous.get(author)
        if last_contiguous is not None and first <= last_contiguous + 1:
            if batch.last_sequence > last_contiguous:
                self._advance(batch.after(last_contiguous))
        elif len(self._held) < HELD_MAX:
            self._held[author, first] = batch

    def on_primary_missed(self, missed: Missed) -> None:
        """Report only what no secondary peer has."""
        author, first, last = missed
        first = max(first, self._last_contiguous.get(author, 0) + 1)
        for start in sorted(held for holder, held in self._held if holder == author and held <= last):
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
        """Deliver held batches that are next, and drop those that are obsolete."""
        while (held := self._held.pop((author, last_contiguous + 1), None)) is not None:
            last_contiguous = self._last_contiguous[author] = held.last_sequence
            self._deliver(held)
        if len(self._held) >= HELD_MAX // 2:
            self._held = {
                key: batch
                for key, batch in self._held.items()
                if batch.last_sequence > self._last_contiguous.get(key[0], 0)
            }
