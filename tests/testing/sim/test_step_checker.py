"""A message reported as missed within its retention time violates guarantee 2 if any peer has it."""

import pytest

from broadloom.protocol.broadcast.retention import RetainedFrame
from broadloom.protocol.events import Message, Missed
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import Run, grow


def sent_but_undelivered() -> tuple[Simulation, SimNode, Missed]:
    """Return an author that has sent a message which no peer has received yet."""
    sim = Simulation(1)
    for _ in range(5):
        sim.add_peer()
        sim.run_for(0.5)
    sim.converge(60)
    author = sim.alive[0]
    author.broadcast(b"the first")
    return sim, author, Missed(author.peer.me.peer_id, 1, 1)


def test_early_missed_report_is_a_violation_if_author_lives() -> None:
    sim, _, missed = sent_but_undelivered()
    with pytest.raises(GuaranteeViolation, match=r"guarantee 2.* s old"):
        sim.checker.on_missed(sim.alive[1], missed)


def test_early_missed_report_is_a_violation_if_another_peer_received_it() -> None:
    sim, author, missed = sent_but_undelivered()
    sim.run_for(5)
    sim.kill([author])
    one, *_ = sim.alive
    del sim.checker.author_logs[one][missed.author]
    with pytest.raises(GuaranteeViolation, match=r"guarantee 2.* s old"):
        sim.checker.on_missed(one, missed)


def test_early_missed_report_is_a_violation_if_another_peer_retains_it() -> None:
    sim, author, missed = sent_but_undelivered()
    sim.kill([author])
    one, other, *_ = sim.alive
    other.peer.broadcaster.retention.add(RetainedFrame(missed.author, 1, 1, b"frame", 1, 0, sim.clock.now))
    with pytest.raises(GuaranteeViolation, match=r"guarantee 2.* s old"):
        sim.checker.on_missed(one, missed)


def test_early_missed_report_is_a_violation_unless_the_peer_is_eclipsed() -> None:
    sim, _, missed = sent_but_undelivered()
    victim, *others = sim.alive[1:]
    for each in others[:2]:
        each.is_hostile = True
    with pytest.raises(GuaranteeViolation, match=r"guarantee 2.* s old"):
        sim.checker.on_missed(victim, missed)
    del sim.checker.author_logs[victim][missed.author]
    others[2].is_hostile = True
    sim.checker.on_missed(victim, missed)
    assert (victim, missed) in sim.checker.eclipsed


def test_early_missed_report_is_allowed_if_message_died_with_author() -> None:
    sim, author, missed = sent_but_undelivered()
    sim.kill([author])
    sim.checker.on_missed(sim.alive[0], missed)


def test_delivery_to_a_newcomer_of_an_earlier_message_is_a_violation() -> None:
    sim, author, missed = sent_but_undelivered()
    sim.run_for(5)
    newcomer = sim.add_peer()
    with pytest.raises(GuaranteeViolation, match=r"guarantee 3.* before it was connected"):
        sim.checker.on_delivered(newcomer, Message(missed.author, 1, b"the first", 1))
    assert sim.run_until(lambda: newcomer.is_connected, 60)
    with pytest.raises(GuaranteeViolation, match=r"guarantee 3.* s before it was connected"):
        sim.checker.on_delivered(newcomer, Message(missed.author, 1, b"the first", 1))
    with pytest.raises(GuaranteeViolation, match=r"guarantee 3.* s before it was connected"):
        sim.checker.on_missed(newcomer, missed)
    author.broadcast(b"the second")
    sim.run_for(5)
    assert [(each.author, each.sequence) for each in newcomer.received] == [(missed.author, 2)]


def test_undelivered_message_is_a_violation_in_each_part_that_hostile_members_separate() -> None:
    sim = Simulation(1)
    grow(Run(sim, 12))
    sim.quiesce(60)
    victim = sim.alive[0]
    near = [node for node in sim.alive if victim.peer.me.peer_id in node.peer.links.neighbors]
    author, other, *_ = (node for node in sim.alive[1:] if node not in near)
    author.broadcast(b"data")
    sim.run_for(5)
    logs = sim.checker.author_logs
    del logs[victim][author.peer.me.peer_id]
    for node in near[1:]:
        node.is_hostile = True
    assert f"{victim} has not received" in str(sim.convergence_problems(in_parts=True))
    near[0].is_hostile = True
    assert f"{victim} has not received" in str(sim.convergence_problems())
    assert sim.convergence_problems(in_parts=True) is None
    assert sim.converge(1) >= 1
    assert sim.is_separated
    del logs[other][author.peer.me.peer_id]
    assert f"{other} has not received" in str(sim.convergence_problems(in_parts=True))
