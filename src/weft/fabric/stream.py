"""The stream of messages: new or duplicate, pass on, put in order, deliver.

The rule that everything rests on: over every link, each end sends what it retained before the link came up and the
other lacks (`reconcile.py`), and after that every first copy as it comes. So whatever one peer of a connected fabric
holds, all will have, whichever links come and go meanwhile.
"""

from typing import TYPE_CHECKING

from weft.fabric.authors import AuthorWindow
from weft.fabric.errands import Errands
from weft.fabric.events import Batch, Missed
from weft.fabric.gaps import Gaps
from weft.fabric.progress import Progress
from weft.fabric.reconcile import Reconcile
from weft.fabric.retention import Kept, Retention
from weft.fabric.signing import Signing
from weft.fabric.tree import Tree
from weft.wire import Broadcast, PeerId, WireError
from weft.wire.broadcast import BUNDLED_MAX, Kind, Priority, Way, decode_broadcast, encode_broadcast, name_of, relayed
from weft.wire.framing import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.seal import Seal


FORGOTTEN_SHARE = 10
"""One in so many authors is forgotten at once, because looking for them takes a look at all."""
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - 256
"""The largest message that is sure to fit into a frame, signed or not."""
FORGET_PAUSE_S = 0.1
"""When no author can be forgotten, it is not tried again for so long: a stranger's names shall not keep us busy."""


