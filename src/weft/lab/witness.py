"""Sees a peer of a lab from its first moment on: counts, follows some messages on their way, and hands all to the tape.

The rule: what is reported is bounded. Every message is counted; the way of a few a second is told hop by hop. Which
ones is decided by author and number alone, so all peers choose the same without a word between them.
"""

import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from weft.groups import identities
from weft.lab import talk
from weft.trial.member import Witness

if TYPE_CHECKING:
    from weft.fabric import ChannelName
    from weft.groups import MessageId
    from weft.record import About, Recorder, Tape
    from weft.wire import Broadcast, PeerId

PLACES_MAX = 20_000
"""Chat lines of which it is known as which message of the channel they came."""
FOLLOWED_MAX = 4_000
"""Hops that wait to be told; the oldest give way, and are counted."""
_MIX = 0x9E3779B97F4A7C15
_ID_MASK = (1 << 64) - 1


class Followed:
    """Which messages are followed, and what was seen of them: one for all peers of a process."""

    def __init__(self) -> None:
        self.one_of = 1
        """One message of so many is followed; 0: none."""
        self.said: deque[list[Any]] = deque(maxlen=FOLLOWED_MAX)
        """Time, author, sequence, size."""
        self.hops: deque[list[Any]] = deque(maxlen=FOLLOWED_MAX)
        """Time, author, sequence, source, peer, hops."""
        self.dropped = 0

    def chosen(self, author: int, sequence: int) -> bool:
        one_of = self.one_of
        return one_of > 0 and ((author ^ sequence * _MIX & _ID_MASK) >> 20) % one_of == 0

    def add(self, to: deque[list[Any]], told: list[Any]) -> None:
        if len(to) == to.maxlen:
            self.dropped += 1
        to.append(told)


class Scribe:
    """Reads in a message what the tape shall say of it: its group, what it answers, its topic."""

    def __init__(self, titles: dict[int, str]) -> None:
        self._titles = titles
        self._places: OrderedDict[tuple[int, MessageId], tuple[int, int]] = OrderedDict()
        """A line is known by its group and its number there."""

    def place(self, author: int, sequence: int, data: bytes) -> None:
        """If this message of the channel is a line of a conversation, an answer to it may name it."""
        named = identities(data)
        if named is not None and (named.group, named.message) not in self._places:
            self._places[named.group, named.message] = author, sequence
            if len(self._places) > PLACES_MAX:
                self._places.popitem(last=False)

    def describe(self, data: bytes) -> "About | None":
        from weft.record import About

        named = identities(data)
        if named is not None:
            title = self._titles.get(named.group, f"{named.group:016x}")
            parent = self._places.get((named.group, named.parent)) if named.parent is not None else None
            return About(title, parent, "chat")
        told = talk.read(data)
        return About(topic=str(told["kind"])) if told is not None else None


class LabWitness(Witness):
    def __init__(self, tape: "Tape | None", name: str, followed: Followed, scribe: Scribe) -> None:
        super().__init__(None)
        self._real_tape = tape
        self._name = name
        self._followed = followed
        self._scribe = scribe
        self._me: PeerId = 0
        self._own: Recorder | None = None
        self.recorder: Recorder | None = None
        self.sent_count = 0
        self.sent_ns = 0
        self.received_count = 0
        self.duplicates_count = 0

    def observer(self, channel: "ChannelName", me: "PeerId") -> "LabWitness":
        super().observer(channel, me)
        self._me = me
        if self._real_tape is not None:
            self._observer = self.recorder = self._real_tape.observer(channel, me, name=self._name)
            # Only the author says what a message is about. A receiver's rows are those of the channel, which may bring
            # an answer first; the groups put that right later, where no tape sees it.
            self._own = self._real_tape.observer(channel, me, name=self._name, describe=self._scribe.describe)
        return self

    def sent(self, sequence: int, data: bytes) -> None:
        self.sent_count, self.sent_ns = sequence, time.monotonic_ns()
        self._scribe.place(self._me, sequence, data)
        if self._own is not None:
            self._own.sent(sequence, data)
        if self._followed.chosen(self._me, sequence):
            self._followed.add(self._followed.said, [time.time(), self._me, sequence, len(data)])

    def received(self, message: "Broadcast", neighbour: "PeerId") -> None:
        author, first, _, messages, hops = message[:5]
        self.received_count += len(messages)
        for sequence in range(first, first + len(messages)):
            if self._followed.chosen(author, sequence):
                step = [time.time(), author, sequence, neighbour, self._me, hops]
                self._followed.add(self._followed.hops, step)
        super().received(message, neighbour)

    def duplicates(self, count: int) -> None:
        self.duplicates_count += count
        super().duplicates(count)
