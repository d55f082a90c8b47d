"""`TcpNode`: the asyncio runtime of one peer, with its listening port and all its connections.

The counterpart of `testing/sim/node.py`. It runs in the current event loop and uses no threads.
"""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from broadloom.protocol import ChannelName, ChannelSettings, Peer, PeerState, Tuning
from broadloom.protocol.channel_name import PortOrder
from broadloom.protocol.events import Batch, Event, Missed
from broadloom.protocol.identity import CredentialError
from broadloom.protocol.link import Link
from broadloom.security import InvalidKeyFileError
from broadloom.security.keys import server_name_of
from broadloom.transport.addresses import bind_host, resolve_host
from broadloom.transport.admission_control import AdmissionControl
from broadloom.transport.bootstrap_hosts import BootstrapHosts
from broadloom.transport.connection import TcpConnection
from broadloom.transport.file_descriptors import OUT_OF_FILES, DescriptorShortage
from broadloom.transport.flow_control import FlowControl
from broadloom.transport.limits import Limits, TcpTuning
from broadloom.transport.listener import Listener, ListenError
from broadloom.wire import Address, PeerId, PeerInfo
from broadloom.wire.exchange_messages import RejectReason
from broadloom.wire.owner_messages import OwnerDocumentKind

if TYPE_CHECKING:
    from broadloom.protocol.runtime import ConnectionHandler, Observer
    from broadloom.security import ChannelOwner, PeerCredentials

READ_BUFFER_BYTES = 256 << 10


