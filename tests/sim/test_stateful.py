"""Whatever happens to a fabric, in whatever order: hypothesis looks for the shortest history that breaks a promise."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from weft.fabric import Settings
from weft.sim.node import Node
from weft.sim.simulation import SimSettings, Simulation
from weft.sim.spread import Spread
from weft.wire import Address

EXAMPLES = 60
STEPS = 30
PEERS_MAX = 14
SETTLE_S = 150.0
"""Longer than messages are retained: what nobody has any more is given up by then."""

INDICES = st.integers(0, PEERS_MAX - 1)


class Fabric(RuleBasedStateMachine):
    """All peers share one host and so can always be found, as in `weft.sim.orders`; a split goes between two hosts."""

    sim: Simulation
    degree: int

    @initialize(
        seed=st.integers(0, 1000),
        degree=st.sampled_from([3, 4, 4, 5]),
        peers=st.integers(1, 8),
        spread=st.sampled_from(Spread),
    )
    def begin(self, seed: int, degree: int, peers: int, spread: Spread) -> None:
        self.degree = degree
        self.sim = Simulation(seed, SimSettings(peer=spread.settings(Settings(degree=degree))))
        self.is_split = False
        for _ in range(peers):
            self._add()
            self.sim.run(0.5)
        self.sim.settle(60)

    def _add(self) -> None:
        host = f"h{len(self.sim.nodes) % 2}"
        self.sim.add(host=host, portals=(Address("h0", 0), Address("h1", 0)))

    def _staying(self) -> list[Node]:
        return [node for node in self.sim.alive if node.peer.is_present]

    def _awake(self, index: int) -> Node:
        awake = [node for node in self._staying() if not node.frozen]
        return awake[index % len(awake)]

    @property
    def may_go(self) -> bool:
        """Two members are left when one goes, so that there always is a fabric to come back to."""
        return sum(not node.frozen for node in self.sim.members) > 2

    @precondition(lambda self: len(self.sim.alive) < PEERS_MAX and not self.is_split)
    @rule()
    def join(self) -> None:
        self._add()

    @precondition(lambda self: self.may_go)
    @rule(index=INDICES)
    def leave(self, index: int) -> None:
        self.sim.leave([self._awake(index)])

    @precondition(lambda self: self.may_go)
    @rule(index=INDICES)
    def kill(self, index: int) -> None:
        self.sim.kill([self._awake(index)])

    @precondition(lambda self: self.may_go)
    @rule(index=INDICES)
    def freeze(self, index: int) -> None:
        self._awake(index).freeze()

    @rule()
    def thaw(self) -> None:
        for node in self.sim.alive:
            if node.frozen:
                node.thaw()

    @rule(index=INDICES, count=st.integers(1, 3), size=st.sampled_from([5, 5, 400, 3000]))
    def broadcast(self, index: int, count: int, size: int) -> None:
        members = [node for node in self.sim.members if not node.frozen]
        for _ in range(count if members else 0):
            self.sim.broadcast(members[index % len(members)], bytes(size))

    @precondition(lambda self: not self.is_split)
    @rule(one_way=st.booleans())
    def split(self, one_way: bool) -> None:
        self.is_split = True
        both = frozenset({(0, 1), (1, 0)})
        self.sim.network.split({"h1": 1}, frozenset({(0, 1)}) if one_way else both)

    @precondition(lambda self: self.is_split)
    @rule()
    def heal(self) -> None:
        self.is_split = False
        self.sim.heal()

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 2.0, 9.0]))
    def wait(self, seconds: float) -> None:
        self.sim.run(seconds)

    @invariant()
    def nobody_has_too_many_links(self) -> None:
        """That each author's messages come once and in order, the simulator checks at every delivery."""
        for node in self.sim.alive:
            assert len(node.peer.links) <= self.degree
            assert node.peer.links.free >= 0

    def teardown(self) -> None:
        if not hasattr(self, "sim"):
            return
        self.thaw()
        self.heal()
        self.sim.settle(SETTLE_S, may_be_told=True)
        self.nobody_has_too_many_links()


TestFabric = Fabric.TestCase
TestFabric.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestFabric = pytest.mark.timeout(300)(TestFabric)
