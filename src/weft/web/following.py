"""Following a story that goes on into a history, for as long as the pages are served.

What a story tells of different peers comes up to a moment late and out of order; so it is held back for `SETTLE_S`, and
the history is that much behind. If the story has dropped changes before they were fetched, the picture is made right by
what is true now.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from itertools import count
from statistics import median_low

from weft.lab.story import Came, Change, LinkDown, LinkUp, PeerView, Story, Told, Went
from weft.web.history import History
from weft.web.picture import FELT

log = logging.getLogger("weft.web")

SETTLE_S = 1.0
POLL_S = 0.2
FEEL_S = 1.0
"""How often the peers' own figures are noted."""


class Following:
    """A story that goes on, and its history. `run` it."""

    def __init__(self, story: Story, *, settle_s: float = SETTLE_S, sees_all: bool = True) -> None:
        self.story = story
        self.sees_all = sees_all
        """Whether the story tells of the whole fabric, or of a part of it."""
        self._settle_s = settle_s
        self._next = 0
        self._number = count()
        self._waiting: list[tuple[float, int, Change]] = []
        self._felt_at = 0.0
        self.history = History(time.time())
        self._guests: dict[int, str] = {}
        self.views: dict[int, PeerView] = {}
        """By running number: the newest that is known of each peer."""
        self._begin()

    async def run(self) -> None:
        while True:
            try:
                self.poll(time.time())
            except Exception:
                log.exception("following failed; it goes on with what is true now")
                self._begin()
            await asyncio.sleep(POLL_S)

    def _begin(self) -> None:
        self._next, changes = self.story.changes(0)
        if self._next == len(changes) and changes and self.history.next == 0:
            self.history = History(min(each.at_s for each in changes))
            self._hold(changes)
        else:
            self._make_right(time.time())

    def welcome(self, peer: int, name: str) -> None:
        """Somebody who is linked to the peers of the story, and no part of it: the server's own member."""
        self._guests[peer] = name
        self._hold([Came(time.time(), peer, name)])

    def poll(self, now_s: float) -> None:
        since = self._next
        self._next, changes = self.story.changes(since)
        self._hold(changes)
        if self._next - since > len(changes):
            self._release(now_s)
            self._make_right(now_s)
        self._release(now_s - self._settle_s)
        if now_s - self._felt_at >= FEEL_S:
            self._felt_at = now_s
            self._feel(now_s - self._settle_s)

    def _hold(self, changes: list[Change]) -> None:
        self._waiting += [(each.at_s, next(self._number), each) for each in changes]
        self._waiting.sort()

    def _release(self, until_s: float) -> None:
        ready = 0
        for at_s, _, change in self._waiting:
            if at_s > until_s:
                break
            self.history.add(self.history.entry(change))
            ready += 1
        del self._waiting[:ready]
        self.history.end = max(self.history.end, until_s - self.history.began_s)

    def _make_right(self, now_s: float) -> None:
        self._waiting.clear()
        self.history.add_all(self._differences(now_s))

    def _differences(self, now_s: float) -> Iterator[Change]:
        """From the newest picture to what is true now."""
        views, picture, number = self.story.now(), self.history.newest, self.history.number_of
        there = {number(peer) for peer in (*views, *self._guests)}
        known = {number(peer): peer for peer in self.history.ids}
        if picture.peers:
            yield Told(now_s, "more happened than could be followed: this is the fabric as it is now")
        for gone in [each for each in picture.peers if each not in there]:
            yield Went(now_s, known[gone], "left")
        for peer, name in [*((each.id, each.name) for each in views.values()), *self._guests.items()]:
            if number(peer) not in picture.peers:
                yield Came(now_s, peer, name)
        links = {tuple(sorted((number(each.id), number(other)))) for each in views.values() for other in each.links}
        known = {number(peer): peer for peer in self.history.ids}
        for a, b in [each for each in picture.links if each not in links]:
            yield LinkDown(now_s, known[a], known[b])
        for a, b in sorted(links - picture.links.keys()):
            yield LinkUp(now_s, known[a], known[b])

    def _feel(self, at_s: float) -> None:
        views, number = self.story.now(), self.history.number_of
        self.views = {number(peer): view for peer, view in views.items()}
        if not views:
            return
        estimate = median_low([each.diameter for each in views.values()])
        holes = [[place, view.holes] for place, view in self.views.items() if view.holes]
        frozen = [place for place, view in self.views.items() if view.is_frozen]
        is_small = all(each.is_small for each in views.values())
        felt = (estimate, holes, is_small, frozen)
        before = self.history.newest.felt
        if before is None or before[2:] != felt:
            self.history.add((round(at_s - self.history.began_s, 4), FELT, *felt))
