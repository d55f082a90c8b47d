"""A link's first words, and gaps: how two peers find out what one of them lacks.

Both ends of a new link say up to where they hold each author, and each sends what the other lacks. A newcomer takes
the first answer as its starting point. A gap that stays is asked for, from one neighbour after the other; what no
neighbour can give any more is told to the application as missed.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.fabric.authors import AuthorWindow
from weft.fabric.retention import Kept
from weft.wire import PeerId, WireError, encode
from weft.wire.links import Gone, Greeting, Known, Want
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
REGRETS_MAX = 4
"""So often all neighbours are asked for what one of them had and dropped, and the others never had."""
PATIENT_LOOKS = 4
"""So often a gap is looked at while the link that should fill it is busy, before it is asked for elsewhere."""
HEARSAY_MAX = 1 << 20
"""Messages of an author that are believed to exist on a neighbour's word alone."""
SILENT_S_MAX = 10 * 365 * 86400.0


def _said_at(have: Have, now: float) -> float:
    """When the author was last heard, for any number that a stranger may write there."""
    return now - min(have.silent_ms / 1000, SILENT_S_MAX)


def _have(author: PeerId, window: AuthorWindow, now: float) -> Have:
    return Have(author, window.run_start, window.reached, int((now - window.heard_at) * 1000))


