"""A link's first words: how two peers find out what one of them lacks.

Both ends of a new link say up to where they hold each author, and each sends what the other lacks. A newcomer takes
the first answer as its starting point. What one is told of and does not get is a gap (`gaps.py`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.fabric.authors import AuthorWindow
from weft.fabric.retention import Kept
from weft.wire import PeerId, WireError
from weft.wire.links import Greeting, Known
from weft.wire.types import Have

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.stream import Stream

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
        self.settled_at = peer.world.now()
        """Since when we have a starting point."""

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
        self.settled_at = self._peer.world.now()

    def _learn(self, have: tuple[Have, ...], now: float) -> None:
        """Whatever the other has and we lack is a gap, until it comes."""
        for each in have:
            if each.author == self._peer.me.peer:
                continue  # nobody knows better than we what we said
            window = self._stream.authors.get(each.author)
            said_at = _said_at(each, now)
            if window is None:
                window = self._stream.meet(each.author, each.run_start, said_at, hearsay=True)
                if window is not None and (said_at < self.settled_at or self._stream.may_have_forgotten(said_at)):
                    window.start_at(each.mark)  # said before our time, or had and forgotten
                    if now - said_at < self._peer.settings.retention_s:
                        self._stream.gaps.spread_word(each.author)
            if window is not None:
                self.learn_mark(each.author, window, each.mark, said_at)

    def learn_mark(self, author: PeerId, window: AuthorWindow, mark: int, said_at: float) -> None:
        """Somebody has the author's messages up to this one."""
        if mark <= window.known:
            return
        if mark - window.known > HEARSAY_MAX:
            self._peer.counters.hearsay_refused += 1
            return
        window.known, window.known_at = mark, said_at
        window.to_tell = True
        self._stream.gaps.watch(author)

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
            self._stream.pass_to(link, kept, now)
        link.above = ()
