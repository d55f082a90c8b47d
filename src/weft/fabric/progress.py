"""How far the others are: what an author goes by so that it does not outrun the fabric.

Whoever is fed with an author's messages tells the one that feeds it, after every so many bytes, up to where it and all
that it feeds have them. So the author learns how far the last of them is, and waits when too much is under way.

How much that is depends on how fast it goes: about as much as all get within `under_way_s`. Where little is read in a
second, a fixed number of bytes would be many seconds of waiting for everyone.

One that falls behind those around it is left out of the count: it must not slow the others down. It gets what it can
(`arrears.py`) and is told what it missed. Where all are slow nobody is behind the others, and the author waits for all.
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
"""Told after so much has come at the latest; in quiet times nothing is told at all."""
REPORT_SHARE = 8
"""Told so often while as much comes as may be under way."""
MEASURED_S = 0.1
"""How fast it goes is measured over times of this length."""
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

    __slots__ = ("_measured_at", "_measured_mark", "bytes_per_s", "fed", "message_bytes", "told")

    def __init__(self, mark: int, message_bytes: float, now: float) -> None:
        self.fed: dict[Link, _Fed] = {}
        self.told = mark
        self.message_bytes = message_bytes
        """Mean size, as it was lately."""
        self.bytes_per_s: float | None = None
        """So much came to the last of those that count; None before it was measured."""
        self._measured_mark = mark
        self._measured_at = now

    def measure(self, mark: int, now: float) -> None:
        """All have it up to here."""
        passed_s = now - self._measured_at
        if passed_s >= MEASURED_S:
            lately = (mark - self._measured_mark) * self.message_bytes / passed_s
            before = self.bytes_per_s
            self.bytes_per_s = lately if before is None or passed_s > STALE_S else (before + lately) / 2
            self._measured_mark, self._measured_at = mark, now


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
            standings = self._of[author] = Standings(window.mark, size / count, self._peer.world.now())
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
        now, allowed = self._peer.world.now(), self._allowed(standings)
        mark = self._slowest(window, standings, allowed, now) if standings.fed else window.mark
        standings.measure(mark, now)
        if author == self._peer.me.peer:
            self.is_ahead = (window.mark - mark) * standings.message_bytes > allowed
        elif window.parent is not None:
            to_tell = (mark - standings.told) * standings.message_bytes
            if to_tell >= REPORT_BYTES or to_tell >= allowed / REPORT_SHARE:
                standings.told = mark
                window.parent.send(Report(author, mark))

    def _allowed(self, standings: Standings) -> float:
        """Bytes that may be under way."""
        settings, bytes_per_s = self._peer.settings, standings.bytes_per_s
        if bytes_per_s is None:
            return settings.under_way_bytes
        return min(settings.under_way_bytes, max(settings.under_way_bytes_min, bytes_per_s * settings.under_way_s))

    def _slowest(self, window: AuthorWindow, standings: Standings, allowed: float, now: float) -> int:
        """Up to where all have it that count."""
        settings, size = self._peer.settings, standings.message_bytes
        best = max(fed.mark for fed in standings.fed.values()) if len(standings.fed) > 1 else window.mark
        slowest = window.mark
        for link, fed in list(standings.fed.items()):
            if now - fed.told_at > STALE_S and (window.mark - fed.mark) * size > REPORT_BYTES:
                # It has not told anything, though there was something to tell: it is fed by another, or stands still.
                del standings.fed[link]
                continue
            if (best - fed.mark) * size <= allowed / 2:
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
