"""What a lab is asked to hold, and how much is said in it."""

from dataclasses import dataclass
from pathlib import Path

from broadloom.errors import BroadloomError

PEERS_MAX = 1000
DELIVERIES_PER_S = 1000.0
"""The usual rates make not more than this: with TLS and tapes a delivery costs about 0.3 ms of a core, and two cores
shall have some room left for repair, for Spark and for a page."""
PRESENCE_PER_S = 2.0
"""Said by the groups of themselves, whatever the rates."""
CHAT_PER_S, TICKS_PER_S, IDENTIFICATIONS_PER_S, ADS_PER_S = 1.5, 8.0, 0.5, 0.2


class ClusterConfigError(BroadloomError):
    """The numbers do not fit; says what would."""


@dataclass(frozen=True, slots=True)
class TrafficRates:
    """Messages a second, of all peers together; 0 is none."""

    chat_per_s: float = 0.0
    """Lines in the conversations of groups: questions and answers."""
    ticks_per_s: float = 0.0
    """Prices, as a market sends them: small and many."""
    identifications_per_s: float = 0.0
    """Identifications: a subscriber says that it is here."""
    ads_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("chat_per_s", "ticks_per_s", "identifications_per_s", "ads_per_s"):
            if not 0 <= getattr(self, name) <= 10_000:
                raise ClusterConfigError(f"{name} is {getattr(self, name):g}: give 0 to 10,000 messages a second")

    @property
    def total_per_s(self) -> float:
        return self.chat_per_s + self.ticks_per_s + self.identifications_per_s + self.ads_per_s

    def scaled(self, fraction: float) -> "TrafficRates":
        """The part that falls to some of the peers."""
        return TrafficRates(
            self.chat_per_s * fraction,
            self.ticks_per_s * fraction,
            self.identifications_per_s * fraction,
            self.ads_per_s * fraction,
        )

    @classmethod
    def default_for(cls, peers: int) -> "TrafficRates":
        """A lively channel that a machine of two cores bears."""
        full = cls(CHAT_PER_S, TICKS_PER_S, IDENTIFICATIONS_PER_S, ADS_PER_S)
        affordable_per_s = max(1.0, DELIVERIES_PER_S / max(1, peers) - PRESENCE_PER_S)
        return full.scaled(min(1.0, affordable_per_s / full.total_per_s))


NO_TRAFFIC = TrafficRates()


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    peers: int = 24
    degree: int = 4
    tape: Path | None = None
    """A folder for the tapes of all peers; None: nothing is recorded."""
    file_duration_s: float = 5.0
    """How often a file of a tape is finished: so old are the newest rows that the pipeline can see, at most; and so
    much of its tape is lost with a process that is killed. Each process has files of its own, and many small ones are
    slow to read."""
    processes_max: int = 24
    """Up to so many peers have a process each; of more, all but a few share."""
    rates: TrafficRates | None = None
    """From the moment that all peers are there; None for the usual, `SILENCE` for nothing."""
    chatting_peers_max: int = 40
    """Peers that take part in the groups. Their lists go to everyone, so with more, growing would take long."""

    def __post_init__(self) -> None:
        if not 2 <= self.peers <= PEERS_MAX:
            raise ClusterConfigError(f"a lab has 2 to {PEERS_MAX} peers, not {self.peers}")
        if self.processes_max < 1:
            raise ClusterConfigError(f"a lab needs at least one process, not {self.processes_max}")
        if not self.file_duration_s > 0:
            raise ClusterConfigError(f"a file of a tape is finished after more than 0 s, not {self.file_duration_s:g}")
