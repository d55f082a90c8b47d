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

from weft.groups.intervals import Intervals
from weft.groups.limits import AUTHORS_MAX, GAPS_MAX
from weft.groups.names import MemberId, MessageId, Post

WAITING_COST_BYTES = 256
"""What a waiting message takes beside its data, about."""


class Release(NamedTuple):
    """A message whose turn it is."""

    post: Post
    orphan: bool = False


class Order:
    """The order of one group at one member. Time is passed in."""

    def __init__(self, waiting_max: int, waiting_bytes_max: int) -> None:
        self._waiting_max = waiting_max
        self._waiting_bytes_max = waiting_bytes_max
        self.had: dict[MemberId, Intervals] = {}
        """Received: delivered or waiting."""
        self.gone: dict[MemberId, Intervals] = {}
        """Known to have been, and not to be had any more. If one of them comes after all, it is taken."""
        self.count = 0
        """Messages received."""
        self._waiting: dict[MessageId, Post] = {}
        self._children: dict[MessageId, list[Post]] = {}
        """Waiting messages by what they wait for."""
        self._queue: deque[tuple[float, MessageId]] = deque()
        """Waiting messages by the time they came; some have been released since."""
        self._unasked: deque[tuple[float, MessageId]] = deque()
        """What is waited for, by the time somebody first waited for it."""
        self.waiting_bytes = 0
        self.refused = 0
        """Over a limit."""

    # -- what is there

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def has(self, named: MessageId) -> bool:
        """Whether it was received."""
        had = self.had.get(named[0])
        return had is not None and named[1] in had

    def was_delivered(self, named: MessageId) -> bool:
        return named not in self._waiting and self.has(named)

    def is_waiting(self, named: MessageId) -> bool:
        return named in self._waiting

    def is_gone(self, named: MessageId) -> bool:
        gone = self.gone.get(named[0])
        return gone is not None and named[1] in gone

    # -- receiving

    def receive(self, post: Post, now: float) -> list[Release] | None:
        """One message, whatever way it came: what can be delivered now, in order. None if it was there already, or is
        refused."""
        had = self.had.get(post.author)
        if had is None:
            if len(self.had) >= AUTHORS_MAX:
                self.refused += 1
                return None
            had = self.had[post.author] = Intervals()
        elif post.sequence in had:
            return None
        if len(had) >= GAPS_MAX and had.makes_gap(post.sequence):
            self.refused += 1
            return None
        parent = post.parent
        if parent is None or self.was_delivered(parent):
            had.add(post.sequence)
            self.count += 1
            return self._with_followers(Release(post))
        if self.is_gone(parent):
            had.add(post.sequence)
            self.count += 1
            return self._with_followers(Release(post, orphan=True))
        cost = len(post.data) + WAITING_COST_BYTES
        if len(self._waiting) >= self._waiting_max or self.waiting_bytes + cost > self._waiting_bytes_max:
            self.refused += 1
            return None
        had.add(post.sequence)
        self.count += 1
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
            self._unasked.append((now, parent))

    def _with_followers(self, first: Release) -> list[Release]:
        """A message and all that waited for it, or for one that did: parents first, in the order they came."""
        if not self._children:
            return [first]
        released = [first]
        at = 0
        while at < len(released):
            for post in self._children.pop(released[at].post.id, ()):
                if self._waiting.pop(post.id, None) is not None:  # else it was released as an orphan
                    self.waiting_bytes -= len(post.data) + WAITING_COST_BYTES
                    released.append(Release(post))
            at += 1
        return released

    # -- what does not come

    def lacking(self, since: float, most: int) -> list[MessageId]:
        """What was waited for since this time or longer, and is not there; each is told once, in order of time."""
        found: list[MessageId] = []
        while self._unasked and self._unasked[0][0] <= since and len(found) < most:
            _, named = self._unasked.popleft()
            if named in self._children and not self.has(named):
                found.append(named)
        return found

    def overdue(self, since: float) -> list[Release]:
        """Release what has waited since this time or longer, with a mark on those whose parent is lacking."""
        released: list[Release] = []
        while self._queue and self._queue[0][0] <= since:
            _, named = self._queue.popleft()
            if named in self._waiting:
                released += self._release_orphan(self._topmost(named))
        return released

    def give_up(self, lacking: dict[MemberId, Intervals]) -> list[Release]:
        """These are not to be had any more, by anyone's account: what waits for them is released with a mark."""
        for author, spans in lacking.items():
            gone = self.gone.setdefault(author, Intervals())
            for first, last in spans:
                gone.add_span(first, last)
        released: list[Release] = []
        for named in [each for each in self._children if self.is_gone(each) and not self.has(each)]:
            waiting = next((each for each in self._children.get(named, ()) if each.id in self._waiting), None)
            if waiting is not None:
                released += self._release_orphan(waiting)
        return released

    def _topmost(self, named: MessageId) -> Post:
        """The ancestor that waits for something that is not here; the message itself if it waits for itself."""
        post = self._waiting[named]
        seen = {named}
        while post.parent is not None and post.parent in self._waiting and post.parent not in seen:
            seen.add(post.parent)
            post = self._waiting[post.parent]
        return post

    def _release_orphan(self, post: Post) -> list[Release]:
        """With all that respond to the same message, unless that one waits too and follows: then it is a circle."""
        parent = post.parent
        posts = [post]
        if parent is not None and parent not in self._waiting:
            posts = [each for each in self._children.pop(parent, ()) if each.id in self._waiting]
        for each in posts:
            del self._waiting[each.id]
            self.waiting_bytes -= len(each.data) + WAITING_COST_BYTES
        return [released for each in posts for released in self._with_followers(Release(each, orphan=True))]

    @property
    def waits_since(self) -> float | None:
        """When the one that has waited longest came; None if nothing waits."""
        while self._queue and self._queue[0][1] not in self._waiting:
            self._queue.popleft()
        return self._queue[0][0] if self._queue else None
