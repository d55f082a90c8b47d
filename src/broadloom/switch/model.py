"""The nouns of the switch: scopes, states, patterns, messages and results (after US 5,335,347).

A message names an operation and a scope, not its receiver. A program registers patterns: messages it handles, and
messages it observes. At most one program handles a message; any number observe it.
"""

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from broadloom.errors import RequestError
from broadloom.wire import PeerId


class MessageClass(IntEnum):
    REQUEST = 1
    """Ends in exactly one reply or failure."""
    NOTICE = 2
    """Has no reply."""


class Scope(IntEnum):
    """For whom a message is."""

    SESSION = 1
    """Programs of the sender's session."""
    FILE = 2
    """Programs that work on the file, in any session."""
    FILE_IN_SESSION = 3
    """Programs of the sender's session that work on the file."""
    FILE_OR_SESSION = 4
    """Programs of the sender's session, and programs that work on the file in any session."""

    @property
    def is_local(self) -> bool:
        """Whether such a message stays in the session of its sender."""
        return self in (Scope.SESSION, Scope.FILE_IN_SESSION)


class Recipient(IntEnum):
    """Who gets a message, or a copy of it."""

    BOTH = 1
    HANDLER = 2
    OBSERVERS = 3


class MessageState(IntEnum):
    """In the order in which a message can go through them."""

    CREATED = 1
    SENT = 2
    QUEUED = 3
    """Waits on disk for a program that does not run."""
    STARTED = 4
    """A program is being started for it."""
    ACCEPTED = 5
    """A handler has begun."""
    HANDLED = 6
    FAILED = 7


PROGRESS_STATES = (MessageState.STARTED, MessageState.ACCEPTED)
"""Observed only by patterns that name them: a handler reports them for each request that is observed so."""


class Disposition(IntEnum):
    """What happens to a message for a program that does not run."""

    DEFAULT = 0
    """What the program's type says; without a type, the message fails."""
    FAIL = 1
    START = 2
    QUEUE = 3


class IfLost(IntEnum):
    """What happens to a request whose handler died after it got the request."""

    FAIL = 1
    """It fails with `HANDLER_DIED`: no second handler ever gets it."""
    NEXT = 2
    """The next handler gets it. If the first one was only disconnected, both may handle it."""


class FailureReason(IntEnum):
    NO_HANDLER = 1
    """No program handles this, and the list of handlers is known to be complete."""
    ALL_DECLINED = 2
    """Every handler declined."""
    REFUSED = 3
    """The handler refused or raised an exception."""
    HANDLER_DIED = 4
    """The handler, or the connection to it, was lost: the request may have been handled."""
    TIMED_OUT = 5
    """There was no reply in time. The handler is cancelled."""
    NOT_STARTED = 6
    """The program could not be started."""
    QUEUE_FULL = 7
    """The queue of the program, or of every handler, has reached a limit."""
    EXPIRED = 8
    """The deadline passed while the request waited in a queue."""
    TOO_LARGE = 9
    """The reply, or the copy for a handler, is too large."""
    NOT_ALLOWED = 10
    """The program is not started for this sender."""
    DISCONNECTED = 11
    """This program has left the channel."""


class RequestFailedError(RequestError):
    """A request on the switch has failed; `reason` says why."""

    def __init__(self, text: str, reply: "SwitchReply") -> None:
        super().__init__(text)
        self.reply = reply

    @property
    def reason(self) -> FailureReason:
        assert self.reply.reason is not None
        return self.reply.reason


class DeclinedError(RequestError):
    """A handler raises it if the request is not for it: the next handler is asked."""


