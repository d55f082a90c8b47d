"""`Recorder`: the observer that records one peer, and the metadata it reads from payloads.

Nothing here waits, converts or raises: each event is one tuple appended to the tape's queue. The exception is
`block_when_full`.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from broadloom.groups.codec import LAYER as GROUPS
from broadloom.groups.messages import payload_ids
from broadloom.protocol.events import LayerEvent, LinkDown, LinkUp, Missed, PeerState, StateChanged
from broadloom.protocol.identity import Identity
from broadloom.protocol.roster.member import Member, MemberJoined, MemberLeft, MemberLost
from broadloom.record.rows import KIND_NUMBERS, OptionalColumns, RowOrigin
from broadloom.record.schema import EventKind
from broadloom.wire import Broadcast, PeerId, WireError
from broadloom.wire.identity_messages import IDENTITY_KIND, Identification, decode_identity
from broadloom.wire.message_headers import Headers, split_headers
from broadloom.wire.payload_kind import HAS_HEADERS, PayloadKind, layer_kind

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
_MEMBER_KINDS = {
    MemberJoined: KIND_NUMBERS[EventKind.MEMBER_JOINED],
    MemberLeft: KIND_NUMBERS[EventKind.MEMBER_LEFT],
    MemberLost: KIND_NUMBERS[EventKind.MEMBER_LOST],
}
_LAYER_KINDS = {
    kind.value: KIND_NUMBERS[kind]
    for kind in (
        EventKind.REQUEST_STEP,
        EventKind.HANDLER_STEP,
        EventKind.RULE_HIT,
        EventKind.MAILBOX_CHANGE,
        EventKind.APP_ENTRY,
        EventKind.APP_LOG,
    )
}
_GROUPS_KIND = layer_kind(GROUPS)
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


Describe = Callable[[bytes, int], PayloadMetadata | None]
"""Reads metadata from a payload and the kind of its frame; None if there is none."""


class NamedPeer(NamedTuple):
    """Who a peer is. The fields have the names of the columns."""

    name: str | None = None
    role: str | None = None
    ticket_serial: str | None = None
    is_proven: bool = False

    @classmethod
    def of(cls, known: Member | Identity | None, given_name: str = "") -> "NamedPeer":
        """The name on the ticket, if there is one: no other name replaces it."""
        if known is not None and known.ticket_serial:
            return cls(known.name or None, known.role.value if known.role else None, known.ticket_serial, True)
        return cls(given_name or (known.name if known is not None else "") or None)


class Recorder:
    """Records one peer of one channel. Created by `Tape.observer`."""

    __slots__ = (
        "_append",
        "_clock",
        "_describe",
        "_has_extra",
        "_me",
        "_members",
        "_origin",
        "_payload",
        "_queue",
        "_rows",
    )

    def __init__(
        self,
        queue: "RowQueue",
        wall_clock: Callable[[], float],
        channel: str,
        me: PeerId,
        named: NamedPeer,
        describe: Describe | None,
        payload: bool,
    ) -> None:
        self._queue = queue
        self._rows = queue.rows
        self._append = queue.rows.append
        self._clock = wall_clock
        self._origin = RowOrigin(channel, me)
        self._me = named
        self._members: dict[PeerId, Member] = {}
        """The roster, from its events."""
        self._describe = describe
        self._payload = payload
        # Group messages are recognized by the kind of their frames, so other messages need not be looked at.
        self._has_extra = payload or describe not in (None, payload_metadata)

    @property
    def has_payload(self) -> bool:
        """Whether messages themselves are recorded."""
        return self._payload

    # -- called by the peer. The hot methods repeat a few lines: a shared method would double their cost.

    def sent(self, sequence: int, data: bytes, kind: int = 0) -> None:
        extra = self._extra(data, kind) if kind or self._has_extra else None
        origin, now_us = self._origin, int(self._clock() * 1e6)
        self._append((_SENT, now_us, origin, origin[1], sequence, None, None, None, None, len(data), extra))
        if len(self._rows) >= self._queue.check_at_rows or extra is not None:
            self._queue.check_limits(extra)
        if kind == IDENTITY_KIND:
            self._record_identity_message(origin[1], data, is_own=True)

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
            if kind == IDENTITY_KIND:
                self._record_identity_message(author, data)

    def missed(self, missed: Missed) -> None:
        author, first, last = missed
        self._put(_MISSED, author=author, sequence=first, last=last)

    def duplicates(self, count: int) -> None:
        self._put(_DUPLICATES, count=count)

    def on_event(self, event: "Event | LayerEvent") -> None:
        """Records links, membership states, members and events of layers, and no trace events."""
        if isinstance(event, LinkUp):
            peer, address = event.neighbor
            extra = OptionalColumns(address=str(address))
            identity = event.identity if event.identity is not None and event.identity.ticket_serial else None
            if (known := identity or self._members.get(peer)) is not None:
                extra = extra._replace(**NamedPeer.of(known)._asdict())
            self._put(KIND_NUMBERS[EventKind.LINK_UP], neighbor=peer, extra=extra)
        elif isinstance(event, LinkDown):
            peer, address = event.neighbor
            extra = OptionalColumns(address=str(address), reason=event.reason.value)
            self._put(KIND_NUMBERS[EventKind.LINK_DOWN], neighbor=peer, extra=extra)
        elif isinstance(event, StateChanged) and event.state in _STATES:
            joined = event.state is PeerState.CONNECTED
            self._put(_STATES[event.state], extra=OptionalColumns(**self._me._asdict()) if joined else None)
        elif isinstance(event, MemberJoined | MemberLeft | MemberLost) and not event.member.is_secondary:
            self._record_member(event)
        elif isinstance(event, LayerEvent) and event.kind in _LAYER_KINDS:
            self._record_layer_event(event)

    def _record_member(self, event: MemberJoined | MemberLeft | MemberLost) -> None:
        member = event.member
        if isinstance(event, MemberJoined):
            self._members[member.peer_id] = member
        else:
            self._members.pop(member.peer_id, None)
        reason = event.cause.value if isinstance(event, MemberLost) else None
        extra = OptionalColumns(address=str(member.address), reason=reason, **NamedPeer.of(member)._asdict())
        self._put(_MEMBER_KINDS[type(event)], author=member.peer_id, extra=extra)

    def _record_layer_event(self, event: LayerEvent) -> None:
        extra = OptionalColumns(
            name=event.name,
            reason=event.reason,
            status=event.status,
            handler=event.handler,
            scope=event.scope,
            file_name=event.file_name,
            is_notice=event.is_notice,
            is_repeatable=event.is_repeatable,
            rule_number=event.rule_number,
            actions=event.actions,
            duration_ms=event.duration_ms,
            owner=event.owner,
            payload=event.payload if self._payload else None,
        )
        kind, size = _LAYER_KINDS[event.kind], event.size_bytes
        self._put(kind, author=event.author, sequence=event.sequence, size=size, extra=extra)

    def _record_identity_message(self, author: PeerId, data: bytes, *, is_own: bool = False) -> None:
        """An identification, or an ad that another member announced."""
        try:
            message = decode_identity(data)
        except WireError:
            return
        if isinstance(message, Identification):
            self.identification(message.name, author, attributes=dict(message.attributes))
        elif not is_own:
            self.ad_impression(message.name, topic=message.topic or None)

    # -- called by other layers

    def identification(
        self,
        subscriber: str,
        peer: PeerId,
        *,
        group_id: str | None = None,
        topic: str | None = None,
        attributes: Mapping[str, str] | None = None,
        identity: Identity | None = None,
    ) -> None:
        """A subscriber identified itself by name: its peer id changes with every connection. `identity`: what its
        certificate states, if the caller has verified that."""
        named = NamedPeer.of(identity or self._members.get(peer), subscriber)
        if peer == self._origin.peer and not (subscriber and self._me.ticket_serial is None):
            named = self._me
        extra = OptionalColumns(
            group_id=group_id,
            topic=topic,
            attributes=json.dumps(attributes, ensure_ascii=False) if attributes else None,
            **named._asdict(),
        )
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
        size: int | None = None,
        extra: OptionalColumns | None = None,
    ) -> None:
        """Append a row of a rare kind."""
        now_us = int(self._clock() * 1e6)
        self._append((kind, now_us, self._origin, author, sequence, last, None, neighbor, count, size, extra))
        if len(self._rows) >= self._queue.check_at_rows or extra is not None:
            self._queue.check_limits(extra)

    def _extra(self, data: bytes, kind: int) -> OptionalColumns | None:
        """Topic, payload and metadata of a message, if they are recorded and there are any."""
        metadata = None
        headers = _headers(data, kind) if kind else _NO_HEADERS
        if self._describe is not None:
            try:
                metadata = self._describe(data, kind)
            except Exception:
                metadata = None  # a message from another member must not break the channel
        payload = data if self._payload else None
        if metadata is None:
            if payload is None and headers.topic is None and headers.content_type is None:
                return None
            return OptionalColumns(topic=headers.topic, payload=payload, content_type=headers.content_type)
        group_id, parent, topic, message_id, parent_message_id = metadata
        return OptionalColumns(
            None,
            None,
            None,
            group_id,
            *_checked(parent),
            topic if headers.topic is None else headers.topic,
            payload,
            *_checked(message_id),
            *_checked(parent_message_id),
            content_type=headers.content_type,
        )


def _checked(ids: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """None for ids that do not fit into 64 bits."""
    return ids if ids is not None and 0 <= ids[0] <= _ID_MAX else (None, None)


def _headers(data: bytes, kind: int) -> Headers:
    """What the author gave. The headers of a large message are in its first fragment."""
    kind, data = _first_of_message(data, kind)
    if kind & HAS_HEADERS:
        with suppress(WireError):
            return split_headers(data)[0].headers
    return _NO_HEADERS


FRAGMENT_HEADER_BYTES = 16
_FRAGMENT_NUMBER = slice(4, 8)
_MESSAGE_KIND = slice(12, FRAGMENT_HEADER_BYTES)
_NO_HEADERS = Headers()


def _first_of_message(data: bytes, kind: int) -> tuple[int, bytes]:
    """The kind and the beginning of the message that begins with this payload: itself, or its first fragment."""
    if kind == PayloadKind.FRAGMENT and len(data) > FRAGMENT_HEADER_BYTES and not any(data[_FRAGMENT_NUMBER]):
        return int.from_bytes(data[_MESSAGE_KIND], "big"), data[FRAGMENT_HEADER_BYTES:]
    return kind, data


def payload_metadata(data: bytes, kind: int) -> PayloadMetadata | None:
    """Group, message and parent of a group message.

    A large message is sent in fragments, each recorded as a row. The ids are in the first one.
    """
    message_kind, data = _first_of_message(data, kind)
    ids = payload_ids(data, is_partial=kind == PayloadKind.FRAGMENT) if message_kind == _GROUPS_KIND else None
    if ids is None:
        return None
    return PayloadMetadata(group_id=f"{ids.group_id:016x}", message_id=ids.message_id, parent_message_id=ids.parent_id)
