"""A channel of simulated peers: everything that a scenario can make happen to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from broadloom.protocol import ChannelName, PeerState, Tuning
from broadloom.protocol.runtime import ObserverFactory
from broadloom.testing.checks.guarantees import adjacency, find_convergence_problems, find_undelivered
from broadloom.testing.sim.dissemination import random_payloads
from broadloom.testing.sim.network import SimNetwork, SimNetworkSettings
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.step_checker import StepChecker
from broadloom.testing.sim.virtual_clock import VirtualClock
from broadloom.wire import Address

CONVERGENCE_POLL_S = 0.25
"""How often a fabric that should come to rest is looked at."""
START_TIME_S = 1_767_225_600.0
"""What every simulated clock shows at first: the beginning of 2026, UTC. (On a tape, time is of day and year.)"""
QUIESCENCE_S = 10.0
"""No link has changed for so long: beacons and views have been round several times and found nothing to mend."""

TapeFactory = Callable[[Callable[[], float]], ObserverFactory]
"""Makes a recorder that tells time by the given clock."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """One simulated channel. Together with the seed, it decides everything that happens."""

    peer: Tuning = field(default_factory=Tuning)
    network: SimNetworkSettings = field(default_factory=SimNetworkSettings)
    bootstrap_count: int = 3
    """How many living peers a newcomer is told of."""
    channel: str = "sim/fabric"
    size_bytes: int = 32
    """Of a small message of the traffic, as most are."""


class Simulation:
    def __init__(
        self,
        seed: int,
        settings: SimulationSettings | None = None,
        trace: Callable[[str], None] | None = None,
        tape_factory: TapeFactory | None = None,
    ) -> None:
        self.settings = settings or SimulationSettings()
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.checker = StepChecker(self.clock, self.settings.peer.degree, trace)
        self.network = SimNetwork(self.clock, Random(self.random.getrandbits(64)), self.settings.network)
        self.nodes: list[SimNode] = []
        self.events = 0
        self._channel = ChannelName.parse(self.settings.channel)
        self._tape = tape_factory(lambda: START_TIME_S + self.clock.now) if tape_factory is not None else None
        self._rate = 0.0
        self._authors: list[SimNode] | None = None
        self._traffic_round = 0
        self._has_healed = False

    # -- who is there

    @property
    def alive(self) -> list[SimNode]:
        return [node for node in self.nodes if node.is_alive]

    @property
    def members(self) -> list[SimNode]:
        """Living peers that are connected."""
        return [node for node in self.nodes if node.is_alive and node.peer.state is PeerState.CONNECTED]

    def add(self, *, host: str | None = None, bootstrap: tuple[Address, ...] | None = None) -> SimNode:
        """One more process, on a host of its own unless told otherwise, told of some living peers."""
        number = len(self.nodes)
        host = host or f"h{number}"
        if bootstrap is None:
            bootstrap = tuple(node.address for node in self._sample_members()) or (Address(host, 0),)
        node = SimNode(
            number,
            host,
            self.clock,
            self.network,
            self.checker,
            self.random.getrandbits(64),
            channel=self._channel,
            bootstrap=bootstrap,
            settings=self.settings.peer,
            tape=self._tape,
        )
        self.nodes.append(node)
        node.peer.start()
        return node

    def _sample_members(self) -> list[SimNode]:
        """Random members that a newcomer may know of. (Looking at every node would make growth quadratic.)"""
        chosen: dict[SimNode, None] = {}
        for _ in range(8 * self.settings.bootstrap_count if self.nodes else 0):
            node = self.random.choice(self.nodes)
            if node.is_alive and node.peer.state is PeerState.CONNECTED:
                chosen[node] = None
                if len(chosen) == self.settings.bootstrap_count:
                    break
        return list(chosen) or self.members[: self.settings.bootstrap_count]

    # -- time

    def run(self, seconds: float) -> None:
        self.events += self.clock.run_until(self.clock.now + seconds)

    def run_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Let time pass until something holds; False if it does not in time."""
        deadline = self.clock.now + timeout_s
        while not condition():
            if self.clock.now >= deadline:
                return False
            self.run(min(CONVERGENCE_POLL_S, deadline - self.clock.now))
        return True

    def converge(self, timeout_s: float, *, allow_missed: bool = False) -> float:
        """Wait until the fabric is one regular graph and everything was delivered; returns the seconds it took."""
        start = self.clock.now
        if self.run_until(lambda: self.convergence_problems(allow_missed=allow_missed) is None, timeout_s):
            return self.clock.now - start
        guarantee, text = self.convergence_problems(allow_missed=allow_missed) or (4, "settled at the last moment")
        self.checker.report_violation(guarantee, None, f"after {timeout_s:g} s: {text}")
        raise AssertionError

    def convergence_problems(self, *, allow_missed: bool = False) -> tuple[int, str] | None:
        """The promise that does not hold yet, and why."""
        alive = self.alive
        outside = [node for node in alive if node.peer.state is not PeerState.CONNECTED]
        if outside:
            return 4, f"{len(outside)} not connected, {outside[0]} is {outside[0].peer.state.value}"
        problem = find_convergence_problems(alive, self.settings.peer.degree)
        if problem is not None:
            return (4 if "parts" not in problem else 6 if self._has_healed else 5), problem
        return find_undelivered(self.checker, alive, allow_missed=allow_missed)

    def quiesce(self, timeout_s: float) -> float:
        """Wait until nobody has anything left to mend and links stay as they are; returns the seconds it took."""
        start = self.clock.now

        def resting() -> bool:
            quiet_s = self.clock.now - self.checker.links_changed_at
            return quiet_s >= QUIESCENCE_S and self.convergence_problems() is None

        if not self.run_until(resting, timeout_s):
            self.checker.report_violation(4, None, f"after {timeout_s:g} s links still come and go")
        return self.clock.now - start

    def adjacency(self) -> dict[int, list[int]]:
        return adjacency(self.alive)

    # -- traffic

    def broadcast(self, node: SimNode, data: bytes = b"") -> int:
        sequence = node.peer.broadcast(data)
        self.checker.on_sent(node, sequence, data)
        return sequence

    def set_traffic(self, per_s: float, authors: list[SimNode] | None = None) -> None:
        """So many times a second a random member speaks (or one of these): mostly a small message, at times a large one
        or a burst. 0 stops it."""
        self._rate = per_s
        self._authors = authors
        self._traffic_round += 1
        if per_s:
            self._schedule_message(self._traffic_round)

    def _schedule_message(self, traffic_round: int) -> None:
        if traffic_round == self._traffic_round:
            pause_s = self.random.expovariate(self._rate)
            self.clock.call_at(self.clock.now + pause_s, self._send_one, traffic_round)

    def _send_one(self, traffic_round: int) -> None:
        if traffic_round != self._traffic_round:
            return
        speakers = [node for node in self._authors or self.nodes if node.is_alive and not node.is_paused]
        for _ in range(8 if speakers else 0):
            node = self.random.choice(speakers)
            if node.peer.state is PeerState.CONNECTED:
                for data in random_payloads(self.random, self.settings.size_bytes):
                    self.broadcast(node, data)
                break
        self._schedule_message(traffic_round)

    # -- faults

    def kill(self, nodes: list[SimNode], *, host: bool = False) -> None:
        for node in nodes:
            node.kill(host=host)
            self.checker.on_departed(node, "host dies" if host else "dies")

    def leave(self, nodes: list[SimNode]) -> None:
        for node in nodes:
            self.checker.on_departed(node, "leaves")
            node.peer.leave()

    def sample(self, count: int) -> list[SimNode]:
        """Random living peers."""
        return self.random.sample(self.alive, count)

    def partition(self, fraction: float, *, one_way: bool = False) -> None:
        """Cut the network in two; one way, only frames towards the first side are held back."""
        living = self.alive
        near = {node.host: 1 for node in self.random.sample(living, round(len(living) * fraction))}
        blocked = frozenset({(0, 1)}) if one_way else frozenset({(0, 1), (1, 0)})
        self.network.partition(near, blocked)

    def heal(self) -> None:
        self._has_healed = True
        self.network.heal()

    def reset_connections(self, fraction: float) -> None:
        """Reset a share of all lines, with both processes alive."""
        for node in self.alive:
            for connection in list(node.connections):
                if not connection.is_closed and self.random.random() < fraction / 2:
                    connection.reset()
                    if hasattr(connection, "handler"):  # else a frozen process has not answered it yet, and never will
                        connection.handler.on_disconnect()
