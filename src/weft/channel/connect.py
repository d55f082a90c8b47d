"""Joining a channel: everything that `weft.connect` checks, makes and waits for."""

import asyncio
import os
from collections.abc import Generator, Sequence
from pathlib import Path

from weft.channel.channel import Channel, ChannelEvent
from weft.channel.errors import CannotConnect, NotAdmitted
from weft.channel.inbox import Behind
from weft.fabric import ChannelName, Settings, State
from weft.fabric.events import Barred
from weft.fabric.observer import Tape
from weft.fabric.seal import Rejected
from weft.net import CannotListen, Limits, Node, own_host, parse_address
from weft.net.addresses import LOOPBACK
from weft.security import Membership, RevocationList, Ticket
from weft.wire import Address

CONNECT_S = 30.0
PEERS_MAX = 16
"""Peers of one set: more would not carry more."""


class Connecting:
    """What `connect` returns: `async with` joins and leaves again, `await` joins only."""

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
        self._key = key
        self._ticket = ticket if ticket is None or isinstance(ticket, Ticket) else _load(ticket)
        self._revoked = revoked
        self._plain = plain
        self._signed = ticket is not None or bool(signed)
        self._host = host
        self._port = port
        self._peers = peers
        self._behind = Behind(behind)
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
        host = self._host or await own_host(self._portals)
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
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            await self._connected(channel, node, deadline)
            for other in others:
                await self._connected(None, other, deadline)
        except BaseException:
            channel.vanish() if hasattr(node, "peer") else None
            raise
        return channel

    def _node(self, host: str, port: int, portals: tuple[Address, ...]) -> Node:
        return Node(
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

    async def _connected(self, channel: Channel | None, node: Node, deadline: float) -> None:
        """Start the peer and wait until it is a member, or is told why it never will be."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Barred | None] = loop.create_future()
        observed = node.observe

        def observe(event: ChannelEvent) -> None:
            observed(event)  # type: ignore[arg-type]
            if over.done():
                return
            if node.peer.state is State.CONNECTED:
                over.set_result(None)
            elif isinstance(event, Barred):
                over.set_result(event)

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

    def _nobody_found(self, node: Node) -> str:
        where = ", ".join(str(portal) if portal.port else portal.host for portal in self._portals)
        seconds = f"{self._timeout_s:g} s"
        if node.peer.state is not State.SEEKING:
            return f"{self._channel_name}: found, but not joined within {seconds}; try again"
        return (
            f"{self._channel_name}: nobody of this channel answered at {where} within {seconds}. The first peer of a "
            "channel must run on a portal's machine (and, if the portal has a port, listen there: port=…)"
        )


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
