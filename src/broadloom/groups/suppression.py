"""Feedback suppression: many members could answer a request, and one should.

Each candidate waits for a random time and stays silent if it hears an equivalent reply first. With uniform delays, all
candidates whose time falls within one broadcast latency would reply. So the delays follow a truncated exponential
distribution, as in RFC 5401: early times are rare, the more so the more peers there are, and a handful of replies is
expected from ten peers and from ten thousand alike. A small channel cannot have a large storm, and its users wait for
the reply, so it uses a shorter window.

Members that repeat their requests are served more slowly (`RepeatPenalty`), and all pages on the channel share one rate
(`TokenBucket`).
"""

from collections.abc import Callable
from math import exp, log
from typing import TYPE_CHECKING, TypeVar

from broadloom.groups.settings import PENDING_MAX
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from random import Random

ASSUMED_PEERS = 64
"""Assumed by a new member that does not know the number of peers: too many cost time, too few cause a storm."""
FULL_WINDOW_PEERS = 32
"""From this many peers on, the whole window is used..."""
WINDOW_RATIO_MIN = 1 / 6
"""...and at least this part of it, so that two or three candidates hear each other before they have sent much."""
STRIKES_MAX = 6
"""The penalty doubles with each repetition, up to this power of two in seconds."""

K = TypeVar("K")
V = TypeVar("V")


def window_s(full_s: float, peer_count: int) -> float:
    """The reply window, given the number of peers including us and the requester."""
    if peer_count <= 2:
        return 0.0  # there is no other candidate
    return full_s * min(max(peer_count / FULL_WINDOW_PEERS, WINDOW_RATIO_MIN), 1.0)


def backoff_s(random: "Random", window_s: float, peer_count: int) -> float:
    """A random delay of at most `window_s`."""
    steepness = log(peer_count) + 1
    return window_s * log(1 + random.random() * (exp(steepness) - 1)) / steepness


class RecentDict(dict[K, V]):
    """Keeps the entries that were put most recently."""

    def __init__(self, entries_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max

    def put(self, key: K, value: V) -> None:
        self.pop(key, None)
        self[key] = value
        if len(self) > self._entries_max:
            del self[next(iter(self))]


class RepeatPenalty:
    """Delays replies to peers that repeat a request without having made progress."""

    def __init__(self, window_s: float, is_repeat: Callable[[int, int], bool]) -> None:
        self._window_s = window_s
        self._is_repeat = is_repeat
        """Compares the state in a request with that of the peer's previous one."""
        self._requests: RecentDict[PeerId, tuple[float, int, int]] = RecentDict(PENDING_MAX)
        """Time, state and strikes of each peer's last request."""

    def delay_s(self, peer: PeerId, state: int, now: float) -> float:
        last, strikes = self._requests.get(peer), 0
        if last is not None and self._is_repeat(state, last[1]) and now < last[0] + self._window_s:
            strikes = min(last[2] + 1, STRIKES_MAX)
        self._requests.put(peer, (now, state, strikes))
        return float(2**strikes - 1) if strikes > 1 else 0.0


class TokenBucket:
    """Limits the rate of pages. It may be overdrawn by one page."""

    def __init__(self, bytes_per_s: float, burst_bytes: float, now: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._tokens = burst_bytes
        self._updated_at = now

    def wait_s(self, now: float) -> float:
        """Time until something may be sent; 0 if it may be now."""
        self._tokens = min(self._burst_bytes, self._tokens + (now - self._updated_at) * self._bytes_per_s)
        self._updated_at = now
        return 0.0 if self._tokens > 0 else -self._tokens / self._bytes_per_s + 0.001

    def consume(self, size: int, now: float) -> None:
        self.wait_s(now)
        self._tokens = max(self._tokens - size, -4 * self._burst_bytes)
