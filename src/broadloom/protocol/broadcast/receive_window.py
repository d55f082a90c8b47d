"""`ReceiveWindow`: what one peer has received of one author.

Duplicates are recognized in constant time: everything up to `last_contiguous` is done, and `reorder_buffer` holds the
few frames above it. Only the receiver and its fast path write a window; `tree` belongs to Plumtree.
"""

from broadloom.protocol.broadcast.plumtree import TreeState
from broadloom.wire import Frame


class ReceiveWindow:
    __slots__ = (
        "claimed_through",
        "clock_offset_s",
        "floor",
        "gave_up_at",
        "has_started",
        "is_adopted",
        "is_claim_only",
        "last_active_at",
        "last_contiguous",
        "last_known",
        "last_known_at",
        "reorder_buffer",
        "stream_start",
        "tree",
    )

    def __init__(
        self, stream_start: int, last_contiguous: int, last_active_at: float, *, is_claim_only: bool = False
    ) -> None:
        self.stream_start = stream_start
        """Peers that do not know the author expect its messages from here on."""
        self.last_contiguous = last_contiguous
        """Everything up to here was delivered, reported as missed, or sent before this peer joined."""
        self.floor = last_contiguous
        """This peer never held the messages up to here."""
        self.last_known = last_contiguous
        """The highest sequence number known to exist."""
        self.last_known_at = last_active_at
        """That message was sent at this time or earlier."""
        self.reorder_buffer: dict[int, tuple[Frame, float]] = {}
        """Frames that arrived before an earlier one, by first sequence number, with the time they were sent."""
        self.last_active_at = last_active_at
        self.is_claim_only = is_claim_only
        """The author is known from unverified claims alone; evicted first."""
        self.claimed_through: int | None = None
        """Messages up to here were given up, but only a claim says that they exist. `last_contiguous` stays where it is
        until a message of the author shows whether the claim was true."""
        self.gave_up_at = 0.0
        self.has_started = False
        """The application has got a message of this author, or a report of missed ones: from now on it gets all."""
        self.is_adopted = False
        """The position is that of a neighbor on a signed channel, and no signature of the author has confirmed it."""
        self.clock_offset_s: float | None = None
        """The least difference between our clock at arrival and the author's signed time of sending."""
        self.tree = TreeState()

    @property
    def reached(self) -> int:
        """This peer waits for nothing up to here."""
        return self.last_contiguous if self.claimed_through is None else self.claimed_through

    @property
    def has_gap(self) -> bool:
        return self.reached < self.last_known

    def missing(self) -> tuple[int, int, float]:
        """Return the first missing range, and a time before which it was sent: that of the next message."""
        first = self.reached + 1
        buffered = min(self.reorder_buffer, default=None)
        if buffered is None:
            return first, self.last_known, self.last_known_at
        return first, buffered - 1, self.reorder_buffer[buffered][1]
