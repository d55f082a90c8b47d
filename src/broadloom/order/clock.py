"""`PausableClock`: the clock of the deadlines of a replica. It stops while the program is paused.

After a pause, what the others sent meanwhile is still unread, and timers run first. A program that took its own pause
for silence of the others would fork the log. So a pause does not count, and no deadline takes effect until there was
time to read.
"""

from typing import TYPE_CHECKING

from broadloom.order.settings import TICK_S

if TYPE_CHECKING:
    from broadloom.order.runtime import OrderRuntime


class PausableClock:
    def __init__(self, runtime: "OrderRuntime") -> None:
        self._runtime = runtime
        self._paused_s = 0.0
        self._reads_until = 0.0
        self.on_tick()

    def on_tick(self) -> None:
        """Called every `TICK_S`: later than that is a pause."""
        self._tick_at = self._runtime.now() + TICK_S

    def now(self) -> float:
        now = self._runtime.now()
        late_s = now - self._tick_at - TICK_S
        if late_s > 0:
            self._paused_s += late_s
            self._tick_at += late_s
            self._reads_until = now + TICK_S
        return now - self._paused_s

    @property
    def was_paused(self) -> bool:
        """Whether the program was paused a moment ago, and has not had time to read."""
        self.now()
        return self._runtime.now() < self._reads_until
