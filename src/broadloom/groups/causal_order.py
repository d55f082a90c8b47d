"""Sb order: a message that responds to another is delivered after that one; unrelated ones never wait for each other.

All messages of a group form a tree. What was received is kept as intervals for each author; what came before the one it
responds to waits under that one's identity, so its arrival finds it without a search. A receive takes amortised
constant time: each message is put down to wait at most once, and picked up once. There is no recursion, however deep
the tree.

What waits too long can be asked for (`lacking`), or released with a mark (`overdue`). If the ancestors of a message
wait too, the topmost of them is released and the others follow it; a circle, which only a liar can make, is cut.
"""

from collections import deque
from typing import NamedTuple

from broadloom.groups.intervals import IntervalSet
from broadloom.groups.model import MemberId, MessageId, Post
from broadloom.groups.settings import AUTHORS_MAX, GAPS_MAX

WAITING_OVERHEAD_BYTES = 256
"""What a waiting message takes beside its data, about."""


class Delivery(NamedTuple):
    """A message whose turn it is."""

    post: Post
    is_orphan: bool = False


class CausalOrder:
    """The order of one group at one member. Time is passed in."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.received: dict[MemberId, IntervalSet] = {}
        """Received: delivered or waiting."""
        self.unavailable: dict[MemberId, IntervalSet] = {}
        """Known to have been, and not to be had any more. If one of them comes after all, it is taken."""
        self.received_count = 0
        """Messages received."""
        self._waiting: dict[MessageId, Post] = {}
        self._children: dict[MessageId, list[Post]] = {}
        """Waiting messages by what they wait for."""
        self._queue: deque[tuple[float, MessageId]] = deque()
        """Waiting messages by the time they came; some have been released since."""
        self._unrequested: deque[tuple[float, MessageId]] = deque()
        """What is waited for, by the time somebody first waited for it."""
        self.waiting_bytes = 0
        self.rejected_count = 0
        """Over a limit."""

    # -- what is there

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def has(self, message_id: MessageId) -> bool:
        """Whether it was received."""
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
        """One message, whatever way it came: what can be delivered now, in order. None if it was there already, or is
        refused."""
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
        if parent is None or self.was_delivered(parent):
            received.add(post.sequence)
            self.received_count += 1
            return self._with_followers(Delivery(post))
        if self.is_unavailable(parent):
            received.add(post.sequence)
            self.received_count += 1
            return self._with_followers(Delivery(post, is_orphan=True))
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

    def _with_followers(self, first: Delivery) -> list[Delivery]:
        """A message and all that waited for it, or for one that did: parents first, in the order they came."""
        if not self._children:
            return [first]
        deliveries = [first]
        at = 0
        while at < len(deliveries):
            for post in self._children.pop(deliveries[at].post.id, ()):
                if self._waiting.pop(post.id, None) is not None:  # else it was released as an orphan
                    self.waiting_bytes -= len(post.data) + WAITING_OVERHEAD_BYTES
                    deliveries.append(Delivery(post))
            at += 1
        return deliveries

    # -- what does not come

    def missing_parents(self, since: float, limit: int) -> list[MessageId]:
        """What was waited for since this time or longer, and is not there; each is told once, in order of time."""
        found: list[MessageId] = []
        while self._unrequested and self._unrequested[0][0] <= since and len(found) < limit:
            _, message_id = self._unrequested.popleft()
            if message_id in self._children and not self.has(message_id):
                found.append(message_id)
        return found

    def release_overdue(self, since: float) -> list[Delivery]:
        """Release what has waited since this time or longer, with a mark on those whose parent is lacking."""
        deliveries: list[Delivery] = []
        while self._queue and self._queue[0][0] <= since:
            _, message_id = self._queue.popleft()
            if message_id in self._waiting:
                deliveries += self._release_orphan(self._topmost(message_id))
        return deliveries

    def give_up(self, missing: dict[MemberId, IntervalSet]) -> list[Delivery]:
        """These are not to be had any more, by anyone's account: what waits for them is released with a mark."""
        for author, intervals in missing.items():
            unavailable = self.unavailable.setdefault(author, IntervalSet())
            for first, last in intervals:
                unavailable.add_interval(first, last)
        deliveries: list[Delivery] = []
        for message_id in [each for each in self._children if self.is_unavailable(each) and not self.has(each)]:
            waiting = next((each for each in self._children.get(message_id, ()) if each.id in self._waiting), None)
            if waiting is not None:
                deliveries += self._release_orphan(waiting)
        return deliveries

    def _topmost(self, message_id: MessageId) -> Post:
        """The ancestor that waits for something that is not here; the message itself if it waits for itself."""
        post = self._waiting[message_id]
        seen = {message_id}
        while post.parent_id is not None and post.parent_id in self._waiting and post.parent_id not in seen:
            seen.add(post.parent_id)
            post = self._waiting[post.parent_id]
        return post

    def _release_orphan(self, post: Post) -> list[Delivery]:
        """With all that respond to the same message, unless that one waits too and follows: then it is a circle."""
        parent = post.parent_id
        posts = [post]
        if parent is not None and parent not in self._waiting:
            posts = [each for each in self._children.pop(parent, ()) if each.id in self._waiting]
        for each in posts:
            del self._waiting[each.id]
            self.waiting_bytes -= len(each.data) + WAITING_OVERHEAD_BYTES
        return [delivery for each in posts for delivery in self._with_followers(Delivery(each, is_orphan=True))]

    @property
    def waiting_since(self) -> float | None:
        """When the one that has waited longest came; None if nothing waits."""
        while self._queue and self._queue[0][1] not in self._waiting:
            self._queue.popleft()
        return self._queue[0][0] if self._queue else None
