"""What a peer knows of each author: what it has had, what it waits for.

Duplicates are told in constant time: everything up to `mark` was had, and `waiting` holds the few above it.
"""


class AuthorWindow:
    """One author, as seen by one peer."""

    __slots__ = ("floor", "gap_since", "gone", "heard_at", "known", "mark", "run_start", "waiting")

    def __init__(self, run_start: int, mark: int, heard_at: float) -> None:
        self.run_start = run_start
        self.mark = mark
        """Everything up to here was delivered, was missed and said so, or came before our time."""
        self.floor = mark
        """Up to here we never held the messages themselves."""
        self.known = mark
        """The highest sequence that somebody was heard to have."""
        self.waiting: dict[int, bytes] = {}
        """Messages that came before an earlier one."""
        self.heard_at = heard_at
        self.gap_since: float | None = None
        self.gone: dict[int, int] = {}
        """Neighbour -> last sequence of the range, beginning behind the mark, that it said is gone for good."""

    @property
    def has_gap(self) -> bool:
        return self.mark < self.known

    def missing(self) -> tuple[int, int]:
        """The first range that is lacking."""
        first = self.mark + 1
        return first, min(self.waiting, default=self.known + 1) - 1
