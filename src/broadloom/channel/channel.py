"""`Channel`: one channel as one program has joined it.

A program may run several peers of one channel (`local_peers=3`), which act as one: see `peer_set.py`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from broadloom.channel.envelopes import open_envelopes
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.fragments import Reassembler
from broadloom.channel.inbox import Inbox, Overflow
from broadloom.channel.layer import LAYER_SHIFT, Layer, Layers
from broadloom.channel.peer_set import PeerSetMerge
from broadloom.channel.reader import Reader
from broadloom.channel.sender import Sender
from broadloom.channel.status import Status, status_of
from broadloom.channel.subscription import Subscription, SubscriptionOverflow, Subscriptions
from broadloom.errors import NotConnectedError, NotPermittedError
from broadloom.protocol import PeerState
from broadloom.protocol.events import (
    AuthorWarning,
    Batch,
    Event,
    LinkDown,
    LinkUp,
    Message,
    Missed,
    StateChanged,
    TraceEvent,
)
from broadloom.protocol.identity import Identity
from broadloom.transport import TcpNode
from broadloom.wire import PeerId, WireError
from broadloom.wire.broadcast_frame import PayloadKind
from broadloom.wire.message_headers import HAS_HEADERS

log = logging.getLogger("broadloom")

WARN_INTERVAL_S = 1.0
"""Minimum time between two warnings about missed messages. Each one is reported as an event anyway."""
LEAVE_TIMEOUT_S = 6.0
"""Maximum time to leave gracefully; a neighbor may not answer."""
DRAIN_TIMEOUT_S = 1.5
"""Maximum time to drain outgoing queues when leaving."""
DRAIN_POLL_S = 0.02

UNREAD_RING_BYTES = 1 << 20
"""The inbox of a program that has never read it and has other readers keeps only this much, and reports no loss."""

ChannelEvent = Event | Missed | SubscriptionOverflow


class Channel(Sender, Reader):
    """A joined channel, returned by `broadloom.connect`. Use it from the event loop that joined it.

    Read it by iterating, with `receive` or `receive_nowait`, or with a callback.
    """

    def __init__(
        self, name: str, node: TcpNode, *, overflow: Overflow, inbox_messages_max: int, inbox_bytes_max: int
    ) -> None:
        super().__init__(node)
        self.name = name
        self.missed_count = 0
        """Messages that this program will not receive; each was reported in a `Missed` event."""
        self._listeners: EventListeners[ChannelEvent] = EventListeners(name)
        self._secondary_nodes: list[TcpNode] = []
        self._overflow_policy = overflow
        self._inbox = Inbox(
            inbox_messages_max, inbox_bytes_max, on_full=self._on_inbox_full, on_drained=self._on_inbox_drained
        )
        self._subscriptions = Subscriptions(self._listeners.emit, self._pause_for, self._resume_for)
        self._layers = Layers(self)
        self._has_other_readers = False
        """There was a subscription or a layer."""
        self._pausing: set[Reader] = set()
        """Readers that wait for room in their inbox (`overflow="pause"`)."""
        self._merge: PeerSetMerge | None = None
        self._batch_callback: Callable[[Batch], None] | None = None
        self._is_calling_back = False
        """A callback of `on_message` is in the middle of a batch."""
        self._reassembler = Reassembler(node.settings.message_bytes_max, self._on_missed)
        self._left = asyncio.Event()
        self._all_left = asyncio.Event()
        """Set when all local peers have left."""
        self._leave_task: asyncio.Task[None] | None = None
        self._has_overflowed = False
        self._warn_again_at = 0.0
        node.deliver, node.report_missed, node.emit = self._on_delivery, self._on_missed, self._on_peer_event

    def _attach_peer_set(self, secondary_nodes: list[TcpNode]) -> None:
        merge = self._merge = PeerSetMerge(self._node.id, self._on_delivery, self._on_missed)
        self._node.deliver, self._node.report_missed = merge.on_primary_batch, merge.on_primary_missed
        for node in secondary_nodes:
            node.deliver, node.report_missed, node.emit = merge.on_secondary_batch, _ignore, self._on_secondary_event
        self._secondary_nodes = secondary_nodes

    @property
    def _nodes(self) -> list[TcpNode]:
        return [node for node in (self._node, *self._secondary_nodes) if node.has_started]

    # -- identity and status

    @property
    def peer_id(self) -> PeerId:
        """This program's id on the channel, new at each connect."""
        return self._node.id

    @property
    def is_connected(self) -> bool:
        return self._node.peer.state is PeerState.CONNECTED

    @property
    def _full_mesh_size(self) -> int | None:
        """Number of peers in a full mesh; None in a larger fabric, where no peer knows it."""
        return self._node.peer.full_mesh_size

    def identity(self, peer_id: PeerId) -> Identity | None:
        """The verified name and role of an author; None if the channel is not signed or the author is unknown."""
        if peer_id == self._node.id:
            return self._node.credentials.identity if self._node.credentials is not None else None
        verifier = self._node.peer.broadcaster.verifier
        return verifier.identity_of(peer_id) if verifier is not None else None

    def display_name(self, peer_id: PeerId) -> str:
        """The name on the author's ticket, or its id in hex."""
        identity = self.identity(peer_id)
        return identity.name if identity is not None and identity.name else f"{peer_id:016x}"

    def status(self) -> Status:
        """The state of this peer: neighbors, free slots, estimated diameter, counters."""
        status = status_of(self.name, self._node, unread_count=len(self._inbox), unread_bytes=self._inbox.held_bytes)
        return replace(
            status,
            unknown_layers=dict(self._layers.unknown),
            local_peers=tuple(status_of(self.name, node) for node in self._secondary_nodes),
        )

    async def wait_for_peers(self, timeout_s: float | None = None) -> None:
        """Wait until another peer is connected. A message broadcast before that reaches no one.

        Raises `TimeoutError`, or `NotConnectedError` if the channel was left.
        """
        links = self._node.peer.links

        def has_peers() -> bool:
            if not len(links) and self._left.is_set():
                raise NotConnectedError(self._end_message())
            return len(links) > 0

        try:
            async with asyncio.timeout(timeout_s):
                await self._listeners.wait_until(has_peers)
        except TimeoutError:
            raise TimeoutError(f"{self.name}: no other peer connected within {timeout_s:g} s") from None

    def set_bootstrap(self, hosts: Sequence[str]) -> None:
        """Replace the bootstrap hosts. The peer looks for members there at once, and whenever it needs to."""
        if isinstance(hosts, str):
            raise TypeError(f"hosts is a list of addresses: [{hosts!r}]")
        for node in (self._node, *self._secondary_nodes):
            node.set_bootstrap(hosts)

    # -- receiving

    def subscribe(
        self,
        pattern: str | None = None,
        *,
        overflow: Overflow | str = Overflow.DROP_OLDEST,
        messages_max: int = 65_536,
        bytes_max: int = 16 << 20,
    ) -> Subscription:
        """An independent reader for the messages whose topic matches; without a pattern, for all messages.

        In a pattern, `*` stands for one level of the topic and `**` for any number. What this reader drops when it is
        full is reported in a `SubscriptionOverflow` event; `overflow="leave"` ends this subscription only.
        """
        if self._inbox.is_closed:
            raise NotConnectedError(self._end_message())
        subscription = Subscription(
            self.name, pattern, Overflow(overflow), messages_max, bytes_max, self._subscriptions
        )
        self._has_other_readers = True
        return subscription

    def layer(self, mark: str, on_batch: Callable[[Batch], None] | None = None) -> Layer:
        """Run a protocol of its own on this channel: its messages go to `on_batch` of the same layer, and to no other
        reader. Without `on_batch` it can only send. Raises `ValueError` if the program already receives this layer."""
        layer = self._layers.add(mark, on_batch)
        self._has_other_readers = self._has_other_readers or on_batch is not None
        return layer

    def on_message(self, callback: Callable[[Message], None] | None) -> Callable[[], None]:
        """Call `callback` for each message instead of storing it in the inbox, beginning with the unread ones.

        There is one callback: a new one replaces it, and None removes it. Returns a function that removes this one.
        """
        if callback is None:
            return self.on_batch(None)

        def call_for_each(batch: Batch) -> None:
            read = batch.first_sequence
            self._is_calling_back = True
            try:
                for message in batch:
                    read = message.sequence
                    self._invoke(callback, message)
                    if self._batch_callback is not call_for_each:
                        break
            finally:
                self._is_calling_back = False
            if self._batch_callback is not call_for_each:  # removed or replaced: the rest is not for this callback
                self._inbox.push_front(batch.after(read))
                self.on_batch(self._batch_callback)

        return self.on_batch(call_for_each)

    def on_batch(self, callback: Callable[[Batch], None] | None) -> Callable[[], None]:
        """As `on_message`, with a whole batch at a time."""
        self._is_read = True
        self._batch_callback = callback

        def unsubscribe() -> None:
            if self._batch_callback is callback:
                self._batch_callback = None

        # During a callback of `on_message` the unread messages wait for the rest of its batch.
        while not self._is_calling_back and self._batch_callback is not None:
            batch = self._inbox.take_batch()
            if batch is None:
                break
            self._invoke(self._batch_callback, batch)
        return unsubscribe

    # -- events

    def on_event(self, callback: Callable[[ChannelEvent], None]) -> Callable[[], None]:
        """Call `callback` for each event: state, links, missed messages. Returns a function that removes it."""
        return self._listeners.add(callback)

    def events(self) -> AsyncGenerator[ChannelEvent, None]:
        """Events as they happen, until the channel is left."""
        return self._listeners.events()

    # -- leaving

    async def leave(self) -> None:
        """Leave gracefully: everything sent before is delivered, and no other member loses a message."""
        await asyncio.shield(self._start_leaving())

    async def aclose(self) -> None:
        """The same as `leave`."""
        await self.leave()

    async def close_channel(self) -> None:
        """Close the channel for everyone. On a signed channel members ignore this, since any member could do it."""
        if not self._node.peer.accepts_channel_close:
            raise NotPermittedError(
                "this peer ignores close_channel, as members of a signed channel do by default; to allow it, all "
                "members connect with ChannelSettings(accept_channel_close=True)"
            )
        self._node.peer.close_channel()
        await self.leave()

    def _start_leaving(self) -> asyncio.Task[None]:
        if self._leave_task is None:
            self._leave_task = asyncio.get_running_loop().create_task(self._leave())
        return self._leave_task

    async def _leave(self) -> None:
        try:
            for node in self._nodes:
                node.resume_reading()  # leaving gracefully needs the answers of the neighbors
            await self._drain_neighbors()
            for node in self._nodes:
                node.peer.leave()
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._all_left.wait()
            except TimeoutError:
                log.warning("%s: left without an answer from all neighbors", self.name)
            await asyncio.gather(*(node.close() for node in self._nodes))
        finally:
            self.abort()

    async def _drain_neighbors(self) -> None:
        peer, deadline = self._node.peer, self._node.now() + DRAIN_TIMEOUT_S
        while any(link.is_congested or link.backlog for link in peer.links) and self._node.now() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)

    def abort(self) -> None:
        """Disconnect without notice, as if the process had been killed."""
        self._close_sockets()
        if not self._left.is_set():
            self._listeners.emit(StateChanged(PeerState.LEFT))
        self._mark_left()
        self._all_left.set()

    def _close_sockets(self) -> None:
        """As `abort`, without events: for the exit of the process."""
        for node in [self._node, *self._secondary_nodes]:
            node.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    # -- callbacks of the peers

    def _on_delivery(self, batch: Batch) -> None:
        batch.author = PeerId(batch.author)
        if batch.kind == PayloadKind.FRAGMENT:
            for whole in self._reassembler.feed(batch):
                self._route(whole)
        else:
            self._route(batch)

    def _route(self, batch: Batch) -> None:
        """To the application; messages of layers and with headers take a detour."""
        if batch.kind < HAS_HEADERS:
            self._dispatch(batch)
        elif batch.kind >> LAYER_SHIFT:
            self._layers.route(batch)
        else:
            for part in open_envelopes(batch, self._on_malformed):
                self._dispatch(part)

    def _on_malformed(self, batch: Batch, index: int, problem: WireError) -> None:
        """The author is to blame, not the neighbor that relayed it."""
        self._node.peer.counters.malformed_headers += 1
        log.debug("%s: a message of %016x was dropped: %s", self.name, batch.author, problem)
        sequence = batch.first_sequence + index
        self._on_missed(Missed(batch.author, sequence, sequence))

    def _dispatch(self, batch: Batch) -> None:
        if self._has_other_readers:
            self._subscriptions.put(batch)
        if self._batch_callback is not None:
            self._invoke(self._batch_callback, batch)
        elif not self._discards_new:
            self._inbox.put(batch)
            if self._is_ignored:
                self._inbox.keep_newest(UNREAD_RING_BYTES)

    def _invoke(self, callback: Callable[[Any], None], item: Message | Batch) -> None:
        try:
            callback(item)
        except Exception:
            log.exception("%s: the message callback failed", self.name)

    @property
    def _discards_new(self) -> bool:
        """Leaving with a full inbox: new messages are discarded, so that the unread ones have no gaps."""
        is_leaving = self._leave_task is not None and self._overflow_policy is not Overflow.DROP_OLDEST
        return self._has_overflowed or (is_leaving and self._inbox.is_full)

    def _on_missed(self, missed: Missed) -> None:
        self.missed_count += missed.last_sequence - missed.first_sequence + 1
        self._listeners.emit(missed._replace(author=PeerId(missed.author)))
        now = self._node.now()
        if now >= self._warn_again_at:
            self._warn_again_at = now + WARN_INTERVAL_S
            log.warning("%s: %d messages missed so far, the last of %016x", self.name, self.missed_count, missed.author)

    def _on_peer_event(self, event: Event) -> None:
        if isinstance(event, LinkUp | LinkDown):
            neighbor = event.neighbor
            event = event._replace(neighbor=neighbor._replace(peer_id=PeerId(neighbor.peer_id)))
        elif isinstance(event, AuthorWarning):
            event = event._replace(author=PeerId(event.author))
            log.warning("%s: %s", self.name, event.text)
        self._listeners.emit(event)
        if isinstance(event, StateChanged) and event.state is PeerState.LEFT:
            self._mark_left()
            self._start_leaving()  # closes the sockets if another member closed the channel
            self._check_all_left()
        elif isinstance(event, TraceEvent):
            log.debug("%s: %s", self.name, event.text)

    def _on_secondary_event(self, event: Event) -> None:
        if isinstance(event, StateChanged) and event.state is PeerState.LEFT:
            self._check_all_left()

    def _check_all_left(self) -> None:
        if all(node.peer.state is PeerState.LEFT for node in self._nodes):
            self._all_left.set()

    def _mark_left(self) -> None:
        self._left.set()
        self._inbox.close()
        self._subscriptions.close()
        self._listeners.end()

    @property
    def _is_ignored(self) -> bool:
        """Whether the program reads only subscriptions or layers: what this inbox drops is no loss."""
        return self._has_other_readers and not self._is_read

    def _on_inbox_full(self) -> None:
        if self._is_ignored:
            self._inbox.drop_oldest()
            return
        match self._overflow_policy:
            case Overflow.DROP_OLDEST:
                for missed in self._inbox.drop_oldest():
                    self._on_missed(missed)
            case Overflow.PAUSE:
                self._pause_for(self)
            case Overflow.LEAVE if self._leave_task is None:
                self._has_overflowed = True
                self._start_leaving()

    def _on_inbox_drained(self) -> None:
        self._resume_for(self)

    def _pause_for(self, reader: Reader) -> None:
        """Stop reading from the sockets until this reader has room. Not while leaving, which needs answers."""
        if self._leave_task is None:
            self._pausing.add(reader)
            for node in self._nodes:
                node.pause_reading()

    def _resume_for(self, reader: Reader) -> None:
        if reader in self._pausing:
            self._pausing.discard(reader)
            if not self._pausing:
                for node in self._nodes:
                    node.resume_reading()

    def _end_message(self) -> str:
        if self._has_overflowed:
            return (
                f"{self.name}: left, because this program did not read in time; read faster, raise inbox_messages_max "
                "or inbox_bytes_max, or choose another overflow policy"
            )
        if self._left.is_set() or self._leave_task is not None:
            return f"{self.name}: the channel was left; connect again"
        return f"{self.name}: not connected at the moment ({self._node.peer.state.value}); wait, or connect again"


def _ignore(_missed: Missed) -> None:
    """Missed messages of secondary peers: the primary reports its own."""
