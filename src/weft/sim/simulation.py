"""A channel of simulated peers: everything that a scenario can make happen to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from weft.fabric import ChannelName, Settings, State
from weft.fabric.observer import Tape
from weft.sim.clock import Clock
from weft.sim.network import Network, NetworkSettings
from weft.sim.node import Node
from weft.sim.promises import adjacency, undelivered, unrest
from weft.sim.spread import words
from weft.sim.watch import Watch
from weft.wire import Address

SETTLE_STEP_S = 0.25
"""How often a fabric that should come to rest is looked at."""
BEGINS_AT = 1_767_225_600.0
"""What every simulated clock shows at first: the beginning of 2026, UTC. (On a tape, time is of day and year.)"""
REST_S = 10.0
"""No link has changed for so long: beacons and views have been round several times and found nothing to mend."""

MakeTape = Callable[[Callable[[], float]], Tape]
"""Makes a recorder that tells time by the given clock."""


@dataclass(frozen=True, slots=True)
class SimSettings:
    """One simulated channel. Together with the seed, it decides everything that happens."""

    peer: Settings = field(default_factory=Settings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    portals: int = 3
    """How many living peers a newcomer is told of."""
    channel: str = "sim/fabric"
    size_bytes: int = 32
    """Of a small message of the traffic, as most are."""


class Simulation:
    def __init__(
        self,
        seed: int,
        settings: SimSettings | None = None,
        trace: Callable[[str], None] | None = None,
        make_tape: MakeTape | None = None,
    ) -> None:
        self.settings = settings or SimSettings()
        self.random = Random(seed)
        self.clock = Clock()
        self.watch = Watch(self.clock, self.settings.peer.degree, trace)
        self.network = Network(self.clock, Random(self.random.getrandbits(64)), self.settings.network)
        self.nodes: list[Node] = []
        self.events = 0
        self._channel = ChannelName.parse(self.settings.channel)
        self._tape = make_tape(lambda: BEGINS_AT + self.clock.now) if make_tape is not None else None
        self._rate = 0.0
        self._authors: list[Node] | None = None
        self._traffic_round = 0
        self._has_healed = False

    # -- who is there

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    @property
    def members(self) -> list[Node]:
        """Living peers that are connected."""
        return [node for node in self.nodes if node.alive and node.peer.state is State.CONNECTED]

    def add(self, *, host: str | None = None, portals: tuple[Address, ...] | None = None) -> Node:
        """One more process, on a host of its own unless told otherwise, told of some living peers."""
        number = len(self.nodes)
        host = host or f"h{number}"
        if portals is None:
            portals = tuple(node.address for node in self._some_members()) or (Address(host, 0),)
        node = Node(
            number,
            host,
            self.clock,
            self.network,
            self.watch,
            self.random.getrandbits(64),
            channel=self._channel,
            portals=portals,
            settings=self.settings.peer,
            tape=self._tape,
        )
        self.nodes.append(node)
        node.peer.start()
        return node

    def _some_members(self) -> list[Node]:
        """Random members that a newcomer may know of. (Looking at every node would make growth quadratic.)"""
        chosen: dict[Node, None] = {}
        for _ in range(8 * self.settings.portals if self.nodes else 0):
            node = self.random.choice(self.nodes)
            if node.alive and node.peer.state is State.CONNECTED:
                chosen[node] = None
                if len(chosen) == self.settings.portals:
                    break
        return list(chosen) or self.members[: self.settings.portals]

    # -- time

    def run(self, seconds: float) -> None:
        self.events += self.clock.run_until(self.clock.now + seconds)

    def run_until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Let time pass until something holds; False if it does not in time."""
        deadline = self.clock.now + within_s
        while not condition():
            if self.clock.now >= deadline:
                return False
            self.run(min(SETTLE_STEP_S, deadline - self.clock.now))
        return True

    def settle(self, within_s: float, *, may_be_told: bool = False) -> float:
        """Wait until the fabric is one regular graph and everything was delivered; returns the seconds it took."""
        start = self.clock.now
        if self.run_until(lambda: self.unsettled(may_be_told=may_be_told) is None, within_s):
            return self.clock.now - start
        promise, text = self.unsettled(may_be_told=may_be_told) or (4, "settled at the last moment")
        self.watch.broken(promise, None, f"after {within_s:g} s: {text}")
        raise AssertionError

    def unsettled(self, *, may_be_told: bool = False) -> tuple[int, str] | None:
        """The promise that does not hold yet, and why."""
        alive = self.alive
        outside = [node for node in alive if node.peer.state is not State.CONNECTED]
        if outside:
            return 4, f"{len(outside)} not connected, {outside[0]} is {outside[0].peer.state.value}"
        problem = unrest(alive, self.settings.peer.degree)
        if problem is not None:
            return (4 if "parts" not in problem else 6 if self._has_healed else 5), problem
        return undelivered(self.watch, alive, may_be_told=may_be_told)

    def rest(self, within_s: float) -> float:
        """Wait until nobody has anything left to mend and links stay as they are; returns the seconds it took."""
        start = self.clock.now

        def resting() -> bool:
            quiet_s = self.clock.now - self.watch.links_changed_at
            return quiet_s >= REST_S and self.unsettled() is None

        if not self.run_until(resting, within_s):
            self.watch.broken(4, None, f"after {within_s:g} s links still come and go")
        return self.clock.now - start

    def adjacency(self) -> dict[int, list[int]]:
        return adjacency(self.alive)

    # -- traffic

    def broadcast(self, node: Node, data: bytes = b"") -> int:
        sequence = node.peer.broadcast(data)
        self.watch.sent(node, sequence, data)
        return sequence

    def traffic(self, per_s: float, authors: list[Node] | None = None) -> None:
        """So many times a second a random member speaks (or one of these): mostly a small message, at times a large one
        or a burst. 0 stops it."""
        self._rate = per_s
        self._authors = authors
        self._traffic_round += 1
        if per_s:
            self._next_message(self._traffic_round)

    def _next_message(self, traffic_round: int) -> None:
        if traffic_round == self._traffic_round:
            pause_s = self.random.expovariate(self._rate)
            self.clock.at(self.clock.now + pause_s, self._send_one, traffic_round)

    def _send_one(self, traffic_round: int) -> None:
        if traffic_round != self._traffic_round:
            return
        speakers = [node for node in self._authors or self.nodes if node.alive and not node.frozen]
        for _ in range(8 if speakers else 0):
            node = self.random.choice(speakers)
            if node.peer.state is State.CONNECTED:
                for data in words(self.random, self.settings.size_bytes):
                    self.broadcast(node, data)
                break
        self._next_message(traffic_round)

    # -- faults

    def kill(self, nodes: list[Node], *, host: bool = False) -> None:
        for node in nodes:
            node.kill(host=host)
            self.watch.gone(node, "host dies" if host else "dies")

    def leave(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.watch.gone(node, "leaves")
            node.peer.leave()

    def sample(self, count: int) -> list[Node]:
        """Random living peers."""
        return self.random.sample(self.alive, count)

    def split(self, share: float, *, one_way: bool = False) -> None:
        """Cut the network in two; one way, only frames towards the first side are held back."""
        living = self.alive
        near = {node.host: 1 for node in self.random.sample(living, round(len(living) * share))}
        blocked = frozenset({(0, 1)}) if one_way else frozenset({(0, 1), (1, 0)})
        self.network.split(near, blocked)

    def heal(self) -> None:
        self._has_healed = True
        self.network.heal()

    def break_lines(self, share: float) -> None:
        """Reset a share of all lines, with both processes alive."""
        for node in self.alive:
            for line in list(node.lines):
                if not line.closed and self.random.random() < share / 2:
                    line.reset()
                    if hasattr(line, "owner"):  # else a frozen process has not answered it yet, and never will
                        line.owner.on_lost()
