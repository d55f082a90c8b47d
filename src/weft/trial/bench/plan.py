"""What is asked of a measurement: which ones, how many receive, and how the channel is set."""

import math
from dataclasses import dataclass
from enum import Enum

from weft.trial.bench.reader import SIZE_MIN_BYTES
from weft.trial.orders import Terms
from weft.trial.plan import Plan, WrongUse

RECEIVERS_MAX = 500
SIZE_MAX_BYTES = 4 << 20
NEWCOMERS = 5
WITHIN_S = 60.0
"""For everybody to connect, and to become one regular fabric."""


class Security(Enum):
    """As the arguments of `weft.connect` have it."""

    NAME = "TLS"
    KEY = "TLS, a shared key"
    SIGNED = "TLS, signed"
    PLAIN = "plain TCP"


@dataclass(frozen=True, slots=True)
class BenchTerms(Terms):
    """What all peers have in common; they are one to a process."""

    security: Security = Security.NAME


@dataclass(frozen=True, slots=True)
class Setting:
    receivers: int = 8
    size_bytes: int = 100
    messages: int = 50_000
    """At full speed at most so many, of all who speak together."""
    rate_per_s: float = 200.0
    """Where it is not full speed."""
    seconds: float = 3.0
    """Nobody speaks for longer than this in one measurement."""
    security: Security = Security.NAME

    @property
    def peers(self) -> int:
        """One speaks; in all-to-all everybody."""
        return self.receivers + 1

    def checked(self) -> "Setting":
        """WrongUse says what does not fit."""
        if not 1 <= self.receivers <= RECEIVERS_MAX:
            raise WrongUse(f"--receivers: from 1 to {RECEIVERS_MAX}, each is a process of its own")
        if not SIZE_MIN_BYTES <= self.size_bytes <= SIZE_MAX_BYTES:
            raise WrongUse(
                f"--size: from {SIZE_MIN_BYTES} bytes, for the number and time of a message, to {SIZE_MAX_BYTES:,}"
            )
        if self.messages < 1:
            raise WrongUse("--messages: at least one")
        if not (math.isfinite(self.rate_per_s) and self.rate_per_s >= 1):
            raise WrongUse("--rate: at least one message a second")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise WrongUse("--seconds: more than none")
        return self

    def as_trial(self) -> Plan:
        """For the part of it that is like any trial: processes that find each other."""
        plan = Plan(
            self.peers,
            newcomers=NEWCOMERS,
            rate_per_s=self.rate_per_s,
            within_s=WITHIN_S,
            plain=self.security is Security.PLAIN,
        )
        return plan.checked()
