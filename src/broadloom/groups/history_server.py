"""`HistoryServer`: serving pages of history. One holder sends; the others hear it and stay silent.

A member that holds messages the requester misses waits for a randomized back-off (suppression.py) and removes what it
hears in pages of others meanwhile. It then sends one turn of pages, within the rate that all members share, and waits
to be asked to continue. A requester that repeats its request without making progress waits longer each time.
"""

import operator
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broadloom.groups.intervals import IntervalSet
from broadloom.groups.message_fields import AuthorIntervals, pack_posts
from broadloom.groups.messages import HistoryPage, HistoryRequest, PostRequest
from broadloom.groups.model import MemberId, MessageId, Post
from broadloom.groups.settings import ENTRIES_MAX, INTERVALS_MAX, PENDING_MAX
from broadloom.groups.suppression import RepeatPenalty
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation
    from broadloom.protocol.runtime import Timer

CONGESTED_RETRY_S = 0.05
SINGLE_FETCH_MAX = 500
"""Up to this many messages are read one by one instead of by a scan of the whole history."""
READ_AHEAD_ROWS = 128
"""Small, because messages may be large."""
POST_OVERHEAD_BYTES = 48
"""Size on the wire, without the data."""
REPEAT_WINDOW_S = 90.0
"""A peer that repeats a request within this time, without progress, waits longer for each reply."""


