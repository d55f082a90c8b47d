"""What a peer knows of each author: what it has had, what it waits for.

Duplicates are told in constant time: everything up to `mark` was had, and `waiting` holds the few above it.
"""


class AuthorWindow:
    """One author, as seen by one peer."""

    __slots__ = (
        "floor",
        "gave_up_at",
        "gone",
        "heard_at",
        "hearsay",
        "known",
        "known_at",
        "mark",
        "run_start",
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
        """Messages that came before an earlier one, and when they were said."""
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
        self.gone: dict[int, int] = {}
        """Neighbour -> last sequence of the range, beginning behind the mark, that it said is gone for good."""

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

    def missing(self) -> tuple[int, int, float]:
        """The first range that is lacking, and when it was said at the latest: before what came behind it."""
        first = self.reached + 1
        behind = min(self.waiting, default=None)
        if behind is None:
            return first, self.known, self.known_at
        return first, behind - 1, self.waiting[behind][1]
