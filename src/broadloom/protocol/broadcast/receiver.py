"""The receiving side: recognize duplicates, relay first copies, deliver in order.

All guarantees rest on one rule: over every link, each end sends what it retained before the link came up and the other
lacks (`anti_entropy.py`), and then every first copy as it arrives. So whatever one peer of a connected fabric holds
reaches all others, whichever links come and go.
"""

import math
from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.author_warnings import sent_at as signed_sent_at
from broadloom.protocol.broadcast.receive_window import ReceiveWindow
from broadloom.protocol.broadcast.retention import RetainedFrame
from broadloom.protocol.events import Batch, Missed
from broadloom.wire import Broadcast, Frame, PeerId
from broadloom.wire.broadcast_frame import TREE, decode_broadcast, read_header, relayed
from broadloom.wire.payload_kind import WANTS_RECEIPT

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

EVICTED_SHARE = 10
"""One in this many authors is evicted at a time, because finding them means scanning all."""
AGE_SLACK_S = 0.1
"""How much older than its signed time implies a copy may claim to be."""
EVICTION_PAUSE_S = 0.1
"""Pause after a scan that found no author to evict, so that invented author ids do not keep the peer busy."""


class Receiver:
    """The receive windows of all authors. Only it and the fast path write them."""

    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._retention_ms = int(peer.settings.retention_s * 1000)
        self.windows: dict[PeerId, ReceiveWindow] = {}
        self.has_position = False
        """Whether this peer knows where to start in each author's stream."""
        self.joined_at = peer.runtime.now()
        """Since when it does."""
        self._connected_at: float | None = None
        """Messages sent before this time are relayed, but not for the application: `connect` had not returned."""
        self._has_evicted = False
        self._evict_again_at = 0.0
        self._reorder_bytes = 0

    def finish_join(self) -> None:
        self.has_position = True
        self.joined_at = self._peer.runtime.now()

    def begin_membership(self) -> None:
        """The peer is connected: the application gets what is sent from now on."""
        self._connected_at = self._peer.runtime.now()

    def begin_state(self) -> None:
        """The application fetches the state of another member, and continues at its position: from now on, nothing is
        left out because it was sent before this peer was connected."""
        self._connected_at = self.joined_at = -math.inf

    def positions(self) -> dict[PeerId, int]:
        """How far this peer is with each author that it knows, itself included."""
        own = self._broadcaster.next_sequence - 1
        return {author: window.reached for author, window in self.windows.items()} | {self._peer.me.peer_id: own}

    def floors(self) -> dict[PeerId, int]:
        """The messages of each author up to here were never held."""
        return {author: window.floor for author, window in self.windows.items()}

    # -- frames

    def on_broadcast(self, link: "Link", frame: Frame) -> None:
        author, sequence, last, hops, dissemination = read_header(frame)
        window = self.windows.get(author)
        peer, broadcaster = self._peer, self._broadcaster
        is_flood = dissemination != TREE
        if window is not None and (
            (last <= window.last_contiguous and not window.is_adopted) or sequence in window.reorder_buffer
        ):
            if last <= window.floor and broadcaster.backfill.deliver(link, author, sequence, last, frame):
                return
            peer.counters.duplicates += last - sequence + 1
            if broadcaster.verifier is not None:
                broadcaster.verifier.warnings.on_duplicate(link, author, sequence, frame)
            broadcaster.plumtree.on_duplicate(window, author, link, hops, is_flood=is_flood)
            return
        message = decode_broadcast(frame)  # raises WireError if any part is malformed
        if not self.has_position or author == peer.me.peer_id:
            return  # the neighbor cheats: a digest comes first on every link, and only this peer sends in its own name
        if self._reorder_bytes + len(frame) > peer.settings.reorder_buffer_bytes_max and (
            window is None or sequence != window.last_contiguous + 1
        ):
            peer.counters.reorder_buffer_full += 1  # gap repair requests it again
            return
        now = peer.runtime.now()
        if broadcaster.verifier is not None:
            if not broadcaster.verifier.verify(link, frame, message):
                return
            is_first = window is None or window.is_claim_only or window.is_adopted
            if is_first and not broadcaster.verifier.warnings.check_clock(message):
                return
            if window is not None and sequence <= window.last_known:
                broadcaster.verifier.warnings.on_overlap(frame, message)
            if window is not None and window.is_adopted:
                self._settle_position(author, window, message.stream_start)
                self.on_broadcast(link, frame)
                return
            message = self.with_plausible_age(window, message, now)
        if message.age_ms > self._retention_ms:
            peer.counters.expired_copies += 1  # too old to tell from a replay; the gap is reported as missed
            return
        if broadcaster.quotas is not None and not broadcaster.quotas.admit(link, message, frame, now):
            return
        sent_at = now - message.age_ms / 1000
        if window is None:
            window = self.add_window(author, message.stream_start, now)
            if window is None:
                return
        elif window.claimed_through is not None and not self._resolve_claim(author, window, last, sent_at):
            peer.counters.duplicates += last - sequence + 1
            return
        window.last_active_at, window.is_claim_only = now, False
        if last > window.last_known:
            window.last_known = last
            window.stream_start = message.stream_start
        broadcaster.plumtree.on_first_copy(window.tree, link, hops, is_flood=is_flood)
        self._relay(link, window, frame, message, now)
        if message.kind & WANTS_RECEIPT:
            peer.reporter.on_first_copy(author, link)
        if sequence <= window.last_contiguous + 1:
            self._deliver(window, message, message.age_ms)
            if window.reorder_buffer:
                self.deliver_buffered(window, now)
            if not is_flood:
                self._on_delivered_by_tree(link, author, window, len(frame), last - sequence + 1, hops)
        else:
            self._buffer(author, window, sequence, frame, sent_at)

    def _on_delivered_by_tree(
        self, link: "Link", author: PeerId, window: ReceiveWindow, size: int, count: int, hops: int
    ) -> None:
        self._broadcaster.acks.on_frame(author, window, size, count)
        if count == 1:
            self._broadcaster.fast_path.learn(link, window, hops)

    def _buffer(self, author: PeerId, window: ReceiveWindow, sequence: int, frame: Frame, sent_at: float) -> None:
        """Keep a frame until those before it have arrived."""
        window.reorder_buffer[sequence] = frame, sent_at
        self._reorder_bytes += len(frame)
        self._broadcaster.gap_repair.watch(author)

    def _settle_position(self, author: PeerId, window: ReceiveWindow, stream_start: int) -> None:
        """The starting position of this author came from a neighbor, on a signed channel, and the author's credential
        is known now: continue there only as far as the author had signed messages at that time."""
        verifier = self._broadcaster.verifier
        assert verifier is not None
        window.is_adopted = False
        proven_through = verifier.adopted_through(author)
        if proven_through < window.last_contiguous:
            self._peer.counters.false_positions += 1
            last_known = window.last_known
            self.start_after(window, proven_through or self._first_of(stream_start) - 1)
            window.last_known = max(last_known, window.last_known)
            self._broadcaster.gap_repair.forget_unavailable(author)
            self._broadcaster.gap_repair.watch_claim(author)

    def with_plausible_age(self, window: ReceiveWindow | None, message: Broadcast, now: float) -> Broadcast:
        """Relays can overstate the age of a copy, so that it counts as expired. The author's signed times bound it,
        whatever its clock shows: they tell how much later than its fastest message this one has arrived. The first
        messages that a newcomer gets may all be late, so there the bound is not below what the clocks show."""
        offset_s, age_s_max = now - signed_sent_at(message), 0.0
        if window is not None:
            if window.clock_offset_s is None or offset_s < window.clock_offset_s:
                window.clock_offset_s = offset_s
            age_s_max = offset_s - window.clock_offset_s
        if window is None or not window.has_started:
            age_s_max = max(age_s_max, self._peer.runtime.wall_time_s() - signed_sent_at(message))
        age_ms_max = int((age_s_max + AGE_SLACK_S) * 1000)
        return message if message.age_ms <= age_ms_max else message._replace(age_ms=age_ms_max)

    def _resolve_claim(self, author: PeerId, window: ReceiveWindow, sequence: int, sent_at: float) -> bool:
        """Decide whether messages that were given up on a neighbor's claim alone ever existed. They did not if the
        author uses their numbers only now: so a member cannot mute another by claiming messages that do not exist.
        Returns False if this message is one of those given up."""
        assert window.claimed_through is not None
        if sequence > window.claimed_through:
            window.last_contiguous = window.claimed_through
        elif sent_at > window.gave_up_at:
            window.last_known = window.last_contiguous
            self._broadcaster.gap_repair.forget_unavailable(author)
        else:
            return False
        window.claimed_through = None
        return True

    def _relay(self, link: "Link", window: ReceiveWindow, frame: Frame, message: Broadcast, now: float) -> None:
        peer, broadcaster, hops = self._peer, self._broadcaster, message.hops
        retained = RetainedFrame.from_message(message, frame, now, link.peer_id)
        broadcaster.retention.add(retained)
        header, rest = relayed(frame, hops + 1, message.age_ms)
        broadcaster.send_to_links(window.tree, retained, header, rest, link)
        if peer.observer is not None:
            peer.observer.received(message, link.peer_id)
        if message.dissemination != TREE:  # a tree may be deeper than the fabric is wide
            peer.diameter.observe_hops(hops)

    def on_sent(self, window: ReceiveWindow, last: int, stream_start: int, now: float) -> None:
        """Messages of this peer itself go out."""
        window.stream_start = stream_start
        window.last_contiguous = window.last_known = last
        window.last_active_at = now

    # -- delivery

    def _deliver(self, window: ReceiveWindow, message: Broadcast, age_ms: float) -> None:
        """Deliver the messages that are new, unless their TTL has expired."""
        peer, sequence = self._peer, message.sequence
        wants_receipt = message.kind & WANTS_RECEIPT
        batch = Batch(message.author, sequence, message.messages, message.hops, message.kind - wants_receipt)
        if sequence <= window.last_contiguous:
            batch = batch.after(window.last_contiguous)
        count = len(batch.data)
        window.last_contiguous = batch.first_sequence + count - 1
        if not window.has_started and self._is_from_before(message, age_ms):
            return
        window.has_started = True
        if message.ttl_ms and age_ms > message.ttl_ms:
            peer.counters.ttl_expired += count
            self._report_missed(Missed(message.author, batch.first_sequence, batch.last_sequence))
            return
        peer.counters.delivered += count
        peer.runtime.deliver(batch)
        if peer.observer is not None:
            peer.observer.delivered(batch)
        if wants_receipt:
            peer.reporter.on_delivered(message.author, batch.first_sequence)

    def _is_from_before(self, message: Broadcast, age_ms: float) -> bool:
        """Whether a message was certainly sent before this peer was connected. Its age is the time it spent at relays,
        so it may be older than that, but not younger. On a signed channel, where a relay may lie, its author's clock
        must agree."""
        if self._connected_at is None:
            return True
        now = self._peer.runtime.now()
        sent_at = now - age_ms / 1000
        if sent_at < self._connected_at and self._broadcaster.verifier is not None:
            sent_at = now - self._peer.runtime.wall_time_s() + signed_sent_at(message)
        return sent_at < self._connected_at

    def deliver_buffered(self, window: ReceiveWindow, now: float) -> None:
        while (buffered := window.reorder_buffer.pop(window.last_contiguous + 1, None)) is not None:
            self._deliver_from_buffer(window, *buffered, now)

    def deliver_overlapping(self, window: ReceiveWindow, now: float) -> None:
        """Deliver buffered frames that begin below `last_contiguous`. Only a cheating author sends overlapping frames,
        so this scan of the whole buffer runs only for gaps that stay open."""
        for first in sorted(first for first in window.reorder_buffer if first <= window.last_contiguous):
            frame, sent_at = window.reorder_buffer.pop(first)
            if read_header(frame)[2] > window.last_contiguous:
                self._deliver_from_buffer(window, frame, sent_at, now)
            else:
                self._reorder_bytes -= len(frame)
        self.deliver_buffered(window, now)

    def _deliver_from_buffer(self, window: ReceiveWindow, frame: Frame, sent_at: float, now: float) -> None:
        self._reorder_bytes -= len(frame)
        self._deliver(window, decode_broadcast(frame), (now - sent_at) * 1000)

    def give_up_gap(self, author: PeerId, window: ReceiveWindow, last: int) -> None:
        """Report missing messages up to `last` as missed and continue after them. On a signed channel, forget messages
        that are only claimed to exist."""
        verifier = self._broadcaster.verifier
        if verifier is not None and window.is_adopted and verifier.proven_through(author):
            self._settle_position(author, window, window.stream_start)
            return  # the gap may be another one now, for which no neighbor was asked
        if verifier is not None and not window.reorder_buffer:
            proven_through = verifier.proven_through(author)
            if proven_through < last:
                self._peer.counters.claims_unproven += 1
                window.last_known = max(window.reached, proven_through)
            if proven_through <= window.reached:
                return
            last = min(last, proven_through)
        now = self._peer.runtime.now()
        is_from_before = not window.has_started and self._is_gap_from_before(author, window, now)
        missed = Missed(author, window.reached + 1, last)
        if window.reorder_buffer or verifier is not None:
            window.last_contiguous, window.claimed_through = last, None  # signatures prove that they exist
        else:
            window.claimed_through, window.gave_up_at = last, now
        self._broadcaster.gap_repair.on_gave_up(author)
        if not is_from_before:
            window.has_started = True
            self._report_missed(missed)
        self.deliver_buffered(window, now)

    def _is_gap_from_before(self, author: PeerId, window: ReceiveWindow, now: float) -> bool:
        """Whether the missing messages were certainly sent before this peer was connected."""
        if self._connected_at is None:
            return True
        verifier = self._broadcaster.verifier
        sent_before = window.missing()[2] if verifier is None else verifier.proven_at(author, window, now)
        return sent_before < self._connected_at

    def skip_to(self, window: ReceiveWindow, last: int) -> None:
        """Continue after `last` without a report: the messages up to there were sent before this peer joined."""
        window.last_contiguous, window.claimed_through = last, None
        window.floor = max(window.floor, last)
        self.deliver_buffered(window, self._peer.runtime.now())

    def _report_missed(self, missed: Missed) -> None:
        self._peer.counters.missed += missed.last_sequence - missed.first_sequence + 1
        self._peer.runtime.report_missed(missed)
        self._peer.reporter.on_missed(missed)
        if self._peer.observer is not None:
            self._peer.observer.missed(missed)

    # -- authors

    def add_window(
        self, author: PeerId, stream_start: int, last_active_at: float, *, is_claim_only: bool = False
    ) -> ReceiveWindow | None:
        """Track a new author. Returns None if there are too many. An author that was heard replaces one that is only
        claimed to exist: any number of those can be invented."""
        if len(self.windows) >= self._peer.settings.authors_max and not (
            (not is_claim_only and self._evict_claimed()) or self.evict_idle()
        ):
            self._peer.counters.authors_rejected += 1
            return None
        stream_start = max(1, stream_start)  # a false claim may say 0
        first = self._first_of(stream_start)
        window = ReceiveWindow(stream_start, first - 1, last_active_at, is_claim_only=is_claim_only)
        self.windows[author] = window
        return window

    def _first_of(self, stream_start: int) -> int:
        """The first digest named every author, so an unknown one has sent nothing since this peer joined: its stream
        begins with message 1. That no longer holds once authors were evicted."""
        return stream_start if self._has_evicted else 1

    @staticmethod
    def start_after(window: ReceiveWindow, last: int, *, is_adopted: bool = False) -> None:
        """Messages up to `last` were sent before this peer joined."""
        window.last_contiguous = window.floor = window.last_known = last
        window.is_adopted = is_adopted

    @staticmethod
    def add_claim(window: ReceiveWindow, claimed: int, sent_at: float) -> None:
        """A neighbor claims that messages up to `claimed` exist."""
        window.last_known, window.last_known_at = claimed, sent_at

    def own_window(self) -> ReceiveWindow:
        """The window of this peer as an author: others ask it for its own messages too."""
        me = self._peer.me.peer_id
        own = self.windows.get(me)
        if own is None:
            own = self.windows[me] = ReceiveWindow(1, 0, self._peer.runtime.now())
        return own

    def evict_idle(self) -> bool:
        """Evict the authors that were idle for longest; returns False if there are none.

        Evicted authors were idle long enough that all copies of their messages are past retention, and their next
        message starts a new stream: no old copy can pass for new, and no new message waits for old ones.
        """
        now = self._peer.runtime.now()
        if now < self._evict_again_at:
            return False
        before = now - self._peer.settings.author_eviction_s
        idle = [
            (window.last_active_at, author)
            for author, window in self.windows.items()
            if window.last_active_at <= before and not window.has_gap and author != self._peer.me.peer_id
        ]
        if not idle:
            self._evict_again_at = now + EVICTION_PAUSE_S
            return False
        for _, author in sorted(idle)[: 1 + len(self.windows) // EVICTED_SHARE]:
            self._evict(author)
            if self._broadcaster.verifier is not None:
                self._broadcaster.verifier.evict(author)
        self._has_evicted = True
        return True

    def _evict_claimed(self) -> bool:
        claimed = [author for author, window in self.windows.items() if window.is_claim_only]
        for author in claimed[: 1 + len(self.windows) // EVICTED_SHARE]:
            self._evict(author)
        return bool(claimed)

    def _evict(self, author: PeerId) -> None:
        del self.windows[author]
        self._broadcaster.acks.evict(author)
        self._broadcaster.gap_repair.evict(author)

    def may_have_been_evicted(self, last_active_at: float) -> bool:
        """Whether an unknown author that was last active then may be an evicted one."""
        return self._has_evicted and last_active_at < self._peer.runtime.now() - self._peer.settings.author_eviction_s
