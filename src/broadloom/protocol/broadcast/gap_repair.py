"""Gaps: what somebody is known to have, and we lack.

One that stays is asked for, from one neighbour after the other. What no neighbour can give any more, and none waits
for, is told to the application as missed.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.broadcast.receive_window import NeverHeld, ReceiveWindow
from broadloom.wire import PeerId, encode
from broadloom.wire.link_messages import LastKnown, Unavailable, UnavailableReason, Want
from broadloom.wire.types import AuthorState

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

GAP_REQUESTS_MAX = 32
"""Authors whose gaps are asked for in one round, one after the other."""
LOOKUPS_MAX = 1 << 16
"""Frames looked for on behalf of one neighbour between two ticks."""
PENDING_CLAIMS_MAX = 1024
"""Authors that wait to be told to the neighbours."""
UNAVAILABLE_ROUNDS_MAX = 4
"""So often all neighbours are asked for what one of them had and dropped, and the others never had."""
NEVER_HELD_TIMEOUT_S = 10.0
"""For so long all neighbours are asked for what they never had, and look for it elsewhere."""
STALLED_CHECKS_MAX = 4
"""So often a gap is looked at while the link that should fill it is busy, before it is asked for elsewhere."""


class GapRepair:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._open: dict[PeerId, None] = {}
        self._pending_claims: dict[PeerId, None] = {}
        """Authors that our neighbours shall know of."""
        self._timer: Timer | None = None

    # -- asking

    def watch(self, author: PeerId) -> None:
        self._open[author] = None
        self._schedule_check()

    def propagate_claims(self, author: PeerId) -> None:
        """We heard of messages from before our time, for the first time: our neighbours may be older than we and lack
        them."""
        if len(self._pending_claims) < PENDING_CLAIMS_MAX:
            self._pending_claims[author] = None
            self._schedule_check()

    def _schedule_check(self) -> None:
        if self._timer is None:
            self._timer = self._peer.runtime.call_later(self._peer.settings.gap_repair_delay_s / 2, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._peer.runtime.now()
        self._drop_closed()
        if not (self._open or self._pending_claims) or not self._peer.is_present:
            return
        self._schedule_check()
        stalled = self._find_stalled()
        self._send_claims(stalled, now)
        if not len(self._peer.links):
            return
        for author, window in stalled:
            self._request(author, window, now)

    def _find_stalled(self) -> list[tuple[PeerId, ReceiveWindow]]:
        """Authors whose gap has not moved since we looked last, in turn. One that moves closes by itself."""
        stalled: list[tuple[PeerId, ReceiveWindow]] = []
        for author in list(self._open):
            window = self._broadcaster.authors[author]
            if window.stalled_at != window.reached:
                window.stalled_at, window.stalled_checks = window.reached, 0
                self._in_flight(window)
            elif self._in_flight(window):
                window.stalled_checks += 1
            elif len(stalled) < GAP_REQUESTS_MAX:
                window.stalled_at = -1  # what is asked for is given time to come
                del self._open[author]
                self._open[author] = None  # to the end of the queue
                stalled.append((author, window))
        return stalled

    def _in_flight(self, window: ReceiveWindow) -> bool:
        """The link that feeds us is busy with other messages: under load, all that comes late would be asked for, and
        that would be more load."""
        parent, frames_before = window.parent, window.parent_frames
        if parent is None or window.stalled_checks >= STALLED_CHECKS_MAX:
            return False
        window.parent_frames = parent.frames_received
        return parent.frames_received != frames_before and not window.reorder_buffer

    def _drop_closed(self) -> None:
        for author in list(self._open):
            window = self._broadcaster.authors.get(author)
            if window is None or not window.has_gap:
                del self._open[author]
                if window is not None:
                    window.unavailable.clear()
                    window.pending_at.clear()
                    window.unavailable_rounds = 0

    def _send_claims(self, stalled: list[tuple[PeerId, ReceiveWindow]], now: float) -> None:
        """Gaps that we learned of by hearsay and that stay open: our neighbours may lack the same and not know it."""
        to_propagate = [(author, window) for author, window in stalled if window.must_propagate]
        for author in list(self._pending_claims)[:GAP_REQUESTS_MAX]:
            del self._pending_claims[author]
            if (window := self._broadcaster.authors.get(author)) is not None:
                to_propagate.append((author, window))
        claims = []
        for author, window in to_propagate:
            window.must_propagate = False
            claims.append(
                AuthorState(author, window.stream_start, window.last_known, int((now - window.last_known_at) * 1000))
            )
        if claims:
            frame = encode(LastKnown(tuple(claims)))
            for link in self._peer.links:
                link.send_frame(frame)

    def _request(self, author: PeerId, window: ReceiveWindow, now: float) -> None:
        self._broadcaster.deliver_overlapping(window, now)
        if not window.has_gap:
            return
        if self._give_up_unavailable(author, window) and not window.has_gap:
            return
        first, last, sent_at = window.missing()
        for neighbor, (pending_through, _) in list(window.pending_at.items()):
            if pending_through < first or neighbor not in self._peer.links:
                del window.pending_at[neighbor]
        unavailable = {
            link: up_to for link in self._peer.links if (up_to := window.unavailable_through(link.peer_id)) is not None
        }
        left = [link for link in self._peer.links if link not in unavailable]
        unasked = [link for link in left if link.peer_id not in window.pending_at]
        if now - sent_at > self._peer.settings.retention_s:
            self._broadcaster.give_up_gap(author, window, last)  # so old that nobody can have it any more
        elif not unasked and window.reorder_buffer and sent_at < self._broadcaster.anti_entropy.joined_at:
            self._broadcaster.skip_to(window, last)  # nobody near was there, and neither were we
        elif not unasked and unavailable and window.unavailable_rounds >= UNAVAILABLE_ROUNDS_MAX:
            self._broadcaster.give_up_gap(
                author, window, min(last, *unavailable.values())
            )  # some had it, and the others never got it
        else:
            if not unasked:
                if self._is_never_held(window, first, left):
                    self._broadcaster.give_up_gap(author, window, last)
                    return
                window.pending_at.clear()  # it is somewhere, and on its way
                window.unavailable_rounds += bool(unavailable)
            choices = (
                [link for link in unasked or left if link.received_since_tick] or unasked or left
            )  # the others may be dead
            link = window.source if window.source in left else self._peer.runtime.random.choice(choices)
            window.source = None  # the next one is any of them
            self._broadcaster.plumtree.graft(window, author, link)
            link.send(Want(author, first, last))

    def _is_never_held(self, window: ReceiveWindow, first: int, left: "list[Link]") -> bool:
        """All neighbours came after these messages, and have found them nowhere (`errands.py`): what has come of the
        author meanwhile shall not wait for them any longer."""
        now, previous = self._peer.runtime.now(), window.never_held
        by = tuple(link.peer_id for link in left if window.pending_at[link.peer_id][1])
        since = previous.since if previous.first == first and len(by) == len(left) else now
        window.never_held = NeverHeld(first, since, by)
        return now > since + NEVER_HELD_TIMEOUT_S and bool(window.reorder_buffer)

    def _may_still_arrive(self, window: ReceiveWindow, requester: "Link") -> bool:
        """Whether a gap of ours may still close without the one who asks for the same. (Two neighbours that lack the
        same must not wait for each other.)"""
        never_held = window.never_held
        return never_held.first != window.reached + 1 or any(
            link is not requester and link.peer_id not in never_held.by for link in self._peer.links
        )

    def _give_up_unavailable(self, author: PeerId, window: ReceiveWindow) -> bool:
        """By the word of all neighbours."""
        gave_up = False
        while window.has_gap and len(self._peer.links):
            up_to = [window.unavailable_through(link.peer_id) for link in self._peer.links]
            _, last, _ = window.missing()
            for each in up_to:
                if each is None:
                    return gave_up
                last = min(last, each)
            self._broadcaster.give_up_gap(author, window, last)
            gave_up = True
        return gave_up

    # -- being asked, and answered

    def on_want(self, link: "Link", want: Want) -> None:
        """Send what we hold of the range, and say of the rest whether it may still come."""
        window = self._broadcaster.authors.get(want.author)
        if want.last < want.first or link.lookups > LOOKUPS_MAX:
            return  # it asks for nothing, or for too much at once: who lacks something asks again
        if window is None or want.first > window.last_known:
            link.send(Unavailable(want.author, want.first, want.last, UnavailableReason.PENDING))
            return
        last = min(want.last, window.last_known)
        signing = self._broadcaster.verifier
        if signing is None or signing.can_send_credential(want.author):
            link.backlog.rewind(want.author, want.first, last)
            link.backlog.drain()
        else:
            self.send_unavailable(link, window, want.author, want.first, last)
        if last < want.last:
            link.send(Unavailable(want.author, last + 1, want.last, UnavailableReason.PENDING))

    def send_unavailable(self, link: "Link", window: ReceiveWindow, author: PeerId, first: int, last: int) -> None:
        """What we held once and dropped, or gave up, is gone for good; what we never held may be found elsewhere."""
        if last > window.reached:
            reason = UnavailableReason.PENDING if self._may_still_arrive(window, link) else UnavailableReason.NEVER_HELD
        else:
            reason = UnavailableReason.EXPIRED if first > window.floor else UnavailableReason.NEVER_HELD
        link.send(Unavailable(author, first, last, reason))
        if reason is UnavailableReason.NEVER_HELD and first <= window.floor:
            self._broadcaster.backfill.fetch_for(link, author, first, min(last, window.floor))

    def on_unavailable(self, link: "Link", unavailable: Unavailable) -> None:
        window = self._broadcaster.authors.get(unavailable.author)
        if window is None:
            return
        is_final = unavailable.reason is UnavailableReason.EXPIRED
        if is_final and unavailable.first <= window.last_known + 1:
            # We were spared it, and did not even know of it.
            self._broadcaster.anti_entropy.on_claim(
                unavailable.author, window, unavailable.last, self._peer.runtime.now()
            )
        if is_final and window.has_gap and unavailable.last > window.reached:
            window.add_unavailable(link.peer_id, unavailable.first, unavailable.last)
            self._give_up_unavailable(unavailable.author, window)
        elif window.has_gap and unavailable.first <= window.reached + 1 <= unavailable.last:
            window.pending_at[link.peer_id] = unavailable.last, unavailable.reason is UnavailableReason.NEVER_HELD
