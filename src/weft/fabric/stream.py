"""The stream of messages: new or duplicate, pass on, put in order, deliver.

The rule that everything rests on: over every link, each end sends what it retained before the link came up and the
other lacks (`reconcile.py`), and after that every first copy as it comes. So whatever one peer of a connected fabric
holds, all will have, whichever links come and go meanwhile.
"""

from typing import TYPE_CHECKING

from weft.fabric.authors import AuthorWindow
from weft.fabric.events import Message, Missed
from weft.fabric.reconcile import Reconcile
from weft.fabric.retention import Kept, Retention
from weft.fabric.signing import Signing
from weft.wire import Broadcast, PeerId
from weft.wire.broadcast import decode_broadcast, encode_broadcast, forwarded, name_of

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.seal import Seal


FORGOTTEN_SHARE = 10
"""One in so many authors is forgotten at once, because looking for them takes a look at all."""
FORGET_PAUSE_S = 0.1
"""When no author can be forgotten, it is not tried again for so long: a stranger's names shall not keep us busy."""


class Stream:
    """All authors of the channel, as one peer has heard them."""

    def __init__(self, peer: "Peer", seal: "Seal | None" = None) -> None:
        self._peer = peer
        settings = peer.settings
        self.signing = Signing(peer, self, seal) if seal is not None else None
        self.settled = False
        """Whether this peer has its starting point; before that it knows nothing to tell."""
        self.authors: dict[PeerId, AuthorWindow] = {}
        self.retention = Retention(settings.retention_s, settings.retention_bytes_max)
        self._retention_ms = int(settings.retention_s * 1000)
        self.reconcile = Reconcile(peer, self)
        self._sent_at = -settings.retention_s
        self._has_forgotten = False
        self._forget_again_at = 0.0
        self._waiting_bytes = 0

    # -- sending

    def broadcast(self, data: bytes) -> int:
        """Send to all; returns the sequence number."""
        me, now = self._peer.me.peer, self._peer.world.now()
        own = self.authors.get(me)
        if own is None:
            own = self.authors[me] = AuthorWindow(1, 0, now)
        sequence = own.mark + 1
        # Silent for so long that others may have forgotten this author: they shall begin here, without a gap.
        starts_run = now - self._sent_at >= self._peer.settings.retention_s
        frame = self._encoded(Broadcast(me, sequence, sequence if starts_run else own.run_start, data))
        if starts_run:
            own.run_start = sequence
        self._sent_at = own.heard_at = now
        own.mark = own.known = sequence
        self.retention.add(Kept(me, sequence, frame, 0, 0, now))
        for link in self._peer.links:
            self.send(link, me, frame)
        self._peer.counters.sent += 1
        if self._peer.observer is not None:
            self._peer.observer.sent(sequence, data)
        return sequence

    def _encoded(self, message: Broadcast) -> bytes:
        frame = encode_broadcast(message)
        return frame if self.signing is None else encode_broadcast(self.signing.signed(message, frame))

    def send(self, link: "Link", author: PeerId, frame: bytes) -> None:
        """A message goes to a neighbour; on a signed channel, after its author's credential."""
        if self.signing is not None:
            if not self.signing.can_introduce(author):
                return
            self.signing.introduce(link, author)
        link.send_frame(frame)

    # -- receiving

    def on_broadcast(self, link: "Link", frame: bytes) -> None:
        author, sequence, run_start = name_of(frame)
        window = self.authors.get(author)
        if window is not None and (sequence <= window.mark or sequence in window.waiting):
            self._peer.counters.duplicates += 1
            return
        message = decode_broadcast(frame)  # whole and well-formed, or it dies here
        if not self.settled or author == self._peer.me.peer:
            return  # a greeting comes first on every link, and what we said ourselves we know: somebody cheats
        if message.age_ms > self._retention_ms:
            self._peer.counters.expired += 1  # nobody may take it for new any more; the gap will be told as missed
            return
        if self._waiting_bytes + len(frame) > self._peer.settings.waiting_bytes_max and (
            window is None or sequence != window.mark + 1
        ):
            self._peer.counters.waiting_refused += 1  # as if it had not come: it will be asked for
            return
        if self.signing is not None and not self.signing.vouches(link, frame, message):
            return
        now = self._peer.world.now()
        if window is None:
            window = self.meet(author, run_start, now)
            if window is None:
                return
        elif window.told is not None and not window.is_true(sequence, now - message.age_ms / 1000):
            self._peer.counters.duplicates += 1
            return
        window.heard_at = now
        window.hearsay = False
        if sequence > window.known:
            window.known = sequence
            window.run_start = run_start
        self._pass_on(link, frame, message, now)
        if sequence == window.mark + 1:
            self._deliver(window, message)
            if window.waiting:
                self._deliver_waiting(window)
        else:
            window.waiting[sequence] = frame, now - message.age_ms / 1000
            self._waiting_bytes += len(frame)
            self.reconcile.watch_gap(author)

    def _pass_on(self, link: "Link", frame: bytes, message: Broadcast, now: float) -> None:
        """The first copy goes to all other neighbours, as one and the same bytes."""
        self.retention.add(
            Kept(message.author, message.sequence, frame, message.hops, message.age_ms, now),
        )
        onward = forwarded(frame, message.hops + 1, message.age_ms)
        for other in self._peer.links:
            if other is not link:
                self.send(other, message.author, onward)
        if self._peer.observer is not None:
            self._peer.observer.received(message, link.neighbour)
        self._peer.diameter.travelled(message.hops)

    def _deliver(self, window: AuthorWindow, message: Broadcast) -> None:
        window.mark = message.sequence
        self._peer.counters.delivered += 1
        delivered = Message(message.author, message.sequence, message.payload, message.hops)
        self._peer.world.deliver(delivered)
        if self._peer.observer is not None:
            self._peer.observer.delivered(delivered)

    def _deliver_waiting(self, window: AuthorWindow) -> None:
        while (waited := window.waiting.pop(window.mark + 1, None)) is not None:
            self._waiting_bytes -= len(waited[0])
            self._deliver(window, decode_broadcast(waited[0]))

    def meet(self, author: PeerId, run_start: int, heard_at: float, *, hearsay: bool = False) -> AuthorWindow | None:
        """An author that we know nothing of; None if there are too many already. What we heard ourselves takes the
        place of what others told us, of which there may be any number."""
        if len(self.authors) >= self._peer.settings.authors_max and not (
            (not hearsay and self._forget_hearsay()) or self.forget_some()
        ):
            self._peer.counters.authors_refused += 1
            return None
        # A starting point names every author, so one that is not known has not been heard since we are here: it begins
        # with its first message. Only who had to forget authors cannot know, and takes the start of the run.
        first = run_start if self._has_forgotten else 1
        window = self.authors[author] = AuthorWindow(run_start, first - 1, heard_at)
        window.hearsay = hearsay
        return window

    def forget_some(self) -> bool:
        """Drop the authors that were silent for longest, if it was for so long that every copy of what they said is
        past retention, and their next message will start a new run: so an old copy cannot be taken for new, nor a new
        one wait for old ones."""
        now = self._peer.world.now()
        if now < self._forget_again_at:
            return False
        before = now - self._peer.settings.forget_s
        silent = [
            (window.heard_at, author)
            for author, window in self.authors.items()
            if window.heard_at <= before and not window.has_gap and author != self._peer.me.peer
        ]
        if not silent:
            self._forget_again_at = now + FORGET_PAUSE_S
            return False
        for _, author in sorted(silent)[: 1 + len(self.authors) // FORGOTTEN_SHARE]:
            del self.authors[author]
            if self.signing is not None:
                self.signing.forget(author)
        self._has_forgotten = True
        return True

    def _forget_hearsay(self) -> bool:
        """Some of the authors that we never heard ourselves. False if there are none."""
        told = [author for author, window in self.authors.items() if window.hearsay]
        for author in told[: 1 + len(self.authors) // FORGOTTEN_SHARE]:
            del self.authors[author]
        return bool(told)

    def may_have_forgotten(self, said_at: float) -> bool:
        """Whether an author that was last heard then may be one that we knew."""
        return self._has_forgotten and said_at < self._peer.world.now() - self._peer.settings.forget_s

    def give_up(self, author: PeerId, window: AuthorWindow, last: int) -> None:
        """Messages up to `last` cannot be had: say so, and go on behind them."""
        missed = Missed(author, window.reached + 1, last)
        if window.waiting:
            window.mark, window.told = last, None  # what waits behind it proves that it was said
        else:
            window.told, window.gave_up_at = last, self._peer.world.now()
        self._peer.counters.missed += last - missed.first + 1
        self._peer.world.missed(missed)
        if self._peer.observer is not None:
            self._peer.observer.missed(missed)
        self._deliver_waiting(window)

    # -- links and time

    def tick(self, now: float) -> None:
        self.retention.expire(now)
        if self.signing is not None:
            self.signing.look_again()
