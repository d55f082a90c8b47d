"""What a process of a trial or a lab has to do with its coordinator: orders come, and what happens is told."""

import asyncio
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

from broadloom.testing.processes import process_stats
from broadloom.testing.processes.control_protocol import LINE_BYTES_MAX, decode_line, encode_line

VIOLATIONS_REPORTED_MAX = 20
"""Broken promises told in words; more are only counted."""


class WorkerChannel:
    """Before anything is told, `begin`."""

    _loop: asyncio.AbstractEventLoop
    _requests: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._violation_count = 0

    async def connect(self, on_warning: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_exception)
        process_stats.LogCollector(on_warning, self.report_error).attach()
        self._requests, self._writer = await asyncio.open_connection(sock=self._socket, limit=LINE_BYTES_MAX)

    async def requests(self) -> AsyncIterator[dict[str, Any]]:
        """Until we are told to end, or the coordinator is gone."""
        while line := await self._requests.readline():
            request = decode_line(line)
            if request["do"] == "end":
                return
            yield request

    def report(self, **content: Any) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_line(content))

    def report_violation(self, guarantee: int, text: str) -> None:
        self._violation_count += 1
        if self._violation_count <= VIOLATIONS_REPORTED_MAX:
            self.report(tell="broken", promise=guarantee, text=text)

    def report_error(self, text: str) -> None:
        """Something went wrong inside Broadloom that should never: an exception that nobody caught."""
        self.report(tell="fault", text=text)

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        text = "".join(traceback.format_exception(problem)) if problem is not None else ""
        self.report_error(f"{context.get('message', '')}\n{text}".strip())
