"""One harness over two runtimes: the simulator, and real sockets in one process. Tests cannot tell them apart.

Processes that are really killed and paused are in `tests/testing/chaos`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from uuid import uuid4

from broadloom.protocol import ChannelName, Peer, PeerState, Tuning
from broadloom.protocol.events import Batch, Event, LinkUp, Message, Missed
from broadloom.protocol.exchange import Exchange
from broadloom.protocol.identity import Role
from broadloom.protocol.link import Link
from broadloom.protocol.owner.card import ChannelCard, encode_card
from broadloom.security import Authority, PeerCredentials, RevocationList, SignedCard, revoke_tickets
from broadloom.testing.checks.guarantees import check_fabric
from broadloom.testing.sim.owner import sign_document
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.transport import TcpNode
from broadloom.transport.bootstrap_hosts import BootstrapHosts
from broadloom.wire import Address
from broadloom.wire.owner_messages import OwnerDocumentKind
from tests.support import eventually


@dataclass(eq=False)
class HarnessPeer:
    """One peer and what its application received."""

    peer: Peer
    received: list[Message] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    links_max: int = 0
    events: list[Event] = field(default_factory=list)
    on_message: Callable[[Message], None] | None = None
    """Called for each message, after it was added to `received`."""
    listen: Callable[[Event], None] | None = None
    """Called for each event, after it was added to `events`."""

    @property
    def id(self) -> int:
        return self.peer.me.peer_id

    @property
    def is_connected(self) -> bool:
        return self.peer.state is PeerState.CONNECTED

    @property
    def neighbors(self) -> tuple[int, ...]:
        return self.peer.links.neighbors

    def send(self, data: bytes) -> None:
        assert self.peer.broadcast(data) == len(self.sent) + 1
        self.sent.append(data)

    def received_from(self, author: "HarnessPeer") -> list[tuple[int, bytes]]:
        return [(message.sequence, message.data) for message in self.received if message.author == author.id]

    def deliver(self, batch: Batch) -> None:
        for message in batch:
            self.received.append(message)
            if self.on_message is not None:
                self.on_message(message)

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, LinkUp):
            self.links_max = max(self.links_max, len(self.peer.links))
        if self.listen is not None:
            self.listen(event)


class Harness(Protocol):
    peers: list[HarnessPeer]
    settings: Tuning

    async def add(self, count: int = 1, *, at_once: bool = False) -> list[HarnessPeer]: ...
    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None: ...
    def kill(self, peers: list[HarnessPeer]) -> None: ...
    def partition(self, peers: list[HarnessPeer]) -> None: ...
    def heal(self) -> None: ...
    def pause_reading(self, peers: list[HarnessPeer]) -> None: ...
    def resume_reading(self, peers: list[HarnessPeer]) -> None: ...
    async def close(self) -> None: ...


OpenHarness = Callable[..., Harness]


def is_converged(harness: Harness) -> bool:
    """Whether all peers form one regular fabric."""
    graph = {peer.id: list(peer.neighbors) for peer in harness.peers}
    return all(peer.is_connected for peer in harness.peers) and check_fabric(graph, harness.settings.degree) is None


class SimHarness:
    def __init__(self, settings: Tuning, *, has_owner: bool = False) -> None:
        self.settings = settings
        self.peers: list[HarnessPeer] = []
        self._simulation = Simulation(7, SimulationSettings(peer=settings, roster=True, owner=has_owner))
        self._number = 0
        self._nodes: dict[HarnessPeer, Any] = {}

    async def add(self, count: int = 1, *, at_once: bool = False) -> list[HarnessPeer]:
        added = []
        for _ in range(count):
            bootstrap = (Address("h0", 0),) if at_once else None
            node = self._simulation.add_peer(bootstrap=bootstrap)
            peer = HarnessPeer(node.peer)
            # The test itself judges, not the step checker of the simulator.
            node.deliver = peer.deliver  # type: ignore[method-assign]
            node.report_missed = peer.missed.append  # type: ignore[assignment,method-assign]
            node.emit = peer.on_event  # type: ignore[method-assign]
            self._nodes[peer] = node
            self.peers.append(peer)
            added.append(peer)
            if not at_once:
                await self.until(lambda peer=peer: peer.is_connected)  # type: ignore[misc]
        await self.until(lambda: all(peer.is_connected for peer in added))
        return added

    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None:
        assert self._simulation.run_until(lambda: bool(condition()), within_s), (
            f"condition not met within {within_s:g} s"
        )

    def kill(self, peers: list[HarnessPeer]) -> None:
        for peer in peers:
            self._nodes[peer].kill()
            self.peers.remove(peer)

    def partition(self, peers: list[HarnessPeer]) -> None:
        near = {self._nodes[peer].host: 1 for peer in peers}
        self._simulation.network.partition(near, frozenset({(0, 1), (1, 0)}))

    def heal(self) -> None:
        self._simulation.network.heal()

    def pause_reading(self, peers: list[HarnessPeer]) -> None:
        for peer in peers:
            peer.peer.set_paused(True)
            for connection in self._nodes[peer].connections:
                connection.pause_reading()

    def resume_reading(self, peers: list[HarnessPeer]) -> None:
        for peer in peers:
            peer.peer.set_paused(False)
            for connection in list(self._nodes[peer].connections):
                connection.resume_reading()

    def sign_card(self, **fields: Any) -> bytes:
        self._number += 1
        card = ChannelCard("a/b", number=self._number, **fields)
        return sign_document(OwnerDocumentKind.CARD, self._number, encode_card(card))

    def sign_revocations(self, peers: list[HarnessPeer]) -> bytes:
        self._number += 1
        serials = "".join(self._nodes[peer].identity.ticket_serial for peer in peers)
        return sign_document(OwnerDocumentKind.REVOCATION_LIST, self._number, serials.encode())

    async def close(self) -> None:
        pass


class _PartitionableNode(TcpNode):
    """Can be cut off from some ports: connections to them fail."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.unreachable: set[int] = set()

    async def _connect(self, connection: Any, address: Address) -> None:
        if address.port in self.unreachable:
            connection.on_connect_failed()
        else:
            await super()._connect(connection, address)