class MessageId(NamedTuple):
    """Unique: the id of a peer is new at each connect."""

    peer_id: PeerId
    counter: int

    def __str__(self) -> str:
        return f"{self.peer_id:016x}.{self.counter}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Messages that a program handles or observes. What is not named matches everything."""

    is_handler: bool
    operations: tuple[str, ...] = ()
    message_class: MessageClass | None = None
    scope: Scope | None = None
    files: tuple[str, ...] | None = None
    """None: any file, or none. An empty tuple matches no file: all have been removed."""
    state: MessageState | None = None
    """Observers only."""
    rank: int = 0
    """Of several handlers, the one with the highest rank gets the message."""
    program: str = ""
    """Not empty: the program that offers this does not handle it itself, but starts, or queues for, this program."""
    disposition: Disposition = Disposition.DEFAULT

    def accepts(self, message: "SwitchMessage", *, is_local: bool) -> bool:
        """Whether everything but the operation matches; `is_local`: sender and receiver are in the same session."""
        if self.message_class is not None and self.message_class is not message.message_class:
            return False
        if not self.is_handler and message.state is not self.state:
            if self.state is not None or message.state in PROGRESS_STATES:
                return False
        scope, files = self.scope, self.files
        has_file = files is None or message.file in files
        match message.scope:
            case Scope.SESSION:
                return is_local and files is None and scope in _SESSION_PATTERNS
            case Scope.FILE:
                return has_file and scope in _FILE_PATTERNS
            case Scope.FILE_IN_SESSION:
                return is_local and has_file and scope in _FILE_IN_SESSION_PATTERNS
        if has_file and scope in _UNION_PATTERNS:
            return True
        return is_local and (scope in (Scope.SESSION, Scope.FILE_OR_SESSION) or (scope is None and files is None))

    def matches(self, message: "SwitchMessage", *, is_local: bool) -> bool:
        return (not self.operations or message.operation in self.operations) and self.accepts(
            message, is_local=is_local
        )


_SESSION_PATTERNS = (None, Scope.SESSION)
_FILE_PATTERNS = (None, Scope.FILE)
_FILE_IN_SESSION_PATTERNS = (None, Scope.FILE_IN_SESSION)
_UNION_PATTERNS = (None, Scope.FILE, Scope.FILE_OR_SESSION)
"""Scopes of patterns that match each scope of messages. One for a file or the session matches patterns of both."""


class SwitchMessage(NamedTuple):
    """A request or a notice, as handlers and observers get it. A tuple, because a frozen dataclass of this size takes
    five times as long to create."""

    id: MessageId
    message_class: MessageClass
    scope: Scope
    recipient: Recipient
    session: str
    """Of the sender."""
    file: str
    operation: str
    data: bytes
    sender_program: str = ""
    state: MessageState = MessageState.CREATED
    disposition: Disposition = Disposition.DEFAULT
    if_lost: IfLost = IfLost.FAIL
    wants_progress: bool = False
    handler: PeerId | None = None
    """In copies for observers: the peer that handles it, once one does."""
    handler_program: str = ""
    reason: FailureReason | None = None
    failure_text: str = ""
    reply: bytes = b""
    """In copies for observers: the reply, in the state HANDLED."""

    def __repr__(self) -> str:
        return _repr_without_data(self)

    @property
    def sender(self) -> PeerId:
        return self.id.peer_id

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)


def _repr_without_data(value: Any) -> str:
    """Payloads can be large, and secret."""
    shown = ((name, each) for name, each in value._asdict().items() if name not in ("data", "reply"))
    return f"{type(value).__name__}({', '.join(f'{name}={each!r}' for name, each in shown)})"


class Dispatch(NamedTuple):
    """One entry of the dispatch list: who was sent a copy, when, and what for."""

    peer_id: PeerId
    session: str
    recipient: Recipient
    sent_at_s: float


class SwitchReply(NamedTuple):
    """The end of a request, or in `follow` a step on the way to it."""

    id: MessageId
    operation: str
    state: MessageState
    data: bytes = b""
    handler: PeerId | None = None
    handler_program: str = ""
    reason: FailureReason | None = None
    failure_text: str = ""
    asked: tuple[Dispatch, ...] = ()
    """The dispatch list."""
    took_s: float = 0.0

    def __repr__(self) -> str:
        return _repr_without_data(self)

    @property
    def text(self) -> str:
        """The data as UTF-8 text. Raises `ValueError` if it is not."""
        return self.data.decode()

    def json(self) -> Any:
        """The data parsed as JSON. Raises `ValueError` if it is not."""
        return json.loads(self.data)

    @property
    def is_end(self) -> bool:
        return self.state in (MessageState.HANDLED, MessageState.FAILED)

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON-serializable values."""
        return {
            "id": str(self.id),
            "operation": self.operation,
            "state": self.state.name.lower(),
            "data": self.data.decode(errors="replace"),
            "handler": f"{self.handler:016x}" if self.handler is not None else None,
            "handler_program": self.handler_program,
            "reason": self.reason.name.lower() if self.reason is not None else None,
            "failure_text": self.failure_text,
            "asked": [f"{each.peer_id:016x}" for each in self.asked],
            "took_s": round(self.took_s, 6),
        }
