"""Expected deliveries of living, departed and crashed authors, checked on handmade logs."""

from broadloom.testing.checks.delivery_log import AuthorLog
from broadloom.testing.checks.guarantees import find_undelivered
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation
from broadloom.testing.sim.steps import Run, grow


def missed_by_all() -> tuple[Simulation, SimNode]:
    """Three peers; one has sent a message that the two others reported as missed."""
    sim = Simulation(1)
    for _ in range(3):
        sim.add_peer()
        sim.run_for(2)
    sim.converge(60)
    sim.run_for(60)  # a stable period: no link was lost
    author = sim.nodes[0]
    sim.checker.on_sent(author, 1, b"data")
    for node in sim.nodes[1:]:
        sim.checker.author_logs.setdefault(node, {})[author.peer.me.peer_id] = AuthorLog(1, 1, [(1, 1)])
    return sim, author


def test_missed_message_of_living_author_is_a_violation() -> None:
    sim, _ = missed_by_all()
    problem = find_undelivered(sim.checker, sim.alive)
    assert problem is not None
    assert problem[0] == 1


def test_missed_message_of_author_that_left_cleanly_is_a_violation() -> None:
    sim, author = missed_by_all()
    sim.leave([author])
    sim.run_for(5)
    problem = find_undelivered(sim.checker, sim.alive)
    assert problem is not None
    assert problem[0] == 1


def test_message_lost_with_crashed_author_is_no_violation() -> None:
    sim, author = missed_by_all()
    sim.kill([author])
    assert find_undelivered(sim.checker, sim.alive) is None


def test_missed_message_of_crashed_author_is_a_violation_if_survivor_has_it() -> None:
    sim, author = missed_by_all()
    sim.kill([author])
    sim.checker.author_logs[sim.nodes[1]][author.peer.me.peer_id] = AuthorLog(1, 1)
    problem = find_undelivered(sim.checker, sim.alive)
    assert problem is not None
    assert str(sim.nodes[2]) in problem[1]


def test_undelivered_message_is_a_violation_unless_hostile_members_separate_the_peer() -> None:
    sim = Simulation(1)
    grow(Run(sim, 12))
    sim.quiesce(60)
    victim = sim.alive[0]
    near: list[SimNode] = []
    far: list[SimNode] = []
    for node in sim.alive[1:]:
        (near if node.peer.me.peer_id in victim.peer.links.neighbors else far).append(node)
    far[0].broadcast(b"data")
    sim.run_for(5)
    del sim.checker.author_logs[victim][far[0].peer.me.peer_id]
    for node in near[1:]:
        node.is_hostile = True
    problem = sim.convergence_problems()
    assert problem is not None
    assert problem[0] == 1
    near[0].is_hostile = True
    assert sim.convergence_problems() is None
