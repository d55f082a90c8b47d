"""What a neighbour that reads slowly is owed. Nothing is stored for it: what it is owed is retained anyway.

As long as a line has room, frames go out as they come. When it is full, only the place is noted from which on each
author is owed, and when there is room again the frames are taken from the retained ones: by priority, and among equals
author by author in turn, so that a loud one does not keep the others waiting. Who falls far behind is spared what has
expired and what has low priority; who falls further behind still gets only names, as over a lazy link of the tree, and
pulls what it wants from whom it likes.
"""

from typing import TYPE_CHECKING

from weft.wire.broadcast import Priority
from weft.wire.links import Gone, Lack

if TYPE_CHECKING:
    from weft.fabric.authors import AuthorWindow
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.retention import Kept
    from weft.wire import PeerId

NEWEST = (1 << 64) - 1


class _Owed:
    __slots__ = ("first", "last", "urgency")

    def __init__(self, first: int, last: int, urgency: int) -> None:
        self.first = first
        self.last = last
        """`NEWEST`: all that follow, also those that come meanwhile."""
        self.urgency = urgency
        """The highest priority among them: what comes before it must go before it."""


class Arrears:
    """Of one link."""

    __slots__ = ("_is_behind", "_link", "_owed", "_peer", "_since", "_turns", "bytes")

    def __init__(self, peer: "Peer", link: "Link") -> None:
        self._peer = peer
        self._link = link
        self._owed: dict[PeerId, _Owed] = {}
        self._turns: dict[int, dict[PeerId, None]] = {}
        """Urgency -> the authors, who has waited longest first."""
        self.bytes = 0
        """About so much is owed."""
        self._is_behind = False
        self._since = 0.0
        """When it fell behind."""

    def __bool__(self) -> bool:
        return bool(self._owed)

    def add(self, kept: "Kept") -> None:
        """There is no room for this one now."""
        if not self._owed:
            self._since = self._peer.world.now()
        self.owe(kept.author, kept.first, urgency=kept.priority)
        self.bytes += len(kept.frame)
        settings = self._peer.settings
        if self.bytes > settings.behind_bytes:
            self._is_behind = True
            if self.bytes > settings.behind_bytes_max and self._peer.world.now() - self._since > settings.straggler_s:
                self._names_only()

    def owe(self, author: "PeerId", first: int, last: int = NEWEST, *, urgency: int = Priority.NORMAL) -> None:
        """This neighbour shall have this range of the author's messages."""
        owed = self._owed.get(author)
        if owed is None:
            self._owed[author] = _Owed(first, last, urgency)
            self._turns.setdefault(urgency, {})[author] = None
            return
        owed.first, owed.last = min(owed.first, first), max(owed.last, last)
        if urgency > owed.urgency:
            self._take_turn(author, owed.urgency)
            owed.urgency = urgency
            self._turns.setdefault(urgency, {})[author] = None

    def forget(self, author: "PeerId") -> None:
        """It gets this author's messages another way."""
        owed = self._owed.pop(author, None)
        if owed is not None:
            self._take_turn(author, owed.urgency)

    def pay(self) -> None:
        """There is room: send as much as there is room for."""
        now = self._peer.world.now()
        while self._owed and not self._link.is_full:
            urgency = max(self._turns)
            author = next(iter(self._turns[urgency]))
            self._take_turn(author, urgency)
            if self._pay_one(author, self._owed[author], now):
                self._turns.setdefault(urgency, {})[author] = None  # behind the others
            else:
                del self._owed[author]
        if not self._owed:
            self.bytes = 0
            self._is_behind = False

    def _take_turn(self, author: "PeerId", urgency: int) -> None:
        turns = self._turns[urgency]
        del turns[author]
        if not turns:
            del self._turns[urgency]

    def _pay_one(self, author: "PeerId", owed: _Owed, now: float) -> bool:
        """One frame; False if there is none left."""
        stream, link = self._peer.stream, self._link
        window = stream.authors.get(author)
        if window is None:
            return False
        kept = next(stream.retention.of(author, owed.first, owed.last), None)
        if kept is None:
            self._pay_with_regret(author, window, owed)
            return False
        link.looked_up += 1
        if kept.first > owed.first:
            stream.gaps.say_gone(link, window, author, owed.first, kept.first - 1)
        owed.first = kept.last + 1
        self.bytes -= len(kept.frame)
        if kept.neighbour == link.neighbour:
            return True  # it brought it to us
        if kept.has_expired(now) or (self._is_behind and kept.priority < Priority.NORMAL):
            self._peer.counters.culled += kept.last - kept.first + 1
            link.send(Gone(author, kept.first, kept.last, Lack.NO_MORE))
        else:
            stream.send(link, author, kept.copy(now))
        return True

    def _pay_with_regret(self, author: "PeerId", window: "AuthorWindow", owed: _Owed) -> None:
        """What is left of it is not here (any more); and so are those up to the next that is, so that nobody has to ask
        for them bit by bit."""
        stream = self._peer.stream
        last = min(owed.last, window.known)
        if last < owed.first:
            return
        following = next(stream.retention.of(author, last + 1, NEWEST), None)
        up_to = window.reached if following is None else following.first - 1
        last = max(last, min(up_to, window.reached))
        stream.gaps.say_gone(self._link, window, author, owed.first, last)

    def _names_only(self) -> None:
        """Too much: it shall ask for what it wants, when it reads again."""
        stream = self._peer.stream
        for author in self._owed:
            window = stream.authors.get(author)
            if window is not None:
                window.lazy[self._link] = None
                stream.tree.announce(self._link, author)
        self._peer.counters.fell_behind += 1
        self._owed.clear()
        self._turns.clear()
        self.bytes = 0
