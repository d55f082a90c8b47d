"""Expected deliveries of living, departed and crashed authors, checked on handmade logs."""

from broadloom.protocol.events import LinkDownReason
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


def test_message_that_no_other_member_had_when_its_author_left_is_no_violation() -> None:
    """It was sent before the other members of this part of the fabric joined; another part has heard of it."""
    sim = Simulation(1)
    author, neighbor, other = (sim.add_peer() for _ in range(3))
    sim.converge(60)
    sim.run_for(60)  # a stable period: no link was lost
    checker, author_id = sim.checker, author.peer.me.peer_id
    checker.connected_at[other] = sim.clock.now
    checker.on_sent(author, 1, b"data")
    sim.run_for(1)
    checker.connected_at[author] = checker.connected_at[neighbor] = sim.clock.now
    for node in (author, neighbor):
        link = node.peer.links.get(other.peer.me.peer_id)
        assert link is not None
        link.close(LinkDownReason.REWIRED)
    checker.on_sent(author, 2, b"data")
    sim.leave([author])
    sim.run_for(5)
    checker.author_logs[neighbor] = {author_id: AuthorLog(2, 2)}
    checker.author_logs[other] = {author_id: AuthorLog(1, 2, [(1, 1)])}
    assert find_undelivered(checker, sim.alive) is None
    checker.author_logs[other] = {author_id: AuthorLog(1, 2, [(2, 2)])}
    assert find_undelivered(checker, sim.alive) is not None
