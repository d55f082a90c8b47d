"""A link's first words: how two peers find out what one of them lacks.

Both ends of a new link say up to where they hold each author, and each sends what the other lacks. A newcomer takes
the first answer as its starting point. What one is told of and does not get is a gap (`gaps.py`).
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
"""Messages of an author that are believed to exist on a neighbour's word alone."""
IDLE_S_MAX = 10 * 365 * 86400.0


def _last_active_at(state: AuthorState, now: float) -> float:
    """When the author was last heard, for any number that a stranger may write there."""
    return now - min(state.idle_ms / 1000, IDLE_S_MAX)


def _author_state(author: PeerId, window: ReceiveWindow, now: float) -> AuthorState:
    return AuthorState(author, window.stream_start, window.reached, int((now - window.last_active_at) * 1000))


class AntiEntropy:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self.joined_at = peer.runtime.now()
        """Since when we have a starting point."""

    # -- greetings

    def send_digest(self, link: "Link", *, is_complete: bool) -> None:
        """Say what we have; all that comes later goes over the link as it comes."""
        self._broadcaster.flush()  # what was said before the link came up is in the log
        retention = self._broadcaster.retention
        link.log_start = retention.end
        link.buffered_at_digest = tuple(
            retained
            for author, window in self._broadcaster.authors.items()
            for sequence in window.reorder_buffer
            if (retained := retention.get(author, sequence)) is not None
        )
        peer_sample = self._peer.peer_cache.sample(self._peer.settings.peer_sample_size)
        authors = self._author_states() + (self._author_states(long_idle=True) if is_complete else ())
        link.send(Digest(not self._broadcaster.has_position, is_complete, authors, peer_sample))

    def _author_states(self, *, long_idle: bool = False) -> tuple[AuthorState, ...]:
        """All authors heard lately; or all others, that matter only after a long time apart."""
        now = self._peer.runtime.now()
        since = now - self._peer.settings.author_eviction_s
        return tuple(
            _author_state(author, window, now)
            for author, window in self._broadcaster.authors.items()
            if (window.last_active_at < since) == long_idle
        )

    def on_digest(self, link: "Link", digest: Digest) -> None:
        if link.digest_received or (digest.is_new and not self._broadcaster.has_position):
            raise WireError("a greeting where none belongs")  # once each, and two that know nothing do not link
        link.digest_received = True
        self._peer.peer_cache.add_all(digest.peer_sample)
        now = self._peer.runtime.now()
        if not digest.is_new:
            if self._broadcaster.has_position:
                self._on_claims(digest.authors, now)
            else:
                self._adopt_position(digest.authors, now)
        if not link.is_draining:
            self._send_missing(link, digest, now)
            if digest.is_complete and not digest.is_new:
                link.send(LastKnown(self._author_states(long_idle=True)))

    def on_last_known(self, _link: "Link", last_known: LastKnown) -> None:
        if self._broadcaster.has_position:
            self._on_claims(last_known.authors, self._peer.runtime.now())

    def _adopt_position(self, authors: tuple[AuthorState, ...], now: float) -> None:
        """A newcomer's starting point: all that the first neighbour had when the link came up."""
        for each in sorted(authors, key=lambda each: each.idle_ms):
            if each.author != self._peer.me.peer_id:
                window = self._broadcaster.window_for(each.author, each.stream_start, _last_active_at(each, now))
                if window is not None:
                    window.start_at(each.last_contiguous)
        self.finish_join()
        self._peer.on_links_changed(None)

    def finish_join(self) -> None:
        """From now on this peer has a starting point."""
        self._broadcaster.has_position = True
        self.joined_at = self._peer.runtime.now()

    def _on_claims(self, authors: tuple[AuthorState, ...], now: float) -> None:
        """Whatever the other has and we lack is a gap, until it comes."""
        for each in authors:
            if each.author == self._peer.me.peer_id:
                continue  # nobody knows better than we what we said
            window = self._broadcaster.authors.get(each.author)
            last_active_at = _last_active_at(each, now)
            if window is None:
                window = self._broadcaster.window_for(
                    each.author, each.stream_start, last_active_at, is_claim_only=True
                )
                if window is not None and (
                    last_active_at < self.joined_at or self._broadcaster.may_have_been_evicted(last_active_at)
                ):
                    window.start_at(each.last_contiguous)  # said before our time, or had and forgotten
                    if now - last_active_at < self._peer.settings.retention_s:
                        self._broadcaster.gap_repair.propagate_claims(each.author)
            if window is not None:
                self.on_claim(each.author, window, each.last_contiguous, last_active_at)

    def on_claim(self, author: PeerId, window: ReceiveWindow, claimed: int, last_active_at: float) -> None:
        """Somebody has the author's messages up to this one."""
        if claimed <= window.last_known:
            return
        if claimed - window.last_known > CLAIMED_MESSAGES_MAX:
            self._peer.counters.claims_rejected += 1
            return
        window.last_known, window.last_known_at = claimed, last_active_at
        window.must_propagate = True
        self._broadcaster.gap_repair.watch(author)

    def on_position(
        self, author: PeerId, stream_start: int, last_contiguous: int, last_active_at: float, *, source: "Link"
    ) -> None:
        """A neighbour announces what it has, and does not send."""
        self._on_claims((AuthorState(author, stream_start, last_contiguous, 0),), last_active_at)
        window = self._broadcaster.authors.get(author)
        if window is not None:
            window.source = source

    def _send_missing(self, link: "Link", digest: Digest, now: float) -> None:
        if digest.is_new:
            # It takes the marks that we told as its own, so it lacks only what we held above them.
            missing: Iterable[RetainedFrame] = link.buffered_at_digest
        else:
            positions = {each.author: each.last_contiguous for each in digest.authors}
            before = self._broadcaster.retention.before(link.log_start)
            missing = (kept for kept in before if kept.last > positions.get(kept.author, 0))
        for retained in missing:
            self._broadcaster.send_retained(link, retained, now)
        link.buffered_at_digest = ()
