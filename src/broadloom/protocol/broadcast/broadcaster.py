"""The stream of messages: new or duplicate, pass on, put in order, deliver.

The rule that everything rests on: over every link, each end sends what it retained before the link came up and the
other lacks (`reconcile.py`), and after that every first copy as it comes. So whatever one peer of a connected fabric
holds, all will have, whichever links come and go meanwhile.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.acks import AckAggregator
from broadloom.protocol.broadcast.anti_entropy import AntiEntropy
from broadloom.protocol.broadcast.backfill import Backfill
from broadloom.protocol.broadcast.gap_repair import GapRepair
from broadloom.protocol.broadcast.plumtree import Plumtree
from broadloom.protocol.broadcast.receive_window import ReceiveWindow
from broadloom.protocol.broadcast.retention import RetainedFrame, RetentionBuffer
from broadloom.protocol.broadcast.signing import MessageVerifier
from broadloom.protocol.events import Batch, Missed
from broadloom.wire import Broadcast, PeerId, WireError
from broadloom.wire.broadcast_frame import (
    BUNDLE_MESSAGES_MAX,
    Dissemination,
    PayloadKind,
    Priority,
    decode_broadcast,
    encode_broadcast,
    read_header,
    relayed,
)
from broadloom.wire.framing import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.protocol.identity import Signer
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer


EVICTED_SHARE = 10
"""One in so many authors is forgotten at once, because looking for them takes a look at all."""
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - 256
"""The largest message that is sure to fit into a frame, signed or not."""
EVICTION_PAUSE_S = 0.1
"""When no author can be forgotten, it is not tried again for so long: a stranger's names shall not keep us busy."""


class _OpenBundle:
    """The bundle that our own messages of this turn go into."""

    __slots__ = ("attributes", "busy_until", "is_due", "messages", "size")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.size = 0
        self.attributes = (0, 0, 0)
        """Kind, priority and lifetime, which all messages of a frame share."""
        self.is_due = False
        """Its going out is planned."""
        self.busy_until = 0.0
        """Until then many messages are to be expected."""


