"""`ChannelSwitchRuntime`: the switch over a real channel, with asyncio, the real clock and real programs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from broadloom.channel.arguments import CALLBACK_ERRORS
from broadloom.channel.direct_request import HandlerContext
from broadloom.channel.layer_runtime import LayerRuntime
from broadloom.errors import NotSentError, RefusedError
from broadloom.protocol.events import Missed
from broadloom.protocol.requests.outgoing import Outcome, OutgoingRequest
from broadloom.protocol.roster.member import Member, MemberJoined, MemberLeft, MemberLost
from broadloom.switch.handled_request import HandledRequest
from broadloom.switch.launcher import Launcher
from broadloom.switch.model import DeclinedError
from broadloom.switch.settings import LAYER
from broadloom.wire import PeerId
from broadloom.wire.payload_kind import LAYER_SHIFT, layer_kind

if TYPE_CHECKING:
    from broadloom.channel import Channel, ChannelEvent
    from broadloom.switch.core import SwitchCore
    from broadloom.switch.handlers import HandlerCall
    from broadloom.switch.program_types import ProgramType
    from broadloom.switch.runtime import RunningProgram

log = logging.getLogger("broadloom")

CONCURRENCY = 256
"""Direct requests at a time; each handler has a limit of its own."""
TELL_TIMEOUT_S = 10.0
PURPOSE = b"broadloom switch registration\0"
"""Of a signature: none can be used for anything else."""


class ChannelSwitchRuntime(LayerRuntime):
    def __init__(self, channel: "Channel", on_left: Callable[[], None], session: str) -> None:
        super().__init__(channel, LAYER, on_left)
        self._roster = channel._node.peer.roster
        self.context = HandlerContext(channel, layer_kind(LAYER) >> LAYER_SHIFT, has_filter=channel._filter is not None)
        self._core: SwitchCore | None = None
        self._launcher = Launcher(channel.name, session)

    def attach(self, core: "SwitchCore") -> None:
        self._core = core
        self._open()
        self._layer._on_incoming(core.on_request, CONCURRENCY)

    async def close(self) -> None:
        """Waits until the queue is sent and the programs have ended."""
        self._core = None
        await super().close()
        await self._launcher.close()

    # -- called by the core

    @property
    def is_connected(self) -> bool:
        return self._channel.is_connected

    @property
    def has_whole_roster(self) -> bool:
        return self._roster.is_complete

    def wall_time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def members(self) -> tuple[Member, ...]:
        return self._roster.members()

    def member(self, peer_id: PeerId) -> Member | None:
        return self._roster.get(peer_id)

    def sign(self, data: bytes) -> bytes:
        return self._roster.sign(PURPOSE, data)

    def is_signed_by(self, peer_id: PeerId, data: bytes, signature: bytes) -> bool:
        return self._roster.is_signed_by(peer_id, PURPOSE, data, signature)

    def request(self, peer_id: PeerId, data: bytes, timeout_s: float, on_outcome: Callable[[Outcome], None]) -> object:
        return self._layer._start_request(peer_id, data, timeout_s, on_outcome, is_tell=False)

    def give_up(self, request: object) -> None:
        assert isinstance(request, OutgoingRequest)
        self._layer._give_up(request)

    def tell(self, peer_id: PeerId, data: bytes) -> None:
        self._layer._start_request(peer_id, data, TELL_TIMEOUT_S, _ignore, is_tell=True)

    def start_program(self, program: "ProgramType", on_exit: Callable[[str], None]) -> "RunningProgram":
        return self._launcher.start(program, on_exit)

    # -- handlers

    def invoke(self, call: "HandlerCall") -> None:
        try:
            result = call.handler.function(HandledRequest(call, self.context))
        except CALLBACK_ERRORS as problem:
            self._fail(call, problem)
            call.done()
            return
        if isinstance(result, bytes) and self.context.has_filter:
            result = _now(result)
        is_coroutine = isinstance(result, CoroutineType)
        if not is_coroutine and not isinstance(result, Awaitable):
            self._finish(call, result)
            call.done()
            return
        task = self._loop.create_task(self._await(call, result))
        self._tasks[task] = None

        def on_done(task: asyncio.Task[None]) -> None:
            self._tasks.pop(task, None)
            if is_coroutine or isinstance(result, Coroutine):
                result.close()  # a task that is cancelled at once has not begun to await it
            call.done()

        task.add_done_callback(on_done)
        call.on_cancel = task.cancel

    async def _await(self, call: "HandlerCall", result: Awaitable[Any]) -> None:
        try:
            data = await result
            if isinstance(data, bytes) and self.context.has_filter:
                data = await self.context.filtered(data, call)
            self._finish(call, data)
        except Exception as problem:
            self._fail(call, problem)

    def _finish(self, call: "HandlerCall", data: object) -> None:
        if isinstance(data, bytes):
            call.reply_unless_replied(data)
        elif data is not None:
            text = "use text.encode() or json.dumps(value).encode()"
            self._fail(call, TypeError(f"a handler returns bytes, not {type(data).__name__}; {text}"))

    def _fail(self, call: "HandlerCall", problem: BaseException) -> None:
        """Senders get the text of a refusal, and of other exceptions only the type: it may contain secrets."""
        if isinstance(problem, DeclinedError):
            call.decline_unless_replied(self.context.filtered_text(str(problem), call))
        elif isinstance(problem, RefusedError):
            call.refuse_unless_replied(self.context.filtered_text(str(problem), call))
        elif isinstance(problem, NotSentError):
            log.warning("%s: a reply of the switch: %s", self._channel.name, problem)
            call.refuse_unless_replied("the rules of the other side do not let the reply out")
        else:
            log.error("%s: a handler of the switch failed", self._channel.name, exc_info=problem)
            call.refuse_unless_replied(f"the handler raised {type(problem).__name__}")

    # -- called by the channel

    def _on_message(self, author: PeerId, data: bytes) -> None:
        if self._core is not None:
            self._core.on_broadcast(author, data)

    def _on_event(self, event: "ChannelEvent") -> None:
        core = self._core
        if core is None:
            return
        if isinstance(event, MemberJoined):
            core.on_member_joined(event.member.peer_id)
        elif isinstance(event, MemberLeft | MemberLost):
            core.on_member_gone(event.member.peer_id)
        elif isinstance(event, Missed):
            core.on_missed(event.author)


async def _now(data: bytes) -> bytes:
    """A reply that is there already, as one that is waited for: rules may have to wait."""
    return data


def _ignore(_outcome: Outcome) -> None:
    """One-way messages may be lost."""
