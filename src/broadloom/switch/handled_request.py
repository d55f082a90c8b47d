"""`HandledRequest`: a request or a notice as its handler sees it."""

from typing import TYPE_CHECKING, Any

from broadloom.protocol.events import payload_bytes
from broadloom.switch.model import MessageClass, MessageId, Scope, SwitchMessage
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.channel.direct_request import HandlerContext
    from broadloom.switch.handlers import HandlerCall

REPLY_REMEDY = "text.encode() or json.dumps(value).encode()"


class HandledRequest:
    """A message in the hands of its one handler, which returns the reply, or calls `reply`, `decline` or `refuse`."""

    __slots__ = ("_call", "_context")

    def __init__(self, call: "HandlerCall", context: "HandlerContext | None" = None) -> None:
        self._context = context
        self._call = call

    @property
    def message(self) -> SwitchMessage:
        return self._call.message

    @property
    def id(self) -> MessageId:
        return self._call.message.id

    @property
    def operation(self) -> str:
        return self._call.message.operation

    @property
    def data(self) -> bytes:
        return self._call.message.data

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self._call.message.text

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return self._call.message.json()

    @property
    def file(self) -> str:
        return self._call.message.file

    @property
    def scope(self) -> Scope:
        return self._call.message.scope

    @property
    def session(self) -> str:
        """The session of the sender. With tickets it is proven, unless the message came through a queue."""
        return self._call.message.session

    @property
    def sender(self) -> PeerId:
        """The peer that sent the message."""
        return self._call.message.sender

    @property
    def peer_id(self) -> PeerId:
        """The peer that this program got it from: the sender, or the one whose queue it was in."""
        return self._call.peer_id

    @property
    def sender_program(self) -> str:
        return self._call.message.sender_program

    @property
    def is_notice(self) -> bool:
        """A notice has no reply."""
        return self._call.message.message_class is MessageClass.NOTICE

    @property
    def timeout_s(self) -> float:
        """How long the sender waited for a reply when the message arrived."""
        return self._call.timeout_s

    def reply(self, data: bytes) -> None:
        """Reply before the handler returns, which then returns None. Raises `AlreadyRepliedError`."""
        data = payload_bytes(data, REPLY_REMEDY)
        if self._context is not None and self._context.has_filter:
            data = self._context.filtered_nowait(data, self._call)
        self._call.reply(data)

    def decline(self, text: str = "") -> None:
        """Not for this program: the next handler is asked. The same as `raise DeclinedError(text)`."""
        self._call.decline(self._filtered_text(text))

    def refuse(self, text: str = "") -> None:
        """The request fails with `REFUSED`. The same as `raise RefusedError(text)`."""
        self._call.refuse(self._filtered_text(text))

    def _filtered_text(self, text: str) -> str:
        return self._context.filtered_text(text, self._call) if self._context is not None else text
