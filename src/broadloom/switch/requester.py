"""`SwitchRequester`: the sending half of `Switch`: requests, notices, and what becomes of them."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from broadloom.channel.arguments import check_positive_timeout
from broadloom.channel.outgoing import Way
from broadloom.errors import BusyError, MessageTooLargeError
from broadloom.protocol.events import payload_bytes
from broadloom.switch import settings
from broadloom.switch.handled_request import REPLY_REMEDY
from broadloom.switch.model import (
    Disposition,
    IfLost,
    MessageClass,
    MessageState,
    Recipient,
    RequestFailedError,
    Scope,
    SwitchReply,
)
from broadloom.switch.outgoing import OutgoingMessage
from broadloom.switch.patterns import chosen, message_scope, name

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.switch.channel_runtime import ChannelSwitchRuntime
    from broadloom.switch.core import SwitchCore

TIMEOUT_S = 5.0


class SwitchRequester(ABC):
    channel: "Channel"
    _core: "SwitchCore"
    _runtime: "ChannelSwitchRuntime"

    async def request(
        self,
        operation: str,
        data: bytes = b"",
        *,
        file: str | None = None,
        scope: Scope | str | None = None,
        absent: Disposition | str | None = None,
        if_lost: IfLost | str = IfLost.FAIL,
        timeout_s: float = TIMEOUT_S,
    ) -> SwitchReply:
        """Send a request and return the reply of its one handler. Raises `RequestFailedError` with a reason.

        - `file`, `scope`: without both, programs of this session are asked; with a file, programs that work on it.
        - `absent`: for a program that does not run: `fail`, `start` or `queue`. Default: what its type says.
        - `if_lost`: `fail`, or `next` to ask another handler if the first one died with the request.
        """
        reply = await self._end_of(
            MessageClass.REQUEST, operation, data, timeout_s, file, scope, absent=absent, if_lost=if_lost
        )
        if reply.state is MessageState.HANDLED:
            return reply
        assert reply.reason is not None
        reason = reply.reason.name.lower().replace("_", " ")
        text = f"{self.channel.name}: {reply.operation!r} failed: {reason}"
        raise RequestFailedError(f"{text}: {reply.failure_text}" if reply.failure_text else text, reply)

    async def notify(
        self,
        operation: str,
        data: bytes = b"",
        *,
        file: str | None = None,
        scope: Scope | str | None = None,
        recipient: Recipient | str = Recipient.BOTH,
        absent: Disposition | str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> MessageState:
        """Send a notice to all observers and to at most one handler. There is no reply.

        Returns `HANDLED` once a handler has taken it, `QUEUED` if it waits for a program, and `SENT` if there is no
        handler: observers have got it, and if there are none either, it is discarded.
        """
        chosen_recipient = chosen("recipient", Recipient, recipient)
        end = await self._end_of(
            MessageClass.NOTICE, operation, data, timeout_s, file, scope, absent=absent, recipient=chosen_recipient
        )
        is_handled = end.state is not MessageState.FAILED and chosen_recipient is not Recipient.OBSERVERS
        return end.state if is_handled else MessageState.SENT

    async def request_all(
        self,
        operation: str,
        data: bytes = b"",
        *,
        file: str | None = None,
        scope: Scope | str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncGenerator[SwitchReply, None]:
        """Ask every program that runs and handles this, and yield the replies as they come. A program that fails, or
        does not reply in time, gives a reply with the state `FAILED`."""
        self._check_open()
        checked = message_scope(file, scope)
        deadline = self._runtime.now() + timeout_s
        await self._wait_until(lambda: self._core.directory.is_complete, timeout_s)
        handler_ids = self._core.handler_ids(name("operation", operation), checked, file or "")
        ended: asyncio.Queue[SwitchReply] = asyncio.Queue()

        def on_step(step: SwitchReply) -> None:
            if step.is_end:
                ended.put_nowait(step)

        kind = MessageClass.REQUEST
        data = await self._filtered(kind, operation, data)
        remaining_s = max(0.001, deadline - self._runtime.now())
        sent = [
            self._send(kind, operation, data, on_step, remaining_s, file, scope, absent="fail", only=peer_id)
            for peer_id in handler_ids
        ]
        try:
            for _ in sent:
                yield await ended.get()
        finally:
            for out in sent:
                self._core.sender.give_up(out)

    async def follow(
        self,
        operation: str,
        data: bytes = b"",
        *,
        file: str | None = None,
        scope: Scope | str | None = None,
        absent: Disposition | str | None = None,
        if_lost: IfLost | str = IfLost.FAIL,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncGenerator[SwitchReply, None]:
        """Send a request and yield its states: sent, queued, started, accepted. The last one is `HANDLED` with the
        reply, or `FAILED` with the reason."""
        steps: asyncio.Queue[SwitchReply] = asyncio.Queue()
        options: dict[str, Any] = {"absent": absent, "if_lost": if_lost, "wants_progress": True}
        kind = MessageClass.REQUEST
        data = await self._filtered(kind, operation, data)
        out = self._send(kind, operation, data, steps.put_nowait, timeout_s, file, scope, **options)
        try:
            while True:
                step = await steps.get()
                yield step
                if step.is_end:
                    return
        finally:
            self._core.sender.give_up(out)

    async def _filtered(self, message_class: MessageClass, operation: str, data: bytes) -> bytes:
        """What the rules of the channel make of it. Other mistakes are reported by `_send`."""
        data = payload_bytes(data, REPLY_REMEDY)
        way = Way.REQUEST if message_class is MessageClass.REQUEST else Way.NOTICE
        return await self.channel._filter_content(data, way, str(operation), settings.LAYER)

    async def _end_of(
        self, message_class: MessageClass, operation: str, data: bytes, timeout_s: float, *args: Any, **options: Any
    ) -> SwitchReply:
        """Send a message and wait for its end; that of a notice is also that it was queued."""
        end: asyncio.Future[SwitchReply] = asyncio.get_running_loop().create_future()

        def on_step(step: SwitchReply) -> None:
            is_queued_notice = step.state is MessageState.QUEUED and message_class is MessageClass.NOTICE
            if (step.is_end or is_queued_notice) and not end.done():
                end.set_result(step)

        if self.channel._filter is not None:
            data = await self._filtered(message_class, operation, data)
        if self._runtime.is_congested:
            await self._runtime.wait_for_window()
        out = self._send(message_class, operation, data, on_step, timeout_s, *args, reports_sent=False, **options)
        try:
            return await end
        except asyncio.CancelledError:
            self._core.sender.give_up(out)
            raise

    def _send(
        self,
        message_class: MessageClass,
        operation: str,
        data: bytes,
        on_step: Callable[[SwitchReply], None],
        timeout_s: float,
        file: str | None,
        scope: Scope | str | None,
        absent: Disposition | str | None = None,
        if_lost: IfLost | str = IfLost.FAIL,
        **options: Any,
    ) -> OutgoingMessage:
        self._check_open()
        check_positive_timeout(timeout_s)
        operation = name("operation", operation)
        if not isinstance(data, bytes):
            data = payload_bytes(data, REPLY_REMEDY)
        if len(data) > settings.DATA_BYTES_MAX:
            raise MessageTooLargeError(f"{len(data):,} bytes: the switch sends at most {settings.DATA_BYTES_MAX:,}")
        if len(self._core.sender) >= settings.OUTGOING_MAX:
            raise BusyError(f"{settings.OUTGOING_MAX:,} requests are open: wait for replies before sending more")
        return self._core.send(
            message_class,
            operation,
            data,
            on_step,
            timeout_s=min(timeout_s, settings.DEADLINE_S_MAX),
            scope=message_scope(file, scope),
            file=file or "",
            disposition=chosen("absent", Disposition, absent) if absent is not None else Disposition.DEFAULT,
            if_lost=chosen("if_lost", IfLost, if_lost),
            **options,
        )

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    async def _wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool: ...
