"""What one peer of a lab was given, checked at each delivery: once, in order, no gap but those it was told of.

The ledger of a trial reads its own payload in each message; here messages are what they are, so it goes by author and
number alone. What has to be compared between peers is in `promises.py`.
"""

from typing import TYPE_CHECKING

from weft.trial.ledger import Broken, Entry, Ledger, name_of

if TYPE_CHECKING:
    from weft.fabric.events import Message


class LabLedger(Ledger):
    """`delivered` is called with every message in the order in which the application gets them."""

    def __init__(self, me: int, connected_ns: int, broken: Broken) -> None:
        super().__init__(me, connected_ns, broken)
        self.deliveries = 0

    def delivered(self, message: "Message", now_ns: int) -> None:
        author, sequence = message.author, message.sequence
        self.deliveries += 1
        if author == self._me:
            self._broken(1, f"was given its own message {name_of(author, sequence)}")
            return
        entry = self.heard.get(author)
        if entry is None:
            self.heard[author] = Entry(sequence, sequence, last_ns=now_ns)
        elif sequence == entry.last + 1:
            entry.last, entry.last_ns = sequence, now_ns
        elif sequence <= entry.last:
            self.twice += 1
            how = "after it was told that it missed it" if entry.was_missed(sequence) else "twice"
            self._broken(1, f"was given {name_of(author, sequence)} {how}")
        else:
            self._broken(1, f"was given {name_of(author, sequence)} before {entry.last + 1}")
            entry.last, entry.last_ns = sequence, now_ns  # said once; what follows is judged by itself
