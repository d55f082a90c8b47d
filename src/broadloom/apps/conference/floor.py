"""`Floor`: who leads. One participant at most, and a queue of those that have requested it.

The floor changes hands only by an action of its holder, or when its holder is reported gone. A program that gives the
floor away stops leading when it submits that action (core.py), so no two programs lead at the same time.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Floor:
    holder: int | None = None
    lender: int | None = None
    """The participant that handed it to the holder, and may take it back."""
    is_recalled: bool = False
    """The lender has asked for it."""
    queue: dict[int, None] = field(default_factory=dict)
    term: int = 0
    """Counts how often the floor was given to someone."""

    def request(self, author: int) -> None:
        if author == self.holder:
            return
        self.queue[author] = None
        if self.holder is None:
            self._pass_on()

    def release(self, author: int) -> bool:
        """Returns whether the author had the floor, or waited for it."""
        has_part = author == self.holder or author in self.queue
        self.queue.pop(author, None)
        if author == self.holder:
            self._pass_on()
        return has_part

    def leave(self, author: int) -> None:
        """As `release`; and a lender that has left cannot take the floor back."""
        if author == self.lender:
            self.lender, self.is_recalled = None, False
        self.release(author)

    def hand_over(self, author: int, to: int) -> None:
        if author == self.holder and to != author:
            self.queue.pop(to, None)
            is_returned = to == self.lender
            self._give(to, lender=None if is_returned else author)

    def take_back(self, author: int) -> bool:
        """Returns whether the author has handed the floor to its holder."""
        is_lender = author == self.lender and self.holder is not None
        self.is_recalled = self.is_recalled or is_lender
        return is_lender

    def _pass_on(self) -> None:
        following = next(iter(self.queue), None)
        if following is not None:
            del self.queue[following]
        self._give(following)

    def _give(self, to: int | None, lender: int | None = None) -> None:
        self.holder, self.lender, self.is_recalled = to, lender, False
        self.term += to is not None
