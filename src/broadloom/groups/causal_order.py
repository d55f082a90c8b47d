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

from broadloom.groups.message_set import MessageSet
from broadloom.groups.model import MessageId, Post
from broadloom.groups.settings import AUTHORS_MAX, GAPS_MAX

WAITING_MESSAGES_MAX = 262_144
"""Messages of one group that wait for a parent. Further ones are rejected and fetched again later."""
WAITING_BYTES_MAX = 64 << 20
WAITING_OVERHEAD_BYTES = 256
"""Approximate memory of a waiting message, without its data."""


class Delivery(NamedTuple):
    post: Post
    is_orphan: bool = False


class CausalOrder:
    """The order of one group at one member. The caller passes the time in."""

    def __init__(self, messages_max: int = WAITING_MESSAGES_MAX, bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.received = MessageSet()
        """Delivered or waiting."""
        self.unavailable = MessageSet()
        """Known to exist, but no member that can be reached has them. Still accepted if they turn up."""
        self._pruned = MessageSet()
        """Of these, messages that a member has pruned: replies do not wait for them."""
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

    def was_delivered(self, message_id: MessageId) -> bool:
        return message_id not in self._waiting and self.received.has(message_id)

    def is_waiting(self, message_id: MessageId) -> bool:
        return message_id in self._waiting

    # -- receiving

    def receive(self, post: Post, now: float) -> list[Delivery] | None:
        """Accept a message, live or from history. Returns the messages to deliver now, in order; None if this one is a
        duplicate or exceeds a limit."""
        received = self.received.get(post.author)
        if received is None:
            exceeds_limit = len(self.received) >= AUTHORS_MAX
        elif post.sequence in received:
            return None
        else:
            exceeds_limit = len(received) >= GAPS_MAX and received.creates_gap(post.sequence)
        parent, cost = post.parent_id, len(post.data) + WAITING_OVERHEAD_BYTES
        is_orphan = parent is not None and not self.was_delivered(parent)
        missing = parent if parent is not None and is_orphan and not self._pruned.has(parent) else None
        if missing is not None and (
            len(self._waiting) >= self._messages_max or self.waiting_bytes + cost > self._bytes_max
        ):
            exceeds_limit = True
        if exceeds_limit:
            self.rejected_count += 1
            return None
        self.received.add(post.id)
        if missing is None:
            return self._with_descendants(Delivery(post, is_orphan))
        self._wait(post, missing, cost, now)
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
        if not self.received.has(parent):
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
            if message_id in self._children and not self.received.has(message_id):
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

    def give_up(self, missing: MessageSet, pruned: MessageSet) -> list[Delivery]:
        """Mark messages as unavailable, and release those that wait for pruned ones, as orphans. The others wait until
        they are overdue: a member that has the parent may come back."""
        self.unavailable.add_all(missing.items())
        self._pruned.add_all(pruned.items())
        deliveries: list[Delivery] = []
        for message_id in [each for each in self._children if self._pruned.has(each) and not self.received.has(each)]:
            waiting = next((each for each in self._children.get(message_id, ()) if each.id in self._waiting), None)
            if waiting is not None:
                deliveries += self._release_orphan(waiting)
        return deliveries

    def forget_unavailable(self) -> None:
        """The messages may be available again. Replies still do not wait for those that were pruned."""
        self.unavailable.clear()

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
