"""`connect`: check the options, start the peer, wait until it is a member."""

import asyncio
from collections.abc import Generator
from pathlib import Path

from broadloom.channel.channel import Channel
from broadloom.channel.inbox import Overflow
from broadloom.channel.options import ConnectOptions, accepts_connect_options
from broadloom.errors import ChannelClosedError, ConnectError, RejectedError
from broadloom.protocol import ChannelName, PeerState
from broadloom.protocol.events import ChannelClosed, Event, Rejected
from broadloom.protocol.identity import CredentialError
from broadloom.security import ChannelOwner, PeerCredentials, RevocationList, SignedCard, Ticket, check_card, load_card
from broadloom.security.sealing import SealingPrivateKey
from broadloom.transport import BootstrapHosts, ListenError, TcpNode, find_advertise_host, parse_address
from broadloom.transport.file_descriptors import OUT_OF_FILES, out_of_files_text
from broadloom.transport.in_process import link_in_process
from broadloom.wire.exchange_messages import RejectReason

FOREIGN_NAMED = 3
"""Programs on the ports of the channel that are named in an error message."""


class PendingConnection:
    """The result of `connect`: `async with` joins and leaves again, `await` only joins."""

    _node_class: type[TcpNode] = TcpNode

    def __init__(self, name: str, options: ConnectOptions) -> None:
        self._channel_name = ChannelName.parse(name)
        self._options = options
        ticket = options.ticket
        if ticket is not None and not isinstance(ticket, Ticket):
            ticket = Ticket.load(ticket if isinstance(ticket, str) else Path(ticket))
        self._ticket = ticket
        self._private_keys = tuple(
            each if isinstance(each, SealingPrivateKey) else SealingPrivateKey.load(each)
            for each in options.private_keys
        )
        self._card_path = Path(options.card) if options.card and not isinstance(options.card, SignedCard) else None
        self._card = self._load_card()
        hosts = options.bootstrap or (self._card.card.bootstrap if self._card is not None else ())
        self._hosts = hosts
        self._bootstrap = BootstrapHosts(hosts, options.bootstrap_file)
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
        try:
            return await self._join_in_time()
        except OSError as problem:
            if problem.errno not in OUT_OF_FILES:
                raise
            raise ConnectError(f"{self._channel_name}: {out_of_files_text()}") from None

    async def _join_in_time(self) -> Channel:
        options = self._options
        deadline = asyncio.get_running_loop().time() + options.timeout_s
        if options.advertise_host:
            host = parse_address(options.advertise_host).host
        else:
            host = await self._find_advertise_host(deadline)
        node = self._node(host, options.port)
        channel = Channel(
            str(self._channel_name),
            node,
            overflow=Overflow(options.overflow),
            inbox_messages_max=options.inbox_messages_max,
            inbox_bytes_max=options.inbox_bytes_max,
        )
        if options.rules is not None:
            channel._use_filter(options.rules)
        if self._private_keys:
            channel._private_keys = self._private_keys
        secondary_nodes = [self._node(host, 0, is_secondary=True) for _ in range(options.local_peers - 1)]
        if secondary_nodes:
            channel._attach_peer_set(secondary_nodes)
        try:
            for each in [node, *secondary_nodes]:
                await self._wait_until_connected(each, deadline)
            link_in_process([node, *secondary_nodes])
            if options.rules is not None:
                options.rules.add_channel(channel)
            channel._use_card()
        except BaseException:
            channel.abort()
            raise
        return channel

    async def _find_advertise_host(self, deadline: float) -> str:
        try:
            async with asyncio.timeout_at(deadline):
                return await find_advertise_host(self._bootstrap.addresses)
        except TimeoutError:
            hosts = ", ".join(address.host for address in self._bootstrap.addresses)
            raise ConnectError(
                f"{self._channel_name}: cannot resolve {hosts} within {self._options.timeout_s:g} s; check the names, "
                "or pass addresses"
            ) from None

    def _node(self, advertise_host: str, port: int, *, is_secondary: bool = False) -> TcpNode:
        credentials = self._credentials()
        return self._node_class(
            self._channel_name,
            advertise_host=advertise_host,
            port=port,
            bootstrap=BootstrapHosts(self._hosts, self._options.bootstrap_file),
            credentials=credentials,
            signed=self._ticket is not None or bool(self._options.signed),
            settings=self._options.settings,
            name=self._options.name,
            is_secondary=is_secondary,
            owner=self._owner(credentials),
        )

    def _load_card(self) -> SignedCard | None:
        authority = self._ticket.authority if self._ticket is not None else None
        if self._card_path is not None:
            return load_card(self._card_path, self._channel_name, authority)
        card = self._options.card
        if isinstance(card, SignedCard):
            check_card(card, "given", self._channel_name, authority)
            return card
        return None

    def _owner(self, credentials: PeerCredentials | None) -> ChannelOwner | None:
        if self._card is None:
            return credentials.owner if credentials is not None else None
        return ChannelOwner(
            self._channel_name,
            self._card.owner,
            identity=credentials.identity if credentials is not None else None,
            revocation_list=credentials.revocation_list if credentials is not None else None,
            card=self._card,
            card_path=self._card_path,
        )

    def _credentials(self) -> PeerCredentials | None:
        options = self._options
        if not options.tls:
            return None
        try:
            if self._ticket is None:
                return PeerCredentials.from_key(self._channel_name, options.key)
            revocation_list = options.revocation_list or None
            if revocation_list is not None and not isinstance(revocation_list, RevocationList):
                revocation_list = RevocationList(Path(revocation_list), self._ticket.authority)
            return PeerCredentials.from_ticket(self._channel_name, self._ticket, revocation_list)
        except CredentialError as rejected:
            raise RejectedError(f"{self._channel_name}: {rejected.text}") from None

    async def _wait_until_connected(self, node: TcpNode, deadline: float) -> None:
        outcome: asyncio.Future[Rejected | ChannelClosed | None] = asyncio.get_running_loop().create_future()
        forward = node.emit

        def observe(event: Event) -> None:
            forward(event)
            if outcome.done():
                return
            if isinstance(event, Rejected | ChannelClosed):
                outcome.set_result(event)
            elif node.peer.state in (PeerState.CONNECTED, PeerState.LEFT):
                outcome.set_result(None)

        node.emit = observe
        tape = self._options.tape
        observer = None
        if tape is not None:
            identity = node.credentials.identity if node.credentials is not None else None
            observer = tape.observer(self._channel_name, node.id, name=node.name, identity=identity)
        try:
            await node.start(observer)
            async with asyncio.timeout_at(deadline):
                rejected = await outcome
        except ListenError as problem:
            raise ConnectError(str(problem)) from None
        except TimeoutError:
            raise ConnectError(self._timeout_message(node)) from None
        finally:
            node.emit = forward
        if isinstance(rejected, ChannelClosed) or (
            rejected is not None and rejected.reason is RejectReason.CHANNEL_CLOSED
        ):
            closed = node.peer.owner.closed_text or rejected.text
            raise ChannelClosedError(f"{self._channel_name}: {closed}")
        if rejected is not None:
            raise RejectedError(f"{self._channel_name}: {rejected.text}")
        if node.peer.state is PeerState.LEFT:
            raise ConnectError(
                f"{self._channel_name}: a member closed the channel for everyone during the join; connect again"
            )

    def _timeout_message(self, node: TcpNode) -> str:
        seconds = f"{self._options.timeout_s:g} s"
        if node.shortage.is_short:
            return f"{self._channel_name}: not joined within {seconds}: {out_of_files_text()}"
        if node.peer.state is not PeerState.DISCOVERING:
            return f"{self._channel_name}: found, but not joined within {seconds}; try again"
        hosts = ", ".join(str(address) if address.port else address.host for address in node.bootstrap.addresses)
        found = [f"{address} is {foreign}" for address, foreign in node.peer.discovery.foreign.items()]
        others = f" ({', '.join(found[:FOREIGN_NAMED])})" if found else ""
        if not (node.is_discoverable or self._options.port or all(host.port for host in node.bootstrap.addresses)):
            return (
                f"{self._channel_name}: no peer of this channel answered at {hosts} within {seconds}, and the first "
                f"one cannot be here: the {node.settings.discovery_ports} ports that peers search are taken{others}. "
                "End one of these programs, or raise discovery_ports at all members"
            )
        return (
            f"{self._channel_name}: no peer of this channel answered at {hosts} within {seconds}{others}. The first "
            "peer of a channel must run on a bootstrap host (and listen on its port, if one is given: port=…)"
        )


@accepts_connect_options
def connect(channel: str, options: ConnectOptions) -> PendingConnection:
    """Join a channel: `async with broadloom.connect("chess/club-42") as channel`, or `await broadloom.connect(...)`.

    From the moment it returns, every message of every member arrives exactly once, in order per author.

    `channel` is a type and an instance, `chess/club-42`. All programs that use the same channel name and key share a
    channel. The other parameters are the fields of `ConnectOptions`.
    """
    return PendingConnection(channel, options)