class Broadcaster:
    """All authors of the channel, as one peer has heard them."""

    def __init__(self, peer: "Peer", signer: "Signer | None" = None) -> None:
        self._peer = peer
        settings = peer.settings
        self.verifier = MessageVerifier(peer, self, signer) if signer is not None else None
        self.has_position = False
        """Whether this peer has its starting point; before that it knows nothing to tell."""
        self.authors: dict[PeerId, ReceiveWindow] = {}
        self.retention = RetentionBuffer(settings.retention_s, settings.retention_bytes_max)
        self._retention_ms = int(settings.retention_s * 1000)
        self.anti_entropy = AntiEntropy(peer, self)
        self.gap_repair = GapRepair(peer, self)
        self.backfill = Backfill(peer)
        self.plumtree = Plumtree(peer, self)
        self.acks = AckAggregator(peer, self)
        self._recent_frames = 0.0
        """About as many frames of ours went out in the last second."""
        self._bundle = _OpenBundle()
        self.in_process_links: list[Link] = []
        """Links to other peers of the same process: they are none of the fabric, and get everything."""
        self._sent_at = -settings.retention_s
        self._has_evicted = False
        self._evict_again_at = 0.0
        self._reorder_bytes = 0

    # -- sending

    def broadcast(
        self, data: bytes, kind: int = PayloadKind.DATA, priority: int = Priority.NORMAL, ttl_ms: int = 0
    ) -> int:
        """Send to all; returns the sequence number. What is said within one turn goes out in one frame."""
        if len(data) > MESSAGE_BYTES_MAX:
            raise WireError(f"a message of {len(data)} bytes, at most {MESSAGE_BYTES_MAX} are possible")
        me = self._peer.me.peer_id
        own = self.authors.get(me)
        if own is None:
            own = self.authors[me] = ReceiveWindow(1, 0, self._peer.runtime.now())
        bundle = self._bundle
        attributes = kind, priority, ttl_ms
        if bundle.messages and (
            attributes != bundle.attributes or bundle.size + len(data) > self._peer.settings.bundle_bytes
        ):
            self.flush()
        if not bundle.messages:
            bundle.attributes = attributes
        bundle.messages.append(data)
        bundle.size += len(data)
        sequence = own.last_contiguous + len(bundle.messages)
        if len(bundle.messages) >= BUNDLE_MESSAGES_MAX:
            self.flush()
        elif not bundle.is_due:
            bundle.is_due = True
            self._schedule_flush()
        return sequence

    def _schedule_flush(self) -> None:
        """At the end of this turn. Who says many things turn after turn gets a moment more, for larger frames."""
        if self._peer.runtime.now() < self._bundle.busy_until:
            self._peer.runtime.call_later(self._peer.settings.bundle_linger_s, self._flush_when_due)
        else:
            self._peer.runtime.call_soon(self._flush_when_due)

    def _flush_when_due(self) -> None:
        self._bundle.is_due = False
        self.flush()

    def flush(self) -> None:
        """What was said in this turn goes out, as one frame."""
        messages = tuple(self._bundle.messages)
        if not messages:
            return
        kind, priority, ttl_ms = self._bundle.attributes
        self._bundle.messages.clear()
        self._bundle.size = 0
        me, now = self._peer.me.peer_id, self._peer.runtime.now()
        own = self.authors[me]
        sequence = own.last_contiguous + 1
        # Silent for so long that others may have forgotten this author: they shall begin here, without a gap.
        if now - self._sent_at >= self._peer.settings.retention_s:
            own.stream_start = sequence
        dissemination = self._choose_dissemination(sum(map(len, messages)), now)
        message = Broadcast(me, sequence, own.stream_start, messages, 1, 0, dissemination, kind, priority, ttl_ms)
        frame = self._encoded(message)
        self._sent_at = own.last_active_at = now
        if len(messages) > 1:
            self._bundle.busy_until = now + 2 * self._peer.settings.bundle_linger_s
        own.last_contiguous = own.last_known = sequence + len(messages) - 1
        retained = RetainedFrame(
            me, sequence, own.last_contiguous, frame, 0, 0, now, 0, dissemination, priority, ttl_ms
        )
        self.retention.add(retained)
        self._send_to_links(own, retained, frame, None, None)
        if dissemination is Dissemination.TREE:
            self.acks.on_frame(me, own, len(frame), len(messages))
        self._peer.counters.sent += len(messages)
        if self._peer.observer is not None:
            for offset, data in enumerate(messages):
                self._peer.observer.sent(sequence + offset, data)

    def _choose_dissemination(self, size: int, now: float) -> Dissemination:
        """Large frames go along the tree, and so does all that is said by one who speaks often: the tree is fresh then,
        and a flood many times a second would cost everyone much."""
        settings = self._peer.settings
        self._recent_frames = self._recent_frames * max(0.0, 1.0 - (now - self._sent_at)) + 1
        is_frequent = self._recent_frames > settings.flood_frames_per_s_max
        return Dissemination.TREE if is_frequent or size >= settings.flood_bytes_max else Dissemination.FLOOD

    def _encoded(self, message: Broadcast) -> bytes:
        frame = encode_broadcast(message)
        return frame if self.verifier is None else encode_broadcast(self.verifier.signed(message, frame))

    def _send_to_links(
        self,
        window: ReceiveWindow,
        retained: RetainedFrame,
        frame: bytes,
        rest: memoryview | None,
        received_from: "Link | None",
    ) -> None:
        """To all other neighbours, as one and the same bytes; or, if it is large, along the author's tree."""
        author = retained.author
        lazy = window.lazy_children if retained.dissemination == Dissemination.TREE else ()
        for link in self._peer.links:
            if link is received_from:
                continue
            if link in lazy:
                self.plumtree.queue_ihave(link, author)
            elif link.is_congested or link.backlog:
                link.backlog.add(retained)
            else:
                self.send(link, author, frame, rest)
        for link in self.in_process_links:
            if link is not received_from:
                self.send(link, author, frame, rest)

    def send(self, link: "Link", author: PeerId, frame: bytes, rest: memoryview | None = None) -> None:
        """A message goes to a neighbour; on a signed channel, after its author's credential."""
        if self.verifier is not None:
            if not self.verifier.can_send_credential(author):
                return
            self.verifier.send_credential(link, author)
        link.send_frame(frame, rest)

    def send_retained(self, link: "Link", retained: RetainedFrame, now: float) -> None:
        """One neighbour lacks what we hold: at once, or when it has read what it was sent."""
        if link.is_congested or link.backlog:
            link.backlog.add(retained)
        else:
            self.send(link, retained.author, retained.copy(now))

    # -- receiving

    def on_broadcast(self, link: "Link", frame: bytes) -> None:
        author, sequence, last, hops, dissemination = read_header(frame)
        link.frames_received += 1
        window = self.authors.get(author)
        if window is not None and (last <= window.last_contiguous or sequence in window.reorder_buffer):
            if last <= window.floor and self.backfill.deliver(link, author, sequence, last, frame):
                return
            self._peer.counters.duplicates += last - sequence + 1
            self.plumtree.on_duplicate(window, author, link, hops, is_flood=dissemination != Dissemination.TREE)
            return
        message = decode_broadcast(frame)  # whole and well-formed, or it dies here
        if not self.has_position or author == self._peer.me.peer_id:
            return  # a greeting comes first on every link, and what we said ourselves we know: somebody cheats
        if message.age_ms > self._retention_ms:
            self._peer.counters.expired_copies += (
                1  # nobody may take it for new any more; the gap will be told as missed
            )
            return
        if self._reorder_bytes + len(frame) > self._peer.settings.reorder_buffer_bytes_max and (
            window is None or sequence != window.last_contiguous + 1
        ):
            self._peer.counters.reorder_buffer_full += 1  # as if it had not come: it will be asked for
            return
        if self.verifier is not None and not self.verifier.verify(link, frame, message):
            return
        now = self._peer.runtime.now()
        sent_at = now - message.age_ms / 1000
        if window is None:
            window = self.window_for(author, message.stream_start, now)
            if window is None:
                return
        elif window.claimed_through is not None and not window.confirm_claim(last, sent_at):
            self._peer.counters.duplicates += last - sequence + 1
            return
        window.last_active_at = now
        window.is_claim_only = False
        if last > window.last_known:
            window.last_known = last
            window.stream_start = message.stream_start
        self.plumtree.on_first_copy(window, link, hops, is_flood=dissemination != Dissemination.TREE)
        self._relay(link, window, frame, message, now)
        if sequence <= window.last_contiguous + 1:
            self._deliver(window, message, message.age_ms)
            if window.reorder_buffer:
                self.deliver_buffered(window, now)
            if dissemination == Dissemination.TREE:
                self.acks.on_frame(author, window, len(frame), last - sequence + 1)
        else:
            window.reorder_buffer[sequence] = frame, sent_at
            self._reorder_bytes += len(frame)
            self.gap_repair.watch(author)

    def _relay(self, link: "Link", window: ReceiveWindow, frame: bytes, message: Broadcast, now: float) -> None:
        """The first copy is kept, and goes to the other neighbours."""
        retained = RetainedFrame.from_message(message, frame, now, link.peer_id)
        self.retention.add(retained)
        self._send_to_links(window, retained, *relayed(frame, message.hops + 1, message.age_ms), link)
        if self._peer.observer is not None:
            self._peer.observer.received(message, link.peer_id)
        if message.dissemination != Dissemination.TREE:  # a tree may be deeper than the fabric is wide
            self._peer.diameter.observe_hops(message.hops)

    def _deliver(self, window: ReceiveWindow, message: Broadcast, age_ms: float) -> None:
        """What is new of it, if it is still worth it."""
        batch = Batch(message.author, message.sequence, message.messages, message.hops, message.kind)
        if message.sequence <= window.last_contiguous:
            batch = batch.after(window.last_contiguous)
        if message.ttl_ms and age_ms > message.ttl_ms:
            self._peer.counters.ttl_expired += len(batch)
            self._report_missed(Missed(message.author, batch.first_sequence, batch.last_sequence))
            window.last_contiguous = batch.last_sequence
            return
        window.last_contiguous = batch.last_sequence
        self._peer.counters.delivered += len(batch)
        self._peer.runtime.deliver(batch)
        if self._peer.observer is not None:
            self._peer.observer.delivered(batch)

    def deliver_buffered(self, window: ReceiveWindow, now: float) -> None:
        """What waited for what is there now."""
        while (buffered := window.reorder_buffer.pop(window.last_contiguous + 1, None)) is not None:
            self._deliver_from_buffer(window, *buffered, now)

    def deliver_overlapping(self, window: ReceiveWindow, now: float) -> None:
        """An author that cheats may have sent frames that overlap: what is new of them comes now. Seldom looked at,
        because it takes a look at all that wait."""
        for first in sorted(first for first in window.reorder_buffer if first <= window.last_contiguous):
            frame, sent_at = window.reorder_buffer.pop(first)
            if read_header(frame)[2] > window.last_contiguous:
                self._deliver_from_buffer(window, frame, sent_at, now)
            else:
                self._reorder_bytes -= len(frame)
        self.deliver_buffered(window, now)

    def _deliver_from_buffer(self, window: ReceiveWindow, frame: bytes, sent_at: float, now: float) -> None:
        self._reorder_bytes -= len(frame)
        self._deliver(window, decode_broadcast(frame), (now - sent_at) * 1000)

    def window_for(
        self, author: PeerId, stream_start: int, last_active_at: float, *, is_claim_only: bool = False
    ) -> ReceiveWindow | None:
        """An author that we know nothing of; None if there are too many already. What we heard ourselves takes the
        place of what others told us, of which there may be any number."""
        if len(self.authors) >= self._peer.settings.authors_max and not (
            (not is_claim_only and self._evict_claimed_authors()) or self.evict_idle_authors()
        ):
            self._peer.counters.authors_rejected += 1
            return None
        # A starting point names every author, so one that is not known has not been heard since we are here: it begins
        # with its first message. Only who had to forget authors cannot know, and takes the start of the run.
        first = stream_start if self._has_evicted else 1
        window = self.authors[author] = ReceiveWindow(stream_start, first - 1, last_active_at)
        window.is_claim_only = is_claim_only
        return window

    def evict_idle_authors(self) -> bool:
        """Drop the authors that were silent for longest, if it was for so long that every copy of what they said is
        past retention, and their next message will start a new run: so an old copy cannot be taken for new, nor a new
        one wait for old ones."""
        now = self._peer.runtime.now()
        if now < self._evict_again_at:
            return False
        before = now - self._peer.settings.author_eviction_s
        idle = [
            (window.last_active_at, author)
            for author, window in self.authors.items()
            if window.last_active_at <= before and not window.has_gap and author != self._peer.me.peer_id
        ]
        if not idle:
            self._evict_again_at = now + EVICTION_PAUSE_S
            return False
        for _, author in sorted(idle)[: 1 + len(self.authors) // EVICTED_SHARE]:
            del self.authors[author]
            self.acks.evict(author)
            if self.verifier is not None:
                self.verifier.evict(author)
        self._has_evicted = True
        return True

    def _evict_claimed_authors(self) -> bool:
        """Some of the authors that we never heard ourselves. False if there are none."""
        claimed = [author for author, window in self.authors.items() if window.is_claim_only]
        for author in claimed[: 1 + len(self.authors) // EVICTED_SHARE]:
            del self.authors[author]
        return bool(claimed)

    def may_have_been_evicted(self, last_active_at: float) -> bool:
        """Whether an author that was last heard then may be one that we knew."""
        return self._has_evicted and last_active_at < self._peer.runtime.now() - self._peer.settings.author_eviction_s

    def give_up_gap(self, author: PeerId, window: ReceiveWindow, last: int) -> None:
        """Messages up to `last` cannot be had: say so, and go on behind them."""
        missed = Missed(author, window.reached + 1, last)
        now = self._peer.runtime.now()
        if window.reorder_buffer:
            window.last_contiguous, window.claimed_through = last, None  # what waits behind it proves that it was said
        else:
            window.claimed_through, window.gave_up_at = last, now
        self._report_missed(missed)
        self.deliver_buffered(window, now)

    def skip_to(self, window: ReceiveWindow, last: int) -> None:
        """Messages up to `last` were said before our time."""
        window.last_contiguous, window.claimed_through = last, None
        window.floor = max(window.floor, last)
        self.deliver_buffered(window, self._peer.runtime.now())

    def _report_missed(self, missed: Missed) -> None:
        self._peer.counters.missed += missed.last_sequence - missed.first_sequence + 1
        self._peer.runtime.report_missed(missed)
        if self._peer.observer is not None:
            self._peer.observer.missed(missed)

    # -- links and time

    def tick(self, now: float) -> None:
        self.retention.expire(now)
        if self.verifier is not None:
            self.verifier.recheck()
