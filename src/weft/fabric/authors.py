"""What a peer knows of each author: what it has had, what it waits for.

Duplicates are told in constant time: everything up to `mark` was had, and `waiting` holds the few above it.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft.fabric.link import Link


GONE_MAX = 256
"""Ranges remembered that one neighbour cannot send."""


class Denied(NamedTuple):
    """What all neighbours said when the first message that is lacking was last asked for."""

    first: int
    since: float
    """Since when all of them say that they never had it."""
    by: tuple[int, ...]
    """The neighbours that said so."""


class AuthorWindow:
    """One author, as seen by one peer."""

    __slots__ = (
        "absent",
        "denied",
        "failed",
        "first_from",
        "first_hops",
        "floor",
        "gave_up_at",
        "gone",
        "heard_at",
        "hearsay",
        "hops",
        "known",
        "known_at",
        "lazy",
        "looks",
        "mark",
        "parent",
        "parent_brought",
        "pruned",
        "regrets",
        "run_start",
        "source",
        "stuck_at",
        "to_tell",
        "told",
        "waiting",
    )

    def __init__(self, run_start: int, mark: int, heard_at: float) -> None:
        self.run_start = run_start
        self.mark = mark
        """Everything up to here was delivered, was missed and said so, or came before our time."""
        self.floor = mark
        """Up to here we never held the messages themselves."""
        self.known = mark
        """The highest sequence that somebody was heard to have."""
        self.known_at = heard_at
        """When that was said, at the latest."""
        self.waiting: dict[int, tuple[bytes, float]] = {}
        """Frames that came before an earlier one, by their first sequence, and when they were said."""
        self.heard_at = heard_at
        self.to_tell = False
        """We learned of messages by hearsay; if they do not come, the neighbours shall know of them too."""
        self.hearsay = False
        """We know of this author by hearsay alone; makes room first when there are too many."""
        self.told: int | None = None
        """Messages up to here were given up that we knew of by hearsay alone. The mark stays where it was until the
        author itself is heard: behind `told` if the hearsay was true, or behind the mark if it was a lie."""
        self.gave_up_at = 0.0
        """When that was."""
        self.gone: dict[int, list[tuple[int, int]]] = {}
        """Neighbour -> ranges that it said are gone for good, in order."""
        self.regrets = 0
        """How often all neighbours had been asked, and one of them said that it is gone for good."""
        self.absent: dict[int, tuple[int, bool]] = {}
        """Neighbour -> last sequence of the range, beginning behind the mark, that it does not have, and whether it
        came after them; else it may get them."""
        self.denied = Denied(0, 0.0, ())
        self.stuck_at = -1
        """Up to where everything was had when the gap was last looked at: one that closes by itself is left alone."""
        self.looks = 0
        """How often it was looked at since."""
        self.parent_brought = 0
        """What the link that feeds us had brought by then."""
        # The author's tree: see `tree.py`.
        self.parent: Link | None = None
        """The link that feeds us."""
        self.hops = 0
        """How far away the author is by that link; 0 if we are the author, or never heard it."""
        self.first_from: Link | None = None
        """The link that brought the last first copy of a frame that spreads along the tree."""
        self.first_hops = 0
        """How far that copy had travelled."""
        self.failed: Link | None = None
        """The link that should have fed us when we had to pull from another one; nearer or not, it is not chosen again
        before something comes over it."""
        self.source: Link | None = None
        """The link over which what we lack was announced last."""
        self.pruned: dict[Link, None] = {}
        """Links that were told not to feed us."""
        self.lazy: dict[Link, None] = {}
        """Links that told us not to feed them."""

    def start_at(self, mark: int) -> None:
        """What came up to here is none of our business."""
        self.mark = self.floor = self.known = mark

    def is_true(self, sequence: int, said_at: float) -> bool:
        """The author is heard after messages were given up on hearsay: was that true? If it says now what should have
        been said before, no: so a member cannot mute another by telling of messages that do not exist. False if this
        is one of those that were given up."""
        assert self.told is not None
        if sequence > self.told:
            self.mark = self.told
        elif said_at > self.gave_up_at:
            self.known = self.mark
            self.gone.clear()
        else:
            return False
        self.told = None
        return True

    @property
    def reached(self) -> int:
        """Nothing up to here is waited for any more."""
        return self.mark if self.told is None else self.told

    @property
    def has_gap(self) -> bool:
        return self.reached < self.known

    def note_gone(self, neighbour: int, first: int, last: int) -> None:
        """A neighbour cannot send this range, ever."""
        ranges = self.gone.setdefault(neighbour, [])
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = min(first, ranges[-1][0]), max(last, ranges[-1][1])
        elif len(ranges) < GONE_MAX:
            ranges.append((first, last))

    def gone_to(self, neighbour: int) -> int | None:
        """Up to where what comes next is gone for good, by this neighbour's word; None if it is not."""
        ranges = self.gone.get(neighbour)
        wanted = self.reached + 1
        while ranges and ranges[0][1] < wanted:
            del ranges[0]
        return ranges[0][1] if ranges and ranges[0][0] <= wanted else None

    def missing(self) -> tuple[int, int, float]:
        """The first range that is lacking, and when it was said at the latest: before what came behind it."""
        first = self.reached + 1
        behind = min(self.waiting, default=None)
        if behind is None:
            return first, self.known, self.known_at
        return first, behind - 1, self.waiting[behind][1]
