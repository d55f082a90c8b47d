"""The parameters of a chaos run, validated before a process is started."""

import math
from dataclasses import dataclass, replace

from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.protocol import ChannelSettings
from broadloom.testing.errors import ConfigError
from broadloom.testing.processes.process_stats import raise_file_limit
from broadloom.testing.workloads.checked_payload import SIZE_MIN_BYTES

DEFAULT_RATE_PER_S = 50.0
DELIVERIES_PER_S_MAX = 2_000.0
"""Limits the default rate: with TLS a delivery costs about 0.3 ms of CPU, and two cores need room for repair."""


@dataclass(frozen=True, slots=True)
class ChaosConfig:
    peers: int
    processes: int = 0
    """0: one per peer."""
    affected_peers: int = 0
    """Peers that are killed or paused."""
    joiners: int = 0
    churn_per_min: float = 0.0
    """Joins per minute; as many peers leave or crash."""
    duration_s: float = 0.0
    """Duration of the churn, pause, partition or load."""
    rate_per_s: float = 0.0
    """Messages per second from all peers together; 0: depends on the number of peers."""
    size_bytes: int = 100
    degree: int = 4
    repair_timeout_s: float = 60.0
    """Maximum time until the fabric is one regular graph again."""
    no_tls: bool = False
    tape: str = ""

    @property
    def peers_per_process(self) -> int:
        return self.peers // self.processes

    @property
    def affected_processes(self) -> int:
        return self.affected_peers // self.peers_per_process

    def validated(self) -> "ChaosConfig":
        """Return a copy with defaults filled in; raises `ConfigError`."""
        if self.peers < 2:
            raise ConfigError("--peers: at least 2")
        config = replace(
            self,
            processes=self.processes or self.peers,
            rate_per_s=self.rate_per_s or min(DEFAULT_RATE_PER_S, DELIVERIES_PER_S_MAX / self.peers),
        )
        if config.peers % config.processes:
            raise ConfigError(f"--processes: {config.peers} peers cannot be divided evenly among {config.processes}")
        if config.affected_peers % config.peers_per_process:
            raise ConfigError(
                f"each process has {config.peers_per_process} peers, which fail together: affect a multiple of that"
            )
        if config.affected_peers > config.peers - 2:
            raise ConfigError(f"{config.affected_peers} of {config.peers} peers: at least two must stay for an audit")
        if config.size_bytes < SIZE_MIN_BYTES:
            raise ConfigError(f"--size: at least {SIZE_MIN_BYTES} bytes, for author, sequence and times")
        if config.size_bytes > FRAGMENT_BYTES:
            raise ConfigError(f"--size: at most {FRAGMENT_BYTES} bytes; fragments of larger messages are not audited")
        if not math.isfinite(config.rate_per_s) or config.rate_per_s < 0 or config.duration_s < 0:
            raise ConfigError("--rate and --duration must not be negative")
        try:
            ChannelSettings(degree=config.degree)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        # A peer needs files for its listener, links and exchanges, the coordinator one socket per process.
        raise_file_limit(max(config.peers_per_process * (config.degree + 12), config.processes + config.joiners))
        return config
