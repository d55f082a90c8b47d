"""`Handlers`: the handlers of this program, and the messages that run in them or wait for them.

A message goes to the handler with the highest rank that matches. Each handler runs `concurrency` messages at a time;
others wait, within a limit, and are declined beyond it, so that the sender asks the next program.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from broadloom.errors import AlreadyRepliedError
from broadloom.switch import settings
from broadloom.switch.codec import Result, Verdict
from broadloom.switch.model import FailureReason, MessageClass, MessageState, Pattern, SwitchMessage
from broadloom.switch.recording import ACCEPTED, CANCELLED, HANDLED, record_handling, record_result
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Observer
    from broadloom.switch.runtime import SwitchRuntime

Respond = Callable[[Result], None]
OnProgress = Callable[[MessageState, str], None]


def declined(reason: FailureReason, text: str = "") -> Result:
    return Result(Verdict.DECLINED, reason, cut_text(text))


def failed(reason: FailureReason, text: str = "") -> Result:
    return Result(Verdict.FAILED, reason, cut_text(text))


def cut_text(text: str) -> str:
    """The end of a text, as far as the wire can carry it."""
    text = text.replace("\0", "")
    return text.encode(errors="replace")[-settings.TEXT_BYTES_MAX :].decode(errors="ignore")


class Handler:
    """A registered handler: its pattern, the function of the application, and what it is doing."""

    def __init__(self, pattern: Pattern, function: Any, concurrency: int) -> None:
        self.pattern = pattern
        self.function = function
        self.concurrency = concurrency
        self.running: dict[HandlerCall, None] = {}
        self.waiting: deque[HandlerCall] = deque()


class HandlerCall:
    """One message in the hands of this program. Exactly one of its methods ends it; later ones are ignored, except
    that a second reply of the application raises `AlreadyRepliedError`."""

    def __init__(
        self,
        handlers: "Handlers",
        handler: Handler,
        message: SwitchMessage,
        peer_id: PeerId,
        timeout_s: float,
        respond: Respond,
        on_progress: OnProgress,
    ) -> None:
        self._handlers = handlers
        self.handler = handler
        self.message = message
        self.peer_id = peer_id
        self.timeout_s = timeout_s
        self._respond: Respond | None = respond
        self._on_progress = on_progress
        self.is_notice = message.message_class is MessageClass.NOTICE
        self._has_replied = self.is_notice  # it is answered when a handler is selected
        self.on_cancel: Callable[[], object] | None = None
        """Called if the sender no longer waits while the handler runs."""

    def reply(self, data: bytes) -> None:
        self._reply_once(self._result(Verdict.HANDLED, data=data))

    def decline(self, text: str) -> None:
        """Not for this program: the next one is asked."""
        self._reply_once(declined(FailureReason.ALL_DECLINED, text))

    def refuse(self, text: str) -> None:
        self._reply_once(self._result(Verdict.FAILED, FailureReason.REFUSED, cut_text(text)))

    def _result(
        self, verdict: Verdict, reason: FailureReason | None = None, text: str = "", data: bytes = b""
    ) -> Result:
        return Result(verdict, reason, text, self._handlers.peer_id, self._handlers.program, data)

    def reply_unless_replied(self, data: bytes) -> None:
        if not self._has_replied:
            self.reply(data)

    def decline_unless_replied(self, text: str) -> None:
        if not self._has_replied:
            self.decline(text)

    def refuse_unless_replied(self, text: str) -> None:
        if not self._has_replied:
            self.refuse(text)

    def done(self) -> None:
        """The function of the application has ended. Without a reply, the request has failed."""
        self.refuse_unless_replied("the handler did not reply")
        if self.is_notice and self._is_running:
            record_handling(self._handlers.observer, self.message, HANDLED)
        self._handlers.on_done(self)

    def cancel(self) -> None:
        """The sender no longer waits, or is gone."""
        if self._is_running and (self.is_notice or not self._has_replied):
            record_handling(self._handlers.observer, self.message, CANCELLED)
        self._respond, self._has_replied = None, True
        if self in self.handler.running:
            if self.on_cancel is not None:
                self.on_cancel()
        elif self in self.handler.waiting:
            self.handler.waiting.remove(self)

    @property
    def _is_running(self) -> bool:
        """Whether the function runs, and somebody waits for it."""
        return self._respond is not None and self in self.handler.running

    def begin(self) -> None:
        record_handling(self._handlers.observer, self.message, ACCEPTED)
        if self.message.wants_progress and not self.is_notice:
            self._on_progress(MessageState.ACCEPTED, self._handlers.program)

    def _reply_once(self, result: Result) -> None:
        if self._has_replied:
            if self._respond is None or self.is_notice:
                return
            raise AlreadyRepliedError("this request was already answered: a handler replies once")
        self._has_replied = True
        if self._is_running:
            record_result(self._handlers.observer, self.message, result)
        if self._respond is not None:
            self._respond(result)


class Handlers:
    def __init__(
        self, runtime: "SwitchRuntime", program: str, matches: Callable[[Pattern, SwitchMessage], bool]
    ) -> None:
        self._runtime = runtime
        self._matches = matches
        self.program = program
        self._handlers: dict[Handler, None] = {}

    @property
    def peer_id(self) -> PeerId:
        return self._runtime.peer_id

    @property
    def observer(self) -> "Observer | None":
        return self._runtime.observer

    def add(self, handler: Handler) -> None:
        self._handlers[handler] = None

    def remove(self, handler: Handler) -> None:
        """Requests that wait for it are declined. What runs in it, and notices that it has taken, go on."""
        if handler in self._handlers:
            del self._handlers[handler]
            for call in [each for each in handler.waiting if not each.is_notice]:
                handler.waiting.remove(call)
                call.decline("the handler was removed")

    def close(self) -> None:
        for handler in list(self._handlers):
            self.remove(handler)
            for call in [*handler.waiting, *handler.running]:
                call.cancel()

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers)

    def find(self, message: SwitchMessage) -> Handler | None:
        """The handler with the highest rank, and of these the one with the fewest messages."""
        found = [each for each in self._handlers if self._matches(each.pattern, message)]
        if len(found) == 1:
            return found[0]
        return min(found, key=lambda each: (-each.pattern.rank, len(each.running) + len(each.waiting)), default=None)

    def accept(
        self, message: SwitchMessage, peer_id: PeerId, timeout_s: float, respond: Respond, on_progress: OnProgress
    ) -> HandlerCall | None:
        """Run a handler, or let the message wait for it. Responds at once if there is none, or if this is a notice."""
        handler = self.find(message)
        if handler is None:
            respond(declined(FailureReason.NO_HANDLER, "no handler here"))
            return None
        if len(handler.running) >= handler.concurrency and len(handler.waiting) >= settings.HANDLER_WAITING_MAX:
            respond(declined(FailureReason.QUEUE_FULL, "too many requests wait for this handler"))
            return None
        call = HandlerCall(self, handler, message, peer_id, timeout_s, respond, on_progress)
        if call.is_notice:
            respond(Result(Verdict.HANDLED, handler=self.peer_id, handler_program=self.program))
        if len(handler.running) < handler.concurrency:
            self._start(call)
        else:
            handler.waiting.append(call)
        return call

    def _start(self, call: HandlerCall) -> None:
        call.handler.running[call] = None
        call.begin()
        self._runtime.invoke(call)

    def on_done(self, call: HandlerCall) -> None:
        handler = call.handler
        if handler.running.pop(call, self) is self:
            return
        call.on_cancel = None
        while handler.waiting and len(handler.running) < handler.concurrency:
            self._start(handler.waiting.popleft())
