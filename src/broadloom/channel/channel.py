"""The public object: one channel, as one program has joined it.

A program may hold a set of peers on the same channel (`peers=3`); they act as one. See `merge.py`.
"""

import asyncio
import importlib
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from broadloom.channel.fragments import Reassembler
from broadloom.channel.inbox import Inbox, Overflow
from broadloom.channel.peer_set import PeerSetMerge
from broadloom.channel.sender import Sender
from broadloom.channel.status import Status, status_of
from broadloom.errors import InboxOverflowError, NotConnectedError, NotPermittedError
from broadloom.protocol import PeerState
from broadloom.protocol.events import Batch, Event, LinkUp, Message, Missed, StateChanged, TraceEvent
from broadloom.protocol.identity import Identity
from broadloom.transport import TcpNode
from broadloom.wire import PeerId
from broadloom.wire.broadcast_frame import PayloadKind

if TYPE_CHECKING:
    from broadloom.groups import Groups, GroupSettings, Store

log = logging.getLogger("broadloom")

EVENTS_MAX = 1000
"""Events kept for each reader of `events()`; the oldest give way."""
WARN_INTERVAL_S = 1.0
"""Missed messages are logged so often at most; events tell of each."""
LEAVE_TIMEOUT_S = 6.0
"""Leaving in good order is given up after this: a neighbour does not answer."""

DRAIN_TIMEOUT_S = 1.5
"""Who leaves waits so long, at most, for neighbours that have not read what they were sent."""
DRAIN_POLL_S = 0.02

ChannelEvent = Event | Missed


