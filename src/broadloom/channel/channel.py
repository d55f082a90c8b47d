"""`Channel`: one channel as one program has joined it.

A program may run several peers of one channel (`local_peers=3`), which act as one: see `peer_set.py`.

The peers refer to their channel only weakly, so that a channel which the program has lost without leaving it is
noticed: it warns and leaves.
"""

import asyncio
import logging
import os
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from broadloom.channel.arguments import check_callback
from broadloom.channel.closable import AsyncClosable
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.fragments import STALE_CHECKS, Reassembler
from broadloom.channel.inbox import Overflow
from broadloom.channel.layer import Layer
from broadloom.channel.loop_bound import weak, weak_delivery
from broadloom.channel.membership import Membership
from broadloom.channel.peer_set import PeerSetMerge
from broadloom.channel.publisher import Publisher
from broadloom.channel.receiving import ChannelReader
from broadloom.channel.requester import Requester
from broadloom.channel.sender import Sender
from broadloom.channel.state import ChannelStream, StateHandover
from broadloom.channel.status import Status, status_of
from broadloom.channel.subscription import SubscriptionOverflow
from broadloom.errors import NotPermittedError
from broadloom.protocol import PeerState
from broadloom.protocol.events import (
    AuthorWarning,
    Batch,
    Event,
    LinkDown,
    LinkUp,
    Missed,
    OwnerEvent,
    Rejected,
    StateChanged,
    TraceEvent,
)
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost
from broadloom.transport import TcpNode
from broadloom.wire import PeerId, WireError
from broadloom.wire.payload_kind import PayloadKind
from broadloom.wire.state_messages import STATE_KIND, STATE_LAYER

log = logging.getLogger("broadloom")

WARN_INTERVAL_S = 1.0
"""Minimum time between two warnings about missed messages. Each one is reported as an event anyway."""
LEAVE_TIMEOUT_S = 17.0
"""Maximum time to leave gracefully. The protocol should need less."""
REQUESTS_DRAIN_S = 1.5
"""Maximum time to answer open requests when leaving."""
DRAIN_STALL_S = 4.0
"""Neighbors that read nothing for this time are not waited for when leaving."""
DRAIN_S_MAX = 15.0
"""Maximum time to drain outgoing queues when leaving, while neighbors read."""
DRAIN_POLL_S = 0.02

ChannelEvent = Event | Missed | SubscriptionOverflow

_with_callbacks: dict["Channel", None] = {}
"""Channels with a callback are in use, even if the program does not keep them."""


