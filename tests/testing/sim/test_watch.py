"""When being told that a message was missed, before retention is over, breaks a promise: if anybody could give it."""

import pytest

from broadloom.protocol.broadcast.retention import RetainedFrame
from broadloom.protocol.events import Missed
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation
from broadloom.testing.sim.step_checker import GuaranteeViolation


def sent_but_undelivered() -> tuple[Simulation, SimNode, Missed]:
    """An author that has just spoken, and not been heard yet."""
    sim = Simulation(1)
    for _ in range(5):
        sim.add()
        sim.run(0.5)
    sim.converge(60)
    author = sim.alive[0]
    sim.broadcast(author, b"the first")
    return sim, author, Missed(author.peer.me.peer_id, 1, 1)


def test_the_author_lives() -> None:
    sim, _, missed = sent_but_undelivered()
    with pytest.raises(GuaranteeViolation, match=r"promise 2.* s old"):
        sim.checker.on_missed(sim.alive[1], missed)


def test_another_was_given_it() -> None:
    sim, author, missed = sent_but_undelivered()
    sim.run(5)
    sim.kill([author])
    one, *_ = sim.alive
    del sim.checker.author_logs[one][missed.author]
    with pytest.raises(GuaranteeViolation, match=r"promise 2.* s old"):
        sim.checker.on_missed(one, missed)


def test_another_keeps_it_and_has_not_given_it_to_anybody() -> None:
    sim, author, missed = sent_but_undelivered()
    sim.kill([author])
    one, other, *_ = sim.alive
    other.peer.broadcaster.retention.add(RetainedFrame(missed.author, 1, 1, b"frame", 1, 0, sim.clock.now))
    with pytest.raises(GuaranteeViolation, match=r"promise 2.* s old"):
        sim.checker.on_missed(one, missed)


def test_it_died_with_its_author() -> None:
    sim, author, missed = sent_but_undelivered()
    sim.kill([author])
    sim.checker.on_missed(sim.alive[0], missed)
