"""Catching up, the side that answers: one holder sends, the others hear it and keep quiet.

Whoever holds what an asker lacks waits for a random time; what it hears meanwhile in the pages of others it need not
send. It sends a turn of pages, not faster than the budget that all share, and waits to be asked for more. Somebody who
asks again and again without taking anything in waits longer each time.
"""

from collections import deque
from typing import TYPE_CHECKING

from weft.groups.fields import Have, pack_posts
from weft.groups.intervals import Intervals
from weft.groups.limits import ENTRIES_MAX, HAVES_MAX, PENDING_MAX
from weft.groups.messages import Ask, Page, Want
from weft.groups.names import MemberId, MessageId, Post
from weft.wire import PeerId

if TYPE_CHECKING:
    from weft.groups.conversation import Conversation
    from weft.groups.medium import Timer

BUSY_S = 0.05
"""Our links are behind: look again after this."""
FEW = 500
"""So many messages are fetched one by one, instead of looking through all history for them."""
AHEAD_ROWS = 128
"""Read from history at a time: messages may be large."""
POST_BYTES = 48
"""On the wire, beside the data."""
AGAIN_S = 90.0
"""Who has not asked for so long may ask anew."""
STRIKES_MAX = 6
"""An asker that takes nothing in waits for two to the power of this, in seconds, and not longer."""


