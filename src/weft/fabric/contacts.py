"""The address cache: peers that this one has heard of, for the day when all its neighbours die.

It should be a fair sample of the living fabric, so it is refreshed from arrivals, walks, greetings and probes. An
address that does not answer is not dropped at once: after a network split it is the way back.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from weft.wire import Contact, PeerId

if TYPE_CHECKING:
    from random import Random

TOLD_SHARE = 8
"""One message brings at most this fraction of the cache."""
FAILURES_MAX = 6
"""An address that failed so often in a row is forgotten."""


class ContactCache:
    """Bounded; what failed is replaced first, then a random entry."""

    def __init__(self, me: PeerId, cache_max: int, random: "Random") -> None:
        self._me = me
        self._max = cache_max
        self._random = random
        self._contacts: list[Contact] = []
        self._position: dict[PeerId, int] = {}
        self._failures: dict[PeerId, int] = {}

    def __len__(self) -> int:
        return len(self._contacts)

    def __contains__(self, peer: object) -> bool:
        return peer in self._position

    def add(self, contact: Contact) -> None:
        """Heard of this one, second hand."""
        peer = contact.peer
        if peer in self._position or peer == self._me:
            return
        if len(self._contacts) >= self._max:
            self.drop(self._victim())
        self._position[peer] = len(self._contacts)
        self._contacts.append(contact)

    def add_all(self, contacts: Sequence[Contact]) -> None:
        """What another peer told us; so much of it that nobody can replace all that we know in one go."""
        for contact in contacts[: self._max // TOLD_SHARE]:
            self.add(contact)

    def answered(self, contact: Contact) -> None:
        """Spoke with this one."""
        self._failures.pop(contact.peer, None)
        position = self._position.get(contact.peer)
        if position is None:
            self.add(contact)
        else:
            self._contacts[position] = contact  # it knows its own address best

    def failed(self, peer: PeerId) -> None:
        """Did not answer. Kept for a while: it may be behind a split that heals."""
        if peer in self._position:
            count = self._failures.get(peer, 0) + 1
            self._failures[peer] = count
            if count >= FAILURES_MAX:
                self.drop(peer)

    def drop(self, peer: PeerId) -> None:
        """Left, or another peer answers there now."""
        position = self._position.pop(peer, None)
        if position is None:
            return
        self._failures.pop(peer, None)
        last = self._contacts.pop()
        if last.peer != peer:
            self._contacts[position] = last
            self._position[last.peer] = position

    def sample(self, count: int) -> tuple[Contact, ...]:
        """Random entries to tell to another peer; those that failed us are not passed on."""
        if count >= len(self._contacts):
            chosen = list(self._contacts)
        else:
            chosen = self._random.sample(self._contacts, count)
        if self._failures:
            chosen = [each for each in chosen if each.peer not in self._failures]
        return tuple(chosen)

    def pick(self, avoid: Iterable[PeerId] = (), *, hopeful: bool = False) -> Contact | None:
        """A random entry that is not in `avoid`; `hopeful`: one that has not failed us, if there is any."""
        if hopeful and self._failures:
            left = [each for each in self._contacts if each.peer not in avoid and each.peer not in self._failures]
            if left:
                return self._random.choice(left)
        for _ in range(4):
            if not self._contacts:
                return None
            contact = self._random.choice(self._contacts)
            if contact.peer not in avoid:
                return contact
        left = [each for each in self._contacts if each.peer not in avoid]
        return self._random.choice(left) if left else None

    def _victim(self) -> PeerId:
        if self._failures:
            return next(iter(self._failures))
        return self._random.choice(self._contacts).peer
