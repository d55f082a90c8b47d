"""`Simulation`: one channel of simulated peers, its faults, and the checks of its guarantees.

The seed and the settings decide everything that happens: the same seed gives the same history, byte for byte.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random

from broadloom.protocol import ChannelName, ChannelSettings, PeerState, Tuning
from broadloom.protocol.runtime import ObserverFactory
from broadloom.testing.checks.guarantees import (
    adjacency,
    check_connected,
    check_regular,
    connected_parts,
    find_undelivered,
)
from broadloom.testing.sim.dissemination import random_payloads
from broadloom.testing.sim.hostile import HostileNode, SimSigner
from broadloom.testing.sim.network import SimNetwork, SimNetworkSettings
from broadloom.testing.sim.node import START_TIME_S, SimNode
from broadloom.testing.sim.order_traffic import OrderTraffic
from broadloom.testing.sim.owner import OWNER_GUARANTEE, SimOwner
from broadloom.testing.sim.request_traffic import RequestTraffic
from broadloom.testing.sim.roster_checker import GUARANTEE, RosterChecker
from broadloom.testing.sim.state_traffic import StateTraffic
from broadloom.testing.sim.step_checker import StepChecker
from broadloom.testing.sim.virtual_clock import VirtualClock
from broadloom.wire import Address

CONVERGENCE_POLL_S = 0.25
"""Interval between two checks for convergence."""
CHECK_TIMEOUT_S = 60.0
QUIESCENCE_S = 10.0
"""Time without link changes that counts as quiescent: several rounds of beacons and neighbor lists."""

TapeFactory = Callable[[Callable[[], float]], ObserverFactory]
"""Makes a recorder that uses the given clock."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    peer: ChannelSettings = field(default_factory=Tuning)
    """Settings of every peer. A `Tuning` also changes internal constants of the protocol."""
    network: SimNetworkSettings = field(default_factory=SimNetworkSettings)
    bootstrap_count: int = 3
    """Members that a new peer gets as bootstrap hosts."""
    channel: str = "sim/fabric"
    size_bytes: int = 32
    """Size of a small message of the traffic."""
    signed: bool = False
    """Peers sign their messages."""
    hostile_count: int = 0
    """Hostile members among the first peers (`hostile.py`). Only a signed channel withstands them: set `signed`."""
    roster: bool = False
    """Peers keep a roster of all members, with signed records. Its cost grows with the square of their number."""
    owner: bool = False
    """Every peer has a ticket, and the owner can publish cards and revoke tickets (`owner.py`). Implies `signed`."""
    receipt_timeout_s: float | None = None
    """Every message of the traffic waits for a receipt for this long; needs a roster."""
    keep_received: bool = True
    """Keep delivered messages in `SimNode.received`; scenarios with thousands of peers do not."""


