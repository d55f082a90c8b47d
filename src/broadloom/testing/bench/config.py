"""The parameters of a benchmark run."""

import math
from dataclasses import dataclass
from enum import Enum

from broadloom.security import generate_key
from broadloom.testing.bench.worker import SIZE_MIN_BYTES
from broadloom.testing.errors import ConfigError
from broadloom.testing.processes.control_protocol import WorkerConfig

RECEIVERS_MAX = 500
SIZE_MAX_BYTES = 4 << 20
JOINERS = 5
CONVERGENCE_TIMEOUT_S = 60.0


class SecurityMode(Enum):
    """The security of the channel, as arguments of `broadloom.connect`."""

    NAME_DERIVED_KEY = "TLS"
    SHARED_KEY = "TLS, a shared key"
    SIGNED = "TLS, signed"
    PLAIN = "plain TCP"


@dataclass(frozen=True, slots=True)
class BenchConfig:
    receivers: int = 8
    size_bytes: int = 100
    messages: int = 50_000
    """Maximum number of messages at full speed, from all senders together."""
    rate_per_s: float = 200.0
    """Messages per second of the benchmarks that do not run at full speed."""
    duration_s: float = 3.0
    """Maximum time for sending in one benchmark."""
    security: SecurityMode = SecurityMode.NAME_DERIVED_KEY

    @property
    def peers(self) -> int:
        return self.receivers + 1

    def validated(self) -> "BenchConfig":
        if not 1 <= self.receivers <= RECEIVERS_MAX:
            raise ConfigError(f"--receivers: from 1 to {RECEIVERS_MAX}, each is a process of its own")
        if not SIZE_MIN_BYTES <= self.size_bytes <= SIZE_MAX_BYTES:
            raise ConfigError(f"--size: from {SIZE_MIN_BYTES} bytes, for number and times, to {SIZE_MAX_BYTES:,}")
        if self.messages < 1:
            raise ConfigError("--messages: at least 1")
        if not (math.isfinite(self.rate_per_s) and self.rate_per_s >= 1):
            raise ConfigError("--rate: at least 1 message per second")
        if not (math.isfinite(self.duration_s) and self.duration_s > 0):
            raise ConfigError("--duration: more than 0 seconds")
        return self

    def worker_config(self, channel: str) -> WorkerConfig:
        return WorkerConfig(
            channel,
            generate_key() if self.security is SecurityMode.SHARED_KEY else None,
            tls=self.security is not SecurityMode.PLAIN,
            signed=self.security is SecurityMode.SIGNED,
            size_bytes=self.size_bytes,
        )
