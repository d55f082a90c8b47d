"""Expected deliveries of living, departed and crashed authors, checked on handmade logs."""

from broadloom.testing.checks.delivery_log import AuthorLog
from broadloom.testing.checks.guarantees import find_undelivered
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation


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
