"""The coordinator's side: peers that speak when told to, and waiting until everybody has everything."""

import time
from dataclasses import dataclass
from typing import Any, Protocol

from weft.trial.plan import Plan
from weft.trial.processes import Process
from weft.trial.trial import Teller, Trial

AHEAD_NS = 50_000_000
"""Those who speak together begin at the same moment, so long after they were told."""
STALL_S = 20.0
"""If nothing more is delivered for so long, nothing will be."""
DRAIN_S = 180.0
"""And if it goes on for longer than this, it is not worth waiting for."""
LOOK_S = 0.1


class Bar(Teller, Protocol):
    def next(self, name: str) -> None:
        """The next measurement begins."""

    def share(self, done: float) -> None:
        """How much of the present measurement is done."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What one peer has said, by its own account."""

    count: int
    """In this measurement."""
    total: int
    first_ns: int


class Stage(Trial):
    """`spoken` has those who have finished, by their ids."""

    def __init__(self, plan: Plan, bar: Bar) -> None:
        super().__init__(plan, bar)
        self.bar = bar
        self.spoken: dict[int, Spoken] = {}
        self._speaking: dict[int, int] = {}
        """Number of a peer that speaks -> how many messages, so far."""
        self._most, self._seconds, self._until_s = 1, 1.0, 0.0

    # -- speaking

    def speak(self, numbers: list[int], most: int, seconds: float, per_s: float = 0.0) -> None:
        """So many messages of each at most, and not for longer; at full speed if no rate is said."""
        self.spoken.clear()
        self._speaking = dict.fromkeys(numbers, 0)
        self._most, self._seconds, self._until_s = most * len(numbers), seconds, time.monotonic() + seconds
        at_ns = time.monotonic_ns() + AHEAD_NS
        for number in numbers:
            process = self.process_of(number)
            self.crew.order(process, do="speak", most=most, seconds=seconds, per_s=per_s, at_ns=at_ns)

    def until_spoken(self, within_s: float) -> None:
        self.until(self._speaks, within_s)

    def _speaks(self) -> str | None:
        if not self._speaking:
            return None
        number = min(self._speaking)
        return f"peer {number} still waits to broadcast, {self._speaking[number]:,} messages or more after its first"

    def _told(self, process: Process, told: dict[str, Any]) -> None:
        match told["tell"]:
            case "speaking" if told["number"] in self._speaking:
                self._speaking[told["number"]] = told["count"]
                by_count = sum(self._speaking.values()) / self._most
                by_time = 1 - (self._until_s - time.monotonic()) / self._seconds
                self.bar.share(min(1.0, max(by_count, by_time)))
            case "spoken":
                self._speaking.pop(told["number"], None)
                self.spoken[told["peer"]] = Spoken(told["count"], told["total"], told["first_ns"])
            case _:
                super()._told(process, told)

    # -- hearing

    def drain(self) -> None:
        """Wait until everybody has everything that was said; what is lacking for too long is a problem."""
        began = moved = time.monotonic()
        most = -1
        while True:
            answers = self.crew.ask(self.crew.living, do="heads")
            heads = [head for answer in answers for head in answer["peers"]]
            lacking = self._lacking(heads)
            if not lacking:
                return
            now, deliveries = time.monotonic(), sum(head["deliveries"] for head in heads)
            if deliveries > most:
                most, moved = deliveries, now
            if now - moved > STALL_S or now - began > DRAIN_S:
                self.problems.append(
                    f"promise 1: {lacking:,} deliveries are lacking, {now - began:.0f} s after all was said"
                )
                return
            self.run(LOOK_S)

    def _lacking(self, heads: list[dict[str, Any]]) -> int:
        count = 0
        for head in heads:
            heard = dict(head["heard"])
            count += sum(
                max(0, spoken.total - heard.get(author, 0))
                for author, spoken in self.spoken.items()
                if author != head["peer"]
            )
        return count