class SocketHarness:
    def __init__(self, settings: Tuning, *, tls: bool, signed: bool = False, has_owner: bool = False) -> None:
        self.settings = settings
        self.peers: list[HarnessPeer] = []
        self._tls = tls
        self._signed = signed
        self._owner = Authority.generate() if has_owner else None
        self._channel = ChannelName("test", uuid4().hex)
        self._nodes: dict[HarnessPeer, _PartitionableNode] = {}
        self._problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: self._problems.append(problem))

    async def add(self, count: int = 1, *, at_once: bool = False) -> list[HarnessPeer]:
        added = []
        for _ in range(count):
            node = _PartitionableNode(
                self._channel,
                advertise_host="127.0.0.1",
                bootstrap=BootstrapHosts(),
                credentials=self._credentials(),
                signed=self._signed,
                settings=self.settings,
            )
            received: list[Message] = []
            missed: list[Missed] = []
            node.deliver, node.report_missed, node.emit = received.extend, missed.append, lambda _event: None
            await node.start()
            peer = HarnessPeer(node.peer, received, missed)
            node.emit, node.deliver = peer.on_event, peer.deliver
            self._nodes[peer] = node
            self.peers.append(peer)
            added.append(peer)
            if not at_once:
                await self.until(lambda peer=peer: peer.is_connected)  # type: ignore[misc]
        await self.until(lambda: all(peer.is_connected for peer in added))
        return added

    def _credentials(self) -> PeerCredentials | None:
        if self._owner is not None:
            end = datetime.now(UTC) + timedelta(days=1)
            ticket = self._owner.issue_ticket(f"member {len(self._nodes)}", Role.PRODUCER, end)
            return PeerCredentials.from_ticket(self._channel, ticket)
        return PeerCredentials.from_key(self._channel, "a key") if self._tls else None

    def sign_card(self, **fields: Any) -> bytes:
        assert self._owner is not None
        return SignedCard.sign(self._owner, ChannelCard(str(self._channel), **fields)).document

    def sign_revocations(self, peers: list[HarnessPeer]) -> bytes:
        assert self._owner is not None
        found = [self._nodes[peer].credentials for peer in peers]
        serials = [each.identity.ticket_serial for each in found if each is not None]
        with TemporaryDirectory() as directory:
            revoke_tickets(self._owner, path := Path(directory) / "revoked.pem", serials)
            return RevocationList(path, self._owner.certificate).document

    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None:
        await eventually(condition, timeout_s=within_s)

    def kill(self, peers: list[HarnessPeer]) -> None:
        for peer in peers:
            self._nodes[peer].abort()
            self.peers.remove(peer)

    def partition(self, peers: list[HarnessPeer]) -> None:
        here = {peer.peer.me.address.port for peer in peers}
        there = {peer.peer.me.address.port for peer in self.peers} - here
        for peer in self.peers:
            node = self._nodes[peer]
            node.unreachable = there if peer in peers else here
            for connection in list(node._connections):
                handler = connection.handler
                is_link = isinstance(handler, Link) and handler.peer_info.address.port in node.unreachable
                if is_link or isinstance(handler, Exchange):  # it may be about to become a link to the other side
                    connection.abort()

    def heal(self) -> None:
        for node in self._nodes.values():
            node.unreachable = set()

    def pause_reading(self, peers: list[HarnessPeer]) -> None:
        for peer in peers:
            self._nodes[peer].pause_reading()

    def resume_reading(self, peers: list[HarnessPeer]) -> None:
        for peer in peers:
            self._nodes[peer].resume_reading()

    async def close(self) -> None:
        for node in self._nodes.values():
            node.abort()
        await asyncio.sleep(0)
        assert not self._problems, self._problems
