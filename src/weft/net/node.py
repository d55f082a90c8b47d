"""One peer on real sockets: its world, the port it listens on, and all its lines.

The counterpart of `sim/node.py`. Runs in whatever event loop it is started in, without threads.
"""

import asyncio
import errno
import logging
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from weft.fabric import ChannelName, Peer, Settings, State
from weft.fabric.events import Batch, Event, Missed
from weft.fabric.port_order import PortOrder
from weft.fabric.seal import Rejected
from weft.net.addresses import addresses_of, bind_host
from weft.net.doorman import Doorman
from weft.net.flow import Flow
from weft.net.limits import Limits
from weft.net.line import TcpLine
from weft.security import BadKeyFile
from weft.wire import Address, Contact
from weft.wire.calls import Refusal

if TYPE_CHECKING:
    from weft.fabric.observer import Observer
    from weft.fabric.world import LineOwner
    from weft.security import Membership

log = logging.getLogger("weft")

_IN_USE = (errno.EADDRINUSE, errno.EACCES)
# Includes the time that the machine sleeps: a message that was kept meanwhile has aged.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class CannotListen(OSError):
    """No port of this machine could be had; says which and why."""


@dataclass(slots=True)
class Refusals:
    """What was turned away before the fabric heard of it."""

    wrong_key: int = 0
    expired: int = 0
    revoked: int = 0
    handshakes: int = 0
    """Other handshakes that failed or did not end in time."""
    malformed: int = 0
    """Lines that carried no frames of ours."""


