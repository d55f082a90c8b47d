"""What went wrong, in one line. Spark wraps it in the tracebacks of a worker and of Java."""

import re

_RAISED = re.compile(r"^((?:\w+\.)*)(\w+): (.+)$", re.MULTILINE)
_NOISE = (
    "An error occurred while calling",
    "org.apache.spark.SparkException: Exception thrown in awaitResult",
    "\tat ",
)
"""Lines that py4j and Spark put around the cause."""


def cause_of(problem: BaseException) -> str:
    """The innermost exception of a task; without one, of Java."""
    text = _java_message(problem) or str(problem)
    _, traceback, inner = text.rpartition("Traceback (most recent call last):")
    raised = _RAISED.search(inner) if traceback else None
    if raised is not None:
        # The message of an exception of a package says it all; that of a built-in one may be a single word.
        return raised[3] if raised[1] else f"{raised[2]}: {raised[3]}"
    lines = [line.removeprefix(": ").removeprefix("Caused by: ") for line in text.splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(_NOISE)), type(problem).__name__)


def _java_message(problem: BaseException) -> str:
    """Of the innermost exception in Java, unless Java has exited."""
    thrown = getattr(problem, "java_exception", None)
    try:
        while thrown is not None and thrown.getCause() is not None:
            thrown = thrown.getCause()
        return "" if thrown is None else str(thrown.getMessage() or "")
    except Exception:
        return type(problem).__name__
