"""The coordinator's side: peers that speak when told to, and waiting until everybody has everything."""

import time
from dataclasses import dataclass
from typing import Any, Protocol

from broadloom.testing.chaos.chaos_run import ChaosRun, PhaseListener
from broadloom.testing.chaos.config import ChaosConfig
from broadloom.testing.chaos.processes import ForkedProcess

START_DELAY_NS = 50_000_000
"""Those who speak together begin at the same moment, so long after they were told."""
STALL_S = 20.0
"""If nothing more is delivered for so long, nothing will be."""
DRAIN_TIMEOUT_S = 180.0
"""And if it goes on for longer than this, it is not worth waiting for."""
POLL_S = 0.1


class ProgressBar(PhaseListener, Protocol):
    def next_benchmark(self, name: str) -> None:
        """The next measurement begins."""

    def set_fraction(self, done: float) -> None:
        """How much of the present measurement is done."""


@dataclass(frozen=True, slots=True)
class SendPhase:
    """What one peer has said, by its own account."""

    count: int
    """In this measurement."""
    total: int
    first_ns: int


class BenchRun(ChaosRun):
    """`spoken` has those who have finished, by their ids."""

    def __init__(self, config: ChaosConfig, progress: ProgressBar) -> None:
        super().__init__(config, progress)
        self.progress = progress
        self.send_phases: dict[int, SendPhase] = {}
        self._sending: dict[int, int] = {}
        """Number of a peer that speaks -> how many messages, so far."""
        self._messages_max, self._duration_s, self._ends_at_s = 1, 1.0, 0.0

    # -- speaking

    def start_sending(self, numbers: list[int], messages_max: int, duration_s: float, per_s: float = 0.0) -> None:
        """So many messages of each at most, and not for longer; at full speed if no rate is said."""
        self.send_phases.clear()
        self._sending = dict.fromkeys(numbers, 0)
        self._messages_max, self._duration_s, self._ends_at_s = (
            messages_max * len(numbers),
            duration_s,
            time.monotonic() + duration_s,
        )
        at_ns = time.monotonic_ns() + START_DELAY_NS
        for number in numbers:
            process = self.process_of(number)
            self.pool.send(process, do="speak", most=messages_max, seconds=duration_s, per_s=per_s, at_ns=at_ns)

    def wait_until_sent(self, timeout_s: float) -> None:
        self.wait_until(self._find_sending, timeout_s)

    def _find_sending(self) -> str | None:
        if not self._sending:
            return None
        number = min(self._sending)
        return f"peer {number} still waits to broadcast, {self._sending[number]:,} messages or more after its first"

    def _on_report(self, process: ForkedProcess, report: dict[str, Any]) -> None:
        match report["tell"]:
            case "speaking" if report["number"] in self._sending:
                self._sending[report["number"]] = report["count"]
                by_count = sum(self._sending.values()) / self._messages_max
                by_time = 1 - (self._ends_at_s - time.monotonic()) / self._duration_s
                self.progress.set_fraction(min(1.0, max(by_count, by_time)))
            case "spoken":
                self._sending.pop(report["number"], None)
                self.send_phases[report["peer"]] = SendPhase(report["count"], report["total"], report["first_ns"])
            case _:
                super()._on_report(process, report)

    # -- hearing

    def drain(self) -> None:
        """Wait until everybody has everything that was said; what is lacking for too long is a problem."""
        began = progressed_at = time.monotonic()
        deliveries_max = -1
        while True:
            replies = self.pool.request(self.pool.responsive, do="heads")
            heads = [head for answer in replies for head in answer["peers"]]
            missing = self._missing_deliveries(heads)
            if not missing:
                return
            now, deliveries = time.monotonic(), sum(head["deliveries"] for head in heads)
            if deliveries > deliveries_max:
                deliveries_max, progressed_at = deliveries, now
            if now - progressed_at > STALL_S or now - began > DRAIN_TIMEOUT_S:
                self.problems.append(
                    f"promise 1: {missing:,} deliveries are lacking, {now - began:.0f} s after all was said"
                )
                return
            self.run(POLL_S)

    def _missing_deliveries(self, heads: list[dict[str, Any]]) -> int:
        count = 0
        for head in heads:
            last_numbers = dict(head["heard"])
            count += sum(
                max(0, spoken.total - last_numbers.get(author, 0))
                for author, spoken in self.send_phases.items()
                if author != head["peer"]
            )
        return count
