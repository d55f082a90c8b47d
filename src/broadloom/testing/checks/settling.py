"""When a missing delivery is lost, and when it is still on its way: one rule for live checks, pages, demo and tapes.

A fabric is settled while it is one regular graph, no peer is paused, and `settle_s` have passed since the last repair.
A crash, a partition or a pause disturbs it, until it is repaired. Meanwhile messages may be delayed, and for a while
afterwards. So a delivery is lost only if it is missing `SETTLE_S` after the message was sent and after the fabric was
repaired. Until then it is undecided whether the guarantee holds. A repair that is slow breaks no guarantee.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SETTLE_S = 60.0
"""Messages that are missing this long after they were sent, in a settled fabric, are lost."""


class Verdict(StrEnum):
    HELD = "held"
    BROKEN = "broken"
    UNSETTLED = "unsettled"
    """Nothing is broken so far, and deliveries are waiting for a repair."""
    UNJUDGED = "unjudged"
    """Nothing was due, or part of it could not be judged."""


def verdict(violation_count: int, waiting_count: int, *, is_judged: bool = True) -> Verdict:
    """`waiting_count`: deliveries that are missing, and would be lost if the fabric were settled. `is_judged`: whether
    any delivery was due, and all that matters could be judged."""
    if violation_count:
        return Verdict.BROKEN
    if waiting_count:
        return Verdict.UNSETTLED
    return Verdict.HELD if is_judged else Verdict.UNJUDGED


def combined_verdict(verdicts: Iterable[str]) -> Verdict:
    """The verdict over several channels, without those where nothing was due."""
    found = set(verdicts)
    by_weight = (Verdict.BROKEN, Verdict.UNSETTLED, Verdict.UNJUDGED, Verdict.HELD)
    return next((each for each in by_weight if each in found), Verdict.UNJUDGED)


@dataclass(frozen=True, slots=True)
class FabricState:
    """How far the repair of a fabric is, at one moment."""

    component_count: int = 1
    free_slots: int = 0
    paused_count: int = 0
    repairing_s: float | None = None
    """Since the first disturbance that is not repaired; None if the fabric is one regular graph."""
    repaired_s: float | None = None
    """Since the last repair; None if there was no disturbance."""
    settle_s: float = SETTLE_S

    @property
    def is_settled(self) -> bool:
        is_recent = self.repaired_s is not None and self.repaired_s < self.settle_s
        return self.repairing_s is None and not self.paused_count and not is_recent

    @property
    def waits_for(self) -> str:
        """What deliveries are waiting for, as a part of a sentence; empty if the fabric is settled."""
        if self.is_settled:
            return ""
        if self.component_count > 1:
            return f"the merge of {self.component_count} components{self._duration()}"
        if self.repairing_s is not None:
            repair = f"the repair of {self.free_slots} free slots" if self.free_slots else "a regular fabric"
            return f"{repair}{self._duration()}"
        if self.paused_count:
            return f"{self.paused_count} paused peers"
        assert self.repaired_s is not None
        return f"messages delayed by a repair, which was done {format_seconds(self.repaired_s)} ago"

    def _duration(self) -> str:
        return "" if self.repairing_s is None else f", repairing for {format_seconds(self.repairing_s)}"


def format_seconds(duration_s: float) -> str:
    """ "0.25 s", "4.5 s", "4 min 29 s", "2 h 5 min"."""
    if duration_s < 60:
        return f"{duration_s:.2f} s" if duration_s < 1 else f"{duration_s:.1f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
