"""What a peer knows of each author: what it has had, what it waits for.

Duplicates are told in constant time: everything up to `mark` was had, and `waiting` holds the few above it.
"""


class AuthorWindow:
    """One author, as seen by one peer."""

    __slots__ = (
        "floor",
        "gone",
        "heard_at",
        "known",
        "known_at",
        "mark",
        "run_start",
        "to_tell",
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
        self.gone: dict[int, int] = {}
        """Neighbour -> last sequence of the range, beginning behind the mark, that it said is gone for good."""

    def start_at(self, mark: int) -> None:
        """What came up to here is none of our business."""
        self.mark = self.floor = self.known = mark

    @property
    def has_gap(self) -> bool:
        return self.mark < self.known

    def missing(self) -> tuple[int, int, float]:
        """The first range that is lacking, and when it was said at the latest: before what came behind it."""
        first = self.mark + 1
        behind = min(self.waiting, default=None)
        if behind is None:
            return first, self.known, self.known_at
        return first, behind - 1, self.waiting[behind][1]
