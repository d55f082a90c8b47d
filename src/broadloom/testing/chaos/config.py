"""What a trial is asked to do, checked before a single process is started."""

import math
import resource
from dataclasses import dataclass, replace

from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.protocol import ChannelSettings
from broadloom.testing.workloads.checked_payload import SIZE_MIN_BYTES

DEFAULT_RATE_PER_S = 50.0
DELIVERIES_PER_S_MAX = 2_000.0
"""The default rate makes not more than this: it leaves two cores some room for repair (with TLS, a delivery costs a
process of its own about 0.3 ms)."""
SPARE_FILES = 200


class ConfigError(ValueError):
    """The words of the command line do not fit; says what would."""


@dataclass(frozen=True, slots=True)
class ChaosConfig:
    peers: int
    processes: int = 0
    """0: one for each peer."""
    affected_peers: int = 0
    """Peers that are killed or frozen."""
    joiners: int = 0
    churn_per_min: float = 0.0
    """Arrivals, and as many departures, a minute."""
    duration_s: float = 0.0
    """How long the fault lasts: churn, freeze, partition."""
    rate_per_s: float = 0.0
    """Messages of all peers together; 0: chosen by the number of peers."""
    size_bytes: int = 100
    degree: int = 4
    repair_timeout_s: float = 60.0
    """For the fabric to become one regular graph again."""
    no_tls: bool = False
    tape: str = ""

    @property
    def peers_per_process(self) -> int:
        return self.peers // self.processes

    @property
    def affected_processes(self) -> int:
        return self.affected_peers // self.peers_per_process

    def validated(self) -> "ChaosConfig":
        """With all that was left open filled in."""
        if self.peers < 2:
            raise ConfigError("--peers: a channel of fewer than two proves nothing")
        config = replace(
            self,
            processes=self.processes or self.peers,
            rate_per_s=self.rate_per_s or min(DEFAULT_RATE_PER_S, DELIVERIES_PER_S_MAX / self.peers),
        )
        if config.peers % config.processes:
            raise ConfigError(f"--processes: {config.peers} peers cannot be shared out evenly among {config.processes}")
        if config.affected_peers % config.peers_per_process:
            raise ConfigError(
                f"each process has {config.peers_per_process} peers, which live and die together: hit a multiple"
            )
        if config.affected_peers > config.peers - 2:
            raise ConfigError(
                f"{config.affected_peers} of {config.peers} peers: at least two must be left, "
                "or there is nothing to audit"
            )
        if config.size_bytes < SIZE_MIN_BYTES:
            raise ConfigError(f"--size: at least {SIZE_MIN_BYTES} bytes, for who says what, and when")
        if config.size_bytes > FRAGMENT_BYTES:
            raise ConfigError(
                f"--size: at most {FRAGMENT_BYTES} bytes; larger messages go in parts, which are not audited"
            )
        if not math.isfinite(config.rate_per_s) or config.rate_per_s < 0 or config.duration_s < 0:
            raise ConfigError("--rate and --duration must not be negative")
        try:
            ChannelSettings(degree=config.degree)
        except ValueError as problem:
            raise ConfigError(str(problem)) from None
        _raise_file_limit(config)
        return config


def _raise_file_limit(config: ChaosConfig) -> None:
    """Each peer listens and holds its links and calls; the coordinator holds one socket for each process."""
    needed = max(config.peers_per_process * (config.degree + 12), config.processes + config.joiners) + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ConfigError(
                f"a process may open {hard} files here, {needed} are needed: use more or fewer --processes"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