class _Open:
    """The bundle that our own messages of this turn go into."""

    __slots__ = ("busy_until", "is_due", "messages", "nature", "size")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.size = 0
        self.nature = (0, 0, 0)
        """Kind, priority and lifetime, which all messages of a frame share."""
        self.is_due = False
        """Its going out is planned."""
        self.busy_until = 0.0
        """Until then many messages are to be expected."""


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
        self.gaps = Gaps(peer, self)
        self.errands = Errands(peer)
        self.tree = Tree(peer, self)
        self.progress = Progress(peer, self)
        self._lately = 0.0
        """About as many frames of ours went out in the last second."""
        self._open = _Open()
        self.inside: list[Link] = []
        """Links to other peers of the same process: they are none of the fabric, and get everything."""
        self._sent_at = -settings.retention_s
        self._has_forgotten = False
        self._forget_again_at = 0.0
        self._waiting_bytes = 0

    # -- sending

    def broadcast(
        self, data: bytes, kind: int = Kind.DATA, priority: int = Priority.NORMAL, lifetime_ms: int = 0
    ) -> int:
        """Send to all; returns the sequence number. What is said within one turn goes out in one frame."""
        if len(data) > MESSAGE_BYTES_MAX:
            raise WireError(f"a message of {len(data)} bytes, at most {MESSAGE_BYTES_MAX} are possible")
        me = self._peer.me.peer
        own = self.authors.get(me)
        if own is None:
            own = self.authors[me] = AuthorWindow(1, 0, self._peer.world.now())
        bundle = self._open
        nature = kind, priority, lifetime_ms
        if bundle.messages and (nature != bundle.nature or bundle.size + len(data) > self._peer.settings.bundle_bytes):
            self.pack()
        if not bundle.messages:
            bundle.nature = nature
        bundle.messages.append(data)
        bundle.size += len(data)
        sequence = own.mark + len(bundle.messages)
        if len(bundle.messages) >= BUNDLED_MAX:
            self.pack()
        elif not bundle.is_due:
            bundle.is_due = True
            self._pack_soon()
        return sequence

    def _pack_soon(self) -> None:
        """At the end of this turn. Who says many things turn after turn gets a moment more, for larger frames."""
        if self._peer.world.now() < self._open.busy_until:
            self._peer.world.after(self._peer.settings.bundle_s, self._pack_when_due)
        else:
            self._peer.world.soon(self._pack_when_due)

    def _pack_when_due(self) -> None:
        self._open.is_due = False
        self.pack()

    def pack(self) -> None:
        """What was said in this turn goes out, as one frame."""
        messages = tuple(self._open.messages)
        if not messages:
            return
        kind, priority, lifetime_ms = self._open.nature
        self._open.messages.clear()
        self._open.size = 0
        me, now = self._peer.me.peer, self._peer.world.now()
        own = self.authors[me]
        sequence = own.mark + 1
        # Silent for so long that others may have forgotten this author: they shall begin here, without a gap.
        if now - self._sent_at >= self._peer.settings.retention_s:
            own.run_start = sequence
        way = self._way(sum(map(len, messages)), now)
        message = Broadcast(me, sequence, own.run_start, messages, 1, 0, way, kind, priority, lifetime_ms)
        frame = self._encoded(message)
        self._sent_at = own.heard_at = now
        if len(messages) > 1:
            self._open.busy_until = now + 2 * self._peer.settings.bundle_s
        own.mark = own.known = sequence + len(messages) - 1
        kept = Kept(me, sequence, own.mark, frame, 0, 0, now, 0, way, priority, lifetime_ms)
        self.retention.add(kept)
        self._spread(own, kept, frame, None, None)
        if way is Way.TREE:
            self.progress.came(me, own, len(frame), len(messages))
        self._peer.counters.sent += len(messages)
        if self._peer.observer is not None:
            for offset, data in enumerate(messages):
                self._peer.observer.sent(sequence + offset, data)

    def _way(self, size: int, now: float) -> Way:
        """Large frames go along the tree, and so does all that is said by one who speaks often: the tree is fresh then,
        and a flood many times a second would cost everyone much."""
        settings = self._peer.settings
        self._lately = self._lately * max(0.0, 1.0 - (now - self._sent_at)) + 1
        often = self._lately > settings.flood_per_s
        return Way.TREE if often or size >= settings.flood_bytes_max else Way.FLOOD

    def _encoded(self, message: Broadcast) -> bytes:
        frame = encode_broadcast(message)
        return frame if self.signing is None else encode_broadcast(self.signing.signed(message, frame))

    def _spread(
        self,
        window: AuthorWindow,
        kept: Kept,
        frame: bytes,
        rest: memoryview | None,
        came_from: "Link | None",
    ) -> None:
        """To all other neighbours, as one and the same bytes; or, if it is large, along the author's tree."""
        author = kept.author
        lazy = window.lazy if kept.way == Way.TREE else ()
        for link in self._peer.links:
            if link is came_from:
                continue
            if link in lazy:
                self.tree.announce(link, author)
            elif link.is_full or link.arrears:
                link.arrears.add(kept)
            else:
                self.send(link, author, frame, rest)
        for link in self.inside:
            if link is not came_from:
                self.send(link, author, frame, rest)

    def send(self, link: "Link", author: PeerId, frame: bytes, rest: memoryview | None = None) -> None:
        """A message goes to a neighbour; on a signed channel, after its author's credential."""
        if self.signing is not None:
            if not self.signing.can_introduce(author):
                return
            self.signing.introduce(link, author)
        link.send_frame(frame, rest)

    def pass_to(self, link: "Link", kept: Kept, now: float) -> None:
        """One neighbour lacks what we hold: at once, or when it has read what it was sent."""
        if link.is_full or link.arrears:
            link.arrears.add(kept)
        else:
            self.send(link, kept.author, kept.copy(now))

    # -- receiving

    def on_broadcast(self, link: "Link", frame: bytes) -> None:
        author, sequence, last, hops, way = name_of(frame)
        link.brought += 1
        window = self.authors.get(author)
        if window is not None and (last <= window.mark or sequence in window.waiting):
            if last <= window.floor and self.errands.bring(link, author, sequence, last, frame):
                return
            self._peer.counters.duplicates += last - sequence + 1
            self.tree.came_again(window, author, link, hops, floods=way != Way.TREE)
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
        said_at = now - message.age_ms / 1000
        if window is None:
            window = self.meet(author, message.run_start, now)
            if window is None:
                return
        elif window.told is not None and not window.is_true(last, said_at):
            self._peer.counters.duplicates += last - sequence + 1
            return
        window.heard_at = now
        window.hearsay = False
        if last > window.known:
            window.known = last
            window.run_start = message.run_start
        self.tree.came_first(window, link, hops, floods=way != Way.TREE)
        self._pass_on(link, window, frame, message, now)
        if sequence <= window.mark + 1:
            self._deliver(window, message, message.age_ms)
            if window.waiting:
                self.deliver_waiting(window, now)
            if way == Way.TREE:
                self.progress.came(author, window, len(frame), last - sequence + 1)
        else:
            window.waiting[sequence] = frame, said_at
            self._waiting_bytes += len(frame)
            self.gaps.watch(author)

    def _pass_on(self, link: "Link", window: AuthorWindow, frame: bytes, message: Broadcast, now: float) -> None:
        """The first copy is kept, and goes to the other neighbours."""
        kept = Kept.of(message, frame, now, link.neighbour)
        self.retention.add(kept)
        self._spread(window, kept, *relayed(frame, message.hops + 1, message.age_ms), link)
        if self._peer.observer is not None:
            self._peer.observer.received(message, link.neighbour)
        if message.way != Way.TREE:  # a tree may be deeper than the fabric is wide
            self._peer.diameter.travelled(message.hops)

    def _deliver(self, window: AuthorWindow, message: Broadcast, age_ms: float) -> None:
        """What is new of it, if it is still worth it."""
        batch = Batch(message.author, message.sequence, message.messages, message.hops, message.kind)
        if message.sequence <= window.mark:
            batch = batch.above(window.mark)
        if message.lifetime_ms and age_ms > message.lifetime_ms:
            self._peer.counters.outlived += len(batch)
            self._tell_missed(Missed(message.author, batch.first, batch.last))
            window.mark = batch.last
            return
        window.mark = batch.last
        self._peer.counters.delivered += len(batch)
        self._peer.world.deliver(batch)
        if self._peer.observer is not None:
            self._peer.observer.delivered(batch)

    def deliver_waiting(self, window: AuthorWindow, now: float) -> None:
        """What waited for what is there now."""
        while (waited := window.waiting.pop(window.mark + 1, None)) is not None:
            self._deliver_waited(window, *waited, now)

    def deliver_overlapping(self, window: AuthorWindow, now: float) -> None:
        """An author that cheats may have sent frames that overlap: what is new of them comes now. Seldom looked at,
        because it takes a look at all that wait."""
        for first in sorted(first for first in window.waiting if first <= window.mark):
            frame, said_at = window.waiting.pop(first)
            if name_of(frame)[2] > window.mark:
                self._deliver_waited(window, frame, said_at, now)
            else:
                self._waiting_bytes -= len(frame)
        self.deliver_waiting(window, now)

    def _deliver_waited(self, window: AuthorWindow, frame: bytes, said_at: float, now: float) -> None:
        self._waiting_bytes -= len(frame)
        self._deliver(window, decode_broadcast(frame), (now - said_at) * 1000)

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
            self.progress.forget(author)
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
        now = self._peer.world.now()
        if window.waiting:
            window.mark, window.told = last, None  # what waits behind it proves that it was said
        else:
            window.told, window.gave_up_at = last, now
        self._tell_missed(missed)
        self.deliver_waiting(window, now)

    def skip(self, window: AuthorWindow, last: int) -> None:
        """Messages up to `last` were said before our time."""
        window.mark, window.told = last, None
        window.floor = max(window.floor, last)
        self.deliver_waiting(window, self._peer.world.now())

    def _tell_missed(self, missed: Missed) -> None:
        self._peer.counters.missed += missed.last - missed.first + 1
        self._peer.world.missed(missed)
        if self._peer.observer is not None:
            self._peer.observer.missed(missed)

    # -- links and time

    def tick(self, now: float) -> None:
        self.retention.expire(now)
        if self.signing is not None:
            self.signing.look_again()
