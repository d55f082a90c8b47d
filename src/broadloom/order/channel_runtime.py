"""Ordered conversations over a real channel: `OrderLayer`, one for each channel, and `ChannelOrderRuntime`, one for
each conversation."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from broadloom.channel.layer_runtime import LayerRuntime
from broadloom.errors import BroadloomError, StoreError
from broadloom.order.codec import LAYER, OrderMessage, decode
from broadloom.order.messages import Enter, Exit
from broadloom.order.model import Entry, OrderEvent, Placed
from broadloom.order.runtime import GiveUp
from broadloom.protocol.events import Missed
from broadloom.protocol.identity import Role
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.protocol.roster.member import MemberJoined, MemberLeft, MemberLost
from broadloom.wire import PeerId
from broadloom.wire.direct_messages import RequestStatus
from broadloom.wire.xdr import WireError

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.order.replica import Replica
    from broadloom.protocol.runtime import Timer

log = logging.getLogger("broadloom")

CONCURRENCY = 256
"""Requests of other members that are held at a time: the candidates of each conversation keep one open."""
TELL_TIMEOUT_S = 5.0
CONVERSATIONS_MAX = 256
ENTER_DIRECTLY_MAX = 8
"""A consumer may not broadcast, so it announces itself directly to this many members."""
MALFORMED_WARNINGS_MAX = 3

_layers: "WeakKeyDictionary[Channel, OrderLayer]" = WeakKeyDictionary()
_opened: "WeakKeyDictionary[Channel, set[int]]" = WeakKeyDictionary()
"""All conversations that this program has ever opened on a channel."""


class Application(Protocol):
    """What a conversation reports to."""

    def _deliver(self, entry: Entry) -> None: ...
    def _on_placed(self, number: int, placed: Placed) -> None: ...
    def _emit(self, event: OrderEvent) -> None: ...
    def _on_left(self) -> None: ...
    def _end(self, reason: BroadloomError) -> None: ...


class OrderLayer(LayerRuntime):
    """The layer "Or" of one channel, for all its conversations."""

    def __init__(self, channel: "Channel") -> None:
        super().__init__(channel, LAYER, self._end)
        self.channel = channel
        self._conversations: dict[int, ChannelOrderRuntime] = {}
        self._closing: asyncio.Task[None] | None = None
        self.malformed_count = 0
        self._layer._on_incoming(self._on_request, CONCURRENCY)
        self._open()

    @classmethod
    def of(cls, channel: "Channel") -> "OrderLayer":
        """The one of this channel, opened with its first conversation."""
        channel._check_loop()
        if channel not in _layers:
            _layers[channel] = cls(channel)
        return _layers[channel]

    def add(self, conversation: int, runtime: "ChannelOrderRuntime") -> None:
        if conversation in self._conversations:
            raise ValueError("this conversation is already open in this program")
        if len(self._conversations) >= CONVERSATIONS_MAX:
            raise ValueError(f"{CONVERSATIONS_MAX} conversations are open on this channel: close some")
        self._conversations[conversation] = runtime
        opened = _opened.setdefault(self.channel, set())
        runtime.is_reopened = conversation in opened
        opened.add(conversation)

    async def remove(self, conversation: int, runtime: "ChannelOrderRuntime") -> None:
        """With the last one the layer is closed, after what it has to send."""
        if self._conversations.get(conversation) is runtime:
            del self._conversations[conversation]
            self.close_if_unused()
            if not self._conversations and self._closing is not None:
                await asyncio.shield(self._closing)

    def close_if_unused(self) -> None:
        """Close the layer when its queue is sent, unless a conversation is opened before that."""
        if not self._conversations and self._closing is None:
            self._closing = self._loop.create_task(self._close_when_sent())

    async def _close_when_sent(self) -> None:
        await self._wait_until_sent()
        if self._conversations:
            self._closing = None
            return
        self._forget()
        self._layer.close()  # before the next wait: during it, another `OrderLayer` may be opened
        await self.close()

    def _forget(self) -> None:
        if _layers.get(self.channel) is self:
            del _layers[self.channel]

    def _end(self) -> None:
        """The channel was left."""
        for runtime in list(self._conversations.values()):
            runtime.application._on_left()
        self._conversations.clear()
        self._forget()  # a program that opens a conversation now gets an error, and not this layer
        self.close_if_unused()

    # -- sending

    def tell(self, peer_id: PeerId, data: bytes) -> None:
        self._layer._start_request(peer_id, data, TELL_TIMEOUT_S, lambda _outcome: None, is_tell=True)

    def request(self, peer_id: PeerId, data: bytes, timeout_s: float, on_outcome: Callable[[Outcome], None]) -> GiveUp:
        def on_end(outcome: Outcome) -> None:
            self._loop.call_soon(on_outcome, outcome)

        request = self._layer._start_request(peer_id, data, timeout_s, on_end, is_tell=False)
        return lambda: self._layer._give_up(request)

    async def ask(self, peer_id: PeerId, data: bytes, timeout_s: float) -> bytes:
        """As `request`, for the application. Raises a `RequestError`."""
        return (await self._layer.request(peer_id, data, timeout_s=timeout_s)).data

    # -- receiving

    def _decode(self, data: bytes, peer_id: PeerId) -> OrderMessage | None:
        try:
            return decode(data)
        except WireError as problem:
            self.malformed_count += 1
            if self.malformed_count <= MALFORMED_WARNINGS_MAX:
                log.warning("%s: malformed message of %016x: %s", self.channel.name, peer_id, problem)
            return None

    def _on_message(self, author: PeerId, data: bytes) -> None:
        message = self._decode(data, author)
        runtime = self._conversations.get(message.conversation) if message is not None else None
        if runtime is not None and message is not None:
            runtime.run(runtime.replica.on_message, author, message)

    def _on_request(self, request: IncomingRequest) -> None:
        def reply(data: bytes | None) -> None:
            if data is not None:
                request.reply(data)
            else:
                request.refuse(RequestStatus.REFUSED, "not now")
            request.done()

        message = self._decode(request.data, request.peer_id)
        runtime = self._conversations.get(message.conversation) if message is not None else None
        if runtime is None or message is None:
            request.refuse(RequestStatus.REFUSED, "this conversation is not open here")
            request.done()
            return
        request.on_cancel = request.done
        runtime.run(runtime.replica.on_request, request.peer_id, message, reply)

    def _on_event(self, event: "ChannelEvent") -> None:
        for runtime in list(self._conversations.values()):
            replica = runtime.replica
            match event:
                case MemberJoined(member) if LAYER in member.layers:
                    runtime.run(replica.on_member_joined)
                case MemberLeft(member) | MemberLost(member):
                    runtime.run(replica.on_member_gone, member.peer_id)
                case Missed(author):
                    runtime.run(replica.on_missed, author)


class ChannelOrderRuntime:
    """The runtime of one conversation."""

    replica: "Replica"

    def __init__(self, layer: OrderLayer, application: Application) -> None:
        self._layer = layer
        self._channel = layer.channel
        self.application = application
        self.is_closed = False
        self.is_reopened = False

    @property
    def peer_id(self) -> PeerId:
        return self._channel.peer_id

    @property
    def is_alone(self) -> bool:
        roster = self._channel._node.peer.roster
        return roster.is_complete and len(roster.peer_ids()) == 1

    def now(self) -> float:
        return self._layer.now()

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer":
        return self._layer.call_later(delay_s, self.run, callback, *args)

    def run(self, callback: Callable[..., None], *args: Any) -> None:
        """Drive the replica. If its store fails, this program must not take part any longer."""
        if not self.is_closed:
            try:
                callback(*args)
            except StoreError as problem:
                log.error("%s: %s", self._channel.name, problem)
                self.application._end(problem)

    def broadcast(self, data: bytes) -> None:
        if self.may_send(self.peer_id):
            self._layer.broadcast(data)
        elif data[1] in (Enter.number, Exit.number):
            others = [each for each in self._channel.members() if LAYER in each.layers and each.peer_id != self.peer_id]
            for member in others[:ENTER_DIRECTLY_MAX]:
                self.tell(member.peer_id, data)

    def tell(self, peer_id: PeerId, data: bytes) -> None:
        self._layer.tell(peer_id, data)

    def request(
        self, peer_id: PeerId, data: bytes, timeout_s: float, on_outcome: Callable[[OutcomeKind, bytes], None]
    ) -> GiveUp:
        return self._layer.request(
            peer_id, data, timeout_s, lambda outcome: self.run(on_outcome, outcome.kind, outcome.data)
        )

    def is_present(self, peer_id: PeerId) -> bool:
        return self._channel.member(peer_id) is not None

    def may_send(self, peer_id: PeerId) -> bool:
        if peer_id == self.peer_id:
            own = self._channel.identity(peer_id)
            return own is None or own.role is not Role.CONSUMER
        member = self._channel.member(peer_id)
        return member is None or member.role is not Role.CONSUMER

    def name_of(self, peer_id: PeerId) -> str:
        return name_on_channel(self._channel, peer_id)

    def deliver(self, entry: Entry) -> None:
        self.application._deliver(entry)

    def on_placed(self, number: int, placed: Placed) -> None:
        self.application._on_placed(number, placed)

    def emit(self, event: OrderEvent) -> None:
        self.application._emit(event)


def name_on_channel(channel: "Channel", peer_id: PeerId) -> str:
    """The name on a member's ticket; on a channel without tickets the name that it chose. Empty if it is unknown."""
    own = channel.identity(channel.peer_id)
    if peer_id == channel.peer_id:
        return (own.name if own is not None else "") or channel._node.name
    member = channel.member(peer_id)
    has_tickets = own is not None and bool(own.name)
    return member.name if member is not None and (member.is_proven or not has_tickets) else ""
