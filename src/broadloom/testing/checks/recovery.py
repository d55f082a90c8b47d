"""Time from a disturbance of the fabric until it is one regular graph again."""

import time
from collections import deque
from dataclasses import dataclass

RECOVERIES_MAX = 1000
CAUSES_SHOWN_MAX = 4


@dataclass(frozen=True, slots=True)
class Recovery:
    """One disturbance and its repair. Disturbances during a repair belong to it."""

    cause: str
    """For display: "8 peers were killed"."""
    at_s: float
    """Unix time of the first disturbance."""
    duration_s: float
    """From the first disturbance to the last change that made the fabric regular."""


class RecoveryTracker:
    def __init__(self) -> None:
        self.completed: deque[Recovery] = deque(maxlen=RECOVERIES_MAX)
        self.completed_count = 0
        self._causes: list[str] = []
        self._at_s = 0.0
        self._since_ns = 0
        self._unconverged_since_ns: int | None = None
        self._repaired_ns: int | None = None

    @property
    def is_disturbed(self) -> bool:
        return bool(self._causes)

    @property
    def repairing_s(self) -> float | None:
        """Seconds since the first disturbance that is not repaired, or since the fabric is not regular."""
        since_ns = self._since_ns if self._causes else self._unconverged_since_ns
        return (time.monotonic_ns() - since_ns) / 1e9 if since_ns is not None else None

    @property
    def repaired_s(self) -> float | None:
        """Seconds since the last disturbance was repaired."""
        return (time.monotonic_ns() - self._repaired_ns) / 1e9 if self._repaired_ns is not None else None

    def disturb(self, cause: str) -> None:
        self._unconverged_since_ns = time.monotonic_ns()
        if not self._causes:
            self._at_s, self._since_ns = time.time(), self._unconverged_since_ns
        self._causes.append(cause)

    def clear(self) -> None:
        """Forget earlier disturbances: they were undone and need no repair."""
        self._causes.clear()

    def on_unconverged(self) -> None:
        """Without a disturbance this is normal: peers exchange edges now and then."""
        if self._unconverged_since_ns is None:
            self._unconverged_since_ns = time.monotonic_ns()

    def on_converged(self, changed_ns: int) -> Recovery | None:
        """Record that the fabric is regular since `changed_ns`; returns the recovery if there was a disturbance."""
        self._unconverged_since_ns = None
        if not self._causes:
            return None
        duration_s = max(0.0, (changed_ns - self._since_ns) / 1e9)
        more = ", …" if len(self._causes) > CAUSES_SHOWN_MAX else ""
        recovery = Recovery(", ".join(self._causes[:CAUSES_SHOWN_MAX]) + more, self._at_s, duration_s)
        self._causes.clear()
        self._repaired_ns = changed_ns
        self.completed.append(recovery)
        self.completed_count += 1
        return recovery
