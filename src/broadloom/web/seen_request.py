"""A request or notice of the switch as one observer has seen it: its states with times, and how it ended.

Only the beginning of the data is kept. Times are those of this observer: when the copy of each state arrived.
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from broadloom.switch import FailureReason, MessageClass, MessageState, SwitchMessage, SwitchReply
from broadloom.wire import PeerId

TEXT_CHARS_MAX = 300
"""Characters kept of the data, the reply and the text of a failure."""


class SeenStep(NamedTuple):
    state: MessageState
    after_s: float
    """Since the first copy."""


@dataclass(slots=True)
class SeenRequest:
    """A message, from the first copy on."""

    message: SwitchMessage
    """Without its data."""
    text: str
    seen_at: float
    """Wall clock."""
    started_at: float
    steps: list[SeenStep] = field(default_factory=list)
    handler: PeerId | None = None
    handler_program: str = ""
    reason: FailureReason | None = None
    reply: str = ""
    """The beginning of the reply, or of the text of the failure."""
    version: int = 0
    """Changes with each step."""

    @property
    def is_notice(self) -> bool:
        return self.message.message_class is MessageClass.NOTICE

    @property
    def state(self) -> MessageState:
        return self.steps[-1].state if self.steps else MessageState.CREATED

    @property
    def is_ended(self) -> bool:
        return self.state in (MessageState.HANDLED, MessageState.FAILED)

    @property
    def took_s(self) -> float | None:
        """From the copy of the sent message to its end; None if one of them is missing."""
        return self.steps[-1].after_s if self.is_ended and self.steps[0].state is MessageState.SENT else None

    def add(self, state: MessageState, now: float, end: SwitchMessage | SwitchReply) -> bool:
        """Add a state; copies for several observers count once."""
        if self.is_ended or state in [step.state for step in self.steps]:
            return False
        self.steps.append(SeenStep(state, now - self.started_at))
        self.handler = end.handler if end.handler is not None else self.handler
        self.handler_program = end.handler_program or self.handler_program
        if state in (MessageState.HANDLED, MessageState.FAILED):
            self.reason = end.reason
            data = end.reply if isinstance(end, SwitchMessage) else end.data
            self.reply = cut(end.failure_text) if state is MessageState.FAILED else payload_text(data)
        return True


def first_seen(message: SwitchMessage, now: float) -> SeenRequest:
    without_data = message._replace(data=b"", reply=b"", failure_text="")
    return SeenRequest(without_data, payload_text(message.data), time.time(), now)


def payload_text(data: bytes) -> str:
    """The beginning of a text, or the size of other data."""
    try:
        return cut(data.decode())
    except ValueError:
        return f"({len(data):,} bytes of binary data)"


def cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]} …"