class Node:
    """World of one peer. `deliver`, `missed` and `observe` are its owner's, set before `start`."""

    deliver: Callable[[Batch], None]
    missed: Callable[[Missed], None]
    observe: Callable[[Event], None]
    peer: Peer

    def __init__(
        self,
        channel: ChannelName,
        *,
        host: str,
        port: int = 0,
        portals: tuple[Address, ...],
        membership: "Membership | None",
        signed: bool = False,
        settings: Settings | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._channel = channel
        self._host = host
        self._port = port
        self._portals = portals
        self.membership = membership
        self._signed = signed
        self.settings = settings or Settings()
        self.limits = limits or Limits()
        self.random = Random(secrets.randbits(128))
        self.refusals = Refusals()
        self.doorman = Doorman(self.limits, self.now)
        self.id = membership.peer if membership is not None else secrets.randbits(64)
        self._loop = asyncio.get_running_loop()
        self.flow = Flow(self)
        self._lines: dict[TcpLine, None] = {}
        self._to_flush: list[TcpLine] = []
        self._flush_is_due = False
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._closing = False
        self._list_is_bad = False
        self._admissions: asyncio.TimerHandle | None = None

    async def start(self, observer: "Observer | None" = None) -> None:
        """Listen, and look for the channel."""
        address = await self._listen()
        seal = self.membership.seal if self.membership is not None and self._signed else None
        me = Contact(self.id, address)
        self.peer = Peer(self, me, self._channel.id, self._portals, self.settings, seal=seal, observer=observer)
        self.peer.start()
        if self.membership is not None:
            self._look_at_admissions()

    @property
    def has_started(self) -> bool:
        return hasattr(self, "peer")

    @property
    def is_closing(self) -> bool:
        return self._closing

    # -- the world of the peer

    @staticmethod
    def now() -> float:
        return time.clock_gettime(_CLOCK)

    def dial(self, address: Address, owner: "LineOwner") -> TcpLine:
        line = TcpLine(self, dialled=True)
        line.owner = owner
        if self._closing:
            self._loop.call_soon(line.unanswered)
            return line
        self._lines[line] = None
        line.connecting = self._loop.create_task(self._connect(line, address))
        return line

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, act, *args)

    later = after

    # -- lines

    async def _connect(self, line: TcpLine, address: Address) -> None:
        with suppress(OSError, ValueError, OverflowError):  # the last two: no host at all, from a stranger's message
            # Names are looked up here: `create_connection` would leave a lookup that fails after we hung up to nobody.
            for host in await addresses_of(address.host):
                with suppress(OSError):
                    await self._loop.create_connection(lambda: line, host, address.port)
                    return
        line.unanswered()

    def flush_soon(self, line: TcpLine) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush_when_due)
        self._to_flush.append(line)

    def _flush_when_due(self) -> None:
        self._flush_is_due = False
        self.flush()

    def flush(self) -> None:
        """All that was sent goes out now."""
        while self._to_flush:
            lines, self._to_flush = self._to_flush, []
            for line in lines:
                line.flush()

    def soon(self, act: Callable[[], None]) -> None:
        self._loop.call_soon(self._do, act)

    def _do(self, act: Callable[[], None]) -> None:
        """And what it sends goes out in the same turn."""
        was_due, self._flush_is_due = self._flush_is_due, True
        try:
            act()
        finally:
            self._flush_is_due = was_due
            self.flush()

    def called(self, line: TcpLine) -> None:
        """Somebody dialled us and may speak."""
        self._lines[line] = None
        self.peer.on_call(line)

    def ended(self, line: TcpLine) -> None:
        self.doorman.done(line)
        self._lines.pop(line, None)
        if self._closing and not self._lines:
            self._empty.set()
        if line.is_congested:
            self.flow.relieved(line)

    def refused(self, refusal: Refusal | None) -> None:
        match refusal:
            case Refusal.WRONG_KEY:
                self.refusals.wrong_key += 1
            case Refusal.EXPIRED:
                self.refusals.expired += 1
            case Refusal.REVOKED:
                self.refusals.revoked += 1
            case _:
                self.refusals.handshakes += 1

    def malformed(self) -> None:
        self.refusals.malformed += 1

    # -- flow

    def stop_reading(self) -> None:
        """The application does not keep up and chose to slow its neighbours down."""
        self.peer.deaf = True
        for line in self._lines:
            line.pause_reading()

    def go_on_reading(self) -> None:
        self.peer.deaf = False
        for line in self._lines:
            line.resume_reading()

    # -- admission

    def _look_at_admissions(self) -> None:
        """Tickets expire and are revoked while their holders are neighbours."""
        if self._closing or self.membership is None:
            return
        self._admissions = self.after(self.limits.admission_s, self._look_at_admissions)
        self._reload_revoked()
        for line in list(self._lines):
            if line.identity is None:
                continue
            try:
                self.membership.seal.still_admits(line.identity)
            except Rejected as rejected:
                self.refused(rejected.refusal)
                line.expel(rejected.refusal)

    def _reload_revoked(self) -> None:
        """A list that became unreadable is a mistake of its owner; the last good one stays in force."""
        if self.membership is None or self.membership.revoked is None:
            return
        try:
            self.membership.revoked.reload_if_changed()
            self._list_is_bad = False
        except BadKeyFile as problem:
            if not self._list_is_bad:
                log.warning("%s", problem)
            self._list_is_bad = True

    # -- listening

    async def _listen(self) -> Address:
        host = bind_host(self._host)
        ports = [self._port] if self._port else PortOrder(self._channel.id)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        problem: OSError | None = None
        for _, port in zip(range(self.limits.ports_tried), ports, strict=False):
            # The protocol by name: asyncio turns off Nagle's delay only where it sees that it is TCP.
            listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, port))
                listener.listen(self.limits.backlog)
            except OSError as refused:
                listener.close()
                problem = refused
                if refused.errno in _IN_USE:
                    continue
                break
            # In two steps, so that who is interrupted between them holds what has to be closed.
            self._server = await self._loop.create_server(
                lambda: TcpLine(self, dialled=False), sock=listener, backlog=self.limits.backlog, start_serving=False
            )
            await self._server.start_serving()
            return Address(self._host, port)
        where = f"{host}, port {self._port}" if self._port else host
        raise CannotListen(f"cannot listen on {where}: {problem.strerror if problem else 'no port is left'}")

    # -- the end

    async def close(self, *, within_s: float = 1.0) -> None:
        """The peer has left, or shall vanish: stop listening, let lines end, break off what does not."""
        self._closing = True
        self._stop_listening()
        await asyncio.sleep(0)
        if self._lines and self.peer.state is State.LEFT:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._empty.wait()
        self.vanish()

    def _stop_listening(self) -> None:
        """In two steps: asyncio gives up the sockets of callers that it has accepted but not yet handed to a line when
        their server closes, so no more are accepted from now on, and it closes behind those."""
        server, self._server = self._server, None
        if server is None:
            return
        for listener in server.sockets:
            with suppress(NotImplementedError):  # the loop of Windows has no readers
                self._loop.remove_reader(listener.fileno())
        self._loop.call_soon(server.close)

    def vanish(self) -> None:
        """Without a word, as if the process had been killed."""
        self._closing = True
        self._stop_listening()
        self.flow.stop()
        if self._admissions is not None:
            self._admissions.cancel()
        self.doorman.hang_up()
        for line in list(self._lines):
            line.abort()
        self._lines.clear()
        if self.has_started:
            self.peer.state = State.LEFT
