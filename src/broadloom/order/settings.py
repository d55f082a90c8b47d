"""Limits and times of an ordered conversation."""

from dataclasses import dataclass, fields

ENTRY_BYTES_MAX = 65_536
KEY_BYTES_MAX = 64
NAME_BYTES_MAX = 256
LINEAGE_MAX = 64
"""Epochs that a log remembers. Two logs without a common one among them have nothing in common."""
PARTICIPANTS_MAX = 2048
"""More can read and submit, but do not count in takeovers, whose cost grows with the square."""
RUNS_MAX = 1024
"""Runs of submissions in one `Assign`."""
PAGE_BYTES = 256 << 10
"""Data in one `Page`, apart from its last entry."""
PAGE_ENTRIES_MAX = 16_384
AUTHORS_MAX = 8192
"""Authors whose last number is remembered; those that were silent for longest are forgotten."""
VOTERS = 3, 5, 7, 9
NUMBER_STEP_MAX = 1 << 20
"""An epoch may exceed the highest known one by this much, so that a hostile member cannot use up the numbers."""
TAKEOVERS_PER_MEMBER = 8
TAKEOVER_REFILL_S = 5.0
"""A member may try this many takeovers at once, and one more each time this has passed."""
WATCHERS = 3
"""The next candidates, which notice at once if the connection to the sequencer is reset."""
WATCH_S = 60.0
TICK_S = 0.25
PENDING_MAX = 10_000
"""Submissions of all members that wait to be ordered."""
PENDING_PER_MEMBER_MAX = 1024
"""The same for one member. `submit` waits while this many of its own are open, and members drop what exceeds it, so it
must be the same everywhere."""
BATCH_S = 0.005
"""A busy sequencer collects submissions for this long: few messages, and no delay that a program notices."""
STATUS_S = 10.0
"""Interval at which the sequencer sends its state, so that a difference is noticed. Missed messages are noticed
earlier."""
DISTRUST_S = 60.0
"""A candidate whose takeover failed, or a sequencer that stalled, is the last in line for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSettings:
    """Limits and times of one conversation in one program. The defaults fit a local network."""

    log_entries_max: int = 65_536
    """Entries kept for members that were away, and for newcomers."""
    log_bytes_max: int = 64 << 20
    pending_bytes_max: int = 64 << 20
    """Submissions of all members that wait to be ordered."""
    unread_max: int = 65_536
    """Entries that were ordered since the log was fetched, and that the program has not read. Beyond this the
    conversation is closed."""
    stall_s: float = 3.0
    """A submission that is not ordered after this time is a reason to replace the sequencer, if another agrees. The
    other times are in proportion to it: choose a longer one where messages take longer."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
                raise ValueError(f"{each.name}={value!r}: must be a positive number")

    @property
    def enter_s(self) -> float:
        """Time to wait for an existing sequencer before a newcomer takes over."""
        return self.stall_s / 3

    @property
    def resend_s(self) -> float:
        """A submission that is not ordered is sent to the sequencer directly after this time."""
        return self.stall_s / 3

    @property
    def takeover_s(self) -> float:
        """Maximum time to wait for the votes of all participants (mode `available`)."""
        return self.stall_s * 2 / 3

    @property
    def probe_s(self) -> float:
        """Participants that have not voted by then are asked directly whether they are there."""
        return self.stall_s / 10

    @property
    def takeover_timeout_s(self) -> float:
        """Time for a takeover to succeed before the next candidate tries."""
        return self.stall_s

    @property
    def rank_delay_s(self) -> float:
        """Each candidate waits for this long times the number of those before it."""
        return self.stall_s / 12
