"""What `broadloom demo` was asked for."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broadloom.errors import BroadloomError
from broadloom.testing.cluster.config import ClusterConfig, TrafficRates

PEERS = 24
DURATION_S = 60.0
KILL_ONE_IN = 5
"""Unless told, one of so many is killed."""


class DemoConfigError(BroadloomError):
    """Words that do not fit; the text says what would."""


@dataclass(frozen=True, slots=True)
class DemoConfig:
    peers: int = PEERS
    chat_per_s: float | None = None
    ticks_per_s: float | None = None
    identifications_per_s: float | None = None
    ads_per_s: float | None = None
    """What was not said is as usual for the number of peers."""
    port: int = 0
    """0: the usual one of the pages, or if that is taken any."""
    browser: bool = True
    spark: bool = True
    directory: Path | None = None
    """Where tapes and tables are kept; None: nowhere."""
    duration_s: float = DURATION_S
    """With `once`: how long the peers talk."""
    kill: int | None = None
    """With `once`: how many are killed."""

    def validated(self) -> "DemoConfig":
        if self.kill is not None and not 0 <= self.kill < self.peers - 1:
            raise DemoConfigError(f"of {self.peers} peers 0 to {self.peers - 2} can be killed, not {self.kill}")
        if not 1 <= self.duration_s <= 3600:
            raise DemoConfigError(f"--duration must be 1 to 3600, not {self.duration_s:g}")
        self.cluster_config(None)
        return self

    @property
    def kill_count(self) -> int:
        return self.kill if self.kill is not None else max(1, self.peers // KILL_ONE_IN)

    @property
    def rates(self) -> TrafficRates:
        defaults = TrafficRates.default_for(self.peers)
        return TrafficRates(
            defaults.chat_per_s if self.chat_per_s is None else self.chat_per_s,
            defaults.ticks_per_s if self.ticks_per_s is None else self.ticks_per_s,
            defaults.identifications_per_s if self.identifications_per_s is None else self.identifications_per_s,
            defaults.ads_per_s if self.ads_per_s is None else self.ads_per_s,
        )

    def cluster_config(self, tapes: Path | None) -> ClusterConfig:
        return ClusterConfig(peers=self.peers, rates=self.rates, tape=tapes)

    @contextmanager
    def working_directory(self) -> Iterator[Path]:
        """The folder; one that nobody asked for is gone afterwards."""
        if self.directory is None:
            with tempfile.TemporaryDirectory(prefix="broadloom-demo-", ignore_cleanup_errors=True) as directory:
                yield Path(directory)
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise DemoConfigError(f"--dir {self.directory} cannot be used: {problem.strerror or problem}") from None
        yield self.directory.absolute()
