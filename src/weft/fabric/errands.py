"""Messages from before our time that a neighbour lacks: we look for them on its behalf, and keep them for it.

Who came to the channel after a message neither has it nor waits for it. Where two parts merge, all neighbours of those
who lack it may be such latecomers, with those who hold it behind them: they would stand between the two like a wall.
So a latecomer that is asked asks its own neighbours, at once and not often, and what comes is passed on to whom it was
fetched for. Our own application does not get it.
"""

from typing import TYPE_CHECKING

from weft.fabric.retention import Kept
from weft.wire import PeerId
from weft.wire.broadcast import decode_broadcast
from weft.wire.links import Want

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer

ERRANDS_MAX = 64
"""Authors of which we look for messages at the same time."""
ERRAND_S = 2.0
"""So often our neighbours are asked at most..."""
ERRAND_LASTS_S = 20.0
"""...and for so long after the last question we take what comes."""


class _Errand:
    __slots__ = ("asked_at", "askers", "first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.askers: dict[Link, None] = {}
        self.asked_at = -ERRAND_LASTS_S


class Errands:
    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._open: dict[PeerId, _Errand] = {}

    def run(self, asker: "Link", author: PeerId, first: int, last: int) -> None:
        """A neighbour lacks these, and we have never had them."""
        now = self._peer.world.now()
        errand = self._open.get(author)
        if errand is None:
            self._end_old(now)
            if len(self._open) >= ERRANDS_MAX:
                return
            errand = self._open[author] = _Errand(first, last)
        errand.first, errand.last = min(errand.first, first), max(errand.last, last)
        errand.askers[asker] = None
        if now < errand.asked_at + ERRAND_S:
            return
        errand.asked_at = now
        for link in self._peer.links:
            if link not in errand.askers:
                link.send(Want(author, errand.first, errand.last))

    def _end_old(self, now: float) -> None:
        for author, errand in list(self._open.items()):
            if now > errand.asked_at + ERRAND_LASTS_S:
                del self._open[author]

    def bring(self, link: "Link", author: PeerId, first: int, last: int, frame: bytes) -> bool:
        """A frame from before our time: whether it was fetched for somebody."""
        errand = self._open.get(author)
        if errand is None or last < errand.first or first > errand.last:
            return False
        now, stream = self._peer.world.now(), self._peer.stream
        if now > errand.asked_at + ERRAND_LASTS_S:
            return False
        if stream.retention.get(author, first) is not None:
            return True  # another neighbour had it too
        message = decode_broadcast(frame)
        if message.age_ms > 1000 * self._peer.settings.retention_s:
            return False
        if stream.signing is not None and not stream.signing.vouches(link, frame, message):
            return False
        kept = Kept.of(message, frame, now, link.neighbour)
        stream.retention.add(kept)
        for asker in errand.askers:
            if asker is not link and self._peer.links.get(asker.neighbour) is asker:
                stream.pass_to(asker, kept, now)
        return True
