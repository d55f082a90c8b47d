"""Causal order within a group: a reply is delivered after its parent; unrelated messages never wait for each other.

This is the S_b order ("semantically before") of the M2MC thesis, chapter 4. The messages of a group form its ordering
tree; messages that arrive before their parent wait in what the thesis calls the out-of-sequence message store, here a
dictionary keyed by the parent's id. Receiving takes amortized constant time: each message waits at most once. Nothing
recurses, however deep the tree is.

A missing parent can be requested (`missing_parents`). A message that waits too long is released as an orphan
(`release_overdue`). If its ancestors wait too, the topmost one is released and the others follow. A cycle, which only a
malicious author can create, is cut.
"""

from collections import deque
from typing import NamedTuple

from broadloom.groups.intervals import IntervalSet
from broadloom.groups.model import MemberId, MessageId, Post
from broadloom.groups.settings import AUTHORS_MAX, GAPS_MAX

WAITING_OVERHEAD_BYTES = 256
"""Approximate memory of a waiting message, without its data."""


class Delivery(NamedTuple):
    post: Post
    is_orphan: bool = False


class CausalOrder:
    """The order of one group at one member. The caller passes the time in."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.received: dict[MemberId, IntervalSet] = {}
        """Delivered or waiting."""
        self.unavailable: dict[MemberId, IntervalSet] = {}
        """Known to exist and no longer available. Still accepted if they turn up."""
        self.received_count = 0
        self._waiting: dict[MessageId, Post] = {}
        self._children: dict[MessageId, list[Post]] = {}
        """Waiting messages by the parent they wait for."""
        self._queue: deque[tuple[float, MessageId]] = deque()
        """Waiting messages in order of arrival. Some may have been released since."""
        self._unrequested: deque[tuple[float, MessageId]] = deque()
        """Missing parents that were not reported by `missing_parents` yet, in order of time."""
        self.waiting_bytes = 0
        self.rejected_count = 0
        """Messages rejected because of a limit."""

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def has(self, message_id: MessageId) -> bool:
        received = self.received.get(message_id[0])
        return received is not None and message_id[1] in received

    def was_delivered(self, message_id: MessageId) -> bool:
        return message_id not in self._waiting and self.has(message_id)

    def is_waiting(self, message_id: MessageId) -> bool:
        return message_id in self._waiting

    def is_unavailable(self, message_id: MessageId) -> bool:
        unavailable = self.unavailable.get(message_id[0])
        return unavailable is not None and message_id[1] in unavailable

    # -- receiving

    def receive(self, post: Post, now: float) -> list[Delivery] | None:
        """Accept a message, live or from history. Returns the messages to deliver now, in order; None if this one is a
        duplicate or exceeds a limit."""
        received = self.received.get(post.author)
        if received is None:
            if len(self.received) >= AUTHORS_MAX:
                self.rejected_count += 1
                return None
            received = self.received[post.author] = IntervalSet()
        elif post.sequence in received:
            return None
        if len(received) >= GAPS_MAX and received.creates_gap(post.sequence):
            self.rejected_count += 1
            return None
        parent = post.parent_id
        is_deliverable = parent is None or self.was_delivered(parent)
        if parent is None or is_deliverable or self.is_unavailable(parent):
            received.add(post.sequence)
            self.received_count += 1
            return self._with_descendants(Delivery(post, is_orphan=not is_deliverable))
        cost = len(post.data) + WAITING_OVERHEAD_BYTES
        if len(self._waiting) >= self._messages_max or self.waiting_bytes + cost > self._bytes_max:
            self.rejected_count += 1
            return None
        received.add(post.sequence)
        self.received_count += 1
        self._wait(post, parent, cost, now)
        return []

    def _wait(self, post: Post, parent: MessageId, cost: int, now: float) -> None:
        self._waiting[post.id] = post
        self.waiting_bytes += cost
        self._queue.append((now, post.id))
        siblings = self._children.get(parent)
        if siblings is not None:
            siblings.append(post)
            return
        self._children[parent] = [post]
        if not self.has(parent):
            self._unrequested.append((now, parent))

    def _with_descendants(self, first: Delivery) -> list[Delivery]:
        """A message and its waiting descendants: parents first, siblings in order of arrival."""
        if not self._children:
            return [first]
        deliveries = [first]
        for delivery in deliveries:  # grows while it is iterated over
            for post in self._children.pop(delivery.post.id, ()):
                if self._waiting.pop(post.id, None) is not None:  # else it was released as an orphan
                    self.waiting_bytes -= len(post.data) + WAITING_OVERHEAD_BYTES
                    deliveries.append(Delivery(post))
        return deliveries

    # -- missing parents

    def missing_parents(self, since: float, limit: int) -> list[MessageId]:
        """Missing parents that messages have waited for since `since` or longer. Each is returned once."""
        found: list[MessageId] = []
        while self._unrequested and self._unrequested[0][0] <= since and len(found) < limit:
            _, message_id = self._unrequested.popleft()
            if message_id in self._children and not self.has(message_id):
                found.append(message_id)
        return found

    def release_overdue(self, since: float) -> list[Delivery]:
        """Release messages that have waited since `since` or longer, as orphans."""
        deliveries: list[Delivery] = []
        while self._queue and self._queue[0][0] <= since:
            _, message_id = self._queue.popleft()
            if message_id in self._waiting:
                deliveries += self._release_orphan(self._topmost(message_id))
        return deliveries

    def give_up(self, missing: dict[MemberId, IntervalSet]) -> list[Delivery]:
        """Mark messages as unavailable and release those that wait for them, as orphans."""
        for author, intervals in missing.items():
            self.unavailable.setdefault(author, IntervalSet()).update(intervals)
        deliveries: list[Delivery] = []
        for message_id in [each for each in self._children if self.is_unavailable(each) and not self.has(each)]:
            waiting = next((each for each in self._children.get(message_id, ()) if each.id in self._waiting), None)
            if waiting is not None:
                deliveries += self._release_orphan(waiting)
        return deliveries

    def _topmost(self, message_id: MessageId) -> Post:
        """The waiting ancestor whose parent is missing; the last one visited if the ancestors form a cycle."""
        post = self._waiting[message_id]
        seen = {message_id}
        while post.parent_id is not None and post.parent_id in self._waiting and post.parent_id not in seen:
            seen.add(post.parent_id)
            post = self._waiting[post.parent_id]
        return post

    def _release_orphan(self, post: Post) -> list[Delivery]:
        """Release a message and its siblings. In a cycle the parent waits too: then only the message itself."""
        parent = post.parent_id
        posts = [post]
        if parent is not None and parent not in self._waiting:
            posts = [each for each in self._children.pop(parent, ()) if each.id in self._waiting]
        for each in posts:
            del self._waiting[each.id]
            self.waiting_bytes -= len(each.data) + WAITING_OVERHEAD_BYTES
        return [delivery for each in posts for delivery in self._with_descendants(Delivery(each, is_orphan=True))]

    @property
    def waiting_since(self) -> float | None:
        """Arrival time of the message that has waited longest; None if none waits."""
        while self._queue and self._queue[0][1] not in self._waiting:
            self._queue.popleft()
        return self._queue[0][0] if self._queue else None
