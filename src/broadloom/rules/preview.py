"""What rules would do with a message, step by step. Nothing is sent, stored or run."""

from collections.abc import Callable
from dataclasses import dataclass

from broadloom.channel.outgoing import Outgoing
from broadloom.errors import NotSentError, RulesError
from broadloom.rules.interpreter import Interpretation, SealEffect, Step
from broadloom.rules.model import Forward
from broadloom.rules.programs import ProgramFailedError


@dataclass(frozen=True, slots=True)
class Preview:
    """What rules would do with a message."""

    steps: tuple[Step, ...]
    out: Outgoing | None
    """The message as it would be sent; None if it would not."""
    reason: str = ""
    """Why it would not be sent."""
    deliveries: tuple[str, ...] = ()
    """To whom copies would go."""
    is_held: bool = False
    """It would be held until a person releases it."""


def try_out(run: Interpretation, seal: Callable[[SealEffect], bytes]) -> Preview:
    """Run an interpretation that traces, and carry out none of its effects but encryption."""
    reason = ""
    try:
        effects = run.run()
        answer: bytes | None = None
        while True:
            effect = effects.send(answer)  # type: ignore[arg-type]
            answer = seal(effect) if isinstance(effect, SealEffect) else effect.data
    except StopIteration:
        pass
    except NotSentError as problem:
        reason = str(problem)
    except Exception as problem:
        reason = str(NotSentError(run.label, problem_text(problem)))
    is_held = run.hold_reason is not None
    if is_held:
        reason = f"{run.label}: held ({run.hold_reason})" if run.hold_reason else f"{run.label}: held"
    copies = () if reason else tuple(
        each.action.channel if isinstance(each.action, Forward) else each.action.member for each in run.deliveries
    )  # fmt: skip
    return Preview(tuple(run.steps or ()), None if reason else run.out, reason, copies, is_held)


def problem_text(problem: Exception) -> str:
    """Why a rule could not be carried out."""
    if isinstance(problem, OSError):
        return f"{problem.strerror}: {problem.filename}" if problem.filename else str(problem.strerror or problem)
    if isinstance(problem, RulesError | ProgramFailedError):
        return str(problem)
    if isinstance(problem, NotSentError):
        return f"{problem.rule}: {problem.reason}"
    return f"{type(problem).__name__}: {problem}"
