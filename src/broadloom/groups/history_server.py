"""Catching up, the side that answers: one holder sends, the others hear it and keep quiet.

Whoever holds what an asker lacks waits for a random time; what it hears meanwhile in the pages of others it need not
send. It sends a turn of pages, not faster than the budget that all share, and waits to be asked for more. Somebody who
asks again and again without taking anything in waits longer each time.
"""

from collections import deque
from typing import TYPE_CHECKING

from broadloom.groups.intervals import IntervalSet
from broadloom.groups.message_fields import AuthorIntervals, pack_posts
from broadloom.groups.messages import HistoryPage, HistoryRequest, PostRequest
from broadloom.groups.model import MemberId, MessageId, Post
from broadloom.groups.settings import ENTRIES_MAX, INTERVALS_MAX, PENDING_MAX
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation
    from broadloom.groups.runtime import Timer


CONGESTED_RETRY_S = 0.05
"""Our links are behind: look again after this."""
SINGLE_FETCH_MAX = 500
"""So many messages are fetched one by one, instead of looking through all history for them."""
READ_AHEAD_ROWS = 128
"""Read from history at a time: messages may be large."""
POST_OVERHEAD_BYTES = 48
"""On the wire, beside the data."""
REPEAT_WINDOW_S = 90.0
"""Who has not asked for so long may ask anew."""
STRIKES_MAX = 6
"""An asker that takes nothing in waits for two to the power of this, in seconds, and not longer."""


