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

from weft.channel.errors import FellBehind, NotAllowed, NotConnected
from weft.channel.inbox import Behind, Inbox
from weft.channel.large import Assembly
from weft.channel.merge import Merge
from weft.channel.speaking import Speaking
from weft.channel.status import Status, status_of
from weft.fabric import State
from weft.fabric.events import Batch, Event, LinkUp, Message, Missed, Note, StateChanged
from weft.fabric.seal import Identity
from weft.net import Node
from weft.wire import PeerId
from weft.wire.broadcast import Kind

if TYPE_CHECKING:
    from weft.groups import Groups, Store
    from weft.groups import Settings as GroupSettings

log = logging.getLogger("weft")

EVENTS_MAX = 1000
"""Events kept for each reader of `events()`; the oldest give way."""
WARN_S = 1.0
"""Missed messages are logged so often at most; events tell of each."""
LEAVE_S = 6.0
"""Leaving in good order is given up after this: a neighbour does not answer."""

CATCH_UP_S = 1.5
"""Who leaves waits so long, at most, for neighbours that have not read what they were sent."""
CATCH_UP_LOOK_S = 0.02

ChannelEvent = Event | Missed


class Channel(Speaking):
    """Made by `weft.connect`. Reading: iterate over it, or `receive`, `acquire`, or a callback. All from one loop."""

    def __init__(self, name: str, node: Node, *, behind: Behind, inbox_messages_max: int, inbox_bytes_max: int) -> None:
        super().__init__(node)
        self.name = name
        self._others: list[Node] = []
        self._behind = behind
        self._inbox = Inbox(inbox_messages_max, inbox_bytes_max, on_full=self._on_full, on_room=self._on_room)
        self._merge: Merge | None = None
        self._on_batch: Callable[[Batch], None] | None = None
        self._is_calling_back = False
        """In the middle of a batch, message by message."""
        self._assembly = Assembly(node.settings.message_bytes_max, self._told_missed)
        self._listeners: list[Callable[[ChannelEvent], None]] = []
        self._left = asyncio.Event()
        self._all_left = asyncio.Event()
        """With the other peers of a set."""
        self._leaving: asyncio.Task[None] | None = None
        self._fell_behind = False
        self._warn_again_at = 0.0
        self.missed = 0
        """Messages that this program will not get; each was told by a `Missed` event."""
        node.deliver, node.missed, node.observe = self._take, self._told_missed, self._observe

    def act_as_one(self, others: list[Node]) -> None:
        """These peers of the same channel feed the same stream."""
        merge = self._merge = Merge(self._take, self._told_missed)
        merge.led_by(self._node.id)
        self._node.deliver, self._node.missed = merge.from_leader, merge.missed_by_leader
        for other in others:
            other.deliver, other.missed, other.observe = merge.from_other, _ignore, self._observe_other
        self._others = others

    @property
    def _nodes(self) -> list[Node]:
        return [node for node in (self._node, *self._others) if node.has_started]

    # -- who we are

    @property
    def peer(self) -> PeerId:
        """Our own id on this channel, drawn anew at each connect."""
        return self._node.id

    @property
    def is_connected(self) -> bool:
        return self._node.peer.state is State.CONNECTED

    @property
    def few(self) -> int | None:
        """How many peers there are, if so few that everyone is linked to everyone; of more, nobody knows."""
        return self._node.peer.few

    def identity(self, author: PeerId) -> Identity | None:
        """What is proven of an author: on a signed channel name and role, else nothing."""
        if author == self._node.id:
            return self._node.membership.identity if self._node.membership is not None else None
        signing = self._node.peer.stream.signing
        return signing.identity_of(author) if signing is not None else None

    def name_of(self, author: PeerId) -> str:
        """For people: the name on the author's ticket, or its id in hex."""
        identity = self.identity(author)
        return identity.name if identity is not None and identity.name else f"{author:016x}"

    def status(self) -> Status:
        """The local truth: state, neighbours, holes, estimated diameter, counters."""
        status = status_of(self.name, self._node, unread=len(self._inbox), unread_bytes=self._inbox.held_bytes)
        return replace(status, others=tuple(status_of(self.name, node) for node in self._others))

    async def company(self, timeout_s: float | None = None) -> None:
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
                        raise NotConnected(self._why_not_connected())
                    news.clear()
                    await news.wait()
        finally:
            end()

    def groups(
        self,
        member: str,
        *,
        store: "Store | str | os.PathLike[str] | None" = None,
        settings: "GroupSettings | None" = None,
        on_other: Callable[[Message], None] | None = None,
    ) -> "Groups":
        """Take part in the groups of this channel, as a member with this name: see `weft.groups.groups`."""
        # By name: groups stand on the channel, and whoever does not use them does not load them.
        layer = importlib.import_module("weft.groups")
        made: Groups = layer.groups(self, member, store=store, settings=settings, on_other=on_other)
        return made

    # -- receiving

    @property
    def fell_behind(self) -> bool:
        """Whether the channel was left because this program did not read it in time (`behind="leave"`)."""
        return self._fell_behind

    @property
    def unread(self) -> int:
        """Messages that wait to be read."""
        return len(self._inbox)

    def acquire(self) -> Message | None:
        """The next message, or None at once if there is none."""
        message = self._inbox.take()
        if message is None and self._fell_behind:
            raise FellBehind("this program did not read its channel in time, and left it, as it had chosen")
        return message

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. TimeoutError if none comes in time; NotConnected if none can come any more."""
        async with asyncio.timeout(timeout_s):
            while (message := self.acquire()) is None:
                if self._inbox.closed:
                    raise NotConnected(self._why_not_connected())
                await self._inbox.wait()
        return message

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        """All messages as they come, until the channel is left."""
        while True:
            message = self.acquire()
            if message is not None:
                yield message
            elif self._inbox.closed:
                return
            else:
                await self._inbox.wait()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """All messages as they come, those that came together at once: the fastest way to read a busy channel."""
        while True:
            batch = self._inbox.take_batch()
            if batch is not None:
                yield batch
            elif self._fell_behind:
                self.acquire()  # says so
            elif self._inbox.closed:
                return
            else:
                await self._inbox.wait()

    def on_message(self, callback: Callable[[Message], None] | None) -> None:
        """Call this for every message from now on, in the event loop, instead of keeping it to be read."""
        if callback is None:
            self.on_batch(None)
            return

        def for_each(batch: Batch) -> None:
            read = batch.first
            self._is_calling_back = True
            try:
                for message in batch:
                    read = message.sequence
                    self._call_back(callback, message)
                    if self._on_batch is not for_each:
                        break
            finally:
                self._is_calling_back = False
            if self._on_batch is not for_each:  # taken back, or replaced: the rest is not for this one
                self._inbox.put_back(batch.above(read))
                self.on_batch(self._on_batch)

        self.on_batch(for_each)

    def on_batch(self, callback: Callable[[Batch], None] | None) -> None:
        """The same for all messages that came together, at once."""
        self._on_batch = callback
        if self._is_calling_back:
            return  # what is unread comes after the batch that is being read
        while self._on_batch is not None and (batch := self._inbox.take_batch()) is not None:
            self._call_back(self._on_batch, batch)

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

    async def shut_down(self) -> None:
        """Close the channel for everyone. Members of a signed channel do not obey, since any member could say so."""
        if not self._node.peer.obeys_shutdown:
            raise NotAllowed("the members of this channel do not obey: see Settings.obey_shutdown")
        self._node.peer.shut_down()
        await self.leave()

    def _start_leaving(self) -> asyncio.Task[None]:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        return self._leaving

    async def _leave(self) -> None:
        try:
            for node in self._nodes:
                node.go_on_reading()  # whoever does not hear the others cannot leave in good order
            await self._neighbours_caught_up()
            for node in self._nodes:
                node.peer.leave()
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self._all_left.wait()
            except TimeoutError:
                log.warning("%s: left without an answer from all neighbours", self.name)
            await asyncio.gather(*(node.close() for node in self._nodes))
        finally:
            self.vanish()

    async def _neighbours_caught_up(self) -> None:
        """What we said and they have not read goes before our farewell; who reads nothing is not waited for long."""
        peer, until = self._node.peer, self._node.now() + CATCH_UP_S
        while any(link.is_full or link.arrears for link in peer.links) and self._node.now() < until:  # noqa: ASYNC110
            await asyncio.sleep(CATCH_UP_LOOK_S)

    def vanish(self) -> None:
        """Break off without a word, as if the program had been killed. For tests and for emergencies."""
        self.close_sockets()
        if not self._left.is_set():
            self._tell(StateChanged(State.LEFT))
        self._ended()
        self._all_left.set()

    def close_sockets(self) -> None:
        """The same at the end of the process, when nobody is left to be told."""
        for node in [self._node, *self._others]:
            node.vanish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    # -- told by the peer

    def _take(self, batch: Batch) -> None:
        if batch.kind == Kind.PART:
            for whole in self._assembly.take(batch):
                self._hand_over(whole)
        else:
            self._hand_over(batch)

    def _hand_over(self, batch: Batch) -> None:
        if self._on_batch is not None:
            self._call_back(self._on_batch, batch)
        elif not self._takes_no_more:
            self._inbox.put(batch)

    def _call_back(self, callback: Callable[[Any], None], told: Message | Batch) -> None:
        try:
            callback(told)
        except Exception:
            log.exception("%s: the callback for messages failed", self.name)

    @property
    def _takes_no_more(self) -> bool:
        """Left, or about to be, and full: what is unread stays without gaps."""
        is_leaving = self._leaving is not None and self._behind is not Behind.DROP
        return self._fell_behind or (is_leaving and self._inbox.is_full)

    def _told_missed(self, missed: Missed) -> None:
        count = missed.last - missed.first + 1
        self.missed += count
        self._tell(missed)
        now = self._node.now()
        if now >= self._warn_again_at:  # a program that is slow would fill the log
            self._warn_again_at = now + WARN_S
            log.warning("%s: %d messages missed by now, the last from %016x", self.name, self.missed, missed.author)

    def _observe(self, event: Event) -> None:
        self._tell(event)
        if isinstance(event, StateChanged) and event.state is State.LEFT:
            self._ended()
            self._start_leaving()  # if it was closed for all, by another member: the sockets go too
            self._look_whether_all_left()
        elif isinstance(event, Note):
            log.debug("%s: %s", self.name, event.text)

    def _observe_other(self, event: Event) -> None:
        if isinstance(event, StateChanged) and event.state is State.LEFT:
            self._look_whether_all_left()

    def _look_whether_all_left(self) -> None:
        if all(node.peer.state is State.LEFT for node in self._nodes):
            self._all_left.set()

    def _tell(self, event: ChannelEvent) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("%s: a callback for events failed", self.name)

    def _ended(self) -> None:
        self._left.set()
        self._inbox.close()

    def _on_full(self) -> None:
        match self._behind:
            case Behind.DROP:
                for missed in self._inbox.drop_oldest():
                    self._told_missed(missed)
            case Behind.WAIT if self._leaving is None:
                for node in self._nodes:
                    node.stop_reading()
            case Behind.LEAVE if self._leaving is None:
                self._fell_behind = True
                self._start_leaving()

    def _on_room(self) -> None:
        if self._behind is Behind.WAIT:
            for node in self._nodes:
                node.go_on_reading()

    def _why_not_connected(self) -> str:
        if self._fell_behind:
            return f"{self.name}: left, because this program did not read in time"
        if self._left.is_set() or self._leaving is not None:
            return f"{self.name}: the channel was left; connect again to take part"
        return f"{self.name}: not connected now ({self._node.peer.state.value}); wait for it, or connect again"


def _ignore(_told: Any) -> None:
    """The leader tells."""
