"""What a peer knows of each author: what it has had, what it waits for.

Duplicates are told in constant time: everything up to `mark` was had, and `waiting` holds the few above it.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broadloom.protocol.link import Link


UNAVAILABLE_RANGES_MAX = 256
"""Ranges remembered that one neighbour cannot send."""


class NeverHeld(NamedTuple):
    """What all neighbours said when the first message that is lacking was last asked for."""

    first: int
    since: float
    """Since when all of them say that they never had it."""
    by: tuple[int, ...]
    """The neighbours that said so."""


class ReceiveWindow:
    """One author, as seen by one peer."""

    __slots__ = (
        "claimed_through",
        "failed_parent",
        "first_copy_hops",
        "first_copy_link",
        "floor",
        "gave_up_at",
        "hops",
        "is_claim_only",
        "last_active_at",
        "last_contiguous",
        "last_known",
        "last_known_at",
        "lazy_children",
        "must_propagate",
        "never_held",
        "parent",
        "parent_frames",
        "pending_at",
        "pruned_links",
        "reorder_buffer",
        "source",
        "stalled_at",
        "stalled_checks",
        "stream_start",
        "unavailable",
        "unavailable_rounds",
    )

    def __init__(self, stream_start: int, last_contiguous: int, last_active_at: float) -> None:
        self.stream_start = stream_start
        self.last_contiguous = last_contiguous
        """Everything up to here was delivered, was missed and said so, or came before our time."""
        self.floor = last_contiguous
        """Up to here we never held the messages themselves."""
        self.last_known = last_contiguous
        """The highest sequence that somebody was heard to have."""
        self.last_known_at = last_active_at
        """When that was said, at the latest."""
        self.reorder_buffer: dict[int, tuple[bytes, float]] = {}
        """Frames that came before an earlier one, by their first sequence, and when they were said."""
        self.last_active_at = last_active_at
        self.must_propagate = False
        """We learned of messages by hearsay; if they do not come, the neighbours shall know of them too."""
        self.is_claim_only = False
        """We know of this author by hearsay alone; makes room first when there are too many."""
        self.claimed_through: int | None = None
        """Messages up to here were given up that we knew of by hearsay alone. The mark stays where it was until the
        author itself is heard: behind `told` if the hearsay was true, or behind the mark if it was a lie."""
        self.gave_up_at = 0.0
        """When that was."""
        self.unavailable: dict[int, list[tuple[int, int]]] = {}
        """Neighbour -> ranges that it said are gone for good, in order."""
        self.unavailable_rounds = 0
        """How often all neighbours had been asked, and one of them said that it is gone for good."""
        self.pending_at: dict[int, tuple[int, bool]] = {}
        """Neighbour -> last sequence of the range, beginning behind the mark, that it does not have, and whether it
        came after them; else it may get them."""
        self.never_held = NeverHeld(0, 0.0, ())
        self.stalled_at = -1
        """Up to where everything was had when the gap was last looked at: one that closes by itself is left alone."""
        self.stalled_checks = 0
        """How often it was looked at since."""
        self.parent_frames = 0
        """What the link that feeds us had brought by then."""
        # The author's tree: see `tree.py`.
        self.parent: Link | None = None
        """The link that feeds us."""
        self.hops = 0
        """How far away the author is by that link; 0 if we are the author, or never heard it."""
        self.first_copy_link: Link | None = None
        """The link that brought the last first copy of a frame that spreads along the tree."""
        self.first_copy_hops = 0
        """How far that copy had travelled."""
        self.failed_parent: Link | None = None
        """The link that should have fed us when we had to pull from another one; nearer or not, it is not chosen again
        before something comes over it."""
        self.source: Link | None = None
        """The link over which what we lack was announced last."""
        self.pruned_links: dict[Link, None] = {}
        """Links that were told not to feed us."""
        self.lazy_children: dict[Link, None] = {}
        """Links that told us not to feed them."""

    def start_at(self, last_contiguous: int) -> None:
        """What came up to here is none of our business."""
        self.last_contiguous = self.floor = self.last_known = last_contiguous

    def confirm_claim(self, sequence: int, sent_at: float) -> bool:
        """The author is heard after messages were given up on hearsay: was that true? If it says now what should have
        been said before, no: so a member cannot mute another by telling of messages that do not exist. False if this
        is one of those that were given up."""
        assert self.claimed_through is not None
        if sequence > self.claimed_through:
            self.last_contiguous = self.claimed_through
        elif sent_at > self.gave_up_at:
            self.last_known = self.last_contiguous
            self.unavailable.clear()
        else:
            return False
        self.claimed_through = None
        return True

    @property
    def reached(self) -> int:
        """Nothing up to here is waited for any more."""
        return self.last_contiguous if self.claimed_through is None else self.claimed_through

    @property
    def has_gap(self) -> bool:
        return self.reached < self.last_known

    def add_unavailable(self, neighbor: int, first: int, last: int) -> None:
        """A neighbour cannot send this range, ever."""
        ranges = self.unavailable.setdefault(neighbor, [])
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = min(first, ranges[-1][0]), max(last, ranges[-1][1])
        elif len(ranges) < UNAVAILABLE_RANGES_MAX:
            ranges.append((first, last))

    def unavailable_through(self, neighbor: int) -> int | None:
        """Up to where what comes next is gone for good, by this neighbour's word; None if it is not."""
        ranges = self.unavailable.get(neighbor)
        next_sequence = self.reached + 1
        while ranges and ranges[0][1] < next_sequence:
            del ranges[0]
        return ranges[0][1] if ranges and ranges[0][0] <= next_sequence else None

    def missing(self) -> tuple[int, int, float]:
        """The first range that is lacking, and when it was said at the latest: before what came behind it."""
        first = self.reached + 1
        buffered = min(self.reorder_buffer, default=None)
        if buffered is None:
            return first, self.last_known, self.last_known_at
        return first, buffered - 1, self.reorder_buffer[buffered][1]