class _PendingPage:
    """A question that we would answer, or are answering."""

    __slots__ = (
        "is_sending",
        "read_ahead",
        "request_id",
        "requester",
        "row",
        "sent_bytes",
        "timer",
        "to_send",
        "unavailable",
    )

    def __init__(self, requester: PeerId, request_id: int, to_send: dict[MemberId, IntervalSet]) -> None:
        self.requester = requester
        """0 for a `Want`."""
        self.request_id = request_id
        self.to_send = to_send
        """What we would send."""
        self.unavailable: tuple[AuthorIntervals, ...] = ()
        self.row = 0
        """How far history was looked through..."""
        self.read_ahead: deque[tuple[int, Post]] = deque()
        """...and what was read of it beyond."""
        self.sent_bytes = 0
        """In this turn."""
        self.is_sending = False
        self.timer: Timer | None = None

    @property
    def count(self) -> int:
        return sum(each.count for each in self.to_send.values())

    def remove(self, contents: tuple[AuthorIntervals, ...]) -> None:
        for author, intervals in contents:
            left = self.to_send.get(author)
            if left is not None:
                for first, last in intervals:
                    left.remove_interval(first, last)
                if not left.count:
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
        self._pending: dict[tuple[PeerId, bool], _PendingPage] = {}
        """By who asked, and whether by name."""
        self._strikes: dict[PeerId, tuple[float, int, int]] = {}
        """When somebody asked last, how much it had, and how often that had not grown."""

    def stop(self) -> None:
        for pending in self._pending.values():
            pending.cancel()
        self._pending.clear()

    # -- being asked

    def on_history_request(self, peer: PeerId, message: HistoryRequest, held: dict[MemberId, IntervalSet]) -> None:
        old = self._pending.pop((peer, False), None)
        if old is not None:
            old.cancel()
        is_named = message.responder == self._runtime.peer_id
        if message.responder and not is_named:
            return
        pending = _PendingPage(peer, message.request_id, self._surplus(held))
        pending.unavailable = self._unavailable(held)
        if not pending.to_send and not pending.unavailable:
            return
        if is_named and old is not None:
            pending.row, pending.read_ahead = old.row, old.read_ahead
        penalty_s = self._penalty_s(peer, sum(each.count for each in held.values()))
        self._schedule((peer, False), pending, penalty_s + (0.0 if is_named else self._participant.backoff_s()))

    def _surplus(self, held: dict[MemberId, IntervalSet]) -> dict[MemberId, IntervalSet]:
        forgotten = self._conversation.history.forgotten()
        todo: dict[MemberId, IntervalSet] = {}
        for author, received in self._conversation.order.received.items():
            rest = received.minus(held.get(author)).minus(forgotten.get(author))
            if rest.count:
                todo[author] = rest
        return todo

    def _unavailable(self, held: dict[MemberId, IntervalSet]) -> tuple[AuthorIntervals, ...]:
        unavailable: list[AuthorIntervals] = []
        for author, intervals in self._conversation.history.forgotten().items():
            rest = intervals.minus(held.get(author))
            if rest.count and len(unavailable) < INTERVALS_MAX:
                unavailable.append(AuthorIntervals(author, tuple(rest)))
        return tuple(unavailable)

    def _penalty_s(self, peer: PeerId, count: int) -> float:
        now = self._runtime.now()
        asked_at, before, strikes = self._strikes.pop(peer, (0.0, -1, 0))
        strikes = min(strikes + 1, STRIKES_MAX) if count <= before and now < asked_at + REPEAT_WINDOW_S else 0
        self._strikes[peer] = (now, count, strikes)
        if len(self._strikes) > PENDING_MAX:
            del self._strikes[next(iter(self._strikes))]
        return float(2**strikes - 1) if strikes > 1 else 0.0

    def _schedule(self, key: tuple[PeerId, bool], pending: _PendingPage, wait_s: float) -> None:
        if len(self._pending) < PENDING_MAX:
            self._pending[key] = pending
            pending.timer = self._runtime.call_later(wait_s, self._send_next, key)

    def on_post_request(self, peer: PeerId, message: PostRequest) -> None:
        todo: dict[MemberId, IntervalSet] = {}
        for message_id in message.message_ids:
            if self._conversation.history.get(message_id) is not None:
                todo.setdefault(message_id.author, IntervalSet()).add(message_id.sequence)
        old = self._pending.pop((peer, True), None)
        if old is not None:
            old.cancel()
            for author, intervals in old.to_send.items():
                for first, last in intervals:
                    todo.setdefault(author, IntervalSet()).add_interval(first, last)
        if todo:
            self._schedule((peer, True), _PendingPage(0, 0, todo), self._participant.backoff_s())

    # -- hearing others

    def on_history_page(self, peer: PeerId, message: HistoryPage) -> None:
        for key, pending in list(self._pending.items()):
            pending.remove(message.contents)
            if pending.requester and pending.requester == message.requester:
                self._on_served_by_other(peer, message, key, pending)
            elif not pending.to_send and not (pending.requester and pending.unavailable):
                pending.cancel()
                del self._pending[key]

    def _on_served_by_other(
        self, peer: PeerId, message: HistoryPage, key: tuple[PeerId, bool], pending: _PendingPage
    ) -> None:
        """Another answers the same asker."""
        if pending.is_sending and self._runtime.peer_id < peer:
            return  # two began at once: one of them stops
        pending.is_sending = False
        pending.cancel()
        if message.is_last and not message.remaining and not pending.to_send:
            del self._pending[key]
        else:
            more_s = 0.0 if message.is_last and not message.remaining else self._settings.page_timeout_s
            pending.timer = self._runtime.call_later(more_s + self._participant.backoff_s(), self._send_next, key)

    # -- speaking

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
            pending.timer = self._runtime.call_later(0.0, self._send_next, key)  # there is more to look through
            return
        if exhausted:
            pending.to_send.clear()  # waiting here ourselves, or thrown away meanwhile
        size = sum(len(each.data) + POST_OVERHEAD_BYTES for each in posts)
        pending.sent_bytes += size
        last = exhausted or not pending.to_send or pending.sent_bytes >= self._settings.history_turn_bytes
        self._participant.history_tokens.consume(size, now)
        self._send_page(pending, posts, last)
        if last:
            self._end_turn(key, pending)
        else:
            pending.timer = self._runtime.call_later(0.0, self._send_next, key)

    def _send_page(self, pending: _PendingPage, posts: list[Post], is_last: bool) -> None:
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

    def _end_turn(self, key: tuple[PeerId, bool], pending: _PendingPage) -> None:
        """If there is more, the place is kept for the next question."""
        pending.timer = None
        pending.is_sending = False
        if pending.to_send:
            pending.timer = self._runtime.call_later(2 * self._settings.page_timeout_s, self._drop, key)
        else:
            del self._pending[key]

    def _drop(self, key: tuple[PeerId, bool]) -> None:
        self._pending.pop(key, None)

    def _gather(self, pending: _PendingPage) -> tuple[list[Post], bool]:
        """Messages for one page, and whether there are no more to be found."""
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

    def _gather_individually(self, pending: _PendingPage) -> tuple[list[Post], bool]:
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


# How much history may be sent on the channel: a bucket that fills with time, and that everybody's pages empty.


class TokenBucket:
    """May be overdrawn by one page; then it takes a while."""

    def __init__(self, bytes_per_s: float, burst_bytes: float, now: float) -> None:
        self._per_s = bytes_per_s
        self._burst = burst_bytes
        self._tokens = burst_bytes
        self._updated_at = now

    def wait_s(self, now: float) -> float:
        """How long until there is something to spend; 0 if there is."""
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._per_s)
        self._updated_at = now
        return 0.0 if self._tokens > 0 else -self._tokens / self._per_s + 0.001

    def consume(self, size: int, now: float) -> None:
        self.wait_s(now)
        self._tokens = max(self._tokens - size, -4 * self._burst)
