"""What was done to the fabric, and how long it took until it was whole again."""

import time
from collections import deque
from dataclasses import dataclass

REPAIRS_KEPT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Repair:
    """One disturbance that is over. Those that came while the fabric was not whole are one."""

    what: str
    """For people: "8 peers were killed"."""
    at_s: float
    """When, in Unix seconds."""
    took_s: float
    """From the first thing that was done to the last change that made the fabric whole."""


class Repairs:
    def __init__(self) -> None:
        self.done: deque[Repair] = deque(maxlen=REPAIRS_KEPT_MAX)
        self.count = 0
        """Of all that were ever done."""
        self._what: list[str] = []
        self._at_s = 0.0
        self._since_ns = 0
        self._restless_ns: int | None = None
        """Since when it is not whole, or not yet again after the last thing that was done to it."""

    @property
    def is_disturbed(self) -> bool:
        return bool(self._what)

    @property
    def restless_s(self) -> float:
        """How long the fabric has not been whole since something was done to it last; 0 if it is."""
        return (time.monotonic_ns() - self._restless_ns) / 1e9 if self._restless_ns is not None else 0.0

    def disturb(self, what: str) -> None:
        self._restless_ns = time.monotonic_ns()
        if not self._what:
            self._at_s, self._since_ns = time.time(), self._restless_ns
        self._what.append(what)

    def forget(self) -> None:
        """What was done before is undone, and needs no repair any more."""
        self._what.clear()

    def is_not_whole(self) -> None:
        """Nobody has done anything: peers exchange an edge now and then, and for a moment lack one."""
        if self._restless_ns is None:
            self._restless_ns = time.monotonic_ns()

    def is_whole(self, changed_ns: int) -> Repair | None:
        """The fabric is seen to be whole, its last change was then; a repair if something had been done to it."""
        self._restless_ns = None
        if not self._what:
            return None
        took_s = max(0.0, (changed_ns - self._since_ns) / 1e9)
        repair = Repair(", ".join(self._what[:4]) + (", …" if len(self._what) > 4 else ""), self._at_s, took_s)
        self._what.clear()
        self.done.append(repair)
        self.count += 1
        return repair
