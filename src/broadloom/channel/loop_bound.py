"""`LoopBound`: an object that belongs to one event loop and its thread; `weak`: callbacks that do not keep it alive."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import get_ident
from types import MethodType
from typing import TypeVar, TypeVarTuple, cast
from weakref import WeakMethod, ref

from broadloom.errors import NotConnectedError

T = TypeVar("T")
Args = TypeVarTuple("Args")

running_loop = asyncio._get_running_loop
"""None if no event loop runs in this thread, where `asyncio.get_running_loop` raises, which costs more."""


class LoopBound(ABC):
    def _bind_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._pid = os.getpid()

    def _is_loop_running(self) -> bool:
        """Whether the caller runs in the event loop of this object."""
        return running_loop() is self._loop

    def _check_loop(self) -> None:
        """Raise `RuntimeError` in another event loop, thread or process. Between two runs of the loop, its thread may
        call."""
        if os.getpid() != self._pid:
            raise RuntimeError("a channel cannot be used in a forked process: connect there")
        running = running_loop()
        if running is not self._loop and (running is not None or get_ident() != self._thread):
            raise RuntimeError(
                "a channel belongs to the event loop and thread that joined it: connect in each loop, use "
                "loop.call_soon_threadsafe, or use broadloom.sync, whose channels work in every thread"
            )

    @abstractmethod
    def _end_message(self) -> str:
        """Why nothing more can be read or sent, and what to do."""

    def _end_error(self) -> NotConnectedError:
        return NotConnectedError(self._end_message())


def weak(method: Callable[[*Args], None]) -> Callable[[*Args], None]:
    """Call a method as long as its object exists."""
    reference = WeakMethod(method)

    def call(*args: *Args) -> None:
        target = reference()
        if target is not None:
            target(*args)

    return call


def weak_delivery(method: Callable[[T], None]) -> Callable[[T], None]:
    """The same for one argument, in a sixth of the time: every batch that is delivered passes here."""
    bound = cast(MethodType, method)
    reference, function = ref(bound.__self__), bound.__func__

    def deliver(item: T) -> None:
        target = reference()
        if target is not None:
            function(target, item)

    return deliver
