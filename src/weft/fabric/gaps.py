"""Gaps: what somebody is known to have, and we lack.

One that stays is asked for, from one neighbour after the other. What no neighbour can give any more, and none waits
for, is told to the application as missed.
"""

from typing import TYPE_CHECKING

from weft.fabric.authors import AuthorWindow, Denied
from weft.wire import PeerId, encode
from weft.wire.links import Gone, Known, Lack, Want
from weft.wire.types import Have

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.stream import Stream
    from weft.fabric.world import Timer

GAPS_ASKED_MAX = 32
"""Authors whose gaps are asked for in one round, one after the other."""
LOOKED_UP_MAX = 1 << 16
"""Frames looked for on behalf of one neighbour between two ticks."""
NEWS_MAX = 1024
"""Authors that wait to be told to the neighbours."""
REGRETS_MAX = 4
"""So often all neighbours are asked for what one of them had and dropped, and the others never had."""
DENIED_S = 10.0
"""For so long all neighbours are asked for what they never had, and look for it elsewhere."""
PATIENT_LOOKS = 4
"""So often a gap is looked at while the link that should fill it is busy, before it is asked for elsewhere."""


class Gaps:
    def __init__(self, peer: "Peer", stream: "Stream") -> None:
        self._peer = peer
        self._stream = stream
        self._open: dict[PeerId, None] = {}
        self._news: dict[PeerId, None] = {}
        """Authors that our neighbours shall know of."""
        self._timer: Timer | None = None

    # -- asking

    def watch(self, author: PeerId) -> None:
        self._open[author] = None
        self._look_soon()

    def spread_word(self, author: PeerId) -> None:
        """We heard of messages from before our time, for the first time: our neighbours may be older than we and lack
        them."""
        if len(self._news) < NEWS_MAX:
            self._news[author] = None
            self._look_soon()

    def _look_soon(self) -> None:
        if self._timer is None:
            self._timer = self._peer.world.after(self._peer.settings.gap_s / 2, self._ask)

    def _ask(self) -> None:
        self._timer = None
        now = self._peer.world.now()
        self._forget_closed()
        if not (self._open or self._news) or not self._peer.is_present:
            return
        self._look_soon()
        stuck = self._stuck()
        self._tell_neighbours(stuck, now)
        if not len(self._peer.links):
            return
        for author, window in stuck:
            self._ask_for(author, window, now)

    def _stuck(self) -> list[tuple[PeerId, AuthorWindow]]:
        """Authors whose gap has not moved since we looked last, in turn. One that moves closes by itself."""
        stuck: list[tuple[PeerId, AuthorWindow]] = []
        for author in list(self._open):
            window = self._stream.authors[author]
            if window.stuck_at != window.reached:
                window.stuck_at, window.looks = window.reached, 0
                self._is_on_its_way(window)
            elif self._is_on_its_way(window):
                window.looks += 1
            elif len(stuck) < GAPS_ASKED_MAX:
                window.stuck_at = -1  # what is asked for is given time to come
                del self._open[author]
                self._open[author] = None  # to the end of the queue
                stuck.append((author, window))
        return stuck

    def _is_on_its_way(self, window: AuthorWindow) -> bool:
        """The link that feeds us is busy with other messages: under load, all that comes late would be asked for, and
        that would be more load."""
        parent, brought = window.parent, window.parent_brought
        if parent is None or window.looks >= PATIENT_LOOKS:
            return False
        window.parent_brought = parent.brought
        return parent.brought != brought and not window.waiting

    def _forget_closed(self) -> None:
        for author in list(self._open):
            window = self._stream.authors.get(author)
            if window is None or not window.has_gap:
                del self._open[author]
                if window is not None:
                    window.gone.clear()
                    window.absent.clear()
                    window.regrets = 0

    def _tell_neighbours(self, stuck: list[tuple[PeerId, AuthorWindow]], now: float) -> None:
        """Gaps that we learned of by hearsay and that stay open: our neighbours may lack the same and not know it."""
        told = [(author, window) for author, window in stuck if window.to_tell]
        for author in list(self._news)[:GAPS_ASKED_MAX]:
            del self._news[author]
            if (window := self._stream.authors.get(author)) is not None:
                told.append((author, window))
        news = []
        for author, window in told:
            window.to_tell = False
            news.append(Have(author, window.run_start, window.known, int((now - window.known_at) * 1000)))
        if news:
            frame = encode(Known(tuple(news)))
            for link in self._peer.links:
                link.send_frame(frame)

    def _ask_for(self, author: PeerId, window: AuthorWindow, now: float) -> None:
        self._stream.deliver_overlapping(window, now)
        if not window.has_gap:
            return
        if self._give_up_what_is_gone(author, window) and not window.has_gap:
            return
        first, last, said_at = window.missing()
        for neighbour, (absent_to, _) in list(window.absent.items()):
            if absent_to < first or neighbour not in self._peer.links:
                del window.absent[neighbour]
        gone = {link: up_to for link in self._peer.links if (up_to := window.gone_to(link.neighbour)) is not None}
        left = [link for link in self._peer.links if link not in gone]
        unasked = [link for link in left if link.neighbour not in window.absent]
        if now - said_at > self._peer.settings.retention_s:
            self._stream.give_up(author, window, last)  # so old that nobody can have it any more
        elif not unasked and window.waiting and said_at < self._stream.reconcile.settled_at:
            self._stream.skip(window, last)  # nobody near was there, and neither were we
        elif not unasked and gone and window.regrets >= REGRETS_MAX:
            self._stream.give_up(author, window, min(last, *gone.values()))  # some had it, and the others never got it
        else:
            if not unasked:
                if self._is_denied(window, first, left):
                    self._stream.give_up(author, window, last)
                    return
                window.absent.clear()  # it is somewhere, and on its way
                window.regrets += bool(gone)
            choices = [link for link in unasked or left if link.heard] or unasked or left  # the others may be dead
            link = window.source if window.source in left else self._peer.world.random.choice(choices)
            window.source = None  # the next one is any of them
            self._stream.tree.pull(window, author, link)
            link.send(Want(author, first, last))

    def _is_denied(self, window: AuthorWindow, first: int, left: "list[Link]") -> bool:
        """All neighbours came after these messages, and have found them nowhere (`errands.py`): what has come of the
        author meanwhile shall not wait for them any longer."""
        now, before = self._peer.world.now(), window.denied
        by = tuple(link.neighbour for link in left if window.absent[link.neighbour][1])
        since = before.since if before.first == first and len(by) == len(left) else now
        window.denied = Denied(first, since, by)
        return now > since + DENIED_S and bool(window.waiting)

    def _hopes_for(self, window: AuthorWindow, asker: "Link") -> bool:
        """Whether a gap of ours may still close without the one who asks for the same. (Two neighbours that lack the
        same must not wait for each other.)"""
        denied = window.denied
        return denied.first != window.reached + 1 or any(
            link is not asker and link.neighbour not in denied.by for link in self._peer.links
        )

    def _give_up_what_is_gone(self, author: PeerId, window: AuthorWindow) -> bool:
        """By the word of all neighbours."""
        gave_up = False
        while window.has_gap and len(self._peer.links):
            up_to = [window.gone_to(link.neighbour) for link in self._peer.links]
            _, last, _ = window.missing()
            for each in up_to:
                if each is None:
                    return gave_up
                last = min(last, each)
            self._stream.give_up(author, window, last)
            gave_up = True
        return gave_up

    # -- being asked, and answered

    def on_want(self, link: "Link", want: Want) -> None:
        """Send what we hold of the range, and say of the rest whether it may still come."""
        window = self._stream.authors.get(want.author)
        if want.last < want.first or link.looked_up > LOOKED_UP_MAX:
            return  # it asks for nothing, or for too much at once: who lacks something asks again
        if window is None or want.first > window.known:
            link.send(Gone(want.author, want.first, want.last, Lack.NOT_YET))
            return
        last = min(want.last, window.known)
        signing = self._stream.signing
        if signing is None or signing.can_introduce(want.author):
            link.arrears.owe(want.author, want.first, last)
            link.arrears.pay()
        else:
            self.say_gone(link, window, want.author, want.first, last)
        if last < want.last:
            link.send(Gone(want.author, last + 1, want.last, Lack.NOT_YET))

    def say_gone(self, link: "Link", window: AuthorWindow, author: PeerId, first: int, last: int) -> None:
        """What we held once and dropped, or gave up, is gone for good; what we never held may be found elsewhere."""
        if last > window.reached:
            why = Lack.NOT_YET if self._hopes_for(window, link) else Lack.NEVER
        else:
            why = Lack.NO_MORE if first > window.floor else Lack.NEVER
        link.send(Gone(author, first, last, why))
        if why is Lack.NEVER and first <= window.floor:
            self._stream.errands.run(link, author, first, min(last, window.floor))

    def on_gone(self, link: "Link", gone: Gone) -> None:
        window = self._stream.authors.get(gone.author)
        if window is None:
            return
        final = gone.why is Lack.NO_MORE
        if final and gone.first <= window.known + 1:
            # We were spared it, and did not even know of it.
            self._stream.reconcile.learn_mark(gone.author, window, gone.last, self._peer.world.now())
        if final and window.has_gap and gone.last > window.reached:
            window.note_gone(link.neighbour, gone.first, gone.last)
            self._give_up_what_is_gone(gone.author, window)
        elif window.has_gap and gone.first <= window.reached + 1 <= gone.last:
            window.absent[link.neighbour] = gone.last, gone.why is Lack.NEVER