class Simulation:
    """A deterministic channel in virtual time.

    Every delivery is checked as it happens, and `check` waits for the rest: both raise `GuaranteeViolation`.
    """

    def __init__(
        self,
        seed: int,
        settings: SimulationSettings | None = None,
        trace: Callable[[str], None] | None = None,
        tape_factory: TapeFactory | None = None,
    ) -> None:
        self.seed = seed
        self.settings = settings or SimulationSettings()
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.checker = StepChecker(
            self.clock, self.settings.peer.degree, self.settings.network.latency_ms[1] / 1000, trace
        )
        self.network = SimNetwork(self.clock, Random(self.random.getrandbits(64)), self.settings.network)
        self.nodes: list[SimNode] = []
        self.roster_checker = RosterChecker(self) if self.settings.roster else None
        self.checker.roster_checker = self.roster_checker
        self.owner = SimOwner(self) if self.settings.owner else None
        self.checker.owner = self.owner
        self.events = 0
        self._channel = ChannelName.parse(self.settings.channel)
        self._tape = tape_factory(lambda: START_TIME_S + self.clock.now) if tape_factory is not None else None
        self._rate = 0.0
        self._authors: list[SimNode] | None = None
        self._traffic_round = 0
        self._has_healed = False
        self.is_separated = False
        """Whether hostile members separated honest ones when the fabric should have converged last."""
        self.requests = RequestTraffic(self)
        self.state_traffic = StateTraffic(self)
        self.order = OrderTraffic(self)

    # -- peers

    @property
    def alive(self) -> list[SimNode]:
        return [node for node in self.nodes if node.is_alive]

    @property
    def members(self) -> list[SimNode]:
        """Living peers that are connected."""
        return [node for node in self.nodes if node.is_connected]

    def add_peer(self, *, host: str | None = None, bootstrap: tuple[Address, ...] | None = None) -> SimNode:
        """Start a peer, by default on a host of its own and with some random members as bootstrap hosts."""
        number = len(self.nodes)
        host = host or f"h{number}"
        if bootstrap is None:
            bootstrap = tuple(node.address for node in self._sample_members())
            if not bootstrap:  # not created yet: all search the first host
                bootstrap = (Address(next((node.host for node in self.nodes if node.is_alive), host), 0),)
        settings = Tuning.of(self.settings.peer)
        hostile = 0 < number <= self.settings.hostile_count
        node = (HostileNode if hostile else SimNode)(
            number,
            host,
            self.clock,
            self.network,
            self.checker,
            self.random.getrandbits(64),
            channel=self._channel,
            bootstrap=bootstrap,
            settings=settings if self.settings.roster else replace(settings, roster_max=0),
            tape=self._tape,
            keep_received=self.settings.keep_received,
            signer=self.owner.signer if self.owner is not None else SimSigner if self.settings.signed else None,
            roster_signer=self.owner.signer
            if self.owner is not None
            else self.roster_checker.signer
            if self.roster_checker is not None
            else None,
            owner=self.owner,
        )
        self.nodes.append(node)
        if self.owner is not None:
            self.owner.add(node)
        if self.roster_checker is not None:
            self.roster_checker.add(node)
        for each in self.nodes[: self.settings.hostile_count + 1]:
            if isinstance(each, HostileNode):
                each.victims.update(dict.fromkeys(other.peer.me.peer_id for other in self.nodes if other is not each))
        node.peer.start()
        return node

    def _sample_members(self) -> list[SimNode]:
        """Return random members, without looking at every node: that would make growth quadratic."""
        chosen: dict[SimNode, None] = {}
        for _ in range(8 * self.settings.bootstrap_count if self.nodes else 0):
            node = self.random.choice(self.nodes)
            if node.is_connected:
                chosen[node] = None
                if len(chosen) == self.settings.bootstrap_count:
                    break
        return list(chosen) or self.members[: self.settings.bootstrap_count]

    # -- time

    def run_for(self, seconds: float) -> None:
        """Advance the virtual time."""
        self.events += self.clock.run_until(self.clock.now + seconds)

    def run_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Advance the virtual time until the condition holds; return False on timeout."""
        deadline = self.clock.now + timeout_s
        while not condition():
            if self.clock.now >= deadline:
                return False
            self.run_for(min(CONVERGENCE_POLL_S, deadline - self.clock.now))
        return True

    def check(self, timeout_s: float = CHECK_TIMEOUT_S, *, allow_missed: bool = False) -> None:
        """Stop the traffic and raise `GuaranteeViolation` unless every guarantee holds within the timeout.

        With `allow_missed`, a message that was reported as missed does not violate a guarantee: after a partition that
        lasted longer than messages are retained, for example.
        """
        self.set_traffic(0)
        self.converge(timeout_s, allow_missed=allow_missed)

    def _help_stranded(self) -> None:
        """Give newcomers whose bootstrap hosts are all gone others, as their users would."""
        members = [node.address for node in self.members if not node.is_hostile]
        for node in self.alive:
            is_searching = node.peer.state is PeerState.DISCOVERING
            if is_searching and not any(address.port == 0 or address in members for address in node.bootstrap):
                node.peer.set_bootstrap(tuple(members[: self.settings.bootstrap_count]))

    def converge(self, timeout_s: float, *, allow_missed: bool = False) -> float:
        """Wait until the fabric is regular and connected and every message is delivered; return the seconds it took."""
        start = self.clock.now
        self.is_separated = False
        self._help_stranded()
        if not self.run_until(lambda: self.convergence_problems(allow_missed=allow_missed) is None, timeout_s):
            self.is_separated = len(self._parts()) > 1
            if problem := self.convergence_problems(allow_missed=allow_missed, in_parts=True):
                self.checker.report_violation(problem[0], None, f"after {timeout_s:g} s: {problem[1]}")
        if self.roster_checker is not None:
            self.roster_checker.check_at_rest()
        return self.clock.now - start

    def _parts(self) -> list[list[SimNode]]:
        return connected_parts([node for node in self.alive if not node.is_hostile])

    def convergence_problems(self, *, allow_missed: bool = False, in_parts: bool = False) -> tuple[int, str] | None:
        """Return the number of the guarantee that does not hold yet, and why. With `in_parts`, in each part of the
        honest members on its own: hostile members may separate them for good (docs/security.md)."""
        alive = self.alive
        outside = [node for node in alive if node.peer.state is not PeerState.CONNECTED]
        if outside:
            return 4, f"{len(outside)} not connected, {outside[0]} is {outside[0].peer.state.value}"
        graph = adjacency(alive)
        if text := check_regular(
            graph, self.settings.peer.degree, {node.peer.me.peer_id: str(node.number) for node in alive}
        ):
            return 4, text
        if text := check_connected(graph):
            return (6 if self._has_healed else 5), text
        honest = [node for node in alive if not node.is_hostile]
        parts = self._parts() if in_parts else [honest]
        is_part = len(parts) > 1
        for part in parts:
            if problem := find_undelivered(self.checker, part, allow_missed=allow_missed, is_part=is_part):
                return problem
            if self.roster_checker is not None and (text := self.roster_checker.find_problem(part)):
                return GUARANTEE, text
        if self.owner is not None and not is_part and (text := self.owner.find_problem()):
            return OWNER_GUARANTEE, text  # between parts, cards and revocations are withheld like messages
        return None

    def quiesce(self, timeout_s: float) -> float:
        """Wait until links no longer change; return the seconds it took."""
        start = self.clock.now

        def is_quiescent() -> bool:
            quiet_s = self.clock.now - self.checker.links_changed_at
            return quiet_s >= QUIESCENCE_S and self.convergence_problems() is None

        if not self.run_until(is_quiescent, timeout_s):
            self.checker.report_violation(4, None, f"after {timeout_s:g} s links still change")
        return self.clock.now - start

    def adjacency(self) -> dict[int, list[int]]:
        return adjacency(self.alive)

    # -- traffic

    def set_traffic(self, per_s: float, authors: list[SimNode] | None = None) -> None:
        """Let random members (or these authors) send at this rate: mostly small messages, some large, some bursts."""
        self._rate = per_s
        self._authors = authors
        self._traffic_round += 1
        if per_s:
            self._schedule_message(self._traffic_round)

    def _schedule_message(self, traffic_round: int) -> None:
        if traffic_round == self._traffic_round:
            delay_s = self.random.expovariate(self._rate)
            self.clock.call_at(self.clock.now + delay_s, self._send_one, traffic_round)

    def _send_one(self, traffic_round: int) -> None:
        if traffic_round != self._traffic_round:
            return
        senders = [
            node for node in self._authors or self.nodes if node.is_alive and not node.is_paused and not node.is_hostile
        ]
        for _ in range(8 if senders else 0):
            node = self.random.choice(senders)
            if node.peer.state is PeerState.CONNECTED:
                for data in random_payloads(self.random, self.settings.size_bytes):
                    node.send(data, receipt_timeout_s=self.settings.receipt_timeout_s)
                break
        self._schedule_message(traffic_round)

    # -- faults

    def kill(self, nodes: Iterable[SimNode], *, host: bool = False) -> None:
        for node in nodes:
            node.kill(host=host)

    def leave(self, nodes: Iterable[SimNode]) -> None:
        for node in nodes:
            node.leave()

    def sample(self, count: int) -> list[SimNode]:
        """Return random living peers."""
        return self.random.sample(self.alive, count)

    def partition(self, side: float | Iterable[SimNode] = 0.5, *, one_way: bool = False) -> None:
        """Separate one side, these peers or a random fraction, from the others.

        With `one_way`, only frames to that side are held back.
        """
        nodes = self.sample(round(len(self.alive) * side)) if isinstance(side, float | int) else side
        near = {node.host: 1 for node in nodes}
        blocked = frozenset({(0, 1)}) if one_way else frozenset({(0, 1), (1, 0)})
        self.network.partition(near, blocked)

    def heal(self) -> None:
        self._has_healed = True
        self.checker.on_delay(self.network.heal())

    def reset_connections(self, fraction: float) -> None:
        """Reset a fraction of all connections while both processes live."""
        for node in self.alive:
            for connection in list(node.connections):
                if not connection.is_closed and self.random.random() < fraction / 2:
                    connection.reset()
                    if hasattr(connection, "handler"):  # otherwise a paused process has not accepted it yet
                        connection.handler.on_disconnect()
