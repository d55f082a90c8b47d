"""Gap repair: request messages that are known to exist and have not arrived.

A gap that does not close by itself is requested from one neighbor after another (`Want`). A neighbor that cannot send a
message answers with `Unavailable` and a reason. Messages that no neighbor can send, and none still waits for, are
reported to the application as missed.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from broadloom.protocol.broadcast.receive_window import ReceiveWindow
from broadloom.wire import PeerId, encode
from broadloom.wire.broadcast_frame import read_header
from broadloom.wire.link_messages import LastKnown, Unavailable, UnavailableReason, Want
from broadloom.wire.types import AuthorState

if TYPE_CHECKING:
    from broadloom.protocol.broadcast.broadcaster import Broadcaster
    from broadloom.protocol.link import Link
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import Timer

GAP_REQUESTS_MAX = 32
"""Authors whose gaps are requested in one round."""
LOOKUPS_MAX = 1 << 16
"""Frames looked up for one neighbor between two ticks."""
PENDING_CLAIMS_MAX = 1024
"""Authors waiting to be announced to the neighbors."""
UNAVAILABLE_RANGES_MAX = 256
"""Ranges remembered per author that one neighbor cannot send."""
UNAVAILABLE_ROUNDS_MAX = 4
"""Rounds over all neighbors for messages that some of them dropped and the others never had."""
WITNESSES_MIN = 3
"""Neighbors that must have dropped a message before it is given up early on a signed channel."""
NEVER_HELD_TIMEOUT_S = 10.0
"""How long to ask for messages that no neighbor ever had, while the neighbors search elsewhere (`backfill.py`)."""
ANSWER_S = 5.0
"""A neighbor's last answer holds until it has left a later request unanswered for this long."""
LATER_GAPS_FRAMES_MAX = 64
"""Buffered frames of an author between which further gaps are looked for."""
STALLED_CHECKS_MAX = 2
"""Checks of a gap while its parent link is busy, before it is requested from another neighbor."""


class _NeverHeld(NamedTuple):
    """The neighbors that never had the first missing message, when it was last requested from all."""

    first: int
    answered_since: float
    """Since when all neighbors answer, with whatever reason."""
    never_held_since: float
    """Since when all of them say that they never had it."""
    peer_ids: tuple[int, ...]


class GapState:
    """What gap repair knows about one author. Only `GapRepair` writes it."""

    __slots__ = (
        "announced_by",
        "answers",
        "asked_at",
        "claimed_at",
        "must_propagate",
        "never_held",
        "parent_frames",
        "pending",
        "propagated_through",
        "stalled_at",
        "stalled_checks",
        "unavailable",
        "unavailable_rounds",
    )

    def __init__(self) -> None:
        self.announced_by: Link | None = None
        """The link over which missing messages were announced last."""
        self.claimed_at = 0.0
        """Since when there are claims of messages that have not arrived; the latest ones, if they never end."""
        self.must_propagate = False
        """The gap comes from a claim; if it stays open, the neighbors should know of the messages too."""
        self.propagated_through = 0
        """Messages up to here were announced to the neighbors."""
        self.unavailable: dict[int, list[tuple[int, int]]] = {}
        """Per neighbor, the ranges that it dropped, in order unless it lies."""
        self.unavailable_rounds = 0
        """Rounds over all neighbors in which some had dropped the messages."""
        self.pending: dict[int, int] = {}
        """Per neighbor asked in this round, how far the messages from the first missing one on may be missing there."""
        self.asked_at: dict[int, float] = {}
        """Per neighbor, the time of the first request that it has not answered."""
        self.answers: dict[int, tuple[int, UnavailableReason]] = {}
        """Per neighbor, its last answer and how far it goes, also from earlier rounds."""
        self.never_held = _NeverHeld(0, 0.0, 0.0, ())
        self.stalled_at = -1
        """`reached` at the last check. A gap that moves closes by itself."""
        self.stalled_checks = 0
        """Checks since it moved."""
        self.parent_frames = 0
        """Frames that the parent link had delivered at the last check."""

    def add_unavailable(self, neighbor: int, first: int, last: int) -> None:
        ranges = self.unavailable.setdefault(neighbor, [])
        if ranges and first <= ranges[-1][1] + 1 and last >= ranges[-1][0] - 1:
            ranges[-1] = min(first, ranges[-1][0]), max(last, ranges[-1][1])
        elif len(ranges) < UNAVAILABLE_RANGES_MAX:
            ranges.append((first, last))

    def unavailable_through(self, neighbor: int, sequence: int) -> int | None:
        """Return the end of the range around `sequence` that this neighbor dropped, or None."""
        ranges = self.unavailable.get(neighbor, [])
        while ranges and ranges[0][1] < sequence:
            del ranges[0]
        return next((last for first, last in ranges if first <= sequence <= last), None)

    def answer(self, neighbor: int, first: int, now: float) -> UnavailableReason | None:
        """Whether this neighbor may still receive the message or never had it. None: it has not answered."""
        last, reason = self.answers.get(neighbor, (0, None))
        return reason if last >= first and now - self.asked_at.get(neighbor, now) < ANSWER_S else None


