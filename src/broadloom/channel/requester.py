"""The direct requests of a channel: asking one member, and answering."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from broadloom.channel.arguments import CALLBACK_ERRORS, check_positive_timeout
from broadloom.channel.direct_request import FILE_CONTENT_TYPE, REPLY_REMEDY, DirectRequest, HandlerContext, Reply
from broadloom.channel.loop_bound import LoopBound
from broadloom.channel.outgoing import Outgoing, OutgoingFilter, Way, pack_data
from broadloom.errors import (
    BusyError,
    MessageTooLargeError,
    NoAnswerError,
    NotConnectedError,
    NotSentError,
    PeerGoneError,
    RefusedError,
    RequestError,
    UnknownPeerError,
)
from broadloom.protocol import PeerState
from broadloom.protocol.events import payload_bytes
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind, OutgoingRequest
from broadloom.transport import TcpNode
from broadloom.wire import PeerId, WireError
from broadloom.wire.direct_messages import HEADED, RequestStatus
from broadloom.wire.message_headers import checked_headers, encode_headers
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_mark

if TYPE_CHECKING:
    from broadloom.channel.channel import Channel

log = logging.getLogger("broadloom")

TIMEOUT_S = 5.0
APPLICATION_LAYER = 0

Handler = Callable[[DirectRequest], Awaitable[bytes | None] | bytes | None]
"""Answers a request: a coroutine function, or a plain function that does not block."""


class HasPeerId(Protocol):
    """A member, as in the roster."""

    @property
    def peer_id(self) -> PeerId: ...


class Requester(LoopBound):
    """The direct requests of `Channel`."""

    name: str
    _node: TcpNode
    _filter: OutgoingFilter | None

    def __init__(self) -> None:
        self._request_layers: dict[int, None] = {}
        """Layers with a handler for requests."""
        self._handler_tasks: set[asyncio.Task[None]] = set()

    async def request(
        self,
        peer: PeerId | HasPeerId,
        data: bytes,
        *,
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request to one member and return its reply.

        Raises a `RequestError`: `UnknownPeerError`, `PeerGoneError`, `NoAnswerError`, `RefusedError` or `BusyError`.
        A request is never sent twice. `PeerGoneError.sent` tells whether its handler may have run.
        """
        return await self._request(peer, data, APPLICATION_LAYER, timeout_s, headers)

    async def tell(
        self,
        peer: PeerId | HasPeerId,
        data: bytes,
        *,
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a one-way message to one member. Returns when the connection to it has taken the message, without
        knowing whether it arrives. Raises as `request`."""
        await self._request(peer, data, APPLICATION_LAYER, timeout_s, headers, is_tell=True)

    def on_request(self, handler: Handler | None, *, concurrency: int = 64) -> Callable[[], None]:
        """Answer requests of other members with `handler`, at most `concurrency` at a time. It also gets one-way
        messages (`tell`).

        The handler is a coroutine function, or a plain function that does not block. It returns the reply as bytes, or
        raises `RefusedError`. There is one handler: a new one replaces it, and None removes it. Returns a function that
        removes this one.
        """
        return self._on_request(handler, APPLICATION_LAYER, concurrency)

    # -- for all layers

    async def _request(
        self,
        peer: PeerId | HasPeerId,
        data: bytes,
        layer: int,
        timeout_s: float,
        headers: Mapping[str, str] | None,
        *,
        is_tell: bool = False,
        is_filtered: bool = False,
    ) -> Reply:
        self._check_loop()
        peer_id, flags = _peer_id(peer), 0
        if not isinstance(data, bytes):
            data = payload_bytes(data, REPLY_REMEDY)
        check_positive_timeout(timeout_s)
        if headers is not None:
            encode_headers(*checked_headers(None, None, headers))  # checks them; the result is cached
        outgoing_filter = self._filter if not is_filtered else None
        if outgoing_filter is not None or headers is not None:
            way = Way.TELL if is_tell else Way.REQUEST
            out = replace(self._origin(), data=data, way=way, layer=_mark(layer), headers=headers or {})
            if outgoing_filter is not None:
                out.receiver = self._names_of(peer_id)
                out = await outgoing_filter.apply(out, self._as_channel())
            data, has_headers = pack_data(out)
            flags = HEADED if has_headers else 0
        return await self._request_packed(peer_id, data, layer, flags, timeout_s, is_tell=is_tell)

    async def _tell_outgoing(self, peer_id: int, out: Outgoing, timeout_s: float) -> None:
        """Send what a rule sends to one member. It does not pass the filter once more."""
        if out.way is Way.FILE:
            out = replace(out, content_type=FILE_CONTENT_TYPE)
        data, has_headers = pack_data(replace(out, has_envelope=True))
        await self._request_packed(
            PeerId(peer_id), data, APPLICATION_LAYER, HEADED if has_headers else 0, timeout_s, is_tell=True
        )

    async def _request_packed(
        self, peer_id: PeerId, data: bytes, layer: int, flags: int, timeout_s: float, *, is_tell: bool
    ) -> Reply:
        node = self._node
        if not node.peer.requests.has_route(peer_id) and any(peer_id == own.id for own in self._nodes):
            raise ValueError("this is the id of this program itself: call the handler directly")
        if len(data) > node.settings.direct_request_bytes_max:
            raise MessageTooLargeError(
                f"request of {len(data):,} bytes: at most {node.settings.direct_request_bytes_max:,} are allowed; "
                "send it in several requests, or broadcast it"
            )
        if node.peer.state is not PeerState.CONNECTED:
            raise self._end_error()
        future: asyncio.Future[Outcome] = self._loop.create_future()

        def on_outcome(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        request: OutgoingRequest = node.peer.requests.request(
            peer_id, data, timeout_s, on_outcome, layer=layer, flags=flags, is_tell=is_tell
        )
        try:
            outcome = await future
        except asyncio.CancelledError:
            node.peer.requests.give_up(request)
            raise
        if outcome.kind is OutcomeKind.REPLIED:
            return Reply(PeerId(peer_id), outcome.data)
        raise self._error_of(outcome, peer_id, timeout_s)

    def _names_of(self, peer_id: int) -> tuple[str, ...]:
        member = self._node.peer.roster.get(PeerId(peer_id))
        return (member.name, f"{peer_id:016x}") if member is not None and member.name else (f"{peer_id:016x}",)

    def _error_of(self, outcome: Outcome, peer_id: PeerId, timeout_s: float) -> RequestError | NotConnectedError:
        subject = f"{self.name}: {peer_id:016x}"
        match outcome.kind:
            case OutcomeKind.GONE:
                remedy = "; the request may have been handled" if outcome.sent else "; the request was not sent"
                return PeerGoneError(f"{subject} is gone: {outcome.text}{remedy}", sent=outcome.sent)
            case OutcomeKind.NO_ANSWER:
                what = "no reply" if outcome.sent else "could not be sent"
                return NoAnswerError(f"{subject}: {what} within {timeout_s:g} s", sent=outcome.sent)
            case OutcomeKind.REFUSED:
                text = outcome.text or outcome.status.name.lower().replace("_", " ")
                return RefusedError(f"{subject} refused: {text}", outcome.status.name.lower(), text)
            case OutcomeKind.UNKNOWN_PEER:
                return UnknownPeerError(f"{subject}: {outcome.text}")
            case OutcomeKind.TOO_LARGE:
                return RefusedError(f"{subject}: {outcome.text}", RequestStatus.TOO_LARGE.name.lower())
            case OutcomeKind.BUSY:
                return BusyError(f"{subject}: {outcome.text}")
            case _:
                return self._end_error()

    def _on_request(
        self, handler: Handler | None, layer: int, concurrency: int, *, is_filtered: bool = False
    ) -> Callable[[], None]:
        self._check_loop()
        if handler is not None and not callable(handler):
            raise TypeError(f"a handler must be a function, not {type(handler).__name__}")
        if not isinstance(concurrency, int):
            raise TypeError(f"concurrency must be a whole number, not {type(concurrency).__name__}")
        if concurrency < 1:
            raise ValueError(f"concurrency={concurrency}: must be at least 1")
        runner = None
        if handler is not None:
            context = HandlerContext(self._as_channel(), layer, has_filter=self._filter is not None and not is_filtered)
            runner = HandlerRunner(self.name, handler, self._handler_tasks, context)
        self._set_incoming(layer, runner.start if runner is not None else None, concurrency)

        def remove() -> None:
            if runner is not None and any(node.peer.requests.handlers.has(layer, runner.start) for node in self._nodes):
                self._on_request(None, layer, 1)

        return remove

    def _set_incoming(self, layer: int, callback: Callable[[IncomingRequest], None] | None, concurrency: int) -> None:
        """Pass the requests of a layer to `callback`; None removes it."""
        for node in self._nodes:
            if callback is None:
                node.peer.requests.handlers.remove(layer)
            else:
                node.peer.requests.handlers.set(layer, callback, concurrency)
        if callback is None:
            self._request_layers.pop(layer, None)
        else:
            self._request_layers[layer] = None
        self._on_callbacks_changed()

    def _cancel_handlers(self) -> None:
        for task in list(self._handler_tasks):
            task.cancel()

    @abstractmethod
    def _origin(self) -> Outgoing: ...

    @abstractmethod
    def _as_channel(self) -> "Channel": ...

    @property
    @abstractmethod
    def _nodes(self) -> list[TcpNode]: ...

    @abstractmethod
    def _on_callbacks_changed(self) -> None: ...


class HandlerRunner:
    """Calls a handler and sends its result. It does not refer to the channel."""

    def __init__(self, name: str, handler: Handler, tasks: set[asyncio.Task[None]], context: HandlerContext) -> None:
        self._name = name
        self._handler = handler
        self._tasks = tasks
        self._context = context

    def start(self, incoming: IncomingRequest) -> None:
        try:
            result = self._handler(DirectRequest(incoming, TcpNode.now(), self._context))
        except CALLBACK_ERRORS as problem:
            self._fail(incoming, problem)
            incoming.done()
            return
        is_filtered = False
        if isinstance(result, bytes) and self._context.has_filter:
            result, is_filtered = self._context.filtered(result, incoming), True
        if isinstance(result, bytes) or result is None:
            self._finish(incoming, result)
            incoming.done()
        elif isinstance(result, Awaitable):
            task = asyncio.get_running_loop().create_task(self._run(incoming, result, is_filtered))
            self._tasks.add(task)

            def on_done(task: asyncio.Task[None]) -> None:
                self._tasks.discard(task)
                if isinstance(result, Coroutine):
                    result.close()  # a task that is cancelled at once has not begun to await it
                incoming.done()

            task.add_done_callback(on_done)
            incoming.on_cancel = task.cancel
        else:
            self._fail(incoming, TypeError(f"a handler returns bytes, not {type(result).__name__}; use {REPLY_REMEDY}"))
            incoming.done()

    async def _run(self, incoming: IncomingRequest, result: Awaitable[bytes | None], is_filtered: bool) -> None:
        try:
            data = await result
            if data is not None and self._context.has_filter and not is_filtered:
                data = await self._context.filtered(payload_bytes(data, REPLY_REMEDY), incoming)
            self._finish(incoming, data)
        except Exception as problem:
            self._fail(incoming, problem)

    def _finish(self, incoming: IncomingRequest, data: bytes | None) -> None:
        if data is not None and incoming.expects_reply:
            try:
                incoming.reply(payload_bytes(data, REPLY_REMEDY))
            except Exception as problem:
                self._fail(incoming, problem)

    def _fail(self, incoming: IncomingRequest, problem: BaseException) -> None:
        """Callers get the text of a refusal, and of other exceptions only the type: it may contain secrets."""
        if isinstance(problem, RefusedError):
            status, text = RequestStatus.REFUSED, self._context.filtered_text(str(problem), incoming)
        elif isinstance(problem, NotSentError):
            status, text = RequestStatus.FAILED, "the rules of the other side do not let the reply out"
            log.warning("%s: a reply: %s", self._name, problem)
        elif isinstance(problem, WireError):
            status, text = RequestStatus.FAILED, f"malformed request: {problem}"
        else:
            status, text = RequestStatus.FAILED, f"the handler raised {type(problem).__name__}"
            log.error("%s: the handler of a request failed", self._name, exc_info=problem)
        incoming.refuse_unless_replied(status, text)


def _mark(layer: int) -> str:
    return layer_mark(layer << LAYER_SHIFT) if layer else ""


def _peer_id(peer: PeerId | HasPeerId) -> PeerId:
    found = getattr(peer, "peer_id", peer)
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(f"peer must be a peer id, as in message.author, or a member, not {type(peer).__name__}")
    if not 0 <= found < 1 << 64:
        raise ValueError(f"peer={found}: a peer id has 64 bits")
    return found
