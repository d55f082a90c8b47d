"""Joining a channel: everything that `weft.connect` checks, makes and waits for."""

import asyncio
import os
from collections.abc import Generator, Sequence
from pathlib import Path

from weft.channel.channel import Channel
from weft.channel.errors import CannotConnect, NotAdmitted
from weft.channel.inbox import Behind
from weft.fabric import ChannelName, Settings, State
from weft.fabric.events import Barred, Event
from weft.fabric.observer import Tape
from weft.fabric.seal import Rejected
from weft.net import CannotListen, Limits, Node, own_host, parse_address
from weft.net.addresses import LOOPBACK
from weft.net.inside import join_inside
from weft.security import Membership, RevocationList, Ticket
from weft.wire import Address
from weft.wire.xdr import PORT_MAX

CONNECT_S = 30.0
PEERS_MAX = 16
"""Peers of one set: more would not carry more."""


class Connecting:
    """What `connect` returns: `async with` joins and leaves again, `await` joins only."""

    _makes: type[Node] = Node

    def __init__(
        self,
        name: str,
        *,
        portals: Sequence[str],
        key: str | bytes | None,
        ticket: "str | os.PathLike[str] | Ticket | None",
        revoked: str | os.PathLike[str] | None,
        plain: bool,
        signed: bool | None,
        host: str,
        port: int,
        peers: int,
        behind: str,
        inbox_messages_max: int,
        inbox_bytes_max: int,
        timeout_s: float,
        tape: Tape | None,
        settings: Settings | None,
        limits: Limits | None,
    ) -> None:
        if isinstance(portals, str):
            raise TypeError(f"portals are a list of addresses: portals=[{portals!r}]")
        self._channel_name = ChannelName.parse(name)
        self._portals = tuple(parse_address(portal) for portal in portals) or (Address(LOOPBACK, 0),)
        if sum([key is not None, ticket is not None, plain]) > 1:
            raise ValueError("give a key, or a ticket, or plain=True: they exclude each other")
        if plain and signed:
            raise ValueError("messages can only be signed with a key or a ticket, not on a plain channel")
        if revoked is not None and ticket is None:
            raise ValueError("a revocation list is of use only with a ticket")
        if ticket is not None and signed is False:
            raise ValueError("with tickets messages are always signed: only so can roles be trusted")
        if not 1 <= peers <= PEERS_MAX:
            raise ValueError(f"peers={peers}: a set has 1 to {PEERS_MAX} peers")
        if not 0 <= port <= PORT_MAX:
            raise ValueError(f"port={port}: a port is a number from 1 to {PORT_MAX}, or 0 for one of the channel's")
        if inbox_messages_max < 1 or inbox_bytes_max < 1:
            raise ValueError("an inbox needs room: inbox_messages_max and inbox_bytes_max are at least 1")
        self._key = key
        self._ticket = ticket if ticket is None or isinstance(ticket, Ticket) else _load(ticket)
        self._revoked = revoked
        self._plain = plain
        self._signed = ticket is not None or bool(signed)
        self._host = _reachable(host) if host else ""
        self._port = port
        self._peers = peers
        self._behind = _behind(behind)
        self._inbox = inbox_messages_max, inbox_bytes_max
        self._timeout_s = timeout_s
        self._tape = tape
        self._settings = settings
        self._limits = limits
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
        host = self._host or await self._own_host(deadline)
        node = self._node(host, self._port, self._portals)
        channel = Channel(
            str(self._channel_name),
            node,
            behind=self._behind,
            inbox_messages_max=self._inbox[0],
            inbox_bytes_max=self._inbox[1],
        )
        others = [self._node(host, 0, self._portals) for _ in range(self._peers - 1)]
        if others:
            channel.act_as_one(others)
        try:
            for each in [node, *others]:
                await self._connected(each, deadline)
            join_inside([node, *others])
        except BaseException:
            channel.vanish()
            raise
        return channel

    async def _own_host(self, deadline: float) -> str:
        try:
            async with asyncio.timeout_at(deadline):
                return await own_host(self._portals)
        except TimeoutError:
            where = ", ".join(portal.host for portal in self._portals)
            raise CannotConnect(f"{self._channel_name}: no address was found for {where} in time") from None

    def _node(self, host: str, port: int, portals: tuple[Address, ...]) -> Node:
        return self._makes(
            self._channel_name,
            host=host,
            port=port,
            portals=portals,
            membership=self._membership(),
            signed=self._signed,
            settings=self._settings,
            limits=self._limits,
        )

    def _membership(self) -> Membership | None:
        if self._plain:
            return None
        try:
            if self._ticket is None:
                return Membership.from_key(self._channel_name, self._key)
            revoked = RevocationList(Path(self._revoked), self._ticket.authority) if self._revoked else None
            return Membership.from_ticket(self._channel_name, self._ticket, revoked)
        except Rejected as rejected:
            raise NotAdmitted(f"{self._channel_name}: {rejected.text}") from None

    async def _connected(self, node: Node, deadline: float) -> None:
        """Start the peer and wait until it is a member, or is told why it never will be."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Barred | None] = loop.create_future()
        observed = node.observe

        def observe(event: Event) -> None:
            observed(event)
            if over.done():
                return
            if isinstance(event, Barred):
                over.set_result(event)
            elif node.peer.state in (State.CONNECTED, State.LEFT):
                over.set_result(None)

        node.observe = observe
        observer = self._tape.observer(self._channel_name, node.id) if self._tape is not None else None
        try:
            await node.start(observer)
            async with asyncio.timeout_at(deadline):
                barred = await over
        except CannotListen as problem:
            raise CannotConnect(str(problem)) from None
        except TimeoutError:
            raise CannotConnect(self._nobody_found(node)) from None
        finally:
            node.observe = observed
        if barred is not None:
            raise NotAdmitted(f"{self._channel_name}: {barred.text}")
        if node.peer.state is State.LEFT:
            raise CannotConnect(f"{self._channel_name}: was closed for all by a member, just now")

    def _nobody_found(self, node: Node) -> str:
        where = ", ".join(str(portal) if portal.port else portal.host for portal in self._portals)
        seconds = f"{self._timeout_s:g} s"
        if node.peer.state is not State.SEEKING:
            return f"{self._channel_name}: found, but not joined within {seconds}; try again"
        return (
            f"{self._channel_name}: nobody of this channel answered at {where} within {seconds}. The first peer of a "
            "channel must run on a portal's machine (and, if the portal has a port, listen there: port=…)"
        )


def _behind(name: "str | Behind") -> Behind:
    try:
        return Behind(name)
    except ValueError:
        raise ValueError(f"behind={name!r}: it is one of {', '.join(each.value for each in Behind)}") from None


def _reachable(host: str) -> str:
    """Where others shall find us."""
    address = parse_address(host)
    if address.port:
        raise ValueError(f"host={host!r}: the port is given by itself, as port={address.port}")
    if address.host in ("0.0.0.0", "::"):
        raise ValueError(f"host={host!r}: nobody can be reached there; give an address of this machine, or none")
    return address.host


def _load(ticket: str | os.PathLike[str]) -> Ticket:
    return Ticket.load(ticket if isinstance(ticket, str) else Path(ticket))


def connect(
    name: str,
    *,
    portals: Sequence[str] = (),
    key: str | bytes | None = None,
    ticket: "str | os.PathLike[str] | Ticket | None" = None,
    revoked: str | os.PathLike[str] | None = None,
    plain: bool = False,
    signed: bool | None = None,
    host: str = "",
    port: int = 0,
    peers: int = 1,
    behind: str = "drop",
    inbox_messages_max: int = 100_000,
    inbox_bytes_max: int = 64 << 20,
    timeout_s: float = CONNECT_S,
    tape: Tape | None = None,
    settings: Settings | None = None,
    limits: Limits | None = None,
) -> Connecting:
    """Join a channel: `async with weft.connect("chess/club-42") as channel`, or `channel = await weft.connect(...)`.

    From the moment it returns, every message of every member arrives, once, each author's in order.

    - `name`: type and instance, `chess/club-42`. Everyone who gives the same name, and key, is on the same channel.
    - `portals`: where to look for it: hosts (`10.0.0.5`, `alpha`), whose ports are searched in the channel's order, or
      `host:port`. Default: this machine. The first peer of a channel has to run on one of its portals.
    - `key`: shared by all members (`weft key` makes one). `ticket`: from the channel's owner, with name and role
      (`revoked`: the owner's list of withdrawn ones). Neither: the key is derived from the name, which keeps out only
      those who do not know the name. `plain=True`: no encryption at all.
    - `signed`: every message is signed by its author and checked at every hop. Always so with tickets.
    - `host`, `port`: where others can reach this peer, if that should not be found out by itself.
    - `peers`: hold so many peers that act as one, on a machine that is better connected than others.
    - `behind`: when this program does not read: `drop` the oldest messages and tell which, make the neighbours
      `wait`, or `leave`. The limits are `inbox_messages_max` and `inbox_bytes_max`.
    - `timeout_s`: raises `CannotConnect` after this.
    - `tape`: records what this peer sees (`weft.record.Tape`).
    - `settings`, `limits`: the numbers of the fabric and of the sockets.
    """
    return Connecting(
        name,
        portals=portals,
        key=key,
        ticket=ticket,
        revoked=revoked,
        plain=plain,
        signed=signed,
        host=host,
        port=port,
        peers=peers,
        behind=behind,
        inbox_messages_max=inbox_messages_max,
        inbox_bytes_max=inbox_bytes_max,
        timeout_s=timeout_s,
        tape=tape,
        settings=settings,
        limits=limits,
    )