class _Pending:
    """A question that we would answer, or are answering."""

    __slots__ = ("ahead", "asker", "gone", "question", "row", "sent_bytes", "speaking", "timer", "todo")

    def __init__(self, asker: PeerId, question: int, todo: dict[MemberId, Intervals]) -> None:
        self.asker = asker
        """0 for a `Want`."""
        self.question = question
        self.todo = todo
        """What we would send."""
        self.gone: tuple[Have, ...] = ()
        self.row = 0
        """How far history was looked through..."""
        self.ahead: deque[tuple[int, Post]] = deque()
        """...and what was read of it beyond."""
        self.sent_bytes = 0
        """In this turn."""
        self.speaking = False
        self.timer: Timer | None = None

    @property
    def count(self) -> int:
        return sum(each.count for each in self.todo.values())

    def remove(self, covers: tuple[Have, ...]) -> None:
        for author, spans in covers:
            left = self.todo.get(author)
            if left is not None:
                for first, last in spans:
                    left.remove_span(first, last)
                if not left.count:
                    del self.todo[author]

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Serving:
    def __init__(self, talk: "Conversation") -> None:
        self._talk = talk
        self._part = talk.participant
        self._medium = talk.participant.medium
        self._settings = talk.participant.settings
        self._pending: dict[tuple[PeerId, bool], _Pending] = {}
        """By who asked, and whether by name."""
        self._strikes: dict[PeerId, tuple[float, int, int]] = {}
        """When somebody asked last, how much it had, and how often that had not grown."""

    def stop(self) -> None:
        for pending in self._pending.values():
            pending.cancel()
        self._pending.clear()

    # -- being asked

    def on_ask(self, peer: PeerId, note: Ask, haves: dict[MemberId, Intervals]) -> None:
        old = self._pending.pop((peer, False), None)
        if old is not None:
            old.cancel()
        named = note.holder == self._medium.me
        if note.holder and not named:
            return
        pending = _Pending(peer, note.question, self._surplus(haves))
        pending.gone = self._gone(haves)
        if not pending.todo and not pending.gone:
            return
        if named and old is not None:
            pending.row, pending.ahead = old.row, old.ahead
        penalty_s = self._penalty_s(peer, sum(each.count for each in haves.values()))
        self._put((peer, False), pending, penalty_s + (0.0 if named else self._part.backoff_s()))

    def _surplus(self, haves: dict[MemberId, Intervals]) -> dict[MemberId, Intervals]:
        forgotten = self._talk.history.forgotten()
        todo: dict[MemberId, Intervals] = {}
        for author, had in self._talk.order.had.items():
            rest = had.minus(haves.get(author)).minus(forgotten.get(author))
            if rest.count:
                todo[author] = rest
        return todo

    def _gone(self, haves: dict[MemberId, Intervals]) -> tuple[Have, ...]:
        gone: list[Have] = []
        for author, spans in self._talk.history.forgotten().items():
            rest = spans.minus(haves.get(author))
            if rest.count and len(gone) < HAVES_MAX:
                gone.append(Have(author, tuple(rest)))
        return tuple(gone)

    def _penalty_s(self, peer: PeerId, count: int) -> float:
        now = self._medium.now()
        asked_at, before, strikes = self._strikes.pop(peer, (0.0, -1, 0))
        strikes = min(strikes + 1, STRIKES_MAX) if count <= before and now < asked_at + AGAIN_S else 0
        self._strikes[peer] = (now, count, strikes)
        if len(self._strikes) > PENDING_MAX:
            del self._strikes[next(iter(self._strikes))]
        return float(2**strikes - 1) if strikes > 1 else 0.0

    def _put(self, key: tuple[PeerId, bool], pending: _Pending, wait_s: float) -> None:
        if len(self._pending) < PENDING_MAX:
            self._pending[key] = pending
            pending.timer = self._medium.after(wait_s, self._speak, key)

    def on_want(self, peer: PeerId, note: Want) -> None:
        todo: dict[MemberId, Intervals] = {}
        for named in note.wanted:
            if self._talk.history.get(named) is not None:
                todo.setdefault(named.author, Intervals()).add(named.sequence)
        old = self._pending.pop((peer, True), None)
        if old is not None:
            old.cancel()
            for author, spans in old.todo.items():
                for first, last in spans:
                    todo.setdefault(author, Intervals()).add_span(first, last)
        if todo:
            self._put((peer, True), _Pending(0, 0, todo), self._part.backoff_s())

    # -- hearing others

    def on_page(self, peer: PeerId, note: Page) -> None:
        for key, pending in list(self._pending.items()):
            pending.remove(note.covers)
            if pending.asker and pending.asker == note.asker:
                self._is_served(peer, note, key, pending)
            elif not pending.todo and not (pending.asker and pending.gone):
                pending.cancel()
                del self._pending[key]

    def _is_served(self, peer: PeerId, note: Page, key: tuple[PeerId, bool], pending: _Pending) -> None:
        """Another answers the same asker."""
        if pending.speaking and self._medium.me < peer:
            return  # two began at once: one of them stops
        pending.speaking = False
        pending.cancel()
        if note.last and not note.remaining and not pending.todo:
            del self._pending[key]
        else:
            more_s = 0.0 if note.last and not note.remaining else self._settings.hold_s
            pending.timer = self._medium.after(more_s + self._part.backoff_s(), self._speak, key)

    # -- speaking

    def _speak(self, key: tuple[PeerId, bool]) -> None:
        pending = self._pending[key]
        now = self._medium.now()
        wait_s = BUSY_S if self._medium.is_busy else self._part.budget.wait_s(now)
        if wait_s:
            pending.timer = self._medium.after(wait_s, self._speak, key)
            return
        pending.speaking = True
        posts, exhausted = self._gather(pending)
        if not posts and not exhausted:
            pending.timer = self._medium.after(0.0, self._speak, key)  # there is more to look through
            return
        if exhausted:
            pending.todo.clear()  # waiting here ourselves, or thrown away meanwhile
        size = sum(len(each.data) + POST_BYTES for each in posts)
        pending.sent_bytes += size
        last = exhausted or not pending.todo or pending.sent_bytes >= self._settings.turn_bytes
        self._part.budget.spend(size, now)
        self._say(pending, posts, last)
        if last:
            self._end_turn(key, pending)
        else:
            pending.timer = self._medium.after(0.0, self._speak, key)

    def _say(self, pending: _Pending, posts: list[Post], last: bool) -> None:
        covers: dict[MemberId, Intervals] = {}
        for post in posts:
            covers.setdefault(post.author, Intervals()).add(post.sequence)
        names = self._talk.history.names
        self._part.say(
            Page(
                self._talk.group,
                pending.asker,
                pending.question,
                min(pending.count, 0xFFFFFFFF),
                last,
                tuple(Have(author, tuple(spans)) for author, spans in covers.items()),
                pending.gone if last and not pending.todo else (),
                tuple((author, names.get(author, "")) for author in covers),
                pack_posts(posts),
            )
        )

    def _end_turn(self, key: tuple[PeerId, bool], pending: _Pending) -> None:
        """If there is more, the place is kept for the next question."""
        pending.timer = None
        pending.speaking = False
        if pending.todo:
            pending.timer = self._medium.after(2 * self._settings.hold_s, self._drop, key)
        else:
            del self._pending[key]

    def _drop(self, key: tuple[PeerId, bool]) -> None:
        self._pending.pop(key, None)

    def _gather(self, pending: _Pending) -> tuple[list[Post], bool]:
        """Messages for one page, and whether there are no more to be found."""
        if pending.count <= FEW:
            return self._gather_few(pending)
        posts: list[Post] = []
        size = looked_at = 0
        while size < self._settings.page_bytes and len(posts) < ENTRIES_MAX and looked_at < self._settings.scan_rows:
            if not pending.ahead:
                pending.ahead.extend(self._talk.history.scan(pending.row, AHEAD_ROWS))
                if not pending.ahead:
                    return posts, True
            pending.row, post = pending.ahead.popleft()
            looked_at += 1
            left = pending.todo.get(post.author)
            if left is not None and post.sequence in left:
                posts.append(post)
                size += len(post.data) + POST_BYTES
                left.remove_span(post.sequence, post.sequence)
                if not left.count:
                    del pending.todo[post.author]
        return posts, False

    def _gather_few(self, pending: _Pending) -> tuple[list[Post], bool]:
        posts: list[Post] = []
        size = 0
        for author, spans in list(pending.todo.items()):
            for first, last in list(spans):
                for sequence in range(first, last + 1):
                    if size >= self._settings.page_bytes:
                        return posts, False
                    spans.remove_span(sequence, sequence)
                    post = self._talk.history.get(MessageId(author, sequence))
                    if post is not None:
                        posts.append(post)
                        size += len(post.data) + POST_BYTES
            del pending.todo[author]
        return posts, True
