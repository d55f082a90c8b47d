"""Joining a channel: everything that `broadloom.connect` checks, makes and waits for."""

import asyncio
import os
from collections.abc import Generator, Sequence
from pathlib import Path

from broadloom.channel.channel import Channel
from broadloom.channel.inbox import Overflow
from broadloom.errors import ConnectError, RejectedError
from broadloom.protocol import ChannelName, ChannelSettings, PeerState
from broadloom.protocol.events import Event, Rejected
from broadloom.protocol.identity import CredentialError
from broadloom.protocol.runtime import ObserverFactory
from broadloom.security import PeerCredentials, RevocationList, Ticket
from broadloom.transport import ListenError, TcpNode, find_advertise_host, parse_address
from broadloom.transport.addresses import LOOPBACK
from broadloom.transport.in_process import link_in_process
from broadloom.wire import Address
from broadloom.wire.xdr import PORT_MAX

CONNECT_TIMEOUT_S = 30.0
LOCAL_PEERS_MAX = 16
"""Peers of one set: more would not carry more."""


class PendingConnection:
    """What `connect` returns: `async with` joins and leaves again, `await` joins only."""

    _node_class: type[TcpNode] = TcpNode

    def __init__(
        self,
        name: str,
        *,
        bootstrap: Sequence[str],
        key: str | bytes | None,
        ticket: "str | os.PathLike[str] | Ticket | None",
        revocation_list: str | os.PathLike[str] | None,
        tls: bool,
        signed: bool | None,
        advertise_host: str,
        port: int,
        local_peers: int,
        overflow: str,
        inbox_messages_max: int,
        inbox_bytes_max: int,
        timeout_s: float,
        tape: ObserverFactory | None,
        settings: ChannelSettings | None,
    ) -> None:
        if isinstance(bootstrap, str):
            raise TypeError(f"bootstrap is a list of addresses: bootstrap=[{bootstrap!r}]")
        self._channel_name = ChannelName.parse(name)
        self._bootstrap = tuple(parse_address(portal) for portal in bootstrap) or (Address(LOOPBACK, 0),)
        if sum([key is not None, ticket is not None, not tls]) > 1:
            raise ValueError("give a key, or a ticket, or tls=False: they exclude each other")
        if signed and not tls:
            raise ValueError("messages can only be signed with a key or a ticket, not on a plain channel")
        if revocation_list is not None and ticket is None:
            raise ValueError("a revocation list is of use only with a ticket")
        if ticket is not None and signed is False:
            raise ValueError("with tickets messages are always signed: only so can roles be trusted")
        if not 1 <= local_peers <= LOCAL_PEERS_MAX:
            raise ValueError(f"local_peers={local_peers}: a set has 1 to {LOCAL_PEERS_MAX} peers")
        if not 0 <= port <= PORT_MAX:
            raise ValueError(f"port={port}: a port is a number from 1 to {PORT_MAX}, or 0 for one of the channel's")
        if inbox_messages_max < 1 or inbox_bytes_max < 1:
            raise ValueError("an inbox needs room: inbox_messages_max and inbox_bytes_max are at least 1")
        self._key = key
        self._ticket = ticket if ticket is None or isinstance(ticket, Ticket) else _load_ticket(ticket)
        self._revocation_list = revocation_list
        self._tls = tls
        self._signed = ticket is not None or bool(signed)
        self._advertise_host = _parse_advertise_host(advertise_host) if advertise_host else ""
        self._port = port
        self._local_peers = local_peers
        self._overflow = _parse_overflow(overflow)
        self._inbox = inbox_messages_max, inbox_bytes_max
        self._timeout_s = timeout_s
        self._tape = tape
        self._settings = settings
        self._channel: Channel | None = None

    def __await__(self) -> Generator[None, None, Channel]:
        return self._join().__await__()

    async def __aenter__(self) -> Channel:
        self._channel = await self._join()
        return self._channel

    async def __aexit__(self, *_problem: object) -> None:
        assert self._channel is not None
        await self._channel.leave()

    async def _join(self) -> Channel:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        host = self._advertise_host or await self._find_advertise_host(deadline)
        node = self._node(host, self._port, self._bootstrap)
        channel = Channel(
            str(self._channel_name),
            node,
            overflow=self._overflow,
            inbox_messages_max=self._inbox[0],
            inbox_bytes_max=self._inbox[1],
        )
        secondary_nodes = [self._node(host, 0, self._bootstrap) for _ in range(self._local_peers - 1)]
        if secondary_nodes:
            channel._attach_peer_set(secondary_nodes)
        try:
            for each in [node, *secondary_nodes]:
                await self._wait_until_connected(each, deadline)
            link_in_process([node, *secondary_nodes])
        except BaseException:
            channel.abort()
            raise
        return channel

    async def _find_advertise_host(self, deadline: float) -> str:
        try:
            async with asyncio.timeout_at(deadline):
                return await find_advertise_host(self._bootstrap)
        except TimeoutError:
            where = ", ".join(portal.host for portal in self._bootstrap)
            raise ConnectError(f"{self._channel_name}: no address was found for {where} in time") from None

    def _node(self, advertise_host: str, port: int, bootstrap: tuple[Address, ...]) -> TcpNode:
        return self._node_class(
            self._channel_name,
            advertise_host=advertise_host,
            port=port,
            bootstrap=bootstrap,
            credentials=self._credentials(),
            signed=self._signed,
            settings=self._settings,
        )

    def _credentials(self) -> PeerCredentials | None:
        if not self._tls:
            return None
        try:
            if self._ticket is None:
                return PeerCredentials.from_key(self._channel_name, self._key)
            revocation_list = (
                RevocationList(Path(self._revocation_list), self._ticket.authority) if self._revocation_list else None
            )
            return PeerCredentials.from_ticket(self._channel_name, self._ticket, revocation_list)
        except CredentialError as rejected:
            raise RejectedError(f"{self._channel_name}: {rejected.text}") from None

    async def _wait_until_connected(self, node: TcpNode, deadline: float) -> None:
        """Start the peer and wait until it is a member, or is told why it never will be."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Rejected | None] = loop.create_future()
        observed = node.emit

        def observe(event: Event) -> None:
            observed(event)
            if outcome.done():
                return
            if isinstance(event, Rejected):
                outcome.set_result(event)
            elif node.peer.state in (PeerState.CONNECTED, PeerState.LEFT):
                outcome.set_result(None)

        node.emit = observe
        observer = self._tape.observer(self._channel_name, node.id) if self._tape is not None else None
        try:
            await node.start(observer)
            async with asyncio.timeout_at(deadline):
                rejected = await outcome
        except ListenError as problem:
            raise ConnectError(str(problem)) from None
        except TimeoutError:
            raise ConnectError(self._timeout_message(node)) from None
        finally:
            node.emit = observed
        if rejected is not None:
            raise RejectedError(f"{self._channel_name}: {rejected.text}")
        if node.peer.state is PeerState.LEFT:
            raise ConnectError(f"{self._channel_name}: was closed for all by a member, just now")

    def _timeout_message(self, node: TcpNode) -> str:
        where = ", ".join(str(portal) if portal.port else portal.host for portal in self._bootstrap)
        seconds = f"{self._timeout_s:g} s"
        if node.peer.state is not PeerState.DISCOVERING:
            return f"{self._channel_name}: found, but not joined within {seconds}; try again"
        return (
            f"{self._channel_name}: nobody of this channel answered at {where} within {seconds}. The first peer of a "
            "channel must run on a portal's machine (and, if the portal has a port, listen there: port=…)"
        )


def _parse_overflow(name: "str | Overflow") -> Overflow:
    try:
        return Overflow(name)
    except ValueError:
        raise ValueError(f"overflow={name!r}: it is one of {', '.join(each.value for each in Overflow)}") from None


def _parse_advertise_host(host: str) -> str:
    """Where others shall find us."""
    address = parse_address(host)
    if address.port:
        raise ValueError(f"advertise_host={host!r}: the port is given by itself, as port={address.port}")
    if address.host in ("0.0.0.0", "::"):
        raise ValueError(
            f"advertise_host={host!r}: nobody can be reached there; give an address of this machine, or none"
        )
    return address.host


def _load_ticket(ticket: str | os.PathLike[str]) -> Ticket:
    return Ticket.load(ticket if isinstance(ticket, str) else Path(ticket))


def connect(
    name: str,
    *,
    bootstrap: Sequence[str] = (),
    key: str | bytes | None = None,
    ticket: "str | os.PathLike[str] | Ticket | None" = None,
    revocation_list: str | os.PathLike[str] | None = None,
    tls: bool = True,
    signed: bool | None = None,
    advertise_host: str = "",
    port: int = 0,
    local_peers: int = 1,
    overflow: str = "drop_oldest",
    inbox_messages_max: int = 100_000,
    inbox_bytes_max: int = 64 << 20,
    timeout_s: float = CONNECT_TIMEOUT_S,
    tape: ObserverFactory | None = None,
    settings: ChannelSettings | None = None,
) -> PendingConnection:
    """Join a channel: `async with broadloom.connect("chess/club-42") as channel`, or `await broadloom.connect(...)`.

    From the moment it returns, every message of every member arrives, once, each author's in order.

    - `name`: type and instance, `chess/club-42`. Everyone who gives the same name, and key, is on the same channel.
    - `bootstrap`: where to look for it: hosts (`10.0.0.5`, `alpha`), whose ports are searched in the channel's order,
      or `host:port`. Default: this machine. The first peer of a channel has to run on one of its portals.
    - `key`: shared by all members (`broadloom key` makes one). `ticket`: from the channel's owner, with name and role
      (`revocation_list`: the owner's list of withdrawn ones). Neither: the key is derived from the name, which keeps
      out only those who do not know the name. `tls=False`: no encryption at all.
    - `signed`: every message is signed by its author and checked at every hop. Always so with tickets.
    - `advertise_host`, `port`: where others can reach this peer, if that should not be found out by itself.
    - `local_peers`: hold so many peers that act as one, on a machine that is better connected than others.
    - `overflow`: when this program does not read: `drop_oldest` messages and tell which, `pause` reading from the
      neighbours, or `leave`. The limits are `inbox_messages_max` and `inbox_bytes_max`.
    - `timeout_s`: raises `ConnectError` after this.
    - `tape`: records what this peer sees (`broadloom.record.Tape`).
    - `settings`: timeouts, memory limits and the like (`ChannelSettings`, with profiles for other networks).
    """
    return PendingConnection(
        name,
        bootstrap=bootstrap,
        key=key,
        ticket=ticket,
        revocation_list=revocation_list,
        tls=tls,
        signed=signed,
        advertise_host=advertise_host,
        port=port,
        local_peers=local_peers,
        overflow=overflow,
        inbox_messages_max=inbox_messages_max,
        inbox_bytes_max=inbox_bytes_max,
        timeout_s=timeout_s,
        tape=tape,
        settings=settings,
    )
