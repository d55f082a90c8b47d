"""`Listener`: the ports on which a node accepts connections.

It accepts by itself instead of through `asyncio.Server`. That reports each connection that it cannot accept to the
exception handler of the event loop, hundreds of times per second when the process is out of file descriptors, and leaks
connections that arrive while it closes.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable

from broadloom.transport.file_descriptors import OUT_OF_FILES, DescriptorShortage, out_of_files_text

ACCEPT_MAX = 64
"""Connections accepted in one turn of the event loop."""
_IN_USE = (errno.EADDRINUSE, errno.EACCES)


class ListenError(OSError):
    """There is no port to listen on."""


class Listener:
    def __init__(
        self, host: str, backlog: int, protocol: Callable[[], asyncio.BaseProtocol], shortage: DescriptorShortage
    ) -> None:
        self._host = host
        self._backlog = backlog
        self._protocol = protocol
        self._shortage = shortage
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[int, socket.socket] = {}
        self._opening: set[asyncio.Task[None]] = set()
        """Accepted connections that have no transport yet."""

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(self._sockets)

    @property
    def bound_hosts(self) -> list[str]:
        return [str(listener.getsockname()[0]) for listener in self._sockets.values()]

    def open(self, ports: Iterable[int]) -> int:
        """Listen on the first of these ports that is free. Raises `ListenError`."""
        problem = "no free port"
        for port in ports:
            try:
                self._sockets[port] = listener = self._bind(port)
            except OSError as refused:
                problem = out_of_files_text() if refused.errno in OUT_OF_FILES else refused.strerror or problem
                if refused.errno in _IN_USE:
                    continue
                break
            self._resume(listener)
            return port
        raise ListenError(problem)

    def _bind(self, port: int) -> socket.socket:
        # IPPROTO_TCP is explicit, because asyncio sets TCP_NODELAY only on such sockets.
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind((self._host, port))
            listener.listen(self._backlog)
        except OSError:
            listener.close()
            raise
        return listener

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_MAX):
            try:
                accepted, _ = listener.accept()
            except OSError as problem:
                if problem.errno in OUT_OF_FILES:
                    self._loop.remove_reader(listener)
                    self._loop.call_later(self._shortage.note("accept connections"), self._resume, listener)
                return  # else no connection waits, or it was reset
            self._shortage.end()
            task = self._loop.create_task(self._open_connection(accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open_connection(self, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            await self._loop.connect_accepted_socket(self._protocol, accepted)
        except OSError:  # reset meanwhile
            accepted.close()

    def close(self) -> None:
        for listener in self._sockets.values():
            self._loop.remove_reader(listener)
            listener.close()
        self._sockets.clear()
