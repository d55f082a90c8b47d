"""Random operations in random order: hypothesis searches for the shortest history that violates a guarantee."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broadloom.protocol import Tuning
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.wire import Address

EXAMPLES = 60
STEPS = 30
PEERS_MAX = 14
CONVERGENCE_TIMEOUT_S = 150.0
"""Longer than the retention time: unavailable messages have been given up by then."""

INDICES = st.integers(0, PEERS_MAX - 1)


class Fabric(RuleBasedStateMachine):
    """All peers are on two hosts, so that they can always find each other; a partition separates the hosts."""

    sim: Simulation
    degree: int

    @initialize(
        seed=st.integers(0, 1000),
        degree=st.sampled_from([3, 4, 4, 5]),
        peers=st.integers(1, 8),
        mode=st.sampled_from(DisseminationMode),
    )
    def begin(self, seed: int, degree: int, peers: int, mode: DisseminationMode) -> None:
        self.degree = degree
        self.sim = Simulation(seed, SimulationSettings(peer=mode.apply_to(Tuning(degree=degree))))
        self.is_partitioned = False
        for _ in range(peers):
            self._add()
            self.sim.run_for(0.5)
        self.sim.converge(60)

    def _add(self) -> None:
        host = f"h{len(self.sim.nodes) % 2}"
        self.sim.add_peer(host=host, bootstrap=(Address("h0", 0), Address("h1", 0)))

    def _removable_nodes(self) -> list[SimNode]:
        return [node for node in self.sim.alive if node.peer.is_present]

    def _active_node(self, index: int) -> SimNode:
        active = [node for node in self._removable_nodes() if not node.is_paused]
        return active[index % len(active)]

    @property
    def may_remove(self) -> bool:
        """At least two members remain, so that there is a fabric to rejoin."""
        return sum(not node.is_paused for node in self.sim.members) > 2

    @precondition(lambda self: len(self.sim.alive) < PEERS_MAX and not self.is_partitioned)
    @rule()
    def join(self) -> None:
        self._add()

    @precondition(lambda self: self.may_remove)
    @rule(index=INDICES)
    def leave(self, index: int) -> None:
        self.sim.leave([self._active_node(index)])

    @precondition(lambda self: self.may_remove)
    @rule(index=INDICES)
    def kill(self, index: int) -> None:
        self.sim.kill([self._active_node(index)])

    @precondition(lambda self: self.may_remove)
    @rule(index=INDICES)
    def pause(self, index: int) -> None:
        self._active_node(index).pause()

    @rule()
    def resume(self) -> None:
        for node in self.sim.alive:
            if node.is_paused:
                node.resume()

    @rule(index=INDICES, count=st.integers(1, 3), size=st.sampled_from([5, 5, 400, 3000]))
    def broadcast(self, index: int, count: int, size: int) -> None:
        members = [node for node in self.sim.members if not node.is_paused]
        for _ in range(count if members else 0):
            members[index % len(members)].broadcast(bytes(size))

    @precondition(lambda self: not self.is_partitioned)
    @rule(one_way=st.booleans())
    def partition(self, one_way: bool) -> None:
        self.is_partitioned = True
        both = frozenset({(0, 1), (1, 0)})
        self.sim.network.partition({"h1": 1}, frozenset({(0, 1)}) if one_way else both)

    @precondition(lambda self: self.is_partitioned)
    @rule()
    def heal(self) -> None:
        self.is_partitioned = False
        self.sim.heal()

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 2.0, 9.0]))
    def wait(self, seconds: float) -> None:
        self.sim.run_for(seconds)

    @invariant()
    def no_peer_exceeds_degree(self) -> None:
        """The simulator itself checks every delivery."""
        for node in self.sim.alive:
            assert len(node.peer.links) <= self.degree
            assert node.peer.links.unreserved_slots >= 0

    def teardown(self) -> None:
        if not hasattr(self, "sim"):
            return
        self.resume()
        self.heal()
        self.sim.converge(CONVERGENCE_TIMEOUT_S, allow_missed=True)
        self.no_peer_exceeds_degree()


TestFabric = Fabric.TestCase
TestFabric.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestFabric = pytest.mark.timeout(300)(TestFabric)
