"""How far the others are: what an author goes by so that it does not outrun the fabric.

Whoever is fed with an author's messages tells the one that feeds it, after every so many bytes, up to where it and all
that it feeds have them. So the author learns how far the last of them is, and waits when too much is under way.

One that falls behind those around it is left out of the count: it must not slow the others down. It gets what it can
(`arrears.py`) and is told what it missed.
"""

from typing import TYPE_CHECKING

from weft.fabric.authors import AuthorWindow
from weft.wire import PeerId
from weft.wire.links import Progress as Report

if TYPE_CHECKING:
    from weft.fabric.link import Link
    from weft.fabric.peer import Peer
    from weft.fabric.stream import Stream

REPORT_BYTES = 256 << 10
"""Told after so much has come; in quiet times nothing is told at all."""
STALE_S = 2.0
"""Who has told nothing for so long is not counted."""
SIZE_SHARE = 16
"""The mean size of a message is taken over about so many frames."""


class _Fed:
    """A neighbour that we feed with an author's messages."""

    __slots__ = ("behind_since", "mark", "told_at")

    def __init__(self) -> None:
        self.mark = 0
        self.told_at = 0.0
        self.behind_since: float | None = None
        """Since when it has been further behind us than is good for the others."""


class Standings:
    """Of one author: how far those are that we feed, and what we told last."""

    __slots__ = ("fed", "message_bytes", "told")

    def __init__(self) -> None:
        self.fed: dict[Link, _Fed] = {}
        self.told = 0
        self.message_bytes = 0.0
        """Mean size, as it was lately."""


class Progress:
    def __init__(self, peer: "Peer", stream: "Stream") -> None:
        self._peer = peer
        self._stream = stream
        self._of: dict[PeerId, Standings] = {}
        self.is_ahead = False
        """Whether so much of what we said is under way that we should wait."""

    def came(self, author: PeerId, window: AuthorWindow, size: int, count: int) -> None:
        """A frame of an author went by, along its tree."""
        standings = self._of.get(author)
        if standings is None:
            standings = self._of[author] = Standings()
            standings.told = window.mark
            standings.message_bytes = size / count
        standings.message_bytes += (size / count - standings.message_bytes) / SIZE_SHARE
        self._look(author, window, standings)

    def on_report(self, link: "Link", report: Report) -> None:
        standings = self._of.get(report.author)
        window = self._stream.authors.get(report.author)
        if standings is None or window is None or link in window.lazy or link.draining:
            return
        fed = standings.fed.get(link)
        if fed is None:
            fed = standings.fed[link] = _Fed()
        fed.mark = max(fed.mark, min(report.mark, window.mark))
        fed.told_at = self._peer.world.now()
        self._look(report.author, window, standings)

    def _look(self, author: PeerId, window: AuthorWindow, standings: Standings) -> None:
        """Tell the one that feeds us, if there is enough to tell; or, if we are the author, see whether to wait."""
        mark = self._slowest(window, standings) if standings.fed else window.mark
        if author == self._peer.me.peer:
            under_way = (window.mark - mark) * standings.message_bytes
            self.is_ahead = under_way > self._peer.settings.under_way_bytes
        elif (mark - standings.told) * standings.message_bytes >= REPORT_BYTES and window.parent is not None:
            standings.told = mark
            window.parent.send(Report(author, mark))

    def _slowest(self, window: AuthorWindow, standings: Standings) -> int:
        """Up to where all have it that count."""
        settings, now, slowest = self._peer.settings, self._peer.world.now(), window.mark
        for link, fed in list(standings.fed.items()):
            if now - fed.told_at > STALE_S and fed.mark < window.mark:
                # It has not told anything, though there was something to tell: it is fed by another, or stands still.
                if (window.mark - fed.mark) * standings.message_bytes > REPORT_BYTES:
                    del standings.fed[link]
                    continue
            if (window.mark - fed.mark) * standings.message_bytes <= settings.under_way_bytes / 2:
                fed.behind_since = None
            elif fed.behind_since is None:
                fed.behind_since = now
            if fed.behind_since is not None and (
                now - fed.behind_since >= settings.straggler_s or now - fed.told_at >= settings.standstill_s
            ):
                continue
            slowest = min(slowest, fed.mark)
        return slowest

    def look_again(self) -> None:
        """While we wait: somebody may have fallen out of the count."""
        own = self._stream.authors.get(self._peer.me.peer)
        standings = self._of.get(self._peer.me.peer)
        if own is not None and standings is not None:
            self._look(self._peer.me.peer, own, standings)

    def not_fed(self, author: PeerId, link: "Link") -> None:
        """This neighbour gets the author's messages another way."""
        standings = self._of.get(author)
        if standings is not None:
            standings.fed.pop(link, None)

    def link_lost(self, link: "Link") -> None:
        for standings in self._of.values():
            standings.fed.pop(link, None)
        self.look_again()

    def forget(self, author: PeerId) -> None:
        self._of.pop(author, None)
