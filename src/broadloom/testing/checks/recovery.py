"""What was done to the fabric, and how long it took until it was whole again."""

import time
from collections import deque
from dataclasses import dataclass

RECOVERIES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Recovery:
    """One disturbance that is over. Those that came while the fabric was not whole are one."""

    cause: str
    """For people: "8 peers were killed"."""
    at_s: float
    """When, in Unix seconds."""
    duration_s: float
    """From the first thing that was done to the last change that made the fabric whole."""


class RecoveryTracker:
    def __init__(self) -> None:
        self.completed: deque[Recovery] = deque(maxlen=RECOVERIES_MAX)
        self.completed_count = 0
        """Of all that were ever done."""
        self._causes: list[str] = []
        self._at_s = 0.0
        self._since_ns = 0
        self._unconverged_since_ns: int | None = None
        """Since when it is not whole, or not yet again after the last thing that was done to it."""

    @property
    def is_disturbed(self) -> bool:
        return bool(self._causes)

    @property
    def unconverged_s(self) -> float:
        """How long the fabric has not been whole since something was done to it last; 0 if it is."""
        return (
            (time.monotonic_ns() - self._unconverged_since_ns) / 1e9 if self._unconverged_since_ns is not None else 0.0
        )

    def disturb(self, cause: str) -> None:
        self._unconverged_since_ns = time.monotonic_ns()
        if not self._causes:
            self._at_s, self._since_ns = time.time(), self._unconverged_since_ns
        self._causes.append(cause)

    def clear(self) -> None:
        """What was done before is undone, and needs no repair any more."""
        self._causes.clear()

    def on_unconverged(self) -> None:
        """Nobody has done anything: peers exchange an edge now and then, and for a moment lack one."""
        if self._unconverged_since_ns is None:
            self._unconverged_since_ns = time.monotonic_ns()

    def on_converged(self, changed_ns: int) -> Recovery | None:
        """The fabric is seen to be whole, its last change was then; a repair if something had been done to it."""
        self._unconverged_since_ns = None
        if not self._causes:
            return None
        duration_s = max(0.0, (changed_ns - self._since_ns) / 1e9)
        recovery = Recovery(
            ", ".join(self._causes[:4]) + (", …" if len(self._causes) > 4 else ""), self._at_s, duration_s
        )
        self._causes.clear()
        self.completed.append(recovery)
        self.completed_count += 1
        return recovery
