"""`Sender`: the messages of this program, from selection to their end.

The sender alone selects: it asks one candidate after the other, and none after one that may have begun. So a message
has at most one handler, whatever is lost on the way, and a request has exactly one end.

| state | event | result |
|---|---|---|
| selecting | a candidate is left | asked: its copy is sent |
| selecting | none is left, the directory is complete | FAILED: `NO_HANDLER`, or the reason of those that were asked |
| selecting | none is left, the directory is not complete | waits for the directory; after a failed start only briefly |
| asked | handled, or failed | the end |
| asked | declined, or nothing was sent | selecting |
| asked | queued | waits for `QueuedResult`; a notice ends |
| asked | lost after it was sent | FAILED: `HANDLER_DIED`; selecting with `IfLost.NEXT` |
| any | deadline | FAILED: `TIMED_OUT`; what runs is cancelled |
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.switch import settings
from broadloom.switch.codec import Result, Verdict, decode_result, handler_copy
from broadloom.switch.handlers import failed
from broadloom.switch.model import (
    Dispatch,
    Disposition,
    FailureReason,
    IfLost,
    MessageClass,
    MessageState,
    Recipient,
    SwitchMessage,
    SwitchReply,
)
from broadloom.switch.pattern_index import IndexedPattern
from broadloom.switch.recording import record_given_up
from broadloom.wire import PeerId
from broadloom.wire.direct_messages import RequestStatus

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Timer
    from broadloom.switch.core import SwitchCore

OnStep = Callable[[SwitchReply], None]

_UNHANDLED = (RequestStatus.NO_HANDLER, RequestStatus.BUSY, RequestStatus.EXPIRED, RequestStatus.LEAVING)
"""A direct request with one of these was refused before a handler was started."""
_REASON_ORDER = (
    FailureReason.HANDLER_DIED,
    FailureReason.NOT_STARTED,
    FailureReason.QUEUE_FULL,
    FailureReason.NOT_ALLOWED,
    FailureReason.ALL_DECLINED,
    FailureReason.NO_HANDLER,
)
"""If several candidates declined, the first of their reasons in this order is reported."""


class OutgoingMessage:
    """One message of this program that has not ended."""

    __slots__ = (
        "asked",
        "brief_timer",
        "cancel",
        "candidate",
        "copied_state",
        "declines",
        "direct",
        "dispatches",
        "ended",
        "message",
        "on_step",
        "only",
        "queued_at",
        "sent_at",
        "timeout_s",
        "timer",
        "waits_for_directory",
    )

    def __init__(self, message: SwitchMessage, sent_at: float, timeout_s: float, on_step: OnStep) -> None:
        self.message = message
        self.sent_at = sent_at
        self.timeout_s = timeout_s
        self.on_step = on_step
        self.ended = False
        self.asked: dict[tuple[PeerId, str], None] = {}
        """Programs, and the program types they offered, that had their turn."""
        self.only: PeerId | None = None
        """With `request_all`: the one program for this copy."""
        self.candidate: IndexedPattern | None = None
        """The program that is asked at the moment."""
        self.direct: object | None = None
        self.cancel: Callable[[], None] | None = None
        """If this program itself handles it."""
        self.queued_at: PeerId | None = None
        self.copied_state = MessageState.SENT
        """The last state before the end of which observers have a copy."""
        self.declines: list[tuple[FailureReason, str]] = []
        self.dispatches: list[Dispatch] = []
        self.timer: Timer | None = None
        self.brief_timer: Timer | None = None
        """After a failed start: when the directory is no longer waited for."""
        self.waits_for_directory = True

    @property
    def deadline_at(self) -> float:
        return self.sent_at + self.timeout_s


class Sender:
    def __init__(self, core: "SwitchCore") -> None:
        self._core = core
        self._runtime = core.runtime
        self._open: dict[int, OutgoingMessage] = {}
        """By the counter of their ids."""
        self._parked: dict[OutgoingMessage, None] = {}
        """Those that wait for the directory."""
        self._load: dict[PeerId, int] = {}
        """Messages of ours that a program has at the moment."""
        self._used_at: dict[PeerId, float] = {}
        self.discarded_count = 0
        """Notices that nobody got."""

    def __len__(self) -> int:
        return len(self._open)

    def send(
        self,
        message: SwitchMessage,
        timeout_s: float,
        on_step: OnStep,
        only: PeerId | None = None,
        *,
        reports_sent: bool = True,
    ) -> OutgoingMessage:
        """Send a message. `on_step` gets its states; the last one is HANDLED or FAILED, exactly once. The first one,
        SENT, can be left out."""
        if message.message_class is MessageClass.REQUEST and only is None and not message.wants_progress:
            message = self._core.observers.followed(message)
        out = OutgoingMessage(message, self._runtime.now(), timeout_s, on_step)
        out.only = only
        self._open[message.id.counter] = out
        is_observed = self._core.observers.send_copies(message, out.dispatches) if only is None else True
        if reports_sent:
            out.on_step(self._step(out, MessageState.SENT))
        if message.recipient is Recipient.OBSERVERS:
            if not is_observed:
                self.discarded_count += 1
            self._end(out, MessageState.HANDLED)
        else:
            self._select(out)
        return out

    def give_up(self, out: OutgoingMessage) -> None:
        """The program no longer waits: no end follows."""
        if not out.ended:
            self._withdraw(out)
            self._forget(out)
            record_given_up(self._runtime.observer, out.message)

    def close(self) -> None:
        for out in list(self._open.values()):
            if not out.ended:  # cancelling one may end another that waited for the same handler
                self._withdraw(out)
                self._fail(out, FailureReason.DISCONNECTED, "this program has left the channel")

    # -- selection

    def _select(self, out: OutgoingMessage) -> None:
        out.candidate = out.direct = out.cancel = None
        now = self._runtime.now()
        if now >= out.deadline_at:
            self._fail(out, FailureReason.TIMED_OUT, f"no reply within {out.timeout_s:g} s")
            return
        candidate = self._best(out)
        if candidate is not None:
            self._ask(out, candidate, now)
        elif self._core.directory.is_complete or out.only is not None or not out.waits_for_directory:
            self._fail_without_handler(out)
        else:
            self._park(out, now)

    def _park(self, out: OutgoingMessage, now: float) -> None:
        """Wait for the directory, which may have another candidate."""
        self._parked[out] = None
        if out.timer is None:
            out.timer = self._runtime.call_later(out.deadline_at - now, self._on_deadline, out)
        if out.brief_timer is None and any(reason is FailureReason.NOT_STARTED for reason, _ in out.declines):
            out.brief_timer = self._runtime.call_later(settings.NOT_STARTED_WAIT_S, self._on_waited, out)

    def _on_waited(self, out: OutgoingMessage) -> None:
        out.waits_for_directory = False
        if self._parked.pop(out, out) is None:
            self._select(out)

    def _best(self, out: OutgoingMessage) -> IndexedPattern | None:
        """Own session first, then rank, running before startable, then the program that is idle the longest."""
        message, load, used_at = out.message, self._load, self._used_at
        best, best_key = None, None
        for entry in self._core.directory.find_handlers(message):
            peer_id, pattern = entry.peer_id, entry.pattern
            if (peer_id, pattern.program) in out.asked or out.only not in (None, peer_id):
                continue
            if pattern.program and _disposition(message, entry) is Disposition.FAIL:
                continue
            key = (
                entry.session != message.session,
                -pattern.rank,
                bool(pattern.program),
                load.get(peer_id, 0),
                used_at.get(peer_id, 0.0),
                peer_id,
            )
            if best_key is None or key < best_key:
                best, best_key = entry, key
        return best

    def _ask(self, out: OutgoingMessage, candidate: IndexedPattern, now: float) -> None:
        peer_id, program, timeout_s = candidate.peer_id, candidate.pattern.program, out.deadline_at - now
        out.candidate = candidate
        out.asked[peer_id, program] = None
        out.dispatches.append(Dispatch(peer_id, candidate.session, Recipient.HANDLER, now))
        self._load[peer_id] = self._load.get(peer_id, 0) + 1
        self._used_at[peer_id] = now
        if peer_id == self._runtime.peer_id:
            if out.timer is None:
                out.timer = self._runtime.call_later(timeout_s, self._on_deadline, out)
            self._core.accept_own(out, candidate, timeout_s, lambda result: self._on_own_result(out, candidate, result))
            return
        direct = self._runtime.request(
            peer_id,
            handler_copy(out.message, program, timeout_s),
            timeout_s,
            lambda outcome: self._on_outcome(out, candidate, outcome),
        )
        if out.candidate is candidate and not out.ended:
            out.direct = direct

    def _on_own_result(self, out: OutgoingMessage, candidate: IndexedPattern, result: Result) -> None:
        if out.candidate is candidate and not out.ended:
            self._release(out)
            self._on_result(out, result)

    def _on_outcome(self, out: OutgoingMessage, candidate: IndexedPattern, outcome: Outcome) -> None:
        if out.candidate is not candidate or out.ended:
            return
        self._release(out)
        match outcome.kind:
            case OutcomeKind.REPLIED:
                self._on_result(out, decode_result(outcome.data))
            case _ if not self._runtime.is_connected:
                self._fail(out, FailureReason.DISCONNECTED, "this program has left the channel")
            case OutcomeKind.REFUSED if outcome.status in _UNHANDLED:
                busy = outcome.status in (RequestStatus.BUSY, RequestStatus.EXPIRED)
                self._decline(out, FailureReason.QUEUE_FULL if busy else FailureReason.NO_HANDLER, outcome.text)
            case OutcomeKind.REFUSED | OutcomeKind.TOO_LARGE:
                is_size = outcome.kind is OutcomeKind.TOO_LARGE or outcome.status is RequestStatus.TOO_LARGE
                self._fail(out, FailureReason.TOO_LARGE if is_size else FailureReason.REFUSED, outcome.text)
            case OutcomeKind.NO_ANSWER:
                text = f"no reply within {out.timeout_s:g} s"
                self._fail(out, FailureReason.TIMED_OUT, text)
            case OutcomeKind.BUSY:
                self._decline(out, FailureReason.QUEUE_FULL, outcome.text)
            case OutcomeKind.GONE if outcome.sent:
                text = f"{candidate.peer_id:016x} is gone: {outcome.text}; the request may have been handled"
                if out.message.if_lost is IfLost.NEXT:
                    self._decline(out, FailureReason.HANDLER_DIED, text)
                else:
                    self._fail(out, FailureReason.HANDLER_DIED, text, candidate.peer_id)
            case _:  # gone, or unknown, before anything was sent
                self._decline(out, FailureReason.NO_HANDLER, f"{candidate.peer_id:016x} is gone: {outcome.text}")

    def _on_result(self, out: OutgoingMessage, result: Result) -> None:
        match result.verdict:
            case Verdict.HANDLED:
                self._end(out, MessageState.HANDLED, result)
            case Verdict.FAILED:
                self._end(out, MessageState.FAILED, result)
            case Verdict.DECLINED:
                self._decline(out, result.reason or FailureReason.ALL_DECLINED, result.text)
            case Verdict.QUEUED:
                self._on_queued(out)

    def _decline(self, out: OutgoingMessage, reason: FailureReason, text: str) -> None:
        out.declines.append((reason, text))
        self._select(out)

    def _on_queued(self, out: OutgoingMessage) -> None:
        assert out.candidate is not None
        if out.message.message_class is MessageClass.NOTICE:
            self._end(out, MessageState.QUEUED)
            return
        out.queued_at = out.candidate.peer_id
        self._copy_progress(out, MessageState.QUEUED, out.candidate.pattern.program)
        out.on_step(self._step(out, MessageState.QUEUED, program=out.candidate.pattern.program))
        if out.timer is None and not out.ended:
            remaining_s = out.deadline_at - self._runtime.now()
            out.timer = self._runtime.call_later(remaining_s, self._on_deadline, out)

    # -- called by the core

    def on_directory_changed(self) -> None:
        for out in list(self._parked):
            if out in self._parked:
                del self._parked[out]
                self._select(out)

    def on_progress(self, peer_id: PeerId, counter: int, state: MessageState, program: str) -> None:
        out = self._open.get(counter)
        is_expected = out is not None and out.candidate is not None and out.candidate.peer_id == peer_id
        if out is not None and is_expected and state in (MessageState.STARTED, MessageState.ACCEPTED):
            self._copy_progress(out, state, program)
            out.on_step(self._step(out, state, program=program))

    def _copy_progress(self, out: OutgoingMessage, state: MessageState, program: str) -> None:
        """Copies for observers of a request that runs, at most once in each state. They have the data already."""
        if out.only is None and state > out.copied_state:
            assert out.candidate is not None
            out.copied_state = state
            data = out.message.data if state is MessageState.QUEUED else b""
            copy = out.message._replace(state=state, data=data, handler=out.candidate.peer_id, handler_program=program)
            self._core.observers.send_copies(copy, out.dispatches)

    def on_queued_result(self, peer_id: PeerId, counter: int, result: Result) -> bool:
        """False if this peer does not hold this request."""
        out = self._open.get(counter)
        if out is None or out.queued_at != peer_id:
            return False
        if result.verdict in (Verdict.HANDLED, Verdict.FAILED):
            self._end(out, MessageState.HANDLED if result.verdict is Verdict.HANDLED else MessageState.FAILED, result)
        return True

    def on_member_gone(self, peer_id: PeerId) -> None:
        self._used_at.pop(peer_id, None)
        for out in [each for each in self._open.values() if each.queued_at == peer_id]:
            text = f"{peer_id:016x}, which holds the queue, is gone; the request may be handled later"
            self._fail(out, FailureReason.HANDLER_DIED, text, peer_id)

    # -- ends

    def _on_deadline(self, out: OutgoingMessage) -> None:
        out.timer = None
        if out.ended:
            return
        is_parked = out in self._parked
        text = "the list of handlers is not known yet" if is_parked else "no reply"
        self._withdraw(out)
        self._fail(out, FailureReason.TIMED_OUT, f"{text} within {out.timeout_s:g} s")

    def _withdraw(self, out: OutgoingMessage) -> None:
        """Cancel it wherever it is."""
        direct, cancel = out.direct, out.cancel
        if out.candidate is not None and out.queued_at is None:
            self._release(out)
        out.candidate = out.direct = out.cancel = None
        if direct is not None:
            self._runtime.give_up(direct)
        if cancel is not None:
            cancel()

    def _release(self, out: OutgoingMessage) -> None:
        assert out.candidate is not None
        peer_id = out.candidate.peer_id
        self._load[peer_id] -= 1
        if not self._load[peer_id]:
            del self._load[peer_id]
        out.direct = out.cancel = None

    def _fail_without_handler(self, out: OutgoingMessage) -> None:
        if not out.declines:
            where = f" for {out.message.file!r}" if out.message.file else ""
            text = f"no program handles {out.message.operation!r}{where}"
            self._fail(out, FailureReason.NO_HANDLER, text)
            return
        reasons = [reason for reason, _ in out.declines]
        reason = next((each for each in _REASON_ORDER if each in reasons), FailureReason.ALL_DECLINED)
        texts = "; ".join(dict.fromkeys(text for each, text in out.declines if text and each is reason))
        self._fail(out, reason, texts or "every handler declined")

    def _fail(self, out: OutgoingMessage, reason: FailureReason, text: str, handler: PeerId | None = None) -> None:
        self._end(out, MessageState.FAILED, failed(reason, text)._replace(handler=handler))

    def _end(self, out: OutgoingMessage, state: MessageState, result: Result | None = None) -> None:
        assert not out.ended, "a message has one end"
        self._forget(out)
        step = self._step(out, state, result)
        message = out.message
        is_notice = message.message_class is MessageClass.NOTICE
        if (
            is_notice
            and state is MessageState.FAILED
            and not any(each.recipient is Recipient.OBSERVERS for each in out.dispatches)
        ):
            self.discarded_count += 1
        is_observable = message.recipient is not Recipient.OBSERVERS and not (
            is_notice and state is MessageState.FAILED
        )
        if is_observable and out.only is None and self._core.observers.may_exist:
            self._core.observers.send_copies(
                message._replace(
                    state=state,
                    handler=step.handler,
                    handler_program=step.handler_program,
                    reason=step.reason,
                    failure_text=step.failure_text,
                    reply=step.data,
                ),
                out.dispatches,
            )
        out.on_step(step)

    def _forget(self, out: OutgoingMessage) -> None:
        out.ended = True
        self._open.pop(out.message.id.counter, None)
        self._parked.pop(out, None)
        if out.timer is not None:
            out.timer.cancel()
            out.timer = None
        if out.brief_timer is not None:
            out.brief_timer.cancel()
            out.brief_timer = None

    def _step(
        self, out: OutgoingMessage, state: MessageState, result: Result | None = None, *, program: str = ""
    ) -> SwitchReply:
        handler = result.handler if result is not None else None
        if handler is None and out.candidate is not None and state is not MessageState.FAILED:
            handler = out.candidate.peer_id
        return SwitchReply(
            out.message.id,
            out.message.operation,
            state,
            result.data if result is not None else b"",
            PeerId(handler) if handler is not None else None,
            result.handler_program if result is not None else program,
            result.reason if result is not None else None,
            result.text if result is not None else "",
            tuple(out.dispatches),
            self._runtime.now() - out.sent_at,
        )


def _disposition(message: SwitchMessage, entry: IndexedPattern) -> Disposition:
    """What the sender asks for, or what the program's type says."""
    chosen = message.disposition or entry.pattern.disposition
    return chosen if chosen is not Disposition.DEFAULT else Disposition.FAIL
