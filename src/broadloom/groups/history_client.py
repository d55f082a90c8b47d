"""`HistoryClient`: catching up with the messages of a group that were sent while we were away (M2MC thesis, chapter 6).

The client reports what it has and receives pages. It controls the flow: a server sends one turn of pages and stops
until it is asked to continue. If the server falls silent, the request goes to all members again. Messages that are
known to exist and do not arrive are reported as unavailable.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.groups.intervals import IntervalSet
from broadloom.groups.message_fields import AuthorIntervals
from broadloom.groups.messages import HistoryPage, HistoryRequest
from broadloom.groups.model import CatchingUp, CaughtUp, MemberId
from broadloom.groups.settings import INTERVALS_MAX
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation
    from broadloom.protocol.runtime import Timer

ROUND_TRIP_S = 1.0
"""Allowed for request and reply to travel, in addition to the server's back-off."""
MISMATCH_INTERVAL_S = 30.0
"""Minimum time between requests caused by a heartbeat."""


class HistoryClient:
    def __init__(self, conversation: "Conversation") -> None:
        self._conversation = conversation
        self._runtime = conversation.participant.runtime
        self._settings = conversation.participant.settings
        self.is_active = False
        self.received_count = 0
        """Since `begin`."""
        self.remaining_count = 0
        self._request_id = 0
        self._rounds = 0
        self._made_progress = False
        """A page with new messages arrived since the last request."""
        self._reports_end = False
        """Emit `CaughtUp` even if nothing arrived."""
        self._timer: Timer | None = None
        self._delayed_start: Timer | None = None
        self._held_elsewhere: dict[MemberId, IntervalSet] = {}
        """Messages that other members have, according to their own requests."""
        self._unavailable: dict[MemberId, IntervalSet] = {}
        """Messages that the server once had and no longer holds."""
        self._requested_at = -MISMATCH_INTERVAL_S

    # -- starting

    def begin(self, *, always_report: bool) -> None:
        self._reports_end = self._reports_end or always_report
        if self._delayed_start is not None:
            self._delayed_start.cancel()
            self._delayed_start = None
        if not self.is_active:
            self.is_active = True
            self.received_count = self.remaining_count = self._rounds = 0
            self._request(0)

    def begin_later(self) -> None:
        """Give another member's request time to bring the missing messages."""
        if self._delayed_start is None and not self.is_active:
            wait_s = 2 * self._settings.reply_window_s + self._conversation.participant.backoff_s()
            self._delayed_start = self._runtime.call_later(wait_s, self._begin_if_missing)

    def _begin_if_missing(self) -> None:
        self._delayed_start = None
        if self._missing():
            self.begin(always_report=False)

    def on_held_elsewhere(self, held: dict[MemberId, IntervalSet]) -> None:
        """Another member has these messages. The member whose back-off ends first requests the missing ones for all."""
        order, is_missing = self._conversation.order, False
        for author, intervals in held.items():
            new = intervals.minus(order.received.get(author))
            if new.count:
                is_missing = True
                self._held_elsewhere.setdefault(author, IntervalSet()).update(new)
        if is_missing:
            if self._delayed_start is not None:
                self._delayed_start.cancel()  # we will hear the pages sent to that member
                self._delayed_start = None
            self.begin_later()

    def on_digest_mismatch(self) -> None:
        now = self._runtime.now()
        if now >= self._requested_at + MISMATCH_INTERVAL_S:
            self._requested_at = now
            self.begin(always_report=False)

    # -- requests and pages

    def _request(self, responder: PeerId) -> None:
        self._request_id += 1
        self._made_progress = False
        self._requested_at = self._runtime.now()
        self._conversation.participant.send(
            HistoryRequest(self._conversation.group, self._request_id, responder, self._held_intervals())
        )
        self._set_timer(self._settings.page_timeout_s if responder else self._reply_timeout_s, self._on_stalled)

    @property
    def _reply_timeout_s(self) -> float:
        """By then every member that has more than we do has started to answer."""
        return min(ROUND_TRIP_S + self._conversation.participant.reply_window_s, self._settings.page_timeout_s)

    def _held_intervals(self) -> tuple[AuthorIntervals, ...]:
        held, room = [], INTERVALS_MAX
        for author, received in self._conversation.order.received.items():
            intervals = tuple(received)[:room]
            room -= len(intervals)
            if intervals:
                held.append(AuthorIntervals(author, intervals))
            if room <= 0:
                break
        return tuple(held)

    def _set_timer(self, delay_s: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._runtime.call_later(delay_s, callback)

    def on_history_page(self, peer: PeerId, message: HistoryPage, new_count: int) -> None:
        if not self.is_active:
            return
        self.received_count += new_count
        self._made_progress = self._made_progress or new_count > 0
        if message.requester != self._runtime.peer_id or message.request_id != self._request_id:
            return
        self.remaining_count = message.remaining
        for author, intervals in message.unavailable:
            self._unavailable.setdefault(author, IntervalSet()).update(intervals)
        if new_count:
            self._runtime.emit(CatchingUp(self._conversation.group, self.received_count, self.remaining_count))
        if not message.is_last:
            self._set_timer(self._settings.page_timeout_s, self._on_stalled)
        elif message.remaining and self._made_progress:
            self._request(peer)
        else:
            # This server has no more. Another one may, and starts within its back-off.
            self._set_timer(self._reply_timeout_s, self._check_complete)

    def _on_stalled(self) -> None:
        """There is no server, or it fell silent."""
        if self._made_progress or self.remaining_count:
            self._rounds = 0 if self._made_progress else self._rounds + 1
            if self._rounds <= self._settings.history_rounds_max:
                self.remaining_count = 0
                self._request(0)
                return
        self._check_complete()

    def _check_complete(self) -> None:
        missing = self._missing()
        obtainable = {author: intervals.minus(self._unavailable.get(author)) for author, intervals in missing.items()}
        if (
            any(intervals.count for intervals in obtainable.values())
            and self._rounds < self._settings.history_rounds_max
        ):
            self._rounds = 0 if self._made_progress else self._rounds + 1
            self._request(0)
            return
        self._end(missing)

    def _missing(self) -> dict[MemberId, IntervalSet]:
        """Messages that must exist, because sequence numbers have no gaps or another member has them."""
        order = self._conversation.order
        missing: dict[MemberId, IntervalSet] = {}
        for author, received in order.received.items():
            if len(received) != 1 or 1 not in received:
                self._add_missing(missing, author, IntervalSet([(1, received.last)] if received.last else []))
        for reported in (self._held_elsewhere, self._unavailable):
            for author, intervals in reported.items():
                self._add_missing(missing, author, intervals)
        return missing

    def _add_missing(self, missing: dict[MemberId, IntervalSet], author: MemberId, intervals: IntervalSet) -> None:
        order = self._conversation.order
        rest = intervals.minus(order.received.get(author)).minus(order.unavailable.get(author))
        if rest.count:
            missing.setdefault(author, IntervalSet()).update(rest)

    def _end(self, missing: dict[MemberId, IntervalSet]) -> None:
        self.is_active = False
        self._held_elsewhere.clear()
        self._unavailable.clear()
        self.remaining_count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unavailable = self._conversation.give_up(missing)
        reports_end, self._reports_end = self._reports_end, False
        if reports_end or self.received_count or unavailable:
            self._runtime.emit(CaughtUp(self._conversation.group, self.received_count, unavailable))

    def stop(self) -> None:
        self.is_active = False
        for timer in (self._timer, self._delayed_start):
            if timer is not None:
                timer.cancel()
        self._timer = self._delayed_start = None
