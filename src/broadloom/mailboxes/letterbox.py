"""`Letterbox`: the receiving side of a mailbox.

A queue of bounded length, or the one storage of a persistent mailbox, which each letter replaces. A block is what
arrived together. The owner is notified as the class says: per letter, per block, or not at all.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broadloom.mailboxes.classes import MailboxClass, Receive
from broadloom.mailboxes.limits import ROOM, SENDER_SHARE
from broadloom.mailboxes.messages import DeliverStatus

if TYPE_CHECKING:
    from broadloom.mailboxes.model import Letter
    from broadloom.wire import PeerId

Notify = Callable[["Sequence[Letter]"], None]
"""Called with one letter, or with the letters of a block."""


class Letterbox:
    def __init__(self, room: int = ROOM, sender_room: int | None = None) -> None:
        if room < 1 or (sender_room is not None and sender_room < 1):
            raise ValueError(f"room={room}, sender_room={sender_room}: must be at least 1")
        self._room = room
        self._sender_room = sender_room if sender_room is not None else math.ceil(room * SENDER_SHARE)
        self._letters: deque[Letter] = deque()
        self._held: Counter[PeerId] = Counter()
        """Letters in the queue by sender."""
        self.latest: Letter | None = None
        """The letter in a persistent mailbox."""
        self.notify: Notify | None = None
        self.consumes = False
        """Whether the notified function takes the letters, so that they are not queued."""

    def __len__(self) -> int:
        return len(self._letters)

    def accept(
        self, mailbox_class: MailboxClass, sender: "PeerId", letters: "Sequence[Letter]"
    ) -> tuple[int, DeliverStatus]:
        """Take a block of letters of one sender; return how many fit."""
        if mailbox_class.persistent:
            values = [each for each in letters if not each.is_ring]
            self.latest = values[-1] if values else self.latest
        consumed = self._consume(mailbox_class.receive, letters)
        queued = list(letters[consumed:])
        if mailbox_class.persistent:
            self._letters = deque(queued[-1:])
        else:
            fit = min(self._room - len(self._letters), self._sender_room - self._held[sender])
            queued = queued[: max(0, fit)]
            self._letters.extend(queued)
            self._held[sender] += len(queued)
        self._notify(mailbox_class.receive, queued)
        count = consumed + len(queued)
        return count, DeliverStatus.OK if count == len(letters) else DeliverStatus.FULL

    def _consume(self, receive: Receive | None, letters: "Sequence[Letter]") -> int:
        """Pass letters to a function that takes them; return how many. It may stop taking them in between."""
        if receive is not Receive.THROUGH:
            is_taken = self.consumes and receive is Receive.DELAYED
            if is_taken:
                self._notify(receive, letters)
            return len(letters) if is_taken else 0
        for count, letter in enumerate(letters):
            if not self.consumes:
                return count
            self._notify(receive, (letter,))
        return len(letters)

    def _notify(self, receive: Receive | None, letters: "Sequence[Letter]") -> None:
        if self.notify is None or not letters:
            return
        if receive is Receive.THROUGH:
            for letter in letters:
                self.notify((letter,))
        elif receive is Receive.DELAYED:
            self.notify(letters)

    def take(self) -> "Letter | None":
        if not self._letters:
            return None
        letter = self._letters.popleft()
        self._held[letter.sender] -= 1
        if self._held[letter.sender] <= 0:
            del self._held[letter.sender]
        return letter

    def take_many(self, count: int | None) -> "list[Letter]":
        """The next letters, at most `count`; None takes all."""
        wanted = len(self) if count is None else min(count, len(self))
        return [letter for _ in range(wanted) if (letter := self.take()) is not None]

    def clear(self) -> None:
        self._letters.clear()
        self._held.clear()
        self.latest = None