class Channel(Sender):
    """Made by `broadloom.connect`. Reading: iterate over it, or `receive`, `receive_nowait`, or a callback. All from
    one loop."""

    def __init__(
        self, name: str, node: TcpNode, *, overflow: Overflow, inbox_messages_max: int, inbox_bytes_max: int
    ) -> None:
        super().__init__(node)
        self.name = name
        self._secondary_nodes: list[TcpNode] = []
        self._overflow_policy = overflow
        self._inbox = Inbox(
            inbox_messages_max, inbox_bytes_max, on_full=self._on_inbox_full, on_drained=self._on_inbox_drained
        )
        self._merge: PeerSetMerge | None = None
        self._batch_callback: Callable[[Batch], None] | None = None
        self._is_calling_back = False
        """In the middle of a batch, message by message."""
        self._reassembler = Reassembler(node.settings.message_bytes_max, self._on_missed)
        self._listeners: list[Callable[[ChannelEvent], None]] = []
        self._left = asyncio.Event()
        self._all_left = asyncio.Event()
        """With the other peers of a set."""
        self._leave_task: asyncio.Task[None] | None = None
        self._has_overflowed = False
        self._warn_again_at = 0.0
        self.missed_count = 0
        """Messages that this program will not get; each was told by a `Missed` event."""
        node.deliver, node.report_missed, node.emit = self._on_delivery, self._on_missed, self._on_peer_event

    def _attach_peer_set(self, secondary_nodes: list[TcpNode]) -> None:
        """These peers of the same channel feed the same stream."""
        merge = self._merge = PeerSetMerge(self._on_delivery, self._on_missed)
        merge.set_primary(self._node.id)
        self._node.deliver, self._node.report_missed = merge.on_primary_batch, merge.on_primary_missed
        for other in secondary_nodes:
            other.deliver, other.report_missed, other.emit = merge.on_secondary_batch, _ignore, self._on_secondary_event
        self._secondary_nodes = secondary_nodes

    @property
    def _nodes(self) -> list[TcpNode]:
        return [node for node in (self._node, *self._secondary_nodes) if node.has_started]

    # -- who we are

    @property
    def peer_id(self) -> PeerId:
        """Our own id on this channel, drawn anew at each connect."""
        return self._node.id

    @property
    def is_connected(self) -> bool:
        return self._node.peer.state is PeerState.CONNECTED

    @property
    def few(self) -> int | None:
        """How many peers there are, if so few that everyone is linked to everyone; of more, nobody knows."""
        return self._node.peer.full_mesh_size

    def identity(self, peer_id: PeerId) -> Identity | None:
        """What is proven of an author: on a signed channel name and role, else nothing."""
        if peer_id == self._node.id:
            return self._node.credentials.identity if self._node.credentials is not None else None
        signing = self._node.peer.broadcaster.verifier
        return signing.identity_of(peer_id) if signing is not None else None

    def display_name(self, peer_id: PeerId) -> str:
        """For people: the name on the author's ticket, or its id in hex."""
        identity = self.identity(peer_id)
        return identity.name if identity is not None and identity.name else f"{peer_id:016x}"

    def status(self) -> Status:
        """The local truth: state, neighbours, holes, estimated diameter, counters."""
        status = status_of(self.name, self._node, unread_count=len(self._inbox), unread_bytes=self._inbox.held_bytes)
        return replace(status, local_peers=tuple(status_of(self.name, node) for node in self._secondary_nodes))

    async def wait_for_peers(self, timeout_s: float | None = None) -> None:
        """Wait until somebody else is there: a message to nobody reaches nobody, now or later. TimeoutError if nobody
        comes in time; NotConnected if the channel was left."""
        if len(self._node.peer.links):
            return
        news = asyncio.Event()
        end = self.on_event(lambda event: news.set() if isinstance(event, LinkUp | StateChanged) else None)
        try:
            async with asyncio.timeout(timeout_s):
                while not len(self._node.peer.links):
                    if self._left.is_set():
                        raise NotConnectedError(self._not_connected_message())
                    news.clear()
                    await news.wait()
        finally:
            end()

    def groups(
        self,
        name: str,
        *,
        store: "Store | str | os.PathLike[str] | None" = None,
        settings: "GroupSettings | None" = None,
        on_unhandled: Callable[[Message], None] | None = None,
    ) -> "Groups":
        """Take part in the groups of this channel, as a member with this name: see `broadloom.groups.groups`."""
        # By name: groups stand on the channel, and whoever does not use them does not load them.
        layer = importlib.import_module("broadloom.groups")
        made: Groups = layer.groups(self, name, store=store, settings=settings, on_unhandled=on_unhandled)
        return made

    # -- receiving

    @property
    def has_overflowed(self) -> bool:
        """Whether the channel was left because this program did not read it in time (`overflow="leave"`)."""
        return self._has_overflowed

    @property
    def unread_count(self) -> int:
        """Messages that wait to be read."""
        return len(self._inbox)

    def receive_nowait(self) -> Message | None:
        """The next message, or None at once if there is none."""
        message = self._inbox.take()
        if message is None and self._has_overflowed:
            raise InboxOverflowError("this program did not read its channel in time, and left it, as it had chosen")
        return message

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. TimeoutError if none comes in time; NotConnected if none can come any more."""
        async with asyncio.timeout(timeout_s):
            while (message := self.receive_nowait()) is None:
                if self._inbox.is_closed:
                    raise NotConnectedError(self._not_connected_message())
                await self._inbox.wait()
        return message

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        """All messages as they come, until the channel is left."""
        while True:
            message = self.receive_nowait()
            if message is not None:
                yield message
            elif self._inbox.is_closed:
                return
            else:
                await self._inbox.wait()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """All messages as they come, those that came together at once: the fastest way to read a busy channel."""
        while True:
            batch = self._inbox.take_batch()
            if batch is not None:
                yield batch
            elif self._has_overflowed:
                self.receive_nowait()  # says so
            elif self._inbox.is_closed:
                return
            else:
                await self._inbox.wait()

    def on_message(self, callback: Callable[[Message], None] | None) -> None:
        """Call this for every message from now on, in the event loop, instead of keeping it to be read."""
        if callback is None:
            self.on_batch(None)
            return

        def for_each(batch: Batch) -> None:
            read = batch.first_sequence
            self._is_calling_back = True
            try:
                for message in batch:
                    read = message.sequence
                    self._invoke(callback, message)
                    if self._batch_callback is not for_each:
                        break
            finally:
                self._is_calling_back = False
            if self._batch_callback is not for_each:  # taken back, or replaced: the rest is not for this one
                self._inbox.push_front(batch.after(read))
                self.on_batch(self._batch_callback)

        self.on_batch(for_each)

    def on_batch(self, callback: Callable[[Batch], None] | None) -> None:
        """The same for all messages that came together, at once."""
        self._batch_callback = callback
        if self._is_calling_back:
            return  # what is unread comes after the batch that is being read
        while self._batch_callback is not None and (batch := self._inbox.take_batch()) is not None:
            self._invoke(self._batch_callback, batch)

    # -- events

    def on_event(self, callback: Callable[[ChannelEvent], None]) -> Callable[[], None]:
        """Call this for every event: state, neighbours, missed messages. Returns a function that ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    async def events(self) -> AsyncIterator[ChannelEvent]:
        """Events as they come, until the channel is left."""
        waiting: deque[ChannelEvent] = deque(maxlen=EVENTS_MAX)
        news = asyncio.Event()

        def happened(event: ChannelEvent) -> None:
            waiting.append(event)
            news.set()

        end = self.on_event(happened)
        try:
            while True:
                while waiting:
                    yield waiting.popleft()
                if self._left.is_set():
                    return
                news.clear()
                await news.wait()
        finally:
            end()

    # -- the end

    async def leave(self) -> None:
        """Go in good order. What was sent before is out; nobody misses anything because of it."""
        await asyncio.shield(self._start_leaving())

    async def close_channel(self) -> None:
        """Close the channel for everyone. Members of a signed channel do not obey, since any member could say so."""
        if not self._node.peer.accepts_channel_close:
            raise NotPermittedError("the members of this channel do not obey: see Settings.obey_shutdown")
        self._node.peer.close_channel()
        await self.leave()

    def _start_leaving(self) -> asyncio.Task[None]:
        if self._leave_task is None:
            self._leave_task = asyncio.get_running_loop().create_task(self._leave())
        return self._leave_task

    async def _leave(self) -> None:
        try:
            for node in self._nodes:
                node.resume_reading()  # whoever does not hear the others cannot leave in good order
            await self._drain_neighbors()
            for node in self._nodes:
                node.peer.leave()
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._all_left.wait()
            except TimeoutError:
                log.warning("%s: left without an answer from all neighbours", self.name)
            await asyncio.gather(*(node.close() for node in self._nodes))
        finally:
            self.abort()

    async def _drain_neighbors(self) -> None:
        """What we said and they have not read goes before our farewell; who reads nothing is not waited for long."""
        peer, until = self._node.peer, self._node.now() + DRAIN_TIMEOUT_S
        while any(link.is_congested or link.backlog for link in peer.links) and self._node.now() < until:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)

    def abort(self) -> None:
        """Break off without a word, as if the program had been killed. For tests and for emergencies."""
        self._close_sockets()
        if not self._left.is_set():
            self._emit(StateChanged(PeerState.LEFT))
        self._mark_left()
        self._all_left.set()

    def _close_sockets(self) -> None:
        """The same at the end of the process, when nobody is left to be told."""
        for node in [self._node, *self._secondary_nodes]:
            node.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    # -- told by the peer

    def _on_delivery(self, batch: Batch) -> None:
        if batch.kind == PayloadKind.FRAGMENT:
            for whole in self._reassembler.feed(batch):
                self._dispatch(whole)
        else:
            self._dispatch(batch)

    def _dispatch(self, batch: Batch) -> None:
        if self._batch_callback is not None:
            self._invoke(self._batch_callback, batch)
        elif not self._discards_new:
            self._inbox.put(batch)

    def _invoke(self, callback: Callable[[Any], None], item: Message | Batch) -> None:
        try:
            callback(item)
        except Exception:
            log.exception("%s: the callback for messages failed", self.name)

    @property
    def _discards_new(self) -> bool:
        """Left, or about to be, and full: what is unread stays without gaps."""
        is_leaving = self._leave_task is not None and self._overflow_policy is not Overflow.DROP_OLDEST
        return self._has_overflowed or (is_leaving and self._inbox.is_full)

    def _on_missed(self, missed: Missed) -> None:
        count = missed.last_sequence - missed.first_sequence + 1
        self.missed_count += count
        self._emit(missed)
        now = self._node.now()
        if now >= self._warn_again_at:  # a program that is slow would fill the log
            self._warn_again_at = now + WARN_INTERVAL_S
            log.warning(
                "%s: %d messages missed by now, the last from %016x", self.name, self.missed_count, missed.author
            )

    def _on_peer_event(self, event: Event) -> None:
        self._emit(event)
        if isinstance(event, StateChanged) and event.state is PeerState.LEFT:
            self._mark_left()
            self._start_leaving()  # if it was closed for all, by another member: the sockets go too
            self._check_all_left()
        elif isinstance(event, TraceEvent):
            log.debug("%s: %s", self.name, event.text)

    def _on_secondary_event(self, event: Event) -> None:
        if isinstance(event, StateChanged) and event.state is PeerState.LEFT:
            self._check_all_left()

    def _check_all_left(self) -> None:
        if all(node.peer.state is PeerState.LEFT for node in self._nodes):
            self._all_left.set()

    def _emit(self, event: ChannelEvent) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("%s: a callback for events failed", self.name)

    def _mark_left(self) -> None:
        self._left.set()
        self._inbox.close()

    def _on_inbox_full(self) -> None:
        match self._overflow_policy:
            case Overflow.DROP_OLDEST:
                for missed in self._inbox.drop_oldest():
                    self._on_missed(missed)
            case Overflow.PAUSE if self._leave_task is None:
                for node in self._nodes:
                    node.pause_reading()
            case Overflow.LEAVE if self._leave_task is None:
                self._has_overflowed = True
                self._start_leaving()

    def _on_inbox_drained(self) -> None:
        if self._overflow_policy is Overflow.PAUSE:
            for node in self._nodes:
                node.resume_reading()

    def _not_connected_message(self) -> str:
        if self._has_overflowed:
            return f"{self.name}: left, because this program did not read in time"
        if self._left.is_set() or self._leave_task is not None:
            return f"{self.name}: the channel was left; connect again to take part"
        return f"{self.name}: not connected now ({self._node.peer.state.value}); wait for it, or connect again"


def _ignore(_missed: Any) -> None:
    """The leader tells."""
