"""`Recorder`: the observer that records one peer, and the metadata it reads from payloads.

Nothing here waits, converts or raises: each event is one tuple appended to the tape's queue. The exception is
`block_when_full`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from broadloom.channel.fragments import FRAGMENT_BYTES
from broadloom.groups.messages import payload_ids
from broadloom.protocol.events import LinkDown, LinkUp, Missed, PeerState, StateChanged
from broadloom.record.rows import KIND_NUMBERS, OptionalColumns, RowOrigin
from broadloom.record.schema import EventKind
from broadloom.wire import Broadcast, PeerId, WireError
from broadloom.wire.message_headers import split_headers
from broadloom.wire.payload_kind import HAS_HEADERS, PayloadKind

if TYPE_CHECKING:
    from broadloom.protocol.events import Batch, Event
    from broadloom.record.row_queue import RowQueue


_SENT = KIND_NUMBERS[EventKind.SENT]
_RECEIVED = KIND_NUMBERS[EventKind.RECEIVED]
_DELIVERED = KIND_NUMBERS[EventKind.DELIVERED]
_MISSED = KIND_NUMBERS[EventKind.MISSED]
_DUPLICATES = KIND_NUMBERS[EventKind.DUPLICATES]
_STATES = {
    PeerState.CONNECTED: KIND_NUMBERS[EventKind.JOINED],
    PeerState.LEAVING: KIND_NUMBERS[EventKind.LEAVING],
    PeerState.LEFT: KIND_NUMBERS[EventKind.LEFT],
}
_ID_MAX = (1 << 64) - 1


class PayloadMetadata(NamedTuple):
    """What a layer above the channel reads from a payload."""

    group_id: str | None = None
    parent: tuple[PeerId, int] | None = None
    """Author and sequence of the message this one replies to."""
    topic: str | None = None
    message_id: tuple[int, int] | None = None
    """Member and sequence within the group."""
    parent_message_id: tuple[int, int] | None = None
    """The same for the message this one replies to."""


Describe = Callable[[bytes], PayloadMetadata | None]
"""Reads metadata from a payload; None if there is none."""


class Recorder:
    """Records one peer of one channel. Created by `Tape.observer`."""

    __slots__ = ("_append", "_clock", "_describe", "_has_extra", "_name", "_origin", "_payload", "_queue", "_rows")

    def __init__(
        self,
        queue: "RowQueue",
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
        self._origin = RowOrigin(channel, me)
        self._name = name
        self._describe = describe
        self._payload = payload
        self._has_extra = payload or describe is not None

    # -- called by the peer. The hot methods repeat a few lines: a shared method would double their cost.

    def sent(self, sequence: int, data: bytes, kind: int = 0) -> None:
        extra = self._extra(data, kind) if kind or self._has_extra else None
        origin, now_us = self._origin, int(self._clock() * 1e6)
        self._append((_SENT, now_us, origin, origin[1], sequence, None, None, None, None, len(data), extra))
        if len(self._rows) >= self._queue.check_at_rows or extra is not None:
            self._queue.check_limits(extra)

    def received(self, message: Broadcast, neighbor: PeerId) -> None:
        author, sequence, _, messages, hops = message[:5]
        now_us = int(self._clock() * 1e6)
        for data in messages:
            self._append(
                (_RECEIVED, now_us, self._origin, author, sequence, None, hops, neighbor, None, len(data), None)
            )
            sequence += 1
            if len(self._rows) >= self._queue.check_at_rows:
                self._queue.check_limits()

    def delivered(self, batch: "Batch") -> None:
        author, sequence, hops, kind = batch.author, batch.first_sequence, batch.hops, batch.kind
        has_extra, now_us = kind or self._has_extra, int(self._clock() * 1e6)
        for data in batch.data:
            extra = self._extra(data, kind) if has_extra else None
            self._append((_DELIVERED, now_us, self._origin, author, sequence, None, hops, None, None, len(data), extra))
            sequence += 1
            if len(self._rows) >= self._queue.check_at_rows or extra is not None:
                self._queue.check_limits(extra)

    def missed(self, missed: Missed) -> None:
        author, first, last = missed
        self._put(_MISSED, author=author, sequence=first, last=last)

    def duplicates(self, count: int) -> None:
        self._put(_DUPLICATES, count=count)

    def on_event(self, event: "Event") -> None:
        """Records links and membership states, and no trace events."""
        if isinstance(event, LinkUp):
            peer, address = event.neighbor
            self._put(KIND_NUMBERS[EventKind.LINK_UP], neighbor=peer, extra=OptionalColumns(address=str(address)))
        elif isinstance(event, LinkDown):
            peer, address = event.neighbor
            extra = OptionalColumns(address=str(address), reason=event.reason.value)
            self._put(KIND_NUMBERS[EventKind.LINK_DOWN], neighbor=peer, extra=extra)
        elif isinstance(event, StateChanged) and event.state in _STATES:
            joined = event.state is PeerState.CONNECTED
            self._put(_STATES[event.state], extra=OptionalColumns(name=self._name) if joined and self._name else None)

    # -- called by other layers

    def identification(
        self, subscriber: str, peer: PeerId, *, group_id: str | None = None, topic: str | None = None
    ) -> None:
        """A subscriber identified itself by name: its peer id changes with every connection."""
        extra = OptionalColumns(name=subscriber, group_id=group_id, topic=topic)
        self._put(KIND_NUMBERS[EventKind.IDENTIFICATION], author=peer, extra=extra)

    def ad_impression(self, name: str, *, group_id: str | None = None, topic: str | None = None) -> None:
        """An ad was shown to the user of this peer."""
        extra = OptionalColumns(name=name, group_id=group_id, topic=topic)
        self._put(KIND_NUMBERS[EventKind.AD_IMPRESSION], extra=extra)

    def _put(
        self,
        kind: int,
        *,
        author: PeerId | None = None,
        sequence: int | None = None,
        last: int | None = None,
        neighbor: PeerId | None = None,
        count: int | None = None,
        extra: OptionalColumns | None = None,
    ) -> None:
        """Append a row of a rare kind."""
        now_us = int(self._clock() * 1e6)
        self._append((kind, now_us, self._origin, author, sequence, last, None, neighbor, count, None, extra))
        if len(self._rows) >= self._queue.check_at_rows or extra is not None:
            self._queue.check_limits(extra)

    def _extra(self, data: bytes, kind: int) -> OptionalColumns | None:
        """Topic, payload and metadata of a message, if they are recorded and there are any."""
        metadata = None
        sent_topic = _topic(data, kind) if kind else None
        if self._describe is not None:
            try:
                metadata = self._describe(data)
            except Exception:
                metadata = None  # a message from another member must not break the channel
        payload = data if self._payload else None
        if metadata is None:
            has_any = payload is not None or sent_topic is not None
            return OptionalColumns(topic=sent_topic, payload=payload) if has_any else None
        group_id, parent, topic, message_id, parent_message_id = metadata
        return OptionalColumns(
            None,
            None,
            None,
            group_id,
            *_checked(parent),
            topic if sent_topic is None else sent_topic,
            payload,
            *_checked(message_id),
            *_checked(parent_message_id),
        )


def _checked(ids: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """None for ids that do not fit into 64 bits."""
    return ids if ids is not None and 0 <= ids[0] <= _ID_MAX else (None, None)


def _topic(data: bytes, kind: int) -> str | None:
    """The topic that the author gave. That of a large message is in its first fragment."""
    if kind == PayloadKind.FRAGMENT and len(data) > FRAGMENT_HEADER_BYTES and not any(data[_FRAGMENT_NUMBER]):
        kind, data = int.from_bytes(data[12:FRAGMENT_HEADER_BYTES], "big"), data[FRAGMENT_HEADER_BYTES:]
    if kind & HAS_HEADERS:
        with suppress(WireError):
            return split_headers(data)[0].headers.topic
    return None


FRAGMENT_HEADER_BYTES = 16
_FIRST_FRAGMENT_BYTES = FRAGMENT_HEADER_BYTES + FRAGMENT_BYTES
"""No other payload has this size: larger messages are fragmented, and only a last fragment is smaller."""
_FRAGMENT_NUMBER = slice(4, 8)


def payload_metadata(data: bytes) -> PayloadMetadata | None:
    """Group, message and parent of a group message.

    A large message is sent in fragments, each recorded as a row. The ids are in the first one.
    """
    if len(data) == _FIRST_FRAGMENT_BYTES and not any(data[_FRAGMENT_NUMBER]):
        ids = payload_ids(data[FRAGMENT_HEADER_BYTES:], is_partial=True)
    else:
        ids = payload_ids(data)
    if ids is None:
        return None
    return PayloadMetadata(group_id=f"{ids.group_id:016x}", message_id=ids.message_id, parent_message_id=ids.parent_id)
