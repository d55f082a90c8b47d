"""`HistoryServer`: serving pages of history. One holder sends; the others hear it and stay silent.

A member waits for a randomized back-off (suppression.py) and notes what it hears in pages of others meanwhile. Only
then it looks for messages that the requester misses: comparing the sets takes time in proportion to the authors of the
group, however short the request is, so comparisons have a rate limit. It sends one turn of pages, within the rate that
all members share, and waits to be asked to continue. A requester that repeats its request without making progress waits
longer each time.
"""

import operator
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broadloom.groups.message_fields import AuthorIntervals, pack_posts
from broadloom.groups.message_set import MessageSet
from broadloom.groups.messages import HistoryPage, HistoryRequest, PostRequest
from broadloom.groups.model import Post
from broadloom.groups.runtime import DelayedCall
from broadloom.groups.settings import INTERVALS_MAX, PAGE_CREDENTIALS_MAX, PAGE_PROOFS_MAX, PENDING_MAX
from broadloom.groups.suppression import RepeatPenalty, TokenBucket
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation

CONGESTED_RETRY_S = 0.05
SINGLE_FETCH_MAX = 500
"""Up to this many messages are read one by one instead of by a scan of the whole history."""
READ_AHEAD_ROWS = 128
"""Small, because messages may be large."""
SCAN_ROWS_MAX = 4_000
"""History rows scanned in one step, so that the event loop is not blocked."""
POST_OVERHEAD_BYTES = 48
"""Size on the wire, without the data."""
COMPARED_AUTHORS_PER_S = 10_000
"""Authors of a group whose messages are compared with requests: some 50 ms of processor time in each second..."""
COMPARED_AUTHORS_BURST = 20_000
"""...and at once."""
REPEAT_WINDOW_S = 90.0
"""A peer that repeats a request within this time, without progress, waits longer for each reply."""


@dataclass(slots=True)
class _PendingReply:
    """A request that we would answer, or are answering."""

    requester: PeerId
    """0 for a `PostRequest`."""
    request_id: int
    to_send: MessageSet
    timer: DelayedCall
    is_compared: bool = True
    """Otherwise `to_send` is still to be found, from the difference between our messages and..."""
    held: MessageSet = field(default_factory=MessageSet)
    """...what the requester has, or has got from others meanwhile."""
    is_served: bool = False
    """Another member has sent all it has."""
    unavailable: tuple[AuthorIntervals, ...] = ()
    row: int = 0
    """Last history row scanned..."""
    read_ahead: deque[tuple[int, Post]] = field(default_factory=deque)
    """...and rows already read beyond it."""
    sent_bytes: int = 0
    """In this turn."""
    is_sending: bool = False


