"""What a process of a trial or a lab has to do with its coordinator: orders come, and what happens is told."""

import asyncio
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

from weft.trial import vitals
from weft.trial.orders import LINE_BYTES_MAX, from_line, to_line

BROKEN_TOLD_MAX = 20
"""Broken promises told in words; more are only counted."""


class Reporting:
    """Before anything is told, `begin`."""

    _loop: asyncio.AbstractEventLoop
    _ordered: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._broken_count = 0

    async def begin(self, warned: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_exception)
        vitals.Log(warned, self.fault).attach()
        self._ordered, self._writer = await asyncio.open_connection(sock=self._end, limit=LINE_BYTES_MAX)

    async def orders(self) -> AsyncIterator[dict[str, Any]]:
        """Until we are told to end, or the coordinator is gone."""
        while line := await self._ordered.readline():
            order = from_line(line)
            if order["do"] == "end":
                return
            yield order

    def tell(self, **content: Any) -> None:
        if not self._writer.is_closing():
            self._writer.write(to_line(content))

    def broken(self, promise: int, text: str) -> None:
        self._broken_count += 1
        if self._broken_count <= BROKEN_TOLD_MAX:
            self.tell(tell="broken", promise=promise, text=text)

    def fault(self, text: str) -> None:
        """Something went wrong inside Weft that should never: an exception that nobody caught."""
        self.tell(tell="fault", text=text)

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        text = "".join(traceback.format_exception(problem)) if problem is not None else ""
        self.fault(f"{context.get('message', '')}\n{text}".strip())
