"""Which messages somebody must have had: the checks at rest, on records made by hand."""

from weft.sim.node import Node
from weft.sim.promises import undelivered
from weft.sim.simulation import Simulation
from weft.sim.watch import Heard


def told_as_missed_by_all() -> tuple[Simulation, Node]:
    """Three peers; one has said a word that the two others were told they missed."""
    sim = Simulation(1)
    for _ in range(3):
        sim.add()
        sim.run(2)
    sim.settle(60)
    sim.run(60)  # peace: nothing was torn for long
    author = sim.nodes[0]
    sim.watch.sent(author, 1, b"word")
    for node in sim.nodes[1:]:
        sim.watch.heard.setdefault(node, {})[author.peer.me.peer] = Heard(1, 1, [(1, 1)])
    return sim, author


def test_a_living_author_has_what_it_said() -> None:
    sim, _ = told_as_missed_by_all()
    problem = undelivered(sim.watch, sim.alive)
    assert problem is not None
    assert problem[0] == 1


def test_one_that_left_in_good_order_had_to_see_that_it_was_heard() -> None:
    sim, author = told_as_missed_by_all()
    sim.leave([author])
    sim.run(5)
    problem = undelivered(sim.watch, sim.alive)
    assert problem is not None
    assert problem[0] == 1


def test_what_died_with_its_author_can_be_asked_of_nobody() -> None:
    sim, author = told_as_missed_by_all()
    sim.kill([author])
    assert undelivered(sim.watch, sim.alive) is None


def test_but_it_must_be_had_if_one_survivor_has_it() -> None:
    sim, author = told_as_missed_by_all()
    sim.kill([author])
    sim.watch.heard[sim.nodes[1]][author.peer.me.peer] = Heard(1, 1)
    problem = undelivered(sim.watch, sim.alive)
    assert problem is not None
    assert str(sim.nodes[2]) in problem[1]
