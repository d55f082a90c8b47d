"""What rules report for the tape: a row for each rule that acted on a message."""

from types import TracebackType
from typing import TYPE_CHECKING

from broadloom.errors import HeldError, NotSentError
from broadloom.protocol.events import LayerEvent
from broadloom.rules.interpreter import Interpretation
from broadloom.rules.model import Refuse

if TYPE_CHECKING:
    from broadloom.protocol.runtime import Observer

RULE_HIT = "rule_hit"
PASSED, HELD, REFUSED, FAILED, CANCELLED = "passed", "held", "refused", "failed", "cancelled"


class RecordedHits:
    """A context in which a message passes rules; its end reports those that acted. Only if the channel is recorded."""

    def __init__(self, observer: "Observer", run: Interpretation) -> None:
        self._observer = observer
        self._run = run

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        run = self._run
        hits = list(run.hits)
        if problem is not None and run.current >= 0 and run.current not in [number for number, _ in hits]:
            hits.append((run.current, run.elapsed_s))
        for number, seconds in hits:
            status, reason = self._outcome(number, problem)
            actions = [type(action).__name__.lower() for rule, action in run.acted if rule == number]
            self._observer.on_event(
                LayerEvent(
                    RULE_HIT,
                    name=run.labels[number],
                    reason=reason or None,
                    status=status,
                    rule_number=number + 1,
                    actions=", ".join(actions),
                    duration_ms=seconds * 1000,
                )
            )

    def _outcome(self, number: int, problem: BaseException | None) -> tuple[str, str | None]:
        """What the rule did with the message, and why."""
        run = self._run
        if not isinstance(problem, NotSentError):
            return (CANCELLED, None) if problem is not None and number == run.current else (PASSED, None)
        if problem.rule != run.labels[number]:
            return PASSED, None
        if isinstance(problem, HeldError):
            return HELD, run.hold_reason
        is_refused = bool(run.acted) and isinstance(run.acted[-1][1], Refuse)
        return REFUSED if is_refused else FAILED, problem.reason
