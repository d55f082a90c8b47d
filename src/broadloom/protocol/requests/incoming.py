"""Requests of other peers: which handler gets them, and when.

A handler runs at most `concurrency` requests at a time. Others wait, within limits: beyond them a request gets BUSY,
and a connection that brings more one-way messages is not read until some have been handled.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from broadloom.errors import AlreadyRepliedError
from broadloom.wire.direct_messages import RequestStatus

if TYPE_CHECKING:
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.requests.callee_side import CalleeSide
    from broadloom.wire import PeerId

TELL_ID = 0
"""The id of a one-way message, which has none."""


class IncomingState(Enum):
    WAITING = auto()
    """For a free handler."""
    RUNNING = auto()
    REPLIED = auto()
    """The handler may still run."""
    CANCELLED = auto()
    """The caller no longer waits, or is gone."""


class IncomingRequest:
    """One request or one-way message for a handler. The handler calls `reply` or `refuse`, and `done` at its end."""

    __slots__ = (
        "_side",
        "data",
        "deadline_at",
        "flags",
        "handler",
        "id",
        "is_done",
        "layer",
        "on_cancel",
        "state",
    )

    def __init__(
        self, side: "CalleeSide", request_id: int, layer: int, flags: int, data: bytes, deadline_at: float
    ) -> None:
        self._side = side
        self.id = request_id
        self.layer = layer
        self.flags = flags
        self.data = data
        self.deadline_at = deadline_at
        self.state = IncomingState.WAITING
        self.handler: RequestHandler | None = None
        self.is_done = False
        self.on_cancel: Callable[[], object] | None = None
        """Called if the caller no longer waits while the handler runs."""

    @property
    def peer_id(self) -> "PeerId":
        return self._side.peer_id

    @property
    def identity(self) -> "Identity | None":
        """The verified identity of the caller; None without TLS."""
        return self._side.identity

    @property
    def expects_reply(self) -> bool:
        return self.id != TELL_ID

    def reply(self, data: bytes) -> None:
        """Raises `AlreadyRepliedError`. Ignored if the caller no longer waits."""
        self._end(RequestStatus.OK, data)

    def refuse(self, status: RequestStatus, text: str) -> None:
        """As `reply`."""
        self._end(status, text.encode(errors="replace"))

    def refuse_unless_replied(self, status: RequestStatus, text: str) -> None:
        if self.state is not IncomingState.REPLIED:
            self.refuse(status, text)

    def done(self) -> None:
        """The handler has ended. Without a reply, the request has failed."""
        if self.is_done:
            return
        self.is_done = True
        self.on_cancel = None  # it refers to this request: no cycle is left for the garbage collector
        if self.state is IncomingState.RUNNING and self.expects_reply:
            self.refuse(RequestStatus.FAILED, "the handler did not reply")
        if self.handler is not None:
            self.handler.on_done(self)

    def cancel(self) -> None:
        """The caller no longer waits, or the connection is lost."""
        if self.state is IncomingState.WAITING and self.handler is not None:
            self.handler.remove(self)
        is_running = self.state is not IncomingState.WAITING
        self.state = IncomingState.CANCELLED
        if is_running and not self.is_done and self.on_cancel is not None:
            self.on_cancel()

    def _end(self, status: RequestStatus, data: bytes) -> None:
        if self.state is IncomingState.CANCELLED or not self.expects_reply:
            return
        if self.state is IncomingState.REPLIED:
            raise AlreadyRepliedError("this request was already answered: a handler replies once")
        self.state = IncomingState.REPLIED
        self._side.send_reply(self, status, data)

    def on_taken(self) -> None:
        """It no longer waits."""
        self._side.on_taken(self)


class RequestHandler:
    """The handler of one layer, and the requests that wait for it."""

    def __init__(
        self, handlers: "RequestHandlers", callback: Callable[[IncomingRequest], None], concurrency: int
    ) -> None:
        self._handlers = handlers
        self.callback = callback
        self._concurrency = concurrency
        self._running = 0
        self.waiting: deque[IncomingRequest] = deque()

    @property
    def has_room(self) -> bool:
        return self._running < self._concurrency

    def start(self, request: IncomingRequest) -> None:
        request.state = IncomingState.RUNNING
        self._running += 1
        self._handlers.running += 1
        self.callback(request)

    def on_done(self, _request: IncomingRequest) -> None:
        self._running -= 1
        self._handlers.running -= 1
        self._handlers.start_waiting()

    def remove(self, request: IncomingRequest) -> None:
        self.waiting.remove(request)
        self._handlers.waiting -= 1


class RequestHandlers:
    """The handlers of all layers of one peer."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._by_layer: dict[int, RequestHandler] = {}
        self.running = 0
        self.waiting = 0
        self._is_starting = False

    def set(self, layer: int, callback: Callable[[IncomingRequest], None], concurrency: int) -> None:
        """Handle the requests of this layer; replaces an earlier handler, whose requests end there."""
        self.remove(layer)
        self._by_layer[layer] = RequestHandler(self, callback, concurrency)

    def has(self, layer: int, callback: Callable[[IncomingRequest], None]) -> bool:
        handler = self._by_layer.get(layer)
        return handler is not None and handler.callback == callback

    def remove(self, layer: int) -> None:
        handler = self._by_layer.pop(layer, None)
        while handler is not None and handler.waiting:
            request = self._take(handler)
            request.refuse(RequestStatus.NO_HANDLER, "the handler was removed")

    def dispatch(self, request: IncomingRequest) -> None:
        handler = self._by_layer.get(request.layer)
        if handler is None:
            if request.expects_reply:
                request.refuse(RequestStatus.NO_HANDLER, "no handler for requests here (channel.on_request)")
            else:
                self._peer.counters.tells_dropped += 1
            return
        request.handler = handler
        if handler.has_room and not handler.waiting and self.running < self._peer.settings.handlers_max:
            handler.start(request)
        elif request.expects_reply and self.waiting >= self._peer.settings.direct_waiting_max:
            request.handler = None
            request.refuse(RequestStatus.BUSY, "too many requests wait")
        else:
            handler.waiting.append(request)
            self.waiting += 1

    def start_waiting(self) -> None:
        if self._is_starting:
            return  # a handler ended at once: the loop below goes on
        self._is_starting = True
        try:
            self._start_waiting()
        finally:
            self._is_starting = False

    def _start_waiting(self) -> None:
        for handler in list(self._by_layer.values()):
            while handler.waiting and handler.has_room and self.running < self._peer.settings.handlers_max:
                request = self._take(handler)
                if request.expects_reply and self._peer.runtime.now() >= request.deadline_at:
                    request.refuse(RequestStatus.EXPIRED, "no handler was free before the deadline")
                else:
                    handler.start(request)

    def _take(self, handler: RequestHandler) -> IncomingRequest:
        request = handler.waiting.popleft()
        self.waiting -= 1
        request.on_taken()
        return request
