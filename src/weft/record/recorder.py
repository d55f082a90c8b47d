"""What one peer tells the tape: the observer of the fabric, and what the layers above it know besides.

The rule: nothing here waits, converts or raises; each event is one tuple at the end of the tape's queue. (Unless the
tape was asked to wait when its queue is full.)
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from weft.fabric.events import LinkDown, LinkUp, Missed, StateChanged
from weft.fabric.state import State
from weft.record.rows import NUMBERS, Extra, Origin
from weft.record.schema import Kind
from weft.wire import Broadcast, PeerId

if TYPE_CHECKING:
    from weft.fabric.events import Batch, Event
    from weft.record.queue import Queue

_SENT = NUMBERS[Kind.SENT]
_RECEIVED = NUMBERS[Kind.RECEIVED]
_DELIVERED = NUMBERS[Kind.DELIVERED]
_MISSED = NUMBERS[Kind.MISSED]
_DUPLICATES = NUMBERS[Kind.DUPLICATES]
_STATES = {
    State.CONNECTED: NUMBERS[Kind.JOINED],
    State.LEAVING: NUMBERS[Kind.LEAVING],
    State.LEFT: NUMBERS[Kind.LEFT],
}
_ID_MAX = (1 << 64) - 1


class About(NamedTuple):
    """What a layer above the fabric reads in a message."""

    group: str | None = None
    parent: tuple[PeerId, int] | None = None
    """Author and sequence of the message that this one responds to."""
    topic: str | None = None
    message: tuple[int, int] | None = None
    """Which message of its group it is: the member that says it, and its number there."""
    parent_message: tuple[int, int] | None = None
    """The same of the message that it responds to."""


Describe = Callable[[bytes], About | None]
"""Reads a message's payload; None if there is nothing to say."""


class Recorder:
    """An observer of one peer of one channel. Made by `Tape.observer`."""

    __slots__ = ("_append", "_clock", "_describe", "_is_heavy", "_name", "_origin", "_payload", "_queue", "_rows")

    def __init__(
        self,
        queue: "Queue",
        wall_clock: Callable[[], float],
        channel: str,
        me: PeerId,
        name: str,
        describe: Describe | None,
        payload: bool,
    ) -> None:
        self._queue = queue
        self._rows = queue.rows
        self._append = queue.rows.append
        self._clock = wall_clock
        self._origin = Origin(channel, me)
        self._name = name
        self._describe = describe
        self._payload = payload
        self._is_heavy = payload or describe is not None

    # -- what the fabric tells. The same lines again and again: a common method would double their cost.

    def sent(self, sequence: int, data: bytes) -> None:
        extra = self._extra(data) if self._is_heavy else None
        origin, now_us = self._origin, int(self._clock() * 1e6)
        self._append((_SENT, now_us, origin, origin[1], sequence, None, None, None, None, len(data), extra))
        if len(self._rows) >= self._queue.pressed_rows or extra is not None:
            self._queue.press(extra)

    def received(self, message: Broadcast, neighbour: PeerId) -> None:
        author, sequence, _, messages, hops = message[:5]
        now_us = int(self._clock() * 1e6)
        for data in messages:
            self._append(
                (_RECEIVED, now_us, self._origin, author, sequence, None, hops, neighbour, None, len(data), None)
            )
            sequence += 1
            if len(self._rows) >= self._queue.pressed_rows:
                self._queue.press()

    def delivered(self, batch: "Batch") -> None:
        author, sequence, hops = batch.author, batch.first, batch.hops
        now_us = int(self._clock() * 1e6)
        for data in batch.data:
            extra = self._extra(data) if self._is_heavy else None
            self._append((_DELIVERED, now_us, self._origin, author, sequence, None, hops, None, None, len(data), extra))
            sequence += 1
            if len(self._rows) >= self._queue.pressed_rows or extra is not None:
                self._queue.press(extra)

    def missed(self, missed: Missed) -> None:
        author, first, last = missed
        self._put(_MISSED, author=author, sequence=first, last=last)

    def duplicates(self, count: int) -> None:
        self._put(_DUPLICATES, count=count)

    def happened(self, event: "Event") -> None:
        """Links, and the states that mean membership; a trace's notes are for people."""
        if isinstance(event, LinkUp):
            peer, address = event.neighbour
            self._put(NUMBERS[Kind.LINK_UP], neighbour=peer, extra=Extra(address=str(address)))
        elif isinstance(event, LinkDown):
            peer, address = event.neighbour
            extra = Extra(address=str(address), why=event.why.value)
            self._put(NUMBERS[Kind.LINK_DOWN], neighbour=peer, extra=extra)
        elif isinstance(event, StateChanged) and event.state in _STATES:
            joined = event.state is State.CONNECTED
            self._put(_STATES[event.state], extra=Extra(name=self._name) if joined and self._name else None)

    # -- what other layers tell

    def identification(
        self, subscriber: str, peer: PeerId, *, group: str | None = None, topic: str | None = None
    ) -> None:
        """A subscriber said that it is here: by name, because its peer is another one at each connect."""
        extra = _weighed(name=subscriber, group=group, topic=topic)
        self._put(NUMBERS[Kind.IDENTIFICATION], author=peer, extra=extra)

    def advert(self, name: str, *, group: str | None = None, topic: str | None = None) -> None:
        """An advert was shown to the user of this peer."""
        self._put(NUMBERS[Kind.ADVERT], extra=_weighed(name=name, group=group, topic=topic))

    # -- the rest

    def _put(
        self,
        kind: int,
        *,
        author: PeerId | None = None,
        sequence: int | None = None,
        last: int | None = None,
        neighbour: PeerId | None = None,
        count: int | None = None,
        extra: Extra | None = None,
    ) -> None:
        """For what happens seldom."""
        now_us = int(self._clock() * 1e6)
        self._append((kind, now_us, self._origin, author, sequence, last, None, neighbour, count, None, extra))
        if len(self._rows) >= self._queue.pressed_rows or extra is not None:
            self._queue.press(extra)

    def _extra(self, data: bytes) -> Extra | None:
        """Payload and meaning of a message, as far as they are asked for and there are any."""
        about = None
        if self._describe is not None:
            try:
                about = self._describe(data)
            except Exception:
                about = None  # it could not read a stranger's message: that is no reason to harm the channel
        payload = data if self._payload else None
        if about is None:
            return _weighed(payload=payload) if payload is not None else None
        return _weighed(
            group=about.group,
            parent=_checked(about.parent),
            topic=about.topic,
            payload=payload,
            message=_checked(about.message),
            parent_message=_checked(about.parent_message),
        )


_Name = tuple[int | None, int | None]
"""Of a message: whose it is, and its number there; or nothing."""


def _checked(named: tuple[int, int] | None) -> _Name:
    """Only an id of 64 bits is one."""
    return named if named is not None and 0 <= named[0] <= _ID_MAX else (None, None)


def _weighed(
    *,
    name: str | None = None,
    group: str | None = None,
    parent: _Name = (None, None),
    topic: str | None = None,
    payload: bytes | None = None,
    message: _Name = (None, None),
    parent_message: _Name = (None, None),
) -> Extra:
    """With its weight: others decide how long these are."""
    held_bytes = len(name or "") + len(group or "") + len(topic or "") + len(payload or b"")
    return Extra(None, None, name, group, *parent, topic, payload, *message, *parent_message, held_bytes)