class _ReadBuffer(threading.local):
    """One buffer for all connections of all nodes in a thread: what is read into it is copied at once."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))


_read_buffer = _ReadBuffer()

log = logging.getLogger("broadloom")

# Includes the time that the machine is suspended: retained messages age meanwhile.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(slots=True)
class HandshakeCounters:
    """Connections rejected before the protocol sees them."""

    wrong_key: int = 0
    expired: int = 0
    revoked: int = 0
    handshakes: int = 0
    """Other handshakes that failed or timed out."""
    malformed_frames: int = 0
    """Connections whose data was not a frame."""


class TcpNode:
    """The runtime of one peer. The owner sets `deliver`, `report_missed` and `emit` before `start`."""

    deliver: Callable[[Batch], None]
    report_missed: Callable[[Missed], None]
    emit: Callable[[Event], None]
    peer: Peer

    def __init__(
        self,
        channel: ChannelName,
        *,
        advertise_host: str,
        port: int = 0,
        bootstrap: BootstrapHosts,
        credentials: "PeerCredentials | None",
        signed: bool = False,
        settings: ChannelSettings | None = None,
        name: str = "",
        is_secondary: bool = False,
        owner: "ChannelOwner | None" = None,
    ) -> None:
        self._channel = channel
        self.owner = owner or (credentials.owner if credentials is not None else None)
        self._advertise_host = advertise_host
        self._port = port
        self.bootstrap = bootstrap
        self.credentials = credentials
        self._signed = signed
        self.name = name
        self._is_secondary = is_secondary
        self.settings = Tuning.of(settings)
        self.limits = settings.limits if isinstance(settings, TcpTuning) else Limits()
        self.read_buffer = _read_buffer.view
        self.random = Random(secrets.randbits(128))
        self.handshake_counters = HandshakeCounters()
        self.admission_control = AdmissionControl(self.limits, self.now)
        self.id = credentials.peer_id if credentials is not None else PeerId(secrets.randbits(64))
        self._loop = asyncio.get_running_loop()
        self.flow = FlowControl(self)
        self.shortage = DescriptorShortage(self.now)
        self.listener = Listener(
            bind_host(advertise_host),
            self.limits.listen_backlog,
            lambda: TcpConnection(self, is_initiator=False),
            self.shortage,
        )
        self._connections: dict[TcpConnection, None] = {}
        self._to_flush: list[TcpConnection] = []
        self._flush_is_due = False
        self._all_closed = asyncio.Event()
        self._closing = False
        self._revocation_list_failed = False
        self._hosts: tuple[Address, ...] = ()
        """The bootstrap hosts that the peer knows."""
        self._bootstrap_timer: asyncio.TimerHandle | None = None
        self._listen_timer: asyncio.TimerHandle | None = None
        self._credential_check_timer: asyncio.TimerHandle | None = None

    async def start(self, observer: "Observer | None" = None) -> None:
        """Listen, and start to discover the channel."""
        address = self._listen()
        signer = self.credentials.signer if self.credentials is not None and self._signed else None
        me = PeerInfo(self.id, address)
        self._hosts = hosts = self.bootstrap.addresses
        self.peer = Peer(
            self,
            me,
            self._channel.id,
            hosts,
            self.settings,
            signer=signer,
            observer=observer,
            roster_signer=self.credentials.signer if self.credentials is not None else None,
            name=self.name,
            is_secondary=self._is_secondary,
            owner_verifier=self.owner,
        )
        self._stay_discoverable()
        self.peer.start()
        self._check_bootstrap_hosts()
        if self.credentials is not None:
            self._check_credentials()

    @property
    def has_started(self) -> bool:
        return hasattr(self, "peer")

    @property
    def is_closing(self) -> bool:
        return self._closing

    @property
    def channel_id(self) -> bytes:
        return self._channel.id

    @property
    def server_name(self) -> str:
        """By which peers with TLS name this channel."""
        return server_name_of(self._channel.id)

    # -- protocol.runtime.Runtime

    @staticmethod
    def now() -> float:
        return time.clock_gettime(_CLOCK)

    @staticmethod
    def wall_time_s() -> float:
        return time.time()

    def dial(self, address: Address, handler: "ConnectionHandler") -> TcpConnection:
        connection = TcpConnection(self, is_initiator=True)
        connection.handler = handler
        if self._closing:
            self._loop.call_soon(connection.on_connect_failed)
            return connection
        self._connections[connection] = None
        connection.connect_task = self._loop.create_task(self._connect(connection, address))
        return connection

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, callback, *args)

    # -- connections

    async def _connect(self, connection: TcpConnection, address: Address) -> None:
        with suppress(OSError, ValueError, OverflowError):  # the last two: an invalid host from an untrusted message
            # Resolved here: in `create_connection`, a lookup that fails after a cancel would never be awaited.
            for host in await resolve_host(address.host):
                try:
                    await self._loop.create_connection(lambda: connection, host, address.port)
                except OSError as problem:
                    self._on_dial_failed(problem)
                else:
                    self.shortage.end()
                    return
        connection.on_connect_failed()

    def _on_dial_failed(self, problem: OSError) -> None:
        if problem.errno in OUT_OF_FILES:
            self.shortage.note("dial other peers")
            self.peer.peer_cache.forgive()
        else:
            self.shortage.end()

    def flush_soon(self, connection: TcpConnection) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush_when_due)
        self._to_flush.append(connection)

    def _flush_when_due(self) -> None:
        self._flush_is_due = False
        self.flush()

    def flush(self) -> None:
        """Write all send queues now."""
        while self._to_flush:
            connections, self._to_flush = self._to_flush, []
            for connection in connections:
                connection.flush()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(self._run_and_flush, callback)

    def _run_and_flush(self, callback: Callable[[], None]) -> None:
        """What the callback sends goes out in the same iteration of the event loop."""
        was_due, self._flush_is_due = self._flush_is_due, True
        try:
            callback()
        finally:
            self._flush_is_due = was_due
            self.flush()

    def on_accept(self, connection: TcpConnection) -> None:
        """An incoming connection is authenticated."""
        self._connections[connection] = None
        self.peer.on_accept(connection)

    def on_connection_closed(self, connection: TcpConnection) -> None:
        self.admission_control.remove_pending(connection)
        self._connections.pop(connection, None)
        if self._closing and not self._connections:
            self._all_closed.set()
        if connection.is_above_high_water:
            self.flow.on_writable(connection)

    def count_rejection(self, reason: RejectReason | None) -> None:
        match reason:
            case RejectReason.WRONG_KEY:
                self.handshake_counters.wrong_key += 1
            case RejectReason.TICKET_EXPIRED:
                self.handshake_counters.expired += 1
            case RejectReason.TICKET_REVOKED:
                self.handshake_counters.revoked += 1
            case _:
                self.handshake_counters.handshakes += 1

    def count_malformed(self) -> None:
        self.handshake_counters.malformed_frames += 1

    # -- flow control

    def pause_reading(self) -> None:
        """The application does not keep up (`overflow="pause"`). Links are not read; exchanges and requests go on."""
        self.peer.set_paused(True)
        for connection in self._connections:
            if isinstance(connection.handler, Link):
                connection.pause_reading()

    def resume_reading(self) -> None:
        self.peer.set_paused(False)
        for connection in self._connections:
            if isinstance(connection.handler, Link):
                connection.resume_reading()

    # -- bootstrap hosts

    def set_bootstrap(self, hosts: Iterable[str]) -> None:
        self.bootstrap.replace(hosts)
        self._update_bootstrap_hosts()

    def _check_bootstrap_hosts(self) -> None:
        """Read the bootstrap file again."""
        self._bootstrap_timer = self.call_later(self.limits.bootstrap_check_s, self._check_bootstrap_hosts)
        self.bootstrap.reload()
        self._update_bootstrap_hosts()

    def _update_bootstrap_hosts(self) -> None:
        if self.has_started and not self._closing and self._hosts != self.bootstrap.addresses:
            self._hosts = self.bootstrap.addresses
            self.peer.set_bootstrap(self._hosts)

    # -- credentials

    def _check_credentials(self) -> None:
        """Disconnect neighbors whose tickets have expired or were revoked."""
        if self._closing or self.credentials is None:
            return
        self._credential_check_timer = self.call_later(self.limits.credential_check_s, self._check_credentials)
        self._reload_revocation_list()
        for connection in list(self._connections):
            if connection.identity is None:
                continue
            try:
                self.credentials.signer.recheck(connection.identity)
            except CredentialError as rejected:
                self.count_rejection(rejected.reason)
                connection.disconnect_unauthorized(rejected.reason)

    def _reload_revocation_list(self) -> None:
        """If the file became invalid, log it once and keep the last good list."""
        if self.credentials is None or self.credentials.revocation_list is None:
            return
        try:
            known = self.credentials.revocation_list
            if known.reload_if_changed() and known.number:
                self.peer.owner.documents.offer(OwnerDocumentKind.REVOCATION_LIST, known.document)
            self._revocation_list_failed = False
        except InvalidKeyFileError as problem:
            if not self._revocation_list_failed:
                log.warning("%s", problem)
            self._revocation_list_failed = True

    # -- listening

    def _listen(self) -> Address:
        order = PortOrder(self._channel.id)
        ports = [self._port] if self._port else (order[index] for index in range(self.limits.listen_ports_max))
        try:
            return Address(self._advertise_host, self.listener.open(ports))
        except ListenError as problem:
            where = f"{bind_host(self._advertise_host)}{f', port {self._port}' if self._port else ''}"
            remedy = "; choose another port, or 0 for an automatic one" if self._port else ""
            raise ListenError(f"cannot listen on {where}: {problem}{remedy}") from None

    @cached_property
    def _searched_ports(self) -> tuple[int, ...]:
        order = PortOrder(self._channel.id)
        return tuple(order[index] for index in range(self.settings.discovery_ports))

    @property
    def is_discoverable(self) -> bool:
        """Whether it listens where searches look."""
        return any(port in self._searched_ports for port in self.listener.ports)

    def _stay_discoverable(self) -> None:
        """Searches look at the first ports of the port order only. A peer on another port, because it was chosen or
        because those were taken, listens on one of them too as soon as one is free."""
        if self._closing:
            return
        if not self.is_discoverable:
            self._listen_timer = self.call_later(self.limits.listen_retry_s, self._stay_discoverable)
            # Where all bootstrap hosts have a port, nobody searches, and a firewall may allow the chosen port only.
            if not all(address.port for address in self._hosts):
                with suppress(ListenError):
                    self.peer.discovery.on_listening(self.listener.open(self._searched_ports))

    # -- closing

    async def close(self, *, timeout_s: float = 1.0) -> None:
        """Stop listening, let connections close if the peer has left, and abort the rest."""
        self._closing = True
        self.listener.close()
        await asyncio.sleep(0)
        if self._connections and self.peer.state is PeerState.LEFT:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._all_closed.wait()
        self.abort()

    def abort(self) -> None:
        """Disconnect without notice, as if the process had been killed."""
        self._closing = True
        self.listener.close()
        self.flow.stop()
        for timer in (self._credential_check_timer, self._bootstrap_timer, self._listen_timer):
            if timer is not None:
                timer.cancel()
        self.admission_control.abort_pending()
        for connection in list(self._connections):
            connection.abort()
        self._connections.clear()
        if self.has_started:
            self.peer.abort()
