"""What is asked of a measurement: which ones, how many receive, and how the channel is set."""

import math
from dataclasses import dataclass
from enum import Enum

from broadloom.testing.bench.measured_peer import SIZE_MIN_BYTES
from broadloom.testing.chaos.config import ChaosConfig, ConfigError
from broadloom.testing.processes.control_protocol import WorkerConfig

RECEIVERS_MAX = 500
SIZE_MAX_BYTES = 4 << 20
JOINERS = 5
CONVERGENCE_TIMEOUT_S = 60.0
"""For everybody to connect, and to become one regular fabric."""


class SecurityMode(Enum):
    """As the arguments of `broadloom.connect` have it."""

    NAME_DERIVED_KEY = "TLS"
    SHARED_KEY = "TLS, a shared key"
    SIGNED = "TLS, signed"
    PLAIN = "plain TCP"


@dataclass(frozen=True, slots=True)
class BenchWorkerConfig(WorkerConfig):
    """What all peers have in common; they are one to a process."""

    security: SecurityMode = SecurityMode.NAME_DERIVED_KEY


@dataclass(frozen=True, slots=True)
class BenchConfig:
    receivers: int = 8
    size_bytes: int = 100
    messages: int = 50_000
    """At full speed at most so many, of all who speak together."""
    rate_per_s: float = 200.0
    """Where it is not full speed."""
    duration_s: float = 3.0
    """Nobody speaks for longer than this in one measurement."""
    security: SecurityMode = SecurityMode.NAME_DERIVED_KEY

    @property
    def peers(self) -> int:
        """One speaks; in all-to-all everybody."""
        return self.receivers + 1

    def validated(self) -> "BenchConfig":
        """WrongUse says what does not fit."""
        if not 1 <= self.receivers <= RECEIVERS_MAX:
            raise ConfigError(f"--receivers: from 1 to {RECEIVERS_MAX}, each is a process of its own")
        if not SIZE_MIN_BYTES <= self.size_bytes <= SIZE_MAX_BYTES:
            raise ConfigError(
                f"--size: from {SIZE_MIN_BYTES} bytes, for the number and time of a message, to {SIZE_MAX_BYTES:,}"
            )
        if self.messages < 1:
            raise ConfigError("--messages: at least one")
        if not (math.isfinite(self.rate_per_s) and self.rate_per_s >= 1):
            raise ConfigError("--rate: at least one message a second")
        if not (math.isfinite(self.duration_s) and self.duration_s > 0):
            raise ConfigError("--duration: must be more than 0")
        return self

    def chaos_config(self) -> ChaosConfig:
        """For the part of it that is like any trial: processes that find each other."""
        config = ChaosConfig(
            self.peers,
            joiners=JOINERS,
            rate_per_s=self.rate_per_s,
            repair_timeout_s=CONVERGENCE_TIMEOUT_S,
            no_tls=self.security is SecurityMode.PLAIN,
        )
        return config.validated()
