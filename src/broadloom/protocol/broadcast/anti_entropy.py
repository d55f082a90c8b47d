"""Anti-entropy: both ends of a new link exchange digests and send each other what the other lacks.

A digest says how far a peer is with each author. A joiner takes the first digest it gets as its starting position.
Messages that a neighbor claims to have and that do not arrive are a gap (`gap_repair.py`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.receive_window import ReceiveWindow
from broadloom.protocol.broadcast.retention import RetainedFrame
from broadloom.wire import PeerId, WireError
from broadloom.wire.link_messages import Digest, LastKnown
from broadloom.wire.types import AuthorState

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer

CLAIMED_MESSAGES_MAX = 1 << 20
"""How many messages of an author a neighbor may claim beyond the last known one; higher claims are ignored."""
IDLE_S_MAX = 10 * 365 * 86400.0
"""Longer idle times, which only a malicious peer sends, are cut to this."""


def _last_active_at(state: AuthorState, now: float) -> float:
    return now - min(state.idle_ms / 1000, IDLE_S_MAX)


class AntiEntropy:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster

    # -- sending

    def send_digest(self, link: "Link", *, is_complete: bool) -> None:
        """Open a link with a digest. Frames that arrive later are sent over the link as they come."""
        self._broadcaster.flush()  # so that retention holds everything sent before the link came up
        retention = self._broadcaster.retention
        link.log_start = retention.end
        link.buffered_at_digest = tuple(
            retained
            for author, window in self._broadcaster.receiver.windows.items()
            for sequence in window.reorder_buffer
            if (retained := retention.get(author, sequence)) is not None
        )
        peer_sample = self._peer.peer_cache.sample(self._peer.settings.peer_sample_size)
        if is_complete and self._broadcaster.verifier is not None:
            self._broadcaster.verifier.send_proofs(link)
        authors = self._author_states() + (self._author_states(long_idle=True) if is_complete else ())
        link.send(Digest(not self._broadcaster.receiver.has_position, is_complete, authors, peer_sample))

    def _author_states(self, *, long_idle: bool = False) -> tuple[AuthorState, ...]:
        """Recently active authors, or the others, which matter only after a long partition."""
        now = self._peer.runtime.now()
        since = now - self._peer.settings.author_eviction_s
        return tuple(
            AuthorState(author, window.stream_start, window.reached, int((now - window.last_active_at) * 1000))
            for author, window in self._broadcaster.receiver.windows.items()
            if (window.last_active_at < since) == long_idle
        )

    def _send_missing(self, link: "Link", digest: Digest, now: float) -> None:
        if digest.is_new:
            # A joiner adopts the positions of this peer's digest, so it lacks only what was buffered beyond them.
            missing: Iterable[RetainedFrame] = link.buffered_at_digest
        else:
            positions = {each.author: each.last_contiguous for each in digest.authors}
            before = self._broadcaster.retention.before(link.log_start)
            missing = (retained for retained in before if retained.last > positions.get(retained.author, 0))
        for retained in missing:
            self._broadcaster.send_retained(link, retained, now)
        link.buffered_at_digest = ()

    # -- receiving

    def on_digest(self, link: "Link", digest: Digest) -> None:
        has_position = self._broadcaster.receiver.has_position
        if link.digest_received or (digest.is_new and not has_position):
            raise WireError("unexpected digest")  # one per link, and two peers without a position never link
        link.digest_received = True
        self._peer.peer_cache.add_all(digest.peer_sample)
        now = self._peer.runtime.now()
        if not digest.is_new:
            if has_position:
                self._on_claims(digest.authors, now)
            else:
                self._adopt_position(digest.authors, now)
        if not link.is_draining:
            self._send_missing(link, digest, now)
            if digest.is_complete and not digest.is_new:
                link.send(LastKnown(self._author_states(long_idle=True)))

    def on_last_known(self, _link: "Link", last_known: LastKnown) -> None:
        if self._broadcaster.receiver.has_position:
            self._on_claims(last_known.authors, self._peer.runtime.now())

    def on_position(self, link: "Link", author: PeerId, stream_start: int, last_contiguous: int) -> None:
        """A neighbor announces messages on a lazy link."""
        self._on_claims((AuthorState(author, stream_start, last_contiguous, 0),), self._peer.runtime.now())
        if author in self._broadcaster.receiver.windows:
            self._broadcaster.gap_repair.prefer(author, link)

    def _adopt_position(self, authors: tuple[AuthorState, ...], now: float) -> None:
        """Start where the first neighbor was when the link came up."""
        receiver = self._broadcaster.receiver
        for each in sorted(authors, key=lambda each: each.idle_ms):
            if each.author != self._peer.me.peer_id:
                window = receiver.add_window(each.author, each.stream_start, _last_active_at(each, now))
                if window is not None:
                    is_adopted = self._broadcaster.verifier is not None
                    receiver.start_after(window, each.last_contiguous, is_adopted=is_adopted)
        receiver.finish_join()
        self._peer.on_links_changed(None)

    def _on_claims(self, authors: tuple[AuthorState, ...], now: float) -> None:
        """Whatever the neighbor has and this peer lacks is a gap until it arrives."""
        receiver = self._broadcaster.receiver
        for each in authors:
            if each.author == self._peer.me.peer_id:
                continue  # no other peer knows better what this one has sent
            window = receiver.windows.get(each.author)
            last_active_at = _last_active_at(each, now)
            if window is None:
                window = receiver.add_window(each.author, each.stream_start, last_active_at, is_claim_only=True)
                if window is not None and self._is_from_before(each, window, last_active_at):
                    receiver.start_after(window, each.last_contiguous)
                    if now - last_active_at < self._peer.settings.retention_s:
                        self._broadcaster.gap_repair.propagate_claim(each.author)
            if window is not None:
                self.on_claim(each.author, window, each.last_contiguous, last_active_at)

    def _is_from_before(self, state: AuthorState, window: ReceiveWindow, last_active_at: float) -> bool:
        """Whether an unknown author's messages were sent before this peer joined, or received and evicted. On a signed
        channel this takes a proof, or a neighbor could mute an author that has not sent anything yet."""
        receiver, verifier = self._broadcaster.receiver, self._broadcaster.verifier
        if verifier is not None:
            if verifier.proven_through(state.author) < state.last_contiguous:
                return False
            last_active_at = verifier.proven_at(state.author, window, self._peer.runtime.now())
        return last_active_at < receiver.joined_at or receiver.may_have_been_evicted(last_active_at)

    def on_claim(self, author: PeerId, window: ReceiveWindow, claimed: int, last_active_at: float) -> None:
        """A neighbor claims, unverified, that the author's messages up to `claimed` exist."""
        if claimed <= window.last_known:
            return
        if claimed - window.last_known > CLAIMED_MESSAGES_MAX:
            self._peer.counters.claims_rejected += 1
            return
        self._broadcaster.receiver.add_claim(window, claimed, last_active_at)
        self._broadcaster.gap_repair.watch_claim(author)
