"""Every number of the groups, with its unit and reason. Limits of what strangers may cause are in `limits.py`."""

from dataclasses import dataclass

# What strangers may cause: sizes on the wire and in memory, with their units.


NAME_BYTES_MAX = 128
DESCRIPTION_BYTES_MAX = 1024
DATA_BYTES_MAX = 512 << 10
"""One message of a group. The channel's own limit for one frame is twice this."""
GROUPS_MAX = 20_000
"""Groups known at a time; further ones are refused and counted."""
MEMBERS_MAX = 100_000
"""Members of one group, present and past."""
MEMBERSHIPS_MAX = 1_000_000
"""Members of all groups together."""
AUTHORS_MAX = 100_000
"""Authors of one group."""
GAPS_MAX = 4_096
"""Gaps in what was received from one author. What would make another gap is refused, and fetched later."""
ENTRIES_MAX = 4_096
"""Elements of one list on the wire."""
INTERVALS_MAX = 16_384
"""Authors, and intervals of all of them, in one question: what does not fit is sent again, needlessly."""
BUCKETS_MAX = 1_024
PENDING_MAX = 1_024
"""Arrivals and questions waiting for our answer."""
PEERS_MAX = 65_536
"""Peers whose member we remember."""
SUSPECTS_MAX = 16
"""What one peer may suspect within a while (`attendance.py`): it has a few neighbours only."""
MESSAGE_IDS_MAX = 256
"""Messages asked for by name in one go."""
COUNT_MAX = 1 << 62
"""Sequences and counters: far beyond what anybody says, far below what would overflow."""
BODY_BYTES_MAX = 768 << 10
"""Groups or messages in one page; a page is far smaller unless one message is large."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What one member may choose. Members of one channel may differ."""

    reply_window_s: float = 3.0
    """Answers come within this, where many listen; sooner where few do. Ten times as long as a message takes to all, so
    that most who could answer hear the first answer before their own turn comes."""
    page_timeout_s: float = 6.0
    """Catching up: who has had no page for so long asks again, and somebody else may answer."""
    presence_interval_s: float = 15.0
    """Each member says that it is here so often..."""
    presence_messages_per_s_max: float = 2.0
    """...but all of them together not more often than this: with many members, each speaks less often."""
    offline_after_intervals: float = 3.0
    """A member not heard for so many of its periods is shown as gone."""
    suspicion_timeout_s: float = 4.0
    """Who lost a neighbour says so; if that one is not heard within this time, it is shown as gone."""
    parent_request_delay_s: float = 2.0
    """A message has waited so long for the one it responds to: that one is asked for."""
    orphan_timeout_s: float | None = 30.0
    """Then it is delivered with a mark; None keeps it waiting for ever. Not counted while history is coming in."""
    reorder_messages_max: int = 262_144
    """Messages of one group that wait for another. One more is refused, and fetched again later."""
    reorder_bytes_max: int = 64 << 20
    history_page_bytes: int = 32 << 10
    """History comes in pages of about this size, so that live messages find room between them."""
    history_turn_bytes: int = 1 << 20
    """After so much the holder waits for the asker to say that it wants more."""
    history_bytes_per_s: int = 4 << 20
    """History sent on the channel, by whomever: who has heard so much of others' pages holds back its own."""
    history_burst_bytes: int = 2 << 20
    scan_rows: int = 4_000
    """Rows of history looked at in one go: the program must not stand still meanwhile."""
    history_requests_per_s: float = 20.0
    """A member of a thousand groups does not ask in all of them at once."""
    history_rounds_max: int = 3
    """So many times what is lacking is asked for without any progress; then the application is told."""

    def __post_init__(self) -> None:
        for name in (
            "reply_window_s",
            "page_timeout_s",
            "presence_interval_s",
            "presence_messages_per_s_max",
            "suspicion_timeout_s",
            "parent_request_delay_s",
            "history_requests_per_s",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be more than 0")
        if self.orphan_timeout_s is not None and not self.orphan_timeout_s > 0:
            raise ValueError(f"orphan_timeout_s={self.orphan_timeout_s}: more than 0 seconds, or None to wait for ever")


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What of a group's history is kept: chosen by who creates it, and the same for all members. 0 is no limit."""

    messages_max: int = 0
    age_max_s: int = 0
    bytes_max: int = 0
    ids_only: bool = False
    """Identities only, which is enough for the order: who comes late sees the tree and not what was said."""