class HistoryServer:
    def __init__(self, conversation: "Conversation") -> None:
        self._conversation = conversation
        self._participant = conversation.participant
        self._runtime = conversation.participant.runtime
        self._settings = conversation.participant.settings
        self._pending: dict[tuple[PeerId, bool], _PendingReply] = {}
        """By requester, and whether it is a `PostRequest`."""
        self._penalty = RepeatPenalty(REPEAT_WINDOW_S, is_repeat=operator.le)
        self._comparisons = TokenBucket(COMPARED_AUTHORS_PER_S, COMPARED_AUTHORS_BURST, self._runtime.now())

    def stop(self) -> None:
        for pending in self._pending.values():
            pending.timer.cancel()
        self._pending.clear()

    # -- requests

    def on_history_request(self, peer: PeerId, message: HistoryRequest, held: MessageSet) -> None:
        old = self._pop((peer, False))
        is_named = message.responder == self._runtime.peer_id
        if message.responder and not is_named:
            return
        pending = _PendingReply(peer, message.request_id, MessageSet(), DelayedCall(self._runtime), False, held)
        if is_named and old is not None and old.is_compared:
            pending.is_compared, pending.to_send, pending.unavailable = True, old.to_send, old.unavailable
            pending.row, pending.read_ahead = old.row, old.read_ahead
        wait_s = self._penalty.delay_s(peer, held.count, self._runtime.now())
        if not is_named:
            wait_s += self._participant.presence.backoff_s()
        self._schedule((peer, False), pending, wait_s)

    def _pop(self, key: tuple[PeerId, bool]) -> _PendingReply | None:
        pending = self._pending.pop(key, None)
        if pending is not None:
            pending.timer.cancel()
        return pending

    def _schedule(self, key: tuple[PeerId, bool], pending: _PendingReply, wait_s: float) -> None:
        if len(self._pending) < PENDING_MAX:
            self._pending[key] = pending
            pending.timer.start(wait_s, self._send_next, key)

    def on_post_request(self, peer: PeerId, message: PostRequest) -> None:
        to_send = MessageSet()
        for message_id in message.message_ids:
            if self._conversation.history.get(message_id) is not None:
                to_send.add(message_id)
        old = self._pop((peer, True))
        if old is not None:
            to_send.add_all(old.to_send.items())
        if to_send:
            pending = _PendingReply(0, 0, to_send, DelayedCall(self._runtime))
            self._schedule((peer, True), pending, self._participant.presence.backoff_s())

    # -- pages of other servers

    @property
    def is_pending(self) -> bool:
        return bool(self._pending)

    def on_history_page(self, peer: PeerId, message: HistoryPage, posts: tuple[Post, ...]) -> None:
        """Posts that equal ours need not be sent again. A page without any is only a claim: we send ours as planned."""
        if not self._pending:
            return
        sent = [post.id for post in posts if _is_same(post, self._conversation.history.get(post.id))]
        for key, pending in list(self._pending.items()):
            if pending.is_compared:
                relevant = [each for each in sent if pending.to_send.has(each)]
            else:
                relevant = [each for each in sent if not pending.held.has(each)]
            for each in relevant:
                (pending.to_send.remove if pending.is_compared else pending.held.add)(each)
            if pending.requester and pending.requester == message.requester:
                if relevant:
                    self._on_served_by_other(peer, message, key, pending)
                elif not pending.is_sending:
                    pending.is_served = message.is_last and not message.remaining
            elif pending.is_compared and not pending.to_send and not (pending.requester and pending.unavailable):
                self._pop(key)

    def _on_served_by_other(
        self, peer: PeerId, message: HistoryPage, key: tuple[PeerId, bool], pending: _PendingReply
    ) -> None:
        if pending.is_sending and self._runtime.peer_id < peer:
            return  # both started at once: the one with the larger id stops
        pending.is_sending = False
        pending.is_served = message.is_last and not message.remaining
        if pending.is_served and pending.is_compared and not pending.to_send:
            self._pop(key)
        else:
            more_s = 0.0 if pending.is_served else self._settings.page_timeout_s
            pending.timer.start(more_s + self._participant.presence.backoff_s(), self._send_next, key)

    # -- sending

    def _send_next(self, key: tuple[PeerId, bool]) -> None:
        pending = self._pending[key]
        now = self._runtime.now()
        wait_s = CONGESTED_RETRY_S if self._runtime.is_congested else self._participant.history_tokens.wait_s(now)
        if not pending.is_compared:
            wait_s = max(wait_s, self._comparisons.wait_s(now))
        if wait_s:
            pending.timer.start(wait_s, self._send_next, key)
            return
        if not pending.is_compared:
            self._compare(pending)
        if not pending.to_send and (pending.is_served or not pending.unavailable):
            self._pop(key)
            return
        pending.is_sending = True
        posts, exhausted = self._gather(pending)
        if not posts and not exhausted:
            pending.timer.start(0.0, self._send_next, key)  # continue the scan
            return
        if exhausted:
            pending.to_send.clear()  # the rest is not delivered here yet, or was pruned meanwhile
        credentials: set[bytes] = set()
        size = sum(_cost(each, credentials) for each in posts)
        pending.sent_bytes += size
        is_last = exhausted or not pending.to_send or pending.sent_bytes >= self._settings.history_turn_bytes
        self._participant.history_tokens.consume(size, now)
        self._send_page(pending, posts, is_last)
        if is_last:
            self._end_turn(key, pending)
        else:
            pending.timer.start(0.0, self._send_next, key)

    def _compare(self, pending: _PendingReply) -> None:
        """Find the messages that the requester misses."""
        received, forgotten = self._conversation.order.received, self._conversation.history.forgotten()
        self._comparisons.consume(len(received) + len(forgotten), self._runtime.now())
        pending.is_compared, pending.to_send = True, received.minus(pending.held, forgotten)
        pending.unavailable = forgotten.minus(pending.held).encode(INTERVALS_MAX)
        pending.held = MessageSet()

    def _send_page(self, pending: _PendingReply, posts: list[Post], is_last: bool) -> None:
        contents = MessageSet()
        for post in posts:
            contents.add(post.id)
        names = self._conversation.history.names
        self._participant.send(
            HistoryPage(
                self._conversation.group,
                pending.requester,
                pending.request_id,
                min(pending.to_send.count, 0xFFFFFFFF),
                is_last,
                contents.encode(INTERVALS_MAX),
                pending.unavailable if is_last and not pending.to_send else (),
                tuple((author, names.get(author, "")) for author in contents),
                pack_posts(posts),
            )
        )

    def _end_turn(self, key: tuple[PeerId, bool], pending: _PendingReply) -> None:
        """If there is more, keep the scan position for the next request."""
        pending.is_sending = False
        if pending.to_send:
            pending.timer.start(2 * self._settings.page_timeout_s, self._pop, key)
        else:
            del self._pending[key]

    def _gather(self, pending: _PendingReply) -> tuple[list[Post], bool]:
        """The messages of the next page, and whether there are no more."""
        if pending.to_send.count <= SINGLE_FETCH_MAX:
            return self._gather_individually(pending)
        posts: list[Post] = []
        credentials: set[bytes] = set()
        size = scanned = 0
        while not self._is_full(posts, credentials, size) and scanned < SCAN_ROWS_MAX:
            if not pending.read_ahead:
                pending.read_ahead.extend(self._conversation.history.scan(pending.row, READ_AHEAD_ROWS))
                if not pending.read_ahead:
                    return posts, True
            pending.row, post = pending.read_ahead.popleft()
            scanned += 1
            if pending.to_send.has(post.id):
                posts.append(post)
                size += _cost(post, credentials)
                pending.to_send.remove(post.id)
        return posts, False

    def _gather_individually(self, pending: _PendingReply) -> tuple[list[Post], bool]:
        posts: list[Post] = []
        credentials: set[bytes] = set()
        size = 0
        for message_id in list(pending.to_send.ids()):
            if self._is_full(posts, credentials, size):
                return posts, False
            pending.to_send.remove(message_id)
            post = self._conversation.history.get(message_id)
            if post is not None:
                posts.append(post)
                size += _cost(post, credentials)
        return posts, True

    def _is_full(self, posts: list[Post], credentials: set[bytes], size: int) -> bool:
        return (
            size >= self._settings.history_page_bytes
            or len(posts) >= PAGE_PROOFS_MAX
            or len(credentials) >= PAGE_CREDENTIALS_MAX
        )


def _is_same(post: Post, own: Post | None) -> bool:
    """Whether it is the post that we would send."""
    return own is not None and post._replace(verified_name="") == own._replace(verified_name="")


def _cost(post: Post, credentials: set[bytes]) -> int:
    """Size on the wire. A page has each credential once."""
    size = len(post.data) + len(post.proof) + POST_OVERHEAD_BYTES
    if post.proof and post.credential not in credentials:
        credentials.add(post.credential)
        size += len(post.credential)
    return size