@dataclass(slots=True)
class _PendingReply:
    """A request that we would answer, or are answering."""

    requester: PeerId
    """0 for a `PostRequest`."""
    request_id: int
    to_send: dict[MemberId, IntervalSet]
    unavailable: tuple[AuthorIntervals, ...] = ()
    row: int = 0
    """Last history row scanned..."""
    read_ahead: deque[tuple[int, Post]] = field(default_factory=deque)
    """...and rows already read beyond it."""
    sent_bytes: int = 0
    """In this turn."""
    is_sending: bool = False
    timer: "Timer | None" = None

    @property
    def count(self) -> int:
        return sum(each.count for each in self.to_send.values())

    def remove(self, contents: tuple[AuthorIntervals, ...]) -> None:
        for author, intervals in contents:
            for first, last in intervals if author in self.to_send else ():
                self.to_send[author].remove_interval(first, last)
            if author in self.to_send and not self.to_send[author].count:
                del self.to_send[author]

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class HistoryServer:
    def __init__(self, conversation: "Conversation") -> None:
        self._conversation = conversation
        self._participant = conversation.participant
        self._runtime = conversation.participant.runtime
        self._settings = conversation.participant.settings
        self._pending: dict[tuple[PeerId, bool], _PendingReply] = {}
        """By requester, and whether it is a `PostRequest`."""
        self._penalty = RepeatPenalty(REPEAT_WINDOW_S, is_repeat=operator.le)

    def stop(self) -> None:
        for pending in self._pending.values():
            pending.cancel()
        self._pending.clear()

    # -- requests

    def on_history_request(self, peer: PeerId, message: HistoryRequest, held: dict[MemberId, IntervalSet]) -> None:
        old = self._pending.pop((peer, False), None)
        if old is not None:
            old.cancel()
        is_named = message.responder == self._runtime.peer_id
        if message.responder and not is_named:
            return
        pending = _PendingReply(peer, message.request_id, self._surplus(held))
        pending.unavailable = self._unavailable(held)
        if not pending.to_send and not pending.unavailable:
            return
        if is_named and old is not None:
            pending.row, pending.read_ahead = old.row, old.read_ahead
        held_count = sum(each.count for each in held.values())
        penalty_s = self._penalty.delay_s(peer, held_count, self._runtime.now())
        self._schedule((peer, False), pending, penalty_s + (0.0 if is_named else self._participant.backoff_s()))

    def _surplus(self, held: dict[MemberId, IntervalSet]) -> dict[MemberId, IntervalSet]:
        forgotten = self._conversation.history.forgotten()
        surplus: dict[MemberId, IntervalSet] = {}
        for author, received in self._conversation.order.received.items():
            rest = received.minus(held.get(author)).minus(forgotten.get(author))
            if rest.count:
                surplus[author] = rest
        return surplus

    def _unavailable(self, held: dict[MemberId, IntervalSet]) -> tuple[AuthorIntervals, ...]:
        unavailable: list[AuthorIntervals] = []
        for author, intervals in self._conversation.history.forgotten().items():
            rest = intervals.minus(held.get(author))
            if rest.count and len(unavailable) < INTERVALS_MAX:
                unavailable.append(AuthorIntervals(author, tuple(rest)))
        return tuple(unavailable)

    def _schedule(self, key: tuple[PeerId, bool], pending: _PendingReply, wait_s: float) -> None:
        if len(self._pending) < PENDING_MAX:
            self._pending[key] = pending
            pending.timer = self._runtime.call_later(wait_s, self._send_next, key)

    def on_post_request(self, peer: PeerId, message: PostRequest) -> None:
        to_send: dict[MemberId, IntervalSet] = {}
        for message_id in message.message_ids:
            if self._conversation.history.get(message_id) is not None:
                to_send.setdefault(message_id.author, IntervalSet()).add(message_id.sequence)
        old = self._pending.pop((peer, True), None)
        if old is not None:
            old.cancel()
            for author, intervals in old.to_send.items():
                to_send.setdefault(author, IntervalSet()).update(intervals)
        if to_send:
            self._schedule((peer, True), _PendingReply(0, 0, to_send), self._participant.backoff_s())

    # -- pages of other servers

    def on_history_page(self, peer: PeerId, message: HistoryPage) -> None:
        for key, pending in list(self._pending.items()):
            pending.remove(message.contents)
            if pending.requester and pending.requester == message.requester:
                self._on_served_by_other(peer, message, key, pending)
            elif not pending.to_send and not (pending.requester and pending.unavailable):
                pending.cancel()
                del self._pending[key]

    def _on_served_by_other(
        self, peer: PeerId, message: HistoryPage, key: tuple[PeerId, bool], pending: _PendingReply
    ) -> None:
        if pending.is_sending and self._runtime.peer_id < peer:
            return  # both started at once: the one with the larger id stops
        pending.is_sending = False
        pending.cancel()
        if message.is_last and not message.remaining and not pending.to_send:
            del self._pending[key]
        else:
            more_s = 0.0 if message.is_last and not message.remaining else self._settings.page_timeout_s
            pending.timer = self._runtime.call_later(more_s + self._participant.backoff_s(), self._send_next, key)

    # -- sending

    def _send_next(self, key: tuple[PeerId, bool]) -> None:
        pending = self._pending[key]
        now = self._runtime.now()
        wait_s = CONGESTED_RETRY_S if self._runtime.is_congested else self._participant.history_tokens.wait_s(now)
        if wait_s:
            pending.timer = self._runtime.call_later(wait_s, self._send_next, key)
            return
        pending.is_sending = True
        posts, exhausted = self._gather(pending)
        if not posts and not exhausted:
            pending.timer = self._runtime.call_later(0.0, self._send_next, key)  # continue the scan
            return
        if exhausted:
            pending.to_send.clear()  # the rest is not delivered here yet, or was pruned meanwhile
        size = sum(len(each.data) + POST_OVERHEAD_BYTES for each in posts)
        pending.sent_bytes += size
        is_last = exhausted or not pending.to_send or pending.sent_bytes >= self._settings.history_turn_bytes
        self._participant.history_tokens.consume(size, now)
        self._send_page(pending, posts, is_last)
        if is_last:
            self._end_turn(key, pending)
        else:
            pending.timer = self._runtime.call_later(0.0, self._send_next, key)

    def _send_page(self, pending: _PendingReply, posts: list[Post], is_last: bool) -> None:
        contents: dict[MemberId, IntervalSet] = {}
        for post in posts:
            contents.setdefault(post.author, IntervalSet()).add(post.sequence)
        names = self._conversation.history.names
        self._participant.send(
            HistoryPage(
                self._conversation.group,
                pending.requester,
                pending.request_id,
                min(pending.count, 0xFFFFFFFF),
                is_last,
                tuple(AuthorIntervals(author, tuple(intervals)) for author, intervals in contents.items()),
                pending.unavailable if is_last and not pending.to_send else (),
                tuple((author, names.get(author, "")) for author in contents),
                pack_posts(posts),
            )
        )

    def _end_turn(self, key: tuple[PeerId, bool], pending: _PendingReply) -> None:
        """If there is more, keep the scan position for the next request."""
        pending.timer = None
        pending.is_sending = False
        if pending.to_send:
            pending.timer = self._runtime.call_later(2 * self._settings.page_timeout_s, self._drop, key)
        else:
            del self._pending[key]

    def _drop(self, key: tuple[PeerId, bool]) -> None:
        self._pending.pop(key, None)

    def _gather(self, pending: _PendingReply) -> tuple[list[Post], bool]:
        """The messages of the next page, and whether there are no more."""
        if pending.count <= SINGLE_FETCH_MAX:
            return self._gather_individually(pending)
        posts: list[Post] = []
        size = scanned = 0
        while (
            size < self._settings.history_page_bytes and len(posts) < ENTRIES_MAX and scanned < self._settings.scan_rows
        ):
            if not pending.read_ahead:
                pending.read_ahead.extend(self._conversation.history.scan(pending.row, READ_AHEAD_ROWS))
                if not pending.read_ahead:
                    return posts, True
            pending.row, post = pending.read_ahead.popleft()
            scanned += 1
            left = pending.to_send.get(post.author)
            if left is not None and post.sequence in left:
                posts.append(post)
                size += len(post.data) + POST_OVERHEAD_BYTES
                left.remove_interval(post.sequence, post.sequence)
                if not left.count:
                    del pending.to_send[post.author]
        return posts, False

    def _gather_individually(self, pending: _PendingReply) -> tuple[list[Post], bool]:
        posts: list[Post] = []
        size = 0
        for author, intervals in list(pending.to_send.items()):
            for first, last in list(intervals):
                for sequence in range(first, last + 1):
                    if size >= self._settings.history_page_bytes:
                        return posts, False
                    intervals.remove_interval(sequence, sequence)
                    post = self._conversation.history.get(MessageId(author, sequence))
                    if post is not None:
                        posts.append(post)
                        size += len(post.data) + POST_OVERHEAD_BYTES
            del pending.to_send[author]
        return posts, True