class Reconcile:
    def __init__(self, peer: "Peer", stream: "Stream") -> None:
        self._peer = peer
        self._stream = stream
        self._gaps: dict[PeerId, None] = {}
        self._timer: Timer | None = None
        self._settled_at = peer.world.now()

    # -- greetings

    def greet(self, link: "Link", *, complete: bool) -> None:
        """Say what we have; all that comes later goes over the link as it comes."""
        self._stream.pack()  # what was said before the link came up is in the log
        retention = self._stream.retention
        link.log_start = retention.end
        link.above = tuple(
            kept
            for author, window in self._stream.authors.items()
            for sequence in window.waiting
            if (kept := retention.get(author, sequence)) is not None
        )
        sample = self._peer.contacts.sample(self._peer.settings.sample)
        have = self._haves() + (self._haves(long_silent=True) if complete else ())
        link.send(Greeting(not self._stream.settled, complete, have, sample))

    def _haves(self, *, long_silent: bool = False) -> tuple[Have, ...]:
        """All authors heard lately; or all others, that matter only after a long time apart."""
        now = self._peer.world.now()
        since = now - self._peer.settings.forget_s
        return tuple(
            _have(author, window, now)
            for author, window in self._stream.authors.items()
            if (window.heard_at < since) == long_silent
        )

    def on_greeting(self, link: "Link", greeting: Greeting) -> None:
        if link.greeted or (greeting.fresh and not self._stream.settled):
            raise WireError("a greeting where none belongs")  # once each, and two that know nothing do not link
        link.greeted = True
        self._peer.contacts.add_all(greeting.sample)
        now = self._peer.world.now()
        if not greeting.fresh:
            if self._stream.settled:
                self._learn(greeting.have, now)
            else:
                self._start_from(greeting.have, now)
        if not link.draining:
            self._send_lacking(link, greeting, now)
            if greeting.complete and not greeting.fresh:
                link.send(Known(self._haves(long_silent=True)))

    def on_known(self, _link: "Link", known: Known) -> None:
        if self._stream.settled:
            self._learn(known.have, self._peer.world.now())

    def _start_from(self, have: tuple[Have, ...], now: float) -> None:
        """A newcomer's starting point: all that the first neighbour had when the link came up."""
        for each in sorted(have, key=lambda each: each.silent_ms):
            if each.author != self._peer.me.peer:
                window = self._stream.meet(each.author, each.run_start, _said_at(each, now))
                if window is not None:
                    window.start_at(each.mark)
        self.settle()
        self._peer.on_links_changed(None)

    def settle(self) -> None:
        """From now on this peer has a starting point."""
        self._stream.settled = True
        self._settled_at = self._peer.world.now()

    def _learn(self, have: tuple[Have, ...], now: float) -> None:
        """Whatever the other has and we lack is a gap, until it comes."""
        for each in have:
            if each.author == self._peer.me.peer:
                continue  # nobody knows better than we what we said
            window = self._stream.authors.get(each.author)
            said_at = _said_at(each, now)
            if window is None:
                window = self._stream.meet(each.author, each.run_start, said_at, hearsay=True)
                if window is not None and (said_at < self._settled_at or self._stream.may_have_forgotten(said_at)):
                    window.start_at(each.mark)  # said before our time, or had and forgotten
            if window is not None:
                self._learn_mark(each.author, window, each.mark, said_at)

    def _learn_mark(self, author: PeerId, window: AuthorWindow, mark: int, said_at: float) -> None:
        if mark <= window.known:
            return
        if mark - window.known > HEARSAY_MAX:
            self._peer.counters.hearsay_refused += 1
            return
        window.known, window.known_at = mark, said_at
        window.to_tell = True
        self.watch_gap(author)

    def learn(self, author: PeerId, run_start: int, mark: int, said_at: float, *, source: "Link") -> None:
        """A neighbour announces what it has, and does not send."""
        self._learn((Have(author, run_start, mark, 0),), said_at)
        window = self._stream.authors.get(author)
        if window is not None:
            window.source = source

    def _send_lacking(self, link: "Link", greeting: Greeting, now: float) -> None:
        if greeting.fresh:
            # It takes the marks that we told as its own, so it lacks only what we held above them.
            lacking: Iterable[Kept] = link.above
        else:
            marks = {each.author: each.mark for each in greeting.have}
            before = self._stream.retention.before(link.log_start)
            lacking = (kept for kept in before if kept.last > marks.get(kept.author, 0))
        for kept in lacking:
            if link.is_full or link.arrears:
                link.arrears.add(kept)
            else:
                self._stream.send(link, kept.author, kept.copy(now))
        link.above = ()

    # -- gaps

    def watch_gap(self, author: PeerId) -> None:
        self._gaps[author] = None
        if self._timer is None:
            self._timer = self._peer.world.after(self._peer.settings.gap_s / 2, self._ask)

    def _ask(self) -> None:
        self._timer = None
        now = self._peer.world.now()
        self._forget_closed()
        if not self._gaps or not self._peer.is_present:
            return
        self._timer = self._peer.world.after(self._peer.settings.gap_s / 2, self._ask)
        stuck = self._stuck()
        self._tell_neighbours(stuck, now)
        if not len(self._peer.links):
            return
        for author, window in stuck:
            self._ask_for(author, window, now)

    def _stuck(self) -> list[tuple[PeerId, AuthorWindow]]:
        """Authors whose gap has not moved since we looked last, in turn. One that moves closes by itself."""
        stuck: list[tuple[PeerId, AuthorWindow]] = []
        for author in list(self._gaps):
            window = self._stream.authors[author]
            if window.stuck_at != window.reached:
                window.stuck_at, window.looks = window.reached, 0
                self._is_on_its_way(window)
            elif self._is_on_its_way(window):
                window.looks += 1
            elif len(stuck) < GAPS_ASKED_MAX:
                window.stuck_at = -1  # what is asked for is given time to come
                del self._gaps[author]
                self._gaps[author] = None  # to the end of the queue
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
        for author in list(self._gaps):
            window = self._stream.authors.get(author)
            if window is None or not window.has_gap:
                del self._gaps[author]
                if window is not None:
                    window.gone.clear()
                    window.absent.clear()
                    window.regrets = 0

    def _tell_neighbours(self, stuck: list[tuple[PeerId, AuthorWindow]], now: float) -> None:
        """Gaps that we learned of by hearsay and that stay open: our neighbours may lack the same and not know it."""
        news = []
        for author, window in stuck:
            if window.to_tell:
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
        for neighbour, absent_to in list(window.absent.items()):
            if absent_to < first or neighbour not in self._peer.links:
                del window.absent[neighbour]
        gone = {link: up_to for link in self._peer.links if (up_to := window.gone_to(link.neighbour)) is not None}
        left = [link for link in self._peer.links if link not in gone]
        unasked = [link for link in left if link.neighbour not in window.absent]
        if now - said_at > self._peer.settings.retention_s:
            self._stream.give_up(author, window, last)  # so old that nobody can have it any more
        elif not unasked and window.waiting and said_at < self._settled_at:
            self._stream.skip(window, last)  # nobody near was there, and neither were we
        elif not unasked and gone and window.regrets >= REGRETS_MAX:
            self._stream.give_up(author, window, min(last, *gone.values()))  # some had it, and the others never got it
        else:
            if not unasked:
                window.absent.clear()  # it is somewhere, and on its way
                window.regrets += bool(gone)
            choices = [link for link in unasked or left if link.heard] or unasked or left  # the others may be dead
            link = window.source if window.source in left else self._peer.world.random.choice(choices)
            window.source = None  # the next one is any of them
            self._stream.tree.pull(window, author, link)
            link.send(Want(author, first, last))

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

    def on_want(self, link: "Link", want: Want) -> None:
        """Send what we hold of the range, and say of the rest whether it may still come."""
        window = self._stream.authors.get(want.author)
        if want.last < want.first or link.looked_up > LOOKED_UP_MAX:
            return  # it asks for nothing, or for too much at once: who lacks something asks again
        if window is None or want.first > window.known:
            link.send(Gone(want.author, want.first, want.last, final=False))
            return
        last = min(want.last, window.known)
        signing = self._stream.signing
        if signing is None or signing.can_introduce(want.author):
            link.arrears.owe(want.author, want.first, last)
            link.arrears.pay()
        else:
            self.say_gone(link, window, want.author, want.first, last)
        if last < want.last:
            link.send(Gone(want.author, last + 1, want.last, final=False))

    def say_gone(self, link: "Link", window: AuthorWindow, author: PeerId, first: int, last: int) -> None:
        """What we held once and dropped, or gave up, is gone for good; what we never held may be found elsewhere."""
        final = window.floor < first and last <= window.reached
        link.send(Gone(author, first, last, final))

    def on_gone(self, link: "Link", gone: Gone) -> None:
        window = self._stream.authors.get(gone.author)
        if window is None:
            return
        if gone.final and gone.first <= window.known + 1:
            self._learn_mark(gone.author, window, gone.last, self._peer.world.now())  # we were spared it
        if gone.final and window.has_gap and gone.last > window.reached:
            window.note_gone(link.neighbour, gone.first, gone.last)
            self._give_up_what_is_gone(gone.author, window)
        elif window.has_gap and gone.first <= window.reached + 1 <= gone.last:
            window.absent[link.neighbour] = gone.last
