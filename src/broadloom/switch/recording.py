"""What the switch reports for the tape: the steps of a message, as its sender and its handlers see them.

Nothing is reported, and nothing is computed, if the channel is not recorded.
"""

from typing import TYPE_CHECKING

from broadloom.protocol.events import LayerEvent
from broadloom.switch.codec import Result, Verdict
from broadloom.switch.model import FailureReason, IfLost, MessageClass, MessageState, SwitchMessage, SwitchReply
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Observer
    from broadloom.switch.outgoing import OnStep

REQUEST_STEP = "request_step"
HANDLER_STEP = "handler_step"

SENT, QUEUED, LAUNCHED, ACCEPTED = "sent", "queued", "launched", "accepted"
HANDLED, FAILED, DECLINED, CANCELLED, GIVEN_UP = "handled", "failed", "declined", "cancelled", "given_up"
_STATUS = {
    MessageState.SENT: SENT,
    MessageState.QUEUED: QUEUED,
    MessageState.STARTED: LAUNCHED,
    MessageState.ACCEPTED: ACCEPTED,
    MessageState.HANDLED: HANDLED,
    MessageState.FAILED: FAILED,
}
_VERDICTS = {Verdict.HANDLED: HANDLED, Verdict.FAILED: FAILED, Verdict.DECLINED: DECLINED, Verdict.QUEUED: QUEUED}


def recorded_steps(observer: "Observer", message: SwitchMessage, timeout_s: float, on_step: "OnStep") -> "OnStep":
    """`on_step`, which also reports the steps that the sender sees."""

    def record(step: SwitchReply) -> None:
        status = _STATUS[step.state]
        duration_ms = timeout_s * 1000 if step.state is MessageState.SENT else None
        observer.on_event(_event(REQUEST_STEP, message, status, step.reason, step.handler, duration_ms))
        on_step(step)

    return record


def record_given_up(observer: "Observer | None", message: SwitchMessage) -> None:
    """The sender no longer waits."""
    if observer is not None:
        observer.on_event(_event(REQUEST_STEP, message, GIVEN_UP))


def record_handling(observer: "Observer | None", message: SwitchMessage, status: str) -> None:
    """What a program does with a message that it got."""
    if observer is not None:
        observer.on_event(_event(HANDLER_STEP, message, status))


def record_result(observer: "Observer | None", message: SwitchMessage, result: Result) -> None:
    """How a handler has answered."""
    if observer is not None:
        reason = result.reason if result.verdict is Verdict.FAILED else None
        observer.on_event(_event(HANDLER_STEP, message, _VERDICTS[result.verdict], reason))


def _event(
    kind: str,
    message: SwitchMessage,
    status: str,
    reason: FailureReason | None = None,
    handler: PeerId | None = None,
    duration_ms: float | None = None,
) -> LayerEvent:
    return LayerEvent(
        kind,
        message.sender,
        message.id.counter,
        name=message.operation,
        reason=reason.name.lower() if reason is not None else None,
        status=status,
        handler=handler,
        scope=message.scope.name.lower(),
        file_name=message.file or None,
        is_notice=message.message_class is MessageClass.NOTICE,
        is_repeatable=message.if_lost is IfLost.NEXT,
        duration_ms=duration_ms,
    )
