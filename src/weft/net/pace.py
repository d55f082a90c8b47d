"""How fast we may speak: as fast as we like, until we do not keep up with what the others say.

When more waits to be read than we can read, everyone speaks too much, and we are one of them: we halve our pace, and
quicken it again as long as all is well. So the peers of an overloaded channel find a common pace by themselves, and
messages do not pile up in their queues.
"""

from collections.abc import Callable

FREE = 1e9
"""Bytes a second: no limit at all."""
SLOWEST = 256 << 10
"""Bytes a second that everyone may say, however loud the others are."""
BEHIND_S = 0.12
"""A burst is soon read; only one who has been behind for so long slows down."""
CAUGHT_UP_S = 0.1
"""One who has not been behind for so long is not behind any more."""
CUT_PAUSE_S = 0.1
"""So often the pace is halved at most: a cut takes a moment to be felt."""
DOUBLED_IN_S = 0.5
BURST_S = 0.02
"""What was not said within this time is not saved for later."""
PAUSE_S_MAX = 0.05
MEASURED_S = 0.05
"""How fast we speak is measured over this time."""


class Pace:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._bytes_per_s = FREE
        self._credit = 0.0
        self._at = 0.0
        self._cut_at = 0.0
        self._behind_at = self._behind_since = 0.0
        self._said = 0
        """Bytes since `_said_since`."""
        self._said_since = now()
        self._said_per_s = 0.0
        """In the time before that."""

    def behind(self) -> None:
        """We do not keep up with reading."""
        now = self._now()
        if now - self._behind_at > CAUGHT_UP_S:
            self._behind_since = now
        self._behind_at = now
        if now - self._behind_since < BEHIND_S or now - self._cut_at < CUT_PAUSE_S:
            return
        self._cut_at = now
        self._refill(now)
        lately = self._said / max(now - self._said_since, MEASURED_S)
        said_per_s = max(lately, self._said_per_s if now - self._said_since < CUT_PAUSE_S else 0.0)
        self._bytes_per_s = max(SLOWEST, min(self._bytes_per_s, said_per_s) / 2)
        self._credit = min(self._credit, self._bytes_per_s * BURST_S)

    def spend(self, size: int) -> None:
        """So much was said."""
        self._said += size
        now = self._now()
        if self._bytes_per_s < FREE:
            self._refill(now)
            self._credit -= size
        passed_s = now - self._said_since
        if passed_s >= MEASURED_S:
            self._said_per_s, self._said, self._said_since = self._said / passed_s, 0, now

    @property
    def is_spent(self) -> bool:
        """Whether we have to wait."""
        if self._bytes_per_s >= FREE:
            return False
        self._refill(self._now())
        return self._credit <= 0

    @property
    def pause_s(self) -> float:
        """After so long there may be room again."""
        wanted = self._bytes_per_s * BURST_S / 2
        return min(PAUSE_S_MAX, max(0.001, (wanted - self._credit) / self._bytes_per_s))

    def _refill(self, now: float) -> None:
        passed_s, self._at = now - self._at, now
        self._bytes_per_s = min(FREE, self._bytes_per_s * 2 ** min(passed_s / DOUBLED_IN_S, 30))
        self._credit = min(self._credit + passed_s * self._bytes_per_s, self._bytes_per_s * BURST_S)
