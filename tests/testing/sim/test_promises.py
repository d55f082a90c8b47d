"""Which messages somebody must have had: the checks at rest, on records made by hand."""

from broadloom.testing.checks.guarantees import find_undelivered
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation
from broadloom.testing.sim.step_checker import AuthorLog


def missed_by_all() -> tuple[Simulation, SimNode]:
    """Three peers; one has said a word that the two others were told they missed."""
    sim = Simulation(1)
    for _ in range(3):
        sim.add()
        sim.run(2)
    sim.converge(60)
    sim.run(60)  # peace: nothing was torn for long
    author = sim.nodes[0]
    sim.checker.on_sent(author, 1, b"word")
    for node in sim.nodes[1:]:
        sim.checker.author_logs.setdefault(node, {})[author.peer.me.peer_id] = AuthorLog(1, 1, [(1, 1)])
    return sim, author


def test_a_living_author_has_what_it_said() -> None:
    sim, _ = missed_by_all()
    problem = find_undelivered(sim.checker, sim.alive)
    assert problem is not None
    assert problem[0] == 1


def test_one_that_left_in_good_order_had_to_see_that_it_was_heard() -> None:
    sim, author = missed_by_all()
    sim.leave([author])
    sim.run(5)
    problem = find_undelivered(sim.checker, sim.alive)
    assert problem is not None
    assert problem[0] == 1


def test_what_died_with_its_author_can_be_asked_of_nobody() -> None:
    sim, author = missed_by_all()
    sim.kill([author])
    assert find_undelivered(sim.checker, sim.alive) is None


def test_but_it_must_be_had_if_one_survivor_has_it() -> None:
    sim, author = missed_by_all()
    sim.kill([author])
    sim.checker.author_logs[sim.nodes[1]][author.peer.me.peer_id] = AuthorLog(1, 1)
    problem = find_undelivered(sim.checker, sim.alive)
    assert problem is not None
    assert str(sim.nodes[2]) in problem[1]
