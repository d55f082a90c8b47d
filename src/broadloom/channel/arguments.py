"""Checks of arguments that would otherwise fail later, in a place that does not show the mistake."""

import asyncio
import inspect
import math
from collections.abc import Callable
from typing import Any

from broadloom.channel.inbox import Overflow

CALLBACK_ERRORS = (Exception, asyncio.CancelledError, GeneratorExit)
"""What a callback of the application may raise without harm to its caller. `CancelledError` comes from a canceled
future whose result it reads: in a plain function it does not cancel the task or the connection that happens to run it.
Only for calls, never around `await`."""


def check_callback(callback: Callable[..., Any]) -> None:
    if not callable(callback):
        raise TypeError(f"a callback must be a function, not {type(callback).__name__}")
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004
        raise TypeError("a callback must be a plain function, not a coroutine function: nothing would await it")


def check_inbox(overflow: object, messages_max: object, bytes_max: object, prefix: str = "") -> None:
    """The policy and the limits of an inbox."""
    for name, limit in (("messages_max", messages_max), ("bytes_max", bytes_max)):
        check_count(f"{prefix}{name}", limit)
    if overflow not in list(Overflow):
        raise ValueError(f"overflow={overflow!r}: must be one of {', '.join(Overflow)}")


def check_timeout(timeout_s: float | None) -> None:
    if timeout_s is None:
        return
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout_s must be a number of seconds or None, not {type(timeout_s).__name__}")
    _check_float_range("timeout_s", timeout_s)
    if math.isnan(timeout_s):
        raise ValueError("timeout_s is not a number (NaN); None waits forever")


def check_positive_timeout(timeout_s: float, name: str = "timeout_s") -> None:
    """`name` is that of the argument."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(timeout_s).__name__}")
    _check_float_range(name, timeout_s)
    if not 0 < timeout_s < math.inf:
        raise ValueError(f"{name}={timeout_s}: must be greater than 0 and finite")


def _check_float_range(name: str, seconds: float) -> None:
    try:
        float(seconds)
    except OverflowError:
        raise ValueError(f"{name} is too large a number of seconds") from None


def check_count(name: str, count: object, least: int = 1) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be a whole number, not {type(count).__name__}")
    if count < least:
        raise ValueError(f"{name}={count}: must be at least {least}")


def receipt_count(receipt: object) -> int | None:
    """How many members must confirm; None for all."""
    if receipt == "all":
        return None
    if isinstance(receipt, bool) or not isinstance(receipt, int):
        raise TypeError(f'receipt must be "all" or a number of members, not {receipt!r}')
    if receipt < 1:
        raise ValueError(f"receipt={receipt}: at least one member must confirm")
    return receipt
