"""Rosters in the simulator: right at rest, no false loss, quick detection, silent while nothing changes."""

from collections import Counter

import pytest

from broadloom.protocol.events import Event
from broadloom.protocol.link import Link
from broadloom.protocol.roster.graph import MemberGraph
from broadloom.protocol.roster.member import LossCause, MemberJoined, MemberLost, Merged, Partitioned
from broadloom.protocol.roster.records import MemberState, RecordVerifier
from broadloom.protocol.roster.sync import RosterSync
from broadloom.testing.sim.network import SimConnection
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.roster_checker import GONE_S
from broadloom.testing.sim.scenario import load
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import Run, converge, grow, random_faults
from broadloom.wire import PeerId
from broadloom.wire.roster_messages import RosterBuckets, RosterRecords, RosterVersions, RosterWant

ROSTER_NUMBERS = {kind.number for kind in (RosterRecords, RosterBuckets, RosterVersions, RosterWant)}


def grown(peers: int, seed: int = 1) -> Simulation:
    simulation = Simulation(seed, SimulationSettings(roster=True, keep_received=False))
    grow(Run(simulation, peers))
    simulation.quiesce(120)
    return simulation


def count_frames(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Frames by message number, from now on."""
    counted: Counter[int] = Counter()
    transmit = SimConnection._transmit

    def counting(connection: SimConnection, frame: bytes | None) -> None:
        if frame is not None:
            counted[frame[7]] += 1
        transmit(connection, frame)

    monkeypatch.setattr(SimConnection, "_transmit", counting)
    return counted


@pytest.mark.parametrize(
    ("scenario", "peers"), [("kill", 24), ("partition", 16), ("pause", 12), ("random-faults", 12), ("join-storm", 30)]
)
def test_rosters_are_right_after_faults(scenario: str, peers: int) -> None:
    run = load(scenario).with_roster().run(1, peers)
    checker = run.simulation.roster_checker
    assert checker is not None
    assert checker.losses or scenario == "join-storm"


@pytest.mark.parametrize("scenario", ["kill", "random-faults"])
def test_liar_removes_no_honest_member_and_adds_no_record(scenario: str) -> None:
    load(scenario).with_roster().with_hostile(1).run(1, 12)


@pytest.mark.parametrize("members", range(2, 9))
def test_newcomer_receives_what_members_broadcast_when_it_joins(members: int) -> None:
    for seed in range(12):
        check_welcomes(seed, members)


def check_welcomes(seed: int, members: int) -> None:
    """Every member broadcasts a welcome as soon as it learns of another one."""
    simulation = Simulation(seed, SimulationSettings(roster=True))
    sent: list[tuple[PeerId, PeerId, int]] = []

    def welcome(node: SimNode, peer_id: PeerId) -> None:
        if node.is_connected:  # else `connect` has not returned
            sent.append((peer_id, node.peer.me.peer_id, node.broadcast(b"welcome")))

    def add_peer() -> None:
        node = simulation.add_peer()

        def on_event(event: Event) -> None:
            if isinstance(event, MemberJoined):
                node.call_later(0.0, welcome, node, event.member.peer_id)

        node.on_event = on_event

    for count in range(1, members + 1):
        add_peer()
        simulation.run_until(lambda: len(simulation.members) == count, 30)  # noqa: B023 - called at once
    simulation.run_for(3)
    received = {
        node.peer.me.peer_id: {(message.author, message.sequence) for message in node.received}
        for node in simulation.nodes
    }
    assert len(sent) >= members * (members - 1) / 2
    lost = [(author, to) for to, author, sequence in sent if (author, sequence) not in received[to]]
    assert not lost, f"seed {seed}: {len(lost)} of {len(sent)} welcomes"


def run_faults(seed: int, peers: int, hostile: int = 0) -> None:
    """Members are killed, leave, are frozen, split and added, often before the fabric has recovered."""
    settings = SimulationSettings(
        roster=True, signed=hostile > 0, hostile_count=hostile, bootstrap_count=8, keep_received=False
    )
    run = Run(Simulation(seed, settings), peers)
    grow(run, batch_fraction=1.0)
    random_faults(run, duration_s=20, interval_s=1.5)
    converge(run, timeout_s=150)


def run_seed(seed: int) -> None:
    """Eight to fifteen members; in every fourth history one of them is hostile."""
    run_faults(seed, 8 + seed % 8, hostile=seed % 4 == 0)


@pytest.mark.parametrize("hostile", [0, 1])
def test_rosters_are_right_after_random_faults(hostile: int) -> None:
    for seed in range(6):
        run_faults(seed, 8, hostile)


@pytest.mark.long
@pytest.mark.parametrize("hostile", [0, 1])
@pytest.mark.parametrize("scenario", ["kill-hosts", "partition", "asymmetric-partition", "pause", "random-faults"])
def test_rosters_are_right_after_each_scenario(scenario: str, hostile: int) -> None:
    chosen = load(scenario).with_roster()
    (chosen.with_hostile(hostile) if hostile else chosen).run(7, 16)


def test_loss_of_a_connected_member_is_a_violation_unless_it_is_eclipsed() -> None:
    simulation = grown(12)
    simulation.run_for(30)
    assert simulation.roster_checker is not None
    victim, *others = simulation.alive
    neighbors = [each for each in others if each.peer.me.peer_id in victim.peer.links.neighbors]
    observers = [each for each in others if each not in neighbors]
    for hostile, observer in zip(neighbors[:3], observers, strict=False):
        member = observer.peer.roster.get(victim.peer.me.peer_id)
        assert member is not None
        with pytest.raises(GuaranteeViolation, match="which is alive and connected"):
            simulation.roster_checker.on_event(observer, MemberLost(member, LossCause.DEAD))
        hostile.is_hostile = True
    member = observers[3].peer.roster.get(victim.peer.me.peer_id)
    assert member is not None
    simulation.roster_checker.on_event(observers[3], MemberLost(member, LossCause.DEAD))


def check_quiet_and_killed(simulation: Simulation, monkeypatch: pytest.MonkeyPatch, killed: int) -> None:
    simulation.run_for(30)  # until the last clusters are dissolved: new links are news
    counted = count_frames(monkeypatch)
    simulation.run_for(30)
    assert sum(counted[number] for number in ROSTER_NUMBERS) == 0
    victims = simulation.sample(killed)
    simulation.kill(victims)
    simulation.run_for(GONE_S)
    assert simulation.roster_checker is not None
    for node in victims:
        simulation.roster_checker.check_gone(node)


def test_nothing_is_sent_at_rest_and_a_killed_member_is_gone_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    check_quiet_and_killed(grown(50), monkeypatch, 1)


@pytest.mark.long
def test_forty_of_two_hundred_are_gone_from_every_roster_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = grown(200)
    check_quiet_and_killed(simulation, monkeypatch, 40)
    simulation.check()


def test_roster_of_a_newcomer_is_complete_only_when_slow_neighbors_have_sent_their_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_want, delay_s = RosterSync.on_want, 0.0

    def slow(sync: RosterSync, link: Link, message: RosterWant) -> None:
        sync._peer.runtime.call_later(delay_s, on_want, sync, link, message)

    monkeypatch.setattr(RosterSync, "on_want", slow)
    simulation, delay_s = grown(12), 0.5
    newcomer = simulation.add_peer()
    assert simulation.run_until(lambda: newcomer.peer.roster.is_complete, 10)
    assert len(newcomer.peer.roster.members()) == 13


@pytest.mark.parametrize("members", [2, 4, 7])
def test_roster_that_a_newcomer_gets_from_another_newcomer_is_not_complete(members: int) -> None:
    for seed in range(40):
        check_newcomers(seed, members)


def check_newcomers(seed: int, members: int) -> None:
    """Three programs join at once. A roster that is complete has all that were there before."""
    simulation = Simulation(seed, SimulationSettings(roster=True))
    grow(Run(simulation, members))
    simulation.quiesce(60)
    before = set(simulation.nodes[0].peer.roster.peer_ids())
    assert len(before) == members
    waiting = [simulation.add_peer() for _ in range(3)]
    deadline = simulation.clock.now + 10
    while waiting:
        assert simulation.clock.now < deadline, f"seed {seed}"
        simulation.run_for(0.005)
        for node in [each for each in waiting if each.peer.roster.is_complete]:
            missing = before.difference(node.peer.roster.peer_ids())
            assert not missing, f"seed {seed}: {len(missing)} of {members} are missing"
            waiting.remove(node)


@pytest.mark.parametrize("seed", [2, 11])
def test_partition_is_reported_once_on_each_side_and_merged(seed: int) -> None:
    """In these seeds some members have no neighbor on their own side at first, and others are lost a little later."""
    simulation = grown(24, seed)
    side = simulation.sample(8)
    events: dict[int, list[object]] = {node.number: [] for node in simulation.nodes}
    for node in simulation.nodes:
        node.on_event = events[node.number].append
    simulation.partition(side)
    simulation.run_for(20)
    simulation.heal()
    simulation.check()
    simulation.run_for(3)
    for node in simulation.nodes:
        others = {each.peer.me.peer_id for each in simulation.nodes if (each in side) != (node in side)}
        lost = [event for event in events[node.number] if isinstance(event, MemberLost)]
        assert others <= {event.member.peer_id for event in lost}
        assert all(event.cause is LossCause.UNREACHABLE for event in lost if event.member.peer_id in others)
        reports = [event for event in events[node.number] if isinstance(event, Partitioned | Merged)]
        for other in others:
            kinds = [type(event) for event in reports if other in {member.peer_id for member in event.members}]
            assert kinds == [Partitioned, Merged] * (len(kinds) // 2), "each once, and in turn if it was lost again"
            assert kinds


# The checks can fail.


def test_checker_finds_a_false_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = MemberGraph.edges
    simulation = grown(16)
    hidden = simulation.nodes[0].peer.me.peer_id

    def forgetful(graph: MemberGraph, peer_id: int) -> list[int]:
        return [each for each in edges(graph, peer_id) if hidden not in (each, peer_id)]

    monkeypatch.setattr(MemberGraph, "edges", forgetful)
    simulation.reset_connections(0.2)
    with pytest.raises(GuaranteeViolation, match="which is alive and connected"):
        simulation.run_for(30)


def test_checker_finds_a_record_that_its_member_did_not_sign() -> None:
    simulation = grown(8)
    node = simulation.nodes[3]
    victim = simulation.nodes[5].peer.me.peer_id
    known = node.peer.roster._known[victim]
    known.signed = known.signed._replace(record=known.signed.record + b"\0")
    with pytest.raises(GuaranteeViolation, match="did not sign"):
        simulation.check()


def test_checker_finds_unequal_rosters() -> None:
    simulation = grown(8)
    victim = simulation.nodes[5].peer.me.peer_id
    simulation.nodes[3].peer.roster._known[victim].state = MemberState.UNREACHABLE
    with pytest.raises(GuaranteeViolation, match=r"guarantee 9.*the roster of peer 3 does not have \[5\]"):
        simulation.check()


def test_without_signatures_a_liar_could_forge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would show nothing."""
    monkeypatch.setattr(RecordVerifier, "verify", lambda _self, _known, _peer_id, signed: signed)
    simulation = grown(8)
    liar, node = simulation.nodes[2], simulation.nodes[3]
    victim = simulation.nodes[5].peer.me.peer_id
    known = node.peer.roster._known[victim]
    forged = known.signed.record[:8] + (1 << 40).to_bytes(8, "big") + known.signed.record[16:]
    for link in liar.peer.links:
        link.send(RosterRecords((known.signed._replace(record=forged),)))
    simulation.run_for(1)
    with pytest.raises(GuaranteeViolation, match="did not sign"):
        simulation.check()
