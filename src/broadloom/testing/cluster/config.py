"""Size and traffic of a local cluster."""

from dataclasses import dataclass, fields
from pathlib import Path

from broadloom.testing.checks.settling import SETTLE_S
from broadloom.testing.errors import ConfigError

PEERS_MAX = 1000
RATE_MAX_PER_S = 10_000
DELIVERIES_PER_S = 1000.0
"""Limits the default rates: with TLS and tapes a delivery costs about 0.3 ms of CPU, and two cores need room for
repair, Spark and web pages."""
PRESENCE_PER_S = 2.0
"""Messages that the groups send on their own, whatever the rates."""
CHAT_PER_S, TICKS_PER_S, IDENTIFICATIONS_PER_S, ADS_PER_S = 1.5, 8.0, 0.5, 0.2


@dataclass(frozen=True, slots=True)
class TrafficRates:
    """Messages per second from all peers together."""

    chat_per_s: float = 0.0
    """Questions and replies in chat groups."""
    ticks_per_s: float = 0.0
    """Market prices: many small messages."""
    identifications_per_s: float = 0.0
    """A subscriber announces itself."""
    ads_per_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            rate = getattr(self, field.name)
            if not 0 <= rate <= RATE_MAX_PER_S:
                raise ConfigError(f"{field.name} is {rate:g}: use 0 to {RATE_MAX_PER_S:,} messages per second")

    @property
    def total_per_s(self) -> float:
        return self.chat_per_s + self.ticks_per_s + self.identifications_per_s + self.ads_per_s

    def scaled(self, fraction: float) -> "TrafficRates":
        return TrafficRates(*(getattr(self, field.name) * fraction for field in fields(self)))

    @classmethod
    def default_for(cls, peers: int) -> "TrafficRates":
        """Rates that a machine with two cores sustains."""
        full = cls(CHAT_PER_S, TICKS_PER_S, IDENTIFICATIONS_PER_S, ADS_PER_S)
        affordable_per_s = max(1.0, DELIVERIES_PER_S / max(1, peers) - PRESENCE_PER_S)
        return full.scaled(min(1.0, affordable_per_s / full.total_per_s))


NO_TRAFFIC = TrafficRates()


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    peers: int = 24
    degree: int = 4
    tape: Path | None = None
    """Directory for the tapes of all peers; None disables recording."""
    file_duration_s: float = 5.0
    """Age at which a tape file is finished: the delay until the pipeline sees its rows, and what a killed process
    loses. Each process has its own files, and many small files are slow to read."""
    processes_max: int = 24
    """Up to this number each peer has its own process; in larger clusters all but a few peers share."""
    rates: TrafficRates | None = None
    """Traffic once all peers are connected; None for the default of this size, `NO_TRAFFIC` for none."""
    chatting_peers_max: int = 40
    """Peers that join the chat groups. Member lists go to every peer, so more would slow down growth."""
    settle_s: float = SETTLE_S
    """Messages that are missing this long after they were sent and after the last repair are lost."""

    def __post_init__(self) -> None:
        if not 2 <= self.peers <= PEERS_MAX:
            raise ConfigError(f"a cluster has 2 to {PEERS_MAX} peers, not {self.peers}")
        if self.processes_max < 1:
            raise ConfigError(f"a cluster needs at least one process, not {self.processes_max}")
        for name in ("file_duration_s", "settle_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be more than 0, not {getattr(self, name):g}")
