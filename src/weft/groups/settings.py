"""Every number of the groups, with its unit and reason. Limits of what strangers may cause are in `limits.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What one member may choose. Members of one channel may differ."""

    answer_s: float = 3.0
    """Answers come within this, where many listen; sooner where few do. Ten times as long as a message takes to all, so
    that most who could answer hear the first answer before their own turn comes."""
    hold_s: float = 6.0
    """Catching up: who has had no page for so long asks again, and somebody else may answer."""
    presence_s: float = 15.0
    """Each member says that it is here so often..."""
    presence_per_s: float = 2.0
    """...but all of them together not more often than this: with many members, each speaks less often."""
    silent_periods: float = 3.0
    """A member not heard for so many of its periods is shown as gone."""
    suspect_s: float = 4.0
    """Who lost a neighbour says so; if that one is not heard within this time, it is shown as gone."""
    ask_after_s: float = 2.0
    """A message has waited so long for the one it responds to: that one is asked for."""
    orphan_s: float | None = 30.0
    """Then it is delivered with a mark; None keeps it waiting for ever. Not counted while history is coming in."""
    waiting_max: int = 262_144
    """Messages of one group that wait for another. One more is refused, and fetched again later."""
    waiting_bytes_max: int = 64 << 20
    page_bytes: int = 32 << 10
    """History comes in pages of about this size, so that live messages find room between them."""
    turn_bytes: int = 1 << 20
    """After so much the holder waits for the asker to say that it wants more."""
    pages_bytes_per_s: int = 4 << 20
    """History sent on the channel, by whomever: who has heard so much of others' pages holds back its own."""
    pages_burst_bytes: int = 2 << 20
    scan_rows: int = 4_000
    """Rows of history looked at in one go: the program must not stand still meanwhile."""
    asks_per_s: float = 20.0
    """A member of a thousand groups does not ask in all of them at once."""
    rounds_max: int = 3
    """So many times what is lacking is asked for without any progress; then the application is told."""

    def __post_init__(self) -> None:
        for name in ("answer_s", "hold_s", "presence_s", "presence_per_s", "suspect_s", "ask_after_s", "asks_per_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be more than 0")
        if self.orphan_s is not None and not self.orphan_s > 0:
            raise ValueError(f"orphan_s={self.orphan_s}: more than 0 seconds, or None to wait for ever")


@dataclass(frozen=True, slots=True)
class Keep:
    """What of a group's history is kept: chosen by who creates it, and the same for all members. 0 is no limit."""

    messages: int = 0
    age_s: int = 0
    total_bytes: int = 0
    ids_only: bool = False
    """Identities only, which is enough for the order: who comes late sees the tree and not what was said."""
