"""When being told that a message was missed, before retention is over, breaks a promise: if anybody could give it."""

import pytest

from weft.fabric.events import Missed
from weft.fabric.retention import Kept
from weft.sim.node import Node
from weft.sim.simulation import Simulation
from weft.sim.watch import PromiseBroken


def said_to_nobody() -> tuple[Simulation, Node, Missed]:
    """An author that has just spoken, and not been heard yet."""
    sim = Simulation(1)
    for _ in range(5):
        sim.add()
        sim.run(0.5)
    sim.settle(60)
    author = sim.alive[0]
    sim.broadcast(author, b"the first")
    return sim, author, Missed(author.peer.me.peer, 1, 1)


def test_the_author_lives() -> None:
    sim, _, missed = said_to_nobody()
    with pytest.raises(PromiseBroken, match=r"promise 2.* s old"):
        sim.watch.missed(sim.alive[1], missed)


def test_another_was_given_it() -> None:
    sim, author, missed = said_to_nobody()
    sim.run(5)
    sim.kill([author])
    one, *_ = sim.alive
    del sim.watch.heard[one][missed.author]
    with pytest.raises(PromiseBroken, match=r"promise 2.* s old"):
        sim.watch.missed(one, missed)


def test_another_keeps_it_and_has_not_given_it_to_anybody() -> None:
    sim, author, missed = said_to_nobody()
    sim.kill([author])
    one, other, *_ = sim.alive
    other.peer.stream.retention.add(Kept(missed.author, 1, 1, b"frame", 1, 0, sim.clock.now))
    with pytest.raises(PromiseBroken, match=r"promise 2.* s old"):
        sim.watch.missed(one, missed)


def test_it_died_with_its_author() -> None:
    sim, author, missed = said_to_nobody()
    sim.kill([author])
    sim.watch.missed(sim.alive[0], missed)