class GapRepair:
    def __init__(self, peer: "Peer", broadcaster: "Broadcaster") -> None:
        self._peer = peer
        self._broadcaster = broadcaster
        self._states: dict[PeerId, GapState] = {}
        """Authors that ever had a gap."""
        self._open: dict[PeerId, None] = {}
        """Authors that may have a gap now, the next to check first."""
        self._pending_claims: dict[PeerId, None] = {}
        """Authors to announce to the neighbors."""
        self._timer: Timer | None = None

    def _state(self, author: PeerId) -> GapState:
        state = self._states.get(author)
        if state is None:
            state = self._states[author] = GapState()
        return state

    # -- requesting

    def watch(self, author: PeerId) -> None:
        self._open[author] = None
        self._schedule_check()

    def watch_claim(self, author: PeerId) -> None:
        """A neighbor claims that messages exist which this peer has not received."""
        state = self._state(author)
        state.must_propagate = True
        now = self._peer.runtime.now()
        if author not in self._open or now - state.claimed_at > self._peer.settings.retention_s:
            state.claimed_at = now
        self.watch(author)

    def prefer(self, author: PeerId, link: "Link") -> None:
        """Request missing messages from the neighbor that announced them first."""
        self._state(author).announced_by = link

    def propagate_claim(self, author: PeerId) -> None:
        """Announce messages from before this peer joined: older neighbors may lack them without knowing it."""
        if len(self._pending_claims) < PENDING_CLAIMS_MAX:
            self._pending_claims[author] = None
            self._schedule_check()

    def on_gave_up(self, author: PeerId) -> None:
        """The messages are gone. Announce them if that was not possible before, because nothing proved them."""
        if (state := self._states.get(author)) is not None and state.must_propagate:
            self.propagate_claim(author)

    def forget_unavailable(self, author: PeerId) -> None:
        """The claimed messages never existed, so what neighbors said about them means nothing."""
        if (state := self._states.get(author)) is not None:
            state.unavailable.clear()
            state.answers.clear()
            state.never_held = _NeverHeld(0, 0.0, 0.0, ())
            state.propagated_through = 0  # announced on the strength of the same claim

    def on_link_lost(self, link: "Link") -> None:
        for state in self._states.values():
            if state.announced_by is link:
                state.announced_by = None
            state.asked_at.pop(link.peer_id, None)
            state.answers.pop(link.peer_id, None)

    def evict(self, author: PeerId) -> None:
        self._states.pop(author, None)

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

    def _drop_closed(self) -> None:
        for author in list(self._open):
            window = self._broadcaster.receiver.windows.get(author)
            if window is None or not window.has_gap:
                del self._open[author]
                if (state := self._states.get(author)) is not None:
                    state.unavailable.clear()
                    state.pending.clear()
                    state.asked_at.clear()
                    state.answers.clear()
                    state.unavailable_rounds = 0

    def _find_stalled(self) -> list[tuple[PeerId, ReceiveWindow]]:
        """Return the gaps that have not moved since the last check, in turn."""
        stalled: list[tuple[PeerId, ReceiveWindow]] = []
        for author in list(self._open):
            window, state = self._broadcaster.receiver.windows[author], self._state(author)
            if state.stalled_at != window.reached:
                state.stalled_at, state.stalled_checks = window.reached, 0
                self._is_in_flight(window, state)  # notes how many frames the parent has delivered
            elif self._is_in_flight(window, state):
                state.stalled_checks += 1
            elif len(stalled) < GAP_REQUESTS_MAX:
                state.stalled_at = -1  # gives the request time to be answered
                del self._open[author]
                self._open[author] = None  # to the end of the queue
                stalled.append((author, window))
        return stalled

    def _is_in_flight(self, window: ReceiveWindow, state: GapState) -> bool:
        """Whether the missing messages are probably queued on the parent link, which is busy. Requesting everything
        that is late under load would add to the load."""
        parent, frames_before = window.tree.parent, state.parent_frames
        if parent is None or state.stalled_checks >= STALLED_CHECKS_MAX:
            return False
        state.parent_frames = parent.frames_received
        return parent.frames_received != frames_before and not window.reorder_buffer

    def _send_claims(self, stalled: list[tuple[PeerId, ReceiveWindow]], now: float) -> None:
        """Announce messages known from claims alone: the neighbors may lack them without knowing it."""
        to_announce = [(author, window) for author, window in stalled if self._state(author).must_propagate]
        for author in list(self._pending_claims)[:GAP_REQUESTS_MAX]:
            del self._pending_claims[author]
            if (window := self._broadcaster.receiver.windows.get(author)) is not None:
                to_announce.append((author, window))
        verifier, claims = self._broadcaster.verifier, []
        for author, window in to_announce:
            last_known = window.last_known
            if verifier is not None:
                last_known = min(last_known, verifier.proven_through(author))
            if (state := self._states.get(author)) is not None:
                if last_known <= state.propagated_through:
                    continue
                state.propagated_through = last_known
                state.must_propagate = last_known < window.last_known  # the rest, as soon as it is proven
            if last_known:
                if verifier is not None:
                    for link in self._peer.links:
                        verifier.send_proof(link, author)
                idle_ms = int((now - window.last_known_at) * 1000)
                claims.append(AuthorState(author, window.stream_start, last_known, idle_ms))
        if claims:
            frame = encode(LastKnown(tuple(claims)))
            for link in self._peer.links:
                link.send_frame(frame)

    def _request(self, author: PeerId, window: ReceiveWindow, now: float) -> None:
        """Request the first missing range from one neighbor, or give it up."""
        receiver, state = self._broadcaster.receiver, self._state(author)
        receiver.deliver_overlapping(window, now)
        if not window.has_gap:
            return
        if self._give_up_unavailable(author, window) and not window.has_gap:
            return
        first, last, sent_at = window.missing()
        verifier, is_claimed, wanted_last = self._broadcaster.verifier, False, last
        if verifier is not None and not window.reorder_buffer:
            proven_through = verifier.proven_through(author)
            if proven_through >= first:
                last, sent_at = min(last, proven_through), verifier.proven_at(author, window, now)
            else:
                is_claimed, sent_at = True, state.claimed_at  # the age in a claim may be false
        for neighbor, pending_through in list(state.pending.items()):
            if pending_through < first or neighbor not in self._peer.links:
                del state.pending[neighbor]
        unavailable = {
            link: through
            for link in self._peer.links
            if (through := state.unavailable_through(link.peer_id, first)) is not None
        }
        left = [link for link in self._peer.links if link not in unavailable]
        unasked = [link for link in left if link.peer_id not in state.pending]
        if now - sent_at > self._peer.settings.retention_s and not (is_claimed and unasked):
            receiver.give_up_gap(author, window, last)  # no peer retains it any longer
            return
        if not unasked:
            if window.reorder_buffer and sent_at < receiver.joined_at and not window.has_started:
                receiver.skip_to(window, last)  # sent before this peer and all its neighbors joined
                return
            never_held = all(state.answer(link.peer_id, first, now) is UnavailableReason.NEVER_HELD for link in left)
            if (
                self._is_credible(author, first, unavailable)
                and never_held
                and state.unavailable_rounds >= UNAVAILABLE_ROUNDS_MAX
            ):
                # Some neighbors dropped it, and the others never get it.
                receiver.give_up_gap(author, window, min(last, *unavailable.values()))
                return
            if self._is_never_held(window, state, first, left):
                receiver.give_up_gap(author, window, last)
                return
            state.pending.clear()  # start another round: it exists somewhere
            state.unavailable_rounds += bool(unavailable)
        candidates = unasked or left
        if not candidates:
            return  # the only neighbor says that it is gone, which is not enough
        responsive = [link for link in candidates if link.received_since_tick] or candidates  # the others may be dead
        announced_by, state.announced_by = state.announced_by, None
        link = announced_by if announced_by in left else self._peer.runtime.random.choice(responsive)
        self._broadcaster.plumtree.graft(window, author, link)
        state.pending[link.peer_id] = wanted_last
        state.asked_at.setdefault(link.peer_id, now)
        link.send(Want(author, first, wanted_last))
        self._request_later_gaps(author, window, link, now)

    def _request_later_gaps(self, author: PeerId, window: ReceiveWindow, link: "Link", now: float) -> None:
        """Request gaps between buffered frames too, if they have been open for as long: one gap after another would
        take a round each. What this neighbor does not have is requested again when it is the first gap."""
        if not 1 < len(window.reorder_buffer) <= LATER_GAPS_FRAMES_MAX:
            return
        open_before = now - self._peer.settings.gap_repair_delay_s / 2  # as often as gaps are checked
        frames = sorted(window.reorder_buffer.items())
        for (_, (frame, _)), (following, (_, sent_at)) in pairwise(frames):
            last = read_header(frame)[2]
            if last + 1 < following and sent_at <= open_before:
                link.send(Want(author, last + 1, following - 1))

    def _is_never_held(self, window: ReceiveWindow, state: GapState, first: int, left: "list[Link]") -> bool:
        """Whether no neighbor ever had these messages or found them elsewhere for a long time: later messages of the
        author should not wait for them any longer. Not on alert: a member that has them may be in another partition."""
        now, previous = self._peer.runtime.now(), state.never_held
        answers = {link.peer_id: state.answer(link.peer_id, first, now) for link in left}
        peer_ids = tuple(each for each, reason in answers.items() if reason is UnavailableReason.NEVER_HELD)
        is_same = previous.first == first
        answered_since = previous.answered_since if is_same and None not in answers.values() else now
        never_held_since = previous.never_held_since if is_same and len(peer_ids) == len(left) else now
        state.never_held = _NeverHeld(first, answered_since, never_held_since, peer_ids)
        is_over = now > never_held_since + NEVER_HELD_TIMEOUT_S and not self._peer.partition_merge.is_alert
        return is_over and bool(left and window.reorder_buffer)

    def _is_credible(self, author: PeerId, first: int, witnesses: "Collection[Link]") -> bool:
        """Whether these neighbors may be believed that messages are gone. On a signed channel a few of them may lie:
        it takes several witnesses, all other members, or the author itself. Until then the messages are requested
        again, up to the end of their retention."""
        verifier = self._broadcaster.verifier
        if verifier is None or len(witnesses) >= WITNESSES_MIN:
            return bool(witnesses)
        if len(witnesses) > 1 and verifier.proven_through(author) < first:
            return True  # nothing proves that the messages ever existed
        if any(link.peer_id == author for link in witnesses):
            return True
        return len(witnesses) > 1 and len(witnesses) == len(self._peer.links) and self._peer.two_hop_view.is_full_mesh

    def _may_still_arrive(self, author: PeerId, window: ReceiveWindow, requester: "Link") -> bool:
        """Whether this peer's own gap may close without the requester: neighbors with the same gap must not wait for
        each other. They do for as long as a member that has the message may be in another partition."""
        state = self._states.get(author)
        if state is None or state.never_held.first != window.reached + 1:
            return True
        if self._peer.runtime.now() > state.never_held.answered_since + self._peer.settings.alert_s:
            return False
        return any(link is not requester and link.peer_id not in state.never_held.peer_ids for link in self._peer.links)

    def _give_up_unavailable(self, author: PeerId, window: ReceiveWindow) -> bool:
        """Give up what all neighbors have dropped."""
        gave_up, state = False, self._state(author)
        while window.has_gap:
            first, last, _ = window.missing()
            if not self._is_credible(author, first, self._peer.links):
                return gave_up
            ends = [state.unavailable_through(link.peer_id, first) for link in self._peer.links]
            for end in ends:
                if end is None:
                    return gave_up
                last = min(last, end)
            self._broadcaster.receiver.give_up_gap(author, window, last)
            gave_up = True
        return gave_up

    # -- responding

    def on_want(self, link: "Link", want: Want) -> None:
        """Send what is retained of the range, and report the rest as unavailable."""
        window = self._broadcaster.receiver.windows.get(want.author)
        if want.last < want.first or link.lookups > LOOKUPS_MAX:
            return  # an empty range, or too many requests: an honest peer asks again
        if window is None or want.first > window.last_known:
            link.send(Unavailable(want.author, want.first, want.last, UnavailableReason.PENDING))
            return
        last = min(want.last, window.last_known)
        verifier = self._broadcaster.verifier
        if verifier is None or verifier.can_send_credential(want.author):
            link.backlog.rewind(want.author, want.first, last)
            link.backlog.drain()
        else:
            self.send_unavailable(link, window, want.author, want.first, last)
        if last < want.last:
            link.send(Unavailable(want.author, last + 1, want.last, UnavailableReason.PENDING))

    def send_unavailable(self, link: "Link", window: ReceiveWindow, author: PeerId, first: int, last: int) -> None:
        """Report why a range cannot be sent: it may still arrive, it was dropped, or this peer never held it. In the
        last case it is fetched for the neighbor from elsewhere."""
        if last > window.reached:
            may_arrive = self._may_still_arrive(author, window, link)
            reason = UnavailableReason.PENDING if may_arrive else UnavailableReason.NEVER_HELD
        else:
            reason = UnavailableReason.DROPPED if first > window.floor else UnavailableReason.NEVER_HELD
        self.send_unavailable_range(link, author, first, last, reason)
        if reason is UnavailableReason.NEVER_HELD and first <= window.floor:
            self._broadcaster.backfill.fetch_for(link, author, first, min(last, window.floor))

    def send_unavailable_range(
        self, link: "Link", author: PeerId, first: int, last: int, reason: UnavailableReason
    ) -> None:
        if reason is UnavailableReason.DROPPED and self._broadcaster.verifier is not None:
            self._broadcaster.verifier.send_proof(link, author)
        link.send(Unavailable(author, first, last, reason))

    def on_unavailable(self, link: "Link", unavailable: Unavailable) -> None:
        author, first, last = unavailable.author, unavailable.first, unavailable.last
        window = self._broadcaster.receiver.windows.get(author)
        if window is None:
            return
        is_final = unavailable.reason is UnavailableReason.DROPPED
        if is_final and first <= window.last_known + 1:
            # The neighbor skipped messages that this peer has not heard of.
            self._broadcaster.anti_entropy.on_claim(author, window, last, self._peer.runtime.now())
        if not window.has_gap:
            return
        if is_final and last > window.reached:
            self._state(author).add_unavailable(link.peer_id, first, last)
            self._give_up_unavailable(author, window)
        elif first <= window.reached + 1 <= last:
            state = self._state(author)
            was_asked = link.peer_id in state.pending
            state.pending[link.peer_id] = last
            state.answers[link.peer_id] = last, unavailable.reason
            state.asked_at.pop(link.peer_id, None)
            if was_asked and any(each.peer_id not in state.pending for each in self._peer.links):
                self._request(author, window, self._peer.runtime.now())  # the next neighbor, at once