class Channel(Membership, Sender, ChannelReader, Requester, StateHandover, Publisher, AsyncClosable):
    """A joined channel, returned by `broadloom.connect`. Use it from the event loop that joined it: elsewhere its
    methods raise `RuntimeError`.

    Read it by iterating, with `receive` or `receive_nowait`, or with a callback.
    """

    def __init__(
        self, name: str, node: TcpNode, *, overflow: Overflow, inbox_messages_max: int, inbox_bytes_max: int
    ) -> None:
        Sender.__init__(self, node)
        ChannelReader.__init__(self, overflow, inbox_messages_max, inbox_bytes_max, ChannelStream(self))
        Requester.__init__(self)
        StateHandover.__init__(self)
        self.name = name
        self.missed_count = 0
        """Messages that this program will not receive; each was reported in a `Missed` event."""
        self._secondary_nodes: list[TcpNode] = []
        self._merge: PeerSetMerge | None = None
        self._on_missed_weakly = weak(self._on_missed)
        self._reassembler = Reassembler(
            node.settings.message_bytes_max, self._on_missed_weakly, weak(self._on_undelivered)
        )
        self._stale_check_timer: asyncio.TimerHandle | None = None
        """Runs while large messages are incomplete."""
        self._listeners: EventListeners[ChannelEvent] = EventListeners(name)
        self._left = asyncio.Event()
        self._all_left = asyncio.Event()
        """Set when all local peers have left."""
        self._leave_task: asyncio.Task[None] | None = None
        self._warn_again_at = 0.0
        node.deliver, node.report_missed = weak_delivery(self._on_delivery), self._on_missed_weakly
        node.emit = weak(self._on_peer_event)

    def _attach_peer_set(self, secondary_nodes: list[TcpNode]) -> None:
        merge = self._merge = PeerSetMerge(self._node.id, weak_delivery(self._on_delivery), self._on_missed_weakly)
        self._node.deliver, self._node.report_missed = merge.on_primary_batch, merge.on_primary_missed
        for node in secondary_nodes:
            node.deliver, node.report_missed = merge.on_secondary_batch, _ignore
            node.emit = weak(self._on_secondary_event)
        self._secondary_nodes = secondary_nodes

    @property
    def _decompressed_bytes_max(self) -> int:
        return self._node.settings.message_bytes_max

    def _as_channel(self) -> "Channel":
        return self

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

    def status(self) -> Status:
        """The state of this peer: neighbors, free slots, estimated diameter, counters."""
        self._check_loop()
        status = status_of(self.name, self._node, unread_count=len(self._inbox), unread_bytes=self._inbox.held_bytes)
        return replace(
            status,
            unknown_layers=dict(self._layers.unknown),
            local_peers=tuple(status_of(self.name, node) for node in self._secondary_nodes),
        )

    def set_bootstrap(self, hosts: Sequence[str]) -> None:
        """Replace the bootstrap hosts. The peer looks for members there at once, and whenever it needs to."""
        self._check_loop()
        if isinstance(hosts, str):
            raise TypeError(f"hosts is a list of addresses: [{hosts!r}]")
        for node in (self._node, *self._secondary_nodes):
            node.set_bootstrap(hosts)

    def layer(self, mark: str, on_batch: Callable[[Batch], None] | None = None) -> Layer:
        """Run a protocol of its own on this channel: its messages go to `on_batch` of the same layer, and to no other
        reader. Without `on_batch` it can only send. Raises `ValueError` if the program already receives this layer."""
        self._check_loop()
        if self._inbox.is_closed:
            raise self._end_error()
        if on_batch is not None:
            check_callback(on_batch)
        layer = Layer(self, mark, on_batch)
        self._has_other_readers = self._has_other_readers or on_batch is not None
        self._on_layers_changed()
        self._on_callbacks_changed()
        return layer

    def _on_layers_changed(self) -> None:
        """The roster says which layers this program receives."""
        state_kinds = (STATE_KIND,) if STATE_LAYER in self._request_layers else ()
        self._node.peer.roster.set_layers(tuple(sorted({*self._layers.kinds, *state_kinds})))

    # -- events

    def on_event(self, callback: Callable[[ChannelEvent], None]) -> Callable[[], None]:
        """Call `callback` for each event: state, links, members, missed messages. Returns a function that removes
        it."""
        self._check_loop()
        check_callback(callback)
        remove = self._listeners.add(callback)
        self._on_callbacks_changed()

        def unsubscribe() -> None:
            remove()
            self._on_callbacks_changed()

        return unsubscribe

    def _on_callbacks_changed(self) -> None:
        if not self._left.is_set() and (self._has_callbacks or self._request_layers or len(self._listeners)):
            _with_callbacks[self] = None
        else:
            _with_callbacks.pop(self, None)

    def events(self) -> AsyncGenerator[ChannelEvent, None]:
        """Events as they happen, until the channel is left."""
        return self._events()

    async def _events(self) -> AsyncGenerator[ChannelEvent, None]:
        self._check_loop()
        async with aclosing(self._listeners.events()) as events:
            async for event in events:
                yield event

    # -- leaving

    async def leave(self) -> None:
        """Leave gracefully: everything sent before is delivered, and no other member loses a message."""
        self._check_loop()
        await asyncio.shield(self._start_leaving())

    async def aclose(self) -> None:
        """The same as `leave`."""
        await self.leave()

    async def close_channel(self) -> None:
        """Close the channel for everyone. On a signed channel members ignore this, since any member could do it."""
        self._check_loop()
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
            await self._drain()
            for node in self._nodes:
                node.peer.leave()
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._all_left.wait()
            except TimeoutError:
                log.warning("%s: left before all links were closed", self.name)
            if unanswered := sum(node.peer.leave_protocol.unanswered for node in self._nodes):
                log.warning("%s: left without an answer from %d neighbors", self.name, unanswered)
            await asyncio.gather(*(node.close() for node in self._nodes))
        finally:
            self.abort()

    async def _drain(self) -> None:
        """Wait for slow neighbors and for handlers of requests that are running."""
        began = self._node.now()
        for node in self._nodes:
            node.peer.requests.begin_leave()
            node.peer.broadcaster.begin_leave()
        while slow_count := sum(link.is_behind for link in self._node.peer.links):
            read_at = max(began, self._node.flow.read_at)
            if self._node.now() > min(began + DRAIN_S_MAX, read_at + DRAIN_STALL_S):
                log.warning("%s: left before %d slow neighbors had read what was sent", self.name, slow_count)
                return
            await asyncio.sleep(DRAIN_POLL_S)
        while self._has_open_requests and self._node.now() < began + REQUESTS_DRAIN_S:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)

    @property
    def _has_open_requests(self) -> bool:
        return bool(self._handler_tasks) or any(node.peer.requests.has_open_requests for node in self._nodes)

    def abort(self) -> None:
        """Disconnect without notice, as if the process had been killed."""
        self._check_loop()
        self._close_sockets()
        if not self._left.is_set():
            self._listeners.emit(StateChanged(PeerState.LEFT))
        self._mark_left()
        self._all_left.set()

    def _close_sockets(self) -> None:
        """As `abort`, without events: for the exit of the process."""
        for node in [self._node, *self._secondary_nodes]:
            node.abort()

    def __del__(self) -> None:
        """The program has lost the channel without leaving it. Nobody can read it any more, so it leaves."""
        if not hasattr(self, "_pid") or self._pid != os.getpid() or sys.is_finalizing():
            return
        if self._left.is_set() or self._leave_task is not None:
            return
        # Leaving needs the events of the peers. It revives this object until it is done.
        self._node.deliver, self._node.report_missed, self._node.emit = _ignore, _ignore, self._on_peer_event
        for node in self._secondary_nodes:
            node.deliver, node.emit = _ignore, self._on_secondary_event
        if self._is_loop_running():
            self._start_leaving()
        else:
            with suppress(RuntimeError):  # the loop is closed, and the sockets with it
                self._loop.call_soon_threadsafe(self._start_leaving)
        text = f"the channel {self.name} was never left: use `async with`, or call `leave`"
        warnings.warn(text, ResourceWarning, stacklevel=1, source=self)

    # -- callbacks of the peers

    def _on_delivery(self, batch: Batch) -> None:
        batch.author = PeerId(batch.author)
        if not batch.kind:  # data without headers: the usual case
            self._dispatch(batch)
        elif batch.kind == PayloadKind.FRAGMENT:
            for whole in self._reassembler.feed(batch):
                self._route(whole)
            if self._stale_check_timer is None and len(self._reassembler):
                self._start_stale_check()
        else:
            self._route(batch)

    def _start_stale_check(self) -> None:
        """A large message without a new fragment for `retention_s` stays incomplete: its author has crashed or canceled
        it, or was cut off for longer than fragments are retained."""
        if not self._left.is_set():
            interval_s = self._node.settings.retention_s / (STALE_CHECKS - 1)
            self._stale_check_timer = self._node.call_later(interval_s, weak(self._check_stale))

    def _check_stale(self) -> None:
        self._stale_check_timer = None
        if not self._node.peer.is_paused:  # while reading is paused, fragments wait in the sockets
            self._reassembler.abandon_stale()
        if len(self._reassembler):
            self._start_stale_check()

    def _on_malformed_headers(self, batch: Batch, index: int, problem: WireError) -> None:
        self._node.peer.counters.malformed_headers += 1
        self._on_undelivered(batch.author, batch.first_sequence + index)
        super()._on_malformed_headers(batch, index, problem)

    def _on_undelivered(self, author: PeerId, sequence: int) -> None:
        """A message that arrived was discarded: receipts do not confirm it."""
        self._node.peer.reporter.on_undelivered(author, sequence)

    def _on_missed(self, missed: Missed) -> None:
        self._subscriptions.on_missed(missed)
        self._report_missed(missed)

    def _report_missed(self, missed: Missed) -> None:
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
        elif isinstance(event, MemberJoined | MemberLeft | MemberLost) and event.member.is_secondary:
            return
        elif isinstance(event, AuthorWarning):
            event = event._replace(author=PeerId(event.author))
            log.warning("%s: %s", self.name, event.text)
        elif isinstance(event, OwnerEvent | Rejected):
            event = self._on_owner_event(event)
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
        if self._stale_check_timer is not None:
            self._stale_check_timer.cancel()
        self._inbox.close()
        self._subscriptions.close()
        self._listeners.end()
        self._cancel_handlers()
        self._end_fetches()
        _with_callbacks.pop(self, None)

    @property
    def _is_leaving(self) -> bool:
        return self._leave_task is not None

    def _leave_soon(self) -> None:
        self._start_leaving()

    def _pause_sockets(self, pause: bool) -> None:
        for node in self._nodes:
            node.pause_reading() if pause else node.resume_reading()

    def _emit(self, event: SubscriptionOverflow) -> None:
        self._listeners.emit(event)

    def _end_message(self) -> str:
        if self._has_overflowed:
            return (
                f"{self.name}: left, because this program did not read in time; read faster, raise inbox_messages_max "
                "or inbox_bytes_max, or choose another overflow policy"
            )
        if self._left.is_set() or self._leave_task is not None:
            return f"{self.name}: the channel was left; connect again"
        return f"{self.name}: not connected at the moment ({self._node.peer.state.value}); wait, or connect again"


def _ignore(_item: object) -> None:
    """Missed messages of secondary peers, of which the primary reports its own; and all that arrives too late."""
