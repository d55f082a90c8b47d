"""Where behaviours are played: the simulator, or real sockets in one process. A behaviour cannot tell which.

What holds on both is checked on both by the same lines. (Processes that are killed and frozen for real are in
`tests/trial`.)
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from weft.fabric import ChannelName, Peer, Settings, State
from weft.fabric.events import Event, LinkUp, Message, Missed
from weft.net import Node
from weft.security import Membership
from weft.sim.promises import regular
from weft.sim.simulation import SimSettings, Simulation
from weft.wire import Address

LOOK_S = 0.02


@dataclass(eq=False)
class Actor:
    """One peer and what its application saw."""

    peer: Peer
    heard: list[Message] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    said: list[bytes] = field(default_factory=list)
    most_links: int = 0

    @property
    def id(self) -> int:
        return self.peer.me.peer

    @property
    def connected(self) -> bool:
        return self.peer.state is State.CONNECTED

    @property
    def neighbours(self) -> tuple[int, ...]:
        return self.peer.links.neighbours

    def says(self, data: bytes) -> None:
        assert self.peer.broadcast(data) == len(self.said) + 1
        self.said.append(data)

    def heard_of(self, author: "Actor") -> list[tuple[int, bytes]]:
        return [(message.sequence, message.data) for message in self.heard if message.author == author.id]

    def saw(self, event: Event) -> None:
        if isinstance(event, LinkUp):
            self.most_links = max(self.most_links, len(self.peer.links))


class Stage(Protocol):
    actors: list[Actor]
    settings: Settings

    async def add(self, count: int = 1, *, at_once: bool = False) -> list[Actor]: ...
    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None: ...
    async def passes(self, seconds: float) -> None: ...
    def kill(self, actors: list[Actor]) -> None: ...
    def split(self, actors: list[Actor]) -> None: ...
    def heal(self) -> None: ...
    async def close(self) -> None: ...


def whole(stage: Stage) -> bool:
    """One regular fabric of everybody who is there."""
    graph = {actor.id: list(actor.neighbours) for actor in stage.actors}
    return all(actor.connected for actor in stage.actors) and regular(graph, stage.settings.degree) is None


class SimStage:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.actors: list[Actor] = []
        self._simulation = Simulation(7, SimSettings(peer=settings))
        self._nodes: dict[Actor, Any] = {}

    async def add(self, count: int = 1, *, at_once: bool = False) -> list[Actor]:
        added = []
        for _ in range(count):
            portals = (Address("h0", 0),) if at_once else None
            node = self._simulation.add(portals=portals)
            actor = Actor(node.peer)
            # The simulator's own watch is left out: the behaviour is what judges here.
            node.deliver = actor.heard.extend  # type: ignore[assignment,method-assign]
            node.missed = actor.missed.append  # type: ignore[assignment,method-assign]
            node.observe = actor.saw  # type: ignore[method-assign]
            self._nodes[actor] = node
            self.actors.append(actor)
            added.append(actor)
            if not at_once:
                await self.until(lambda actor=actor: actor.connected)  # type: ignore[misc]
        await self.until(lambda: all(actor.connected for actor in added))
        return added

    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None:
        assert self._simulation.run_until(lambda: bool(condition()), within_s), "not within its time"

    async def passes(self, seconds: float) -> None:
        self._simulation.run(seconds)

    def kill(self, actors: list[Actor]) -> None:
        for actor in actors:
            self._nodes[actor].kill()
            self.actors.remove(actor)

    def split(self, actors: list[Actor]) -> None:
        near = {self._nodes[actor].host: 1 for actor in actors}
        self._simulation.network.split(near, frozenset({(0, 1), (1, 0)}))

    def heal(self) -> None:
        self._simulation.network.heal()

    async def close(self) -> None:
        pass


class _SplittableNode(Node):
    """Cannot reach some others for a time: what is sent to them is lost with the line, calls are not answered."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.unreachable: set[int] = set()

    async def _connect(self, line: Any, address: Address) -> None:
        if address.port in self.unreachable:
            line.unanswered()
        else:
            await super()._connect(line, address)


class SocketStage:
    def __init__(self, settings: Settings, *, tls: bool, signed: bool = False) -> None:
        self.settings = settings
        self.actors: list[Actor] = []
        self._tls = tls
        self._signed = signed
        self._channel = ChannelName("test", uuid4().hex)
        self._nodes: dict[Actor, _SplittableNode] = {}
        self._problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: self._problems.append(problem))

    async def add(self, count: int = 1, *, at_once: bool = False) -> list[Actor]:
        added = []
        for _ in range(count):
            node = _SplittableNode(
                self._channel,
                host="127.0.0.1",
                portals=(Address("127.0.0.1", 0),),
                membership=Membership.from_key(self._channel, "a key") if self._tls else None,
                signed=self._signed,
                settings=self.settings,
            )
            heard: list[Message] = []
            missed: list[Missed] = []
            node.deliver, node.missed, node.observe = heard.extend, missed.append, lambda _event: None
            await node.start()
            actor = Actor(node.peer, heard, missed)
            node.observe = actor.saw
            self._nodes[actor] = node
            self.actors.append(actor)
            added.append(actor)
            if not at_once:
                await self.until(lambda actor=actor: actor.connected)  # type: ignore[misc]
        await self.until(lambda: all(actor.connected for actor in added))
        return added

    async def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None:
        async with asyncio.timeout(within_s):
            # Nothing tells when a condition over all peers holds, so it is looked at now and then.
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def kill(self, actors: list[Actor]) -> None:
        for actor in actors:
            self._nodes[actor].vanish()
            self.actors.remove(actor)

    def split(self, actors: list[Actor]) -> None:
        here = {actor.peer.me.address.port for actor in actors}
        there = {actor.peer.me.address.port for actor in self.actors} - here
        for actor in self.actors:
            node = self._nodes[actor]
            node.unreachable = there if actor in actors else here
            for link in list(actor.peer.links):
                if link.contact.address.port in node.unreachable:
                    link._line.abort()  # type: ignore[attr-defined]

    def heal(self) -> None:
        for node in self._nodes.values():
            node.unreachable = set()

    async def close(self) -> None:
        for node in self._nodes.values():
            node.vanish()
        await asyncio.sleep(0)
        assert not self._problems, self._problems
