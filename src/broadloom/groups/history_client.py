"""`HistoryClient`: catching up with the messages of a group that were sent while we were away (M2MC thesis, chapter 6).

The client reports what it has and receives pages. It controls the flow: a server sends one turn of pages and stops
until it is asked to continue. If the server falls silent, the request goes to all members again. Messages that are
known to exist and do not arrive are reported as unavailable.
"""

from typing import TYPE_CHECKING

from broadloom.groups.message_set import MessageSet
from broadloom.groups.messages import HistoryPage, HistoryRequest
from broadloom.groups.model import CatchingUp, CaughtUp
from broadloom.groups.runtime import DelayedCall
from broadloom.groups.settings import INTERVALS_MAX
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation

ROUND_TRIP_S = 1.0
"""Allowed for request and reply to travel, in addition to the server's back-off."""
MISMATCH_INTERVAL_S = 30.0
"""Minimum time between requests caused by a heartbeat."""
ROUNDS_MAX = 3
"""Requests without progress before the missing messages are reported as unavailable."""


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
        self._timer = DelayedCall(self._runtime)
        self._delayed_start = DelayedCall(self._runtime)
        self._held_elsewhere = MessageSet()
        """Messages that other members have, according to their own requests."""
        self._unavailable = MessageSet()
        """Messages that servers no longer hold, as they say. Only in groups whose retention explains it."""
        self._reported = MessageSet()
        """Messages that were reported as unavailable."""
        self._server: PeerId = 0
        """The peer that we have asked to continue, or that has brought something since the request."""
        self._silent: dict[PeerId, None] = {}
        """Peers that were asked to continue and brought nothing. They are not asked again."""
        self._requested_at = -MISMATCH_INTERVAL_S

    # -- starting

    def begin(self, *, always_report: bool) -> None:
        self._reports_end = self._reports_end or always_report
        self._delayed_start.cancel()
        if not self.is_active:
            self.is_active = True
            self.received_count = self.remaining_count = self._rounds = 0
            self._request(0)

    def on_held_elsewhere(self, held: MessageSet) -> None:
        """Another member has these messages. The pages sent to it may bring the missing ones; if they do not, the
        member whose back-off ends first requests them for all."""
        missing = held.minus(self._conversation.order.received)
        self._held_elsewhere.add_all(missing.items())
        if missing and not self.is_active:
            wait_s = 2 * self._settings.reply_window_s + self._conversation.participant.presence.backoff_s()
            self._delayed_start.start(wait_s, self._begin_if_missing)

    def _begin_if_missing(self) -> None:
        if self._missing():
            self.begin(always_report=False)

    def on_digest_mismatch(self) -> None:
        now = self._runtime.now()
        if now >= self._requested_at + MISMATCH_INTERVAL_S:
            self._requested_at = now
            self.begin(always_report=False)

    # -- requests and pages

    def _request(self, responder: PeerId) -> None:
        self._request_id += 1
        self._made_progress = False
        self._server = responder
        self._requested_at = self._runtime.now()
        self._conversation.participant.send(
            HistoryRequest(
                self._conversation.group,
                self._request_id,
                responder,
                self._conversation.order.received.encode(INTERVALS_MAX),
            )
        )
        self._timer.start(self._settings.page_timeout_s if responder else self._reply_timeout_s, self._on_stalled)

    @property
    def _reply_timeout_s(self) -> float:
        """By then every member that has more than we do has started to answer."""
        return min(ROUND_TRIP_S + self._conversation.participant.presence.reply_window_s, self._settings.page_timeout_s)

    def on_history_page(self, peer: PeerId, message: HistoryPage, new_count: int) -> None:
        if not self.is_active:
            return
        self.received_count += new_count
        self._made_progress = self._made_progress or new_count > 0
        if message.requester != self._runtime.peer_id or message.request_id != self._request_id:
            return
        if self._conversation.retention.is_limited:
            self._unavailable.add_all(message.unavailable)
        if not new_count and peer != self._server:
            return  # it has claims only, and others may still reply
        self._server = peer
        self.remaining_count = message.remaining
        if new_count:
            self._runtime.emit(CatchingUp(self._conversation.group, self.received_count, self.remaining_count))
        if not message.is_last:
            self._timer.start(self._settings.page_timeout_s, self._on_stalled)
        elif message.remaining and self._made_progress and peer not in self._silent:
            self._request(peer)
        elif message.remaining:
            self._timer.start(self._reply_timeout_s, self._on_stalled)
        else:
            # This server has no more. Another one may, and starts within its back-off.
            self._timer.start(self._reply_timeout_s, self._check_complete)

    def _on_stalled(self) -> None:
        """There is no server, or it fell silent."""
        if not self._made_progress and self._server:
            self._silent[self._server] = None
        if self._made_progress or self.remaining_count:
            self._rounds = 0 if self._made_progress else self._rounds + 1
            if self._rounds <= ROUNDS_MAX:
                self.remaining_count = 0
                self._request(0)
                return
        self._check_complete()

    def _check_complete(self) -> None:
        missing = self._missing()
        if missing.minus(self._unavailable) and self._rounds < ROUNDS_MAX:
            self._rounds = 0 if self._made_progress else self._rounds + 1
            self._request(0)
        else:
            self._end(missing)

    def _missing(self) -> MessageSet:
        """Messages that must exist, because sequence numbers have no gaps or another member has them."""
        order = self._conversation.order
        existing = MessageSet((author, [(1, received.last)]) for author, received in order.received.items())
        existing.add_all(self._held_elsewhere.items())
        existing.add_all(self._unavailable.items())
        return existing.minus(order.received, order.unavailable)

    def _end(self, missing: MessageSet) -> None:
        self.is_active = False
        pruned = missing.minus(missing.minus(self._unavailable))
        self._held_elsewhere.clear()
        self._unavailable.clear()
        self.remaining_count = 0
        self._timer.cancel()
        self._conversation.give_up(missing, pruned)
        self._silent.clear()
        reports_end, self._reports_end = self._reports_end, False
        is_news, self._reported = bool(missing.minus(self._reported)), missing
        if reports_end or self.received_count or is_news:
            self._runtime.emit(CaughtUp(self._conversation.group, self.received_count, missing.count))

    def stop(self) -> None:
        self.is_active = False
        self._timer.cancel()
        self._delayed_start.cancel()
