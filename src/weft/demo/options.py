"""What `weft demo` was asked for."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from weft.errors import WeftError
from weft.lab.plan import LabPlan, Rates

PEERS = 24
SECONDS = 60.0
KILLED_SHARE = 5
"""Unless told, one of so many is killed."""


class WrongUse(WeftError):
    """Words that do not fit; the text says what would."""


@dataclass(frozen=True, slots=True)
class Options:
    peers: int = PEERS
    chat_per_s: float | None = None
    ticks_per_s: float | None = None
    idents_per_s: float | None = None
    adverts_per_s: float | None = None
    """What was not said is as usual for the number of peers."""
    port: int = 0
    """0: the usual one of the pages, or if that is taken any."""
    browser: bool = True
    spark: bool = True
    folder: Path | None = None
    """Where tapes and tables are kept; None: nowhere."""
    seconds: float = SECONDS
    """With `once`: how long the peers talk."""
    kill: int | None = None
    """With `once`: how many are killed."""

    def checked(self) -> "Options":
        if self.kill is not None and not 0 <= self.kill < self.peers - 1:
            raise WrongUse(f"of {self.peers} peers 0 to {self.peers - 2} can be killed, not {self.kill}")
        if not 1 <= self.seconds <= 3600:
            raise WrongUse(f"--seconds is 1 to 3600, not {self.seconds:g}")
        self.plan(None)
        return self

    @property
    def killed(self) -> int:
        return self.kill if self.kill is not None else max(1, self.peers // KILLED_SHARE)

    @property
    def rates(self) -> Rates:
        usual = Rates.usual(self.peers)
        return Rates(
            usual.chat_per_s if self.chat_per_s is None else self.chat_per_s,
            usual.ticks_per_s if self.ticks_per_s is None else self.ticks_per_s,
            usual.idents_per_s if self.idents_per_s is None else self.idents_per_s,
            usual.adverts_per_s if self.adverts_per_s is None else self.adverts_per_s,
        )

    def plan(self, tapes: Path | None) -> LabPlan:
        return LabPlan(peers=self.peers, rates=self.rates, tape=tapes)

    @contextmanager
    def place(self) -> Iterator[Path]:
        """The folder; one that nobody asked for is gone afterwards."""
        if self.folder is None:
            with tempfile.TemporaryDirectory(prefix="weft-demo-", ignore_cleanup_errors=True) as folder:
                yield Path(folder)
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise WrongUse(f"--folder {self.folder} cannot be used: {problem.strerror or problem}") from None
        yield self.folder.absolute()
