"""`AuthorMeter`: how far one author is ahead of its quota, as one receiver sees it.

It counts messages by the advance of the sequence number, whatever way they come, and time by the author's own clock:
on a signed channel, frames carry the time of sending. So an author that keeps to its quota is never ahead, however its
messages were delayed, held back by a partition, or sent again after it. A clock that runs fast gains little: it is
credited with no more time than has passed here.
"""

from broadloom.protocol.owner.card import Quota

TOLERANCE = 1.25
"""An author may be this much faster than its quota: clocks differ a little."""
SLACK_S = 2.0
"""Added to the burst of the quota: frames arrive out of order."""
UNSIGNED_SLACK_S = 10.0
"""The same on a channel without signatures: frames that were held back arrive at once, and carry no time."""
GRACE_S = 10.0
"""An author is counted only after it was heard for this long under a card: it may not have got the card yet, and what
it sent before is still on the way."""
CLOCK_AHEAD_S = 5.0
"""How far the author's clock may get ahead of ours."""
CLOCK_STEP_S = 0.5
"""A clock that goes back by more than this was set."""
MEASURED_S = 5.0
"""The measured rate is about the last few seconds."""


def capacity_s(quota: Quota, per_s: float | None) -> float:
    """The burst of the quota, in seconds. A single message or request is always possible."""
    return max(quota.burst_s, 1 / per_s) if per_s is not None else quota.burst_s


class AuthorMeter:
    __slots__ = (
        "_ahead_s",
        "_bytes_s",
        "_capacity_s",
        "_counting_from",
        "_credit_from",
        "_credited_s",
        "_heard_at",
        "_highest",
        "_messages_capacity_s",
        "_messages_s",
        "_quota",
        "_rates",
        "_sent_s",
        "_spare_s",
    )

    def __init__(self, quota: Quota, last: int, sent_s: float, now: float, slack_s: float) -> None:
        self._quota = quota
        self._capacity_s = quota.burst_s + slack_s
        self._messages_capacity_s = capacity_s(quota, quota.messages_per_s) + slack_s
        self._counting_from = now + GRACE_S
        self._highest = last
        self._sent_s = sent_s
        self._heard_at = now
        self._ahead_s = CLOCK_AHEAD_S
        self._credit_from = now
        """When it was last heard without being counted: the next frame is credited with the time since then."""
        self._credited_s = 0.0
        self._messages_s, self._bytes_s = self._messages_capacity_s, self._capacity_s
        """How much more it may send, in seconds of its quota."""
        self._spare_s = 0.0
        """Time that frames may still use which were overtaken by others."""
        self._rates = [now, 0.0, 0.0]
        """Messages and bytes since a moment."""

    def is_counting(self, now: float) -> bool:
        """Whether the grace period is over."""
        return now >= self._counting_from

    def charge(self, first: int, last: int, size: int, sent_s: float, age_s: float, now: float) -> float:
        """Count one frame. Returns how far the author is ahead, in seconds of its quota; not more than 0 if it keeps to
        it."""
        count, advance_s = max(0, last - self._highest), 0.0
        if not self.is_counting(now):
            self._ahead_s = CLOCK_AHEAD_S + age_s  # what is old now catches up
            self._credit_from = now
            self._heard(count, last, sent_s, now)
            return 0.0
        self._measure(count, size, now)
        has_gap = first > self._highest + 1
        if count:
            step_s = sent_s - self._sent_s
            if step_s < -CLOCK_STEP_S:
                step_s = now - self._heard_at
            limit_s = now - self._credit_from + self._ahead_s - self._credited_s
            advance_s = max(0.0, min(step_s, limit_s))
            self._credited_s += advance_s
            self._heard(count, last, sent_s, now)
        ahead_s = 0.0
        if self._quota.messages_per_s is not None:
            level_s = self._messages_s + TOLERANCE * advance_s - count / self._quota.messages_per_s
            self._messages_s = min(self._messages_capacity_s, level_s)
            ahead_s = max(ahead_s, -self._messages_s)
        if self._quota.bytes_per_s is not None:
            self._charge_bytes(size / self._quota.bytes_per_s, advance_s, has_gap=has_gap, is_late=not count)
            ahead_s = max(ahead_s, -self._bytes_s)
        return ahead_s

    def _charge_bytes(self, cost_s: float, advance_s: float, *, has_gap: bool, is_late: bool) -> None:
        if is_late:
            used_s = min(self._spare_s, cost_s)
            self._spare_s -= used_s
            cost_s -= used_s
        level_s = self._bytes_s + TOLERANCE * advance_s - cost_s
        self._bytes_s = min(self._capacity_s, level_s)
        if has_gap:
            self._spare_s += level_s - self._bytes_s

    def _heard(self, count: int, last: int, sent_s: float, now: float) -> None:
        if count:
            self._highest, self._sent_s = last, sent_s
        self._heard_at = now

    def _measure(self, count: int, size: int, now: float) -> None:
        rates = self._rates
        if now - rates[0] > 2 * MEASURED_S:
            rates[:] = now - MEASURED_S, rates[1] / 2, rates[2] / 2
        rates[1] += count
        rates[2] += size

    def measured(self, now: float) -> tuple[float, float]:
        """Messages and bytes per second, lately."""
        elapsed_s = max(1.0, now - self._rates[0])
        return self._rates[1] / elapsed_s, self._rates[2] / elapsed_s

    @property
    def exceeds_bytes(self) -> bool:
        """Whether it is rather the bytes than the messages that are too many."""
        return self._bytes_s < self._messages_s
