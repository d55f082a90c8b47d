"""Receipts in the simulator: none claims what is not so (guarantee 10, checked at each), and at rest all members
confirm."""

import pytest

from broadloom.protocol.receipts.receipts import Receipt, Receipts
from broadloom.testing.sim.scenario import load
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.testing.sim.steps import Run, finish_receipts
from broadloom.wire.payload_kind import WANTS_RECEIPT

TIMEOUT_S = 10.0


def grown(seed: int, peers: int, *, hostile_count: int = 0) -> Simulation:
    settings = SimulationSettings(roster=True, signed=True, hostile_count=hostile_count, receipt_timeout_s=TIMEOUT_S)
    sim = Simulation(seed, settings)
    for _ in range(peers):
        sim.add_peer()
        sim.run_for(0.25)
    sim.converge(60)
    sim.run_for(5)
    return sim


@pytest.mark.parametrize("seed", range(1, 4))
def test_all_members_confirm_at_rest(seed: int) -> None:
    sim = grown(seed, 24)
    author = sim.members[3]
    started_at = sim.clock.now
    author.broadcast(b"is everybody there?", receipt_timeout_s=TIMEOUT_S)
    assert sim.run_until(lambda: bool(author.receipts), TIMEOUT_S)
    (receipt,) = author.receipts
    assert receipt.is_complete
    assert receipt.is_proven
    assert receipt.confirmed == {node.peer.me.peer_id for node in sim.members if node is not author}
    assert sim.clock.now - started_at < 1.0


@pytest.mark.parametrize("seed", range(1, 4))
def test_receipt_for_a_number_counts_members_that_the_roster_learns_of_later(seed: int) -> None:
    sim = grown(seed, 1)
    (author,) = sim.members
    newcomer = sim.add_peer()
    known: list[int] = []
    receipts: list[Receipt] = []

    def broadcast_at_once(_event: object) -> None:
        if newcomer.is_connected and not known:
            known.append(len(author.peer.roster.peer_ids()))
            sequence = author.broadcast(b"who has it?", kind=WANTS_RECEIPT)
            author.peer.receipts.open(author.peer.receipts.prepare(1), sequence, TIMEOUT_S, receipts.append)

    newcomer.on_event = broadcast_at_once
    assert sim.run_until(lambda: bool(receipts), 2 * TIMEOUT_S)
    assert known == [1]  # the author did not know of the newcomer yet
    assert receipts[0].is_complete
    assert receipts[0].confirmed == {newcomer.peer.me.peer_id}


def test_nothing_is_sent_for_messages_without_receipt() -> None:
    sim = grown(1, 12)
    sim.members[0].broadcast(b"no receipt")
    sim.run_for(5)
    assert all(not node.peer.reporter._authors for node in sim.members)


def test_killed_members_are_gone_and_the_others_confirm() -> None:
    sim = grown(2, 24)
    author, *others = sim.members
    killed = others[:6]
    sim.kill(killed)
    author.broadcast(b"who is left?", receipt_timeout_s=TIMEOUT_S)
    assert sim.run_until(lambda: bool(author.receipts), TIMEOUT_S)
    (receipt,) = author.receipts
    assert receipt.gone == {node.peer.me.peer_id for node in killed}
    assert not receipt.missing
    assert len(receipt.confirmed) == 17


def test_members_beyond_a_partition_are_missing_then_unreachable() -> None:
    sim = grown(3, 24)
    author = sim.members[0]
    sim.partition(0.5)
    author.broadcast(b"early", receipt_timeout_s=5.0)
    sim.run_for(20)
    author.broadcast(b"late", receipt_timeout_s=5.0)
    sim.run_for(6)
    early, late = author.receipts
    assert early.missing
    assert late.unreachable
    assert late.unreachable <= early.missing
    assert not late.missing
    assert not late.is_complete


@pytest.mark.parametrize("seed", range(1, 4))
def test_forged_reports_suppress_no_confirmation(seed: int) -> None:
    sim = grown(seed, 16, hostile_count=3)
    honest = [node for node in sim.members if not node.is_hostile]
    ids = {node.peer.me.peer_id for node in honest}
    for _ in range(3):
        for author in honest:
            author.broadcast(b"who has it?", receipt_timeout_s=TIMEOUT_S)
        sim.run_for(2)
    sim.run_for(TIMEOUT_S)
    for author in honest:
        assert [ids - receipt.confirmed for receipt in author.receipts] == 3 * [{author.peer.me.peer_id}]
    assert sum(node.peer.counters.bad_signatures for node in honest) > 0, "forged reports were sent"


def run_with_receipts(scenario: str, seed: int) -> None:
    run = load(scenario).with_receipts(TIMEOUT_S).run(seed, 12)
    finish_receipts(run, TIMEOUT_S)
    assert 0 < run.metrics["receipts"] > run.metrics["incomplete"]


@pytest.mark.parametrize(
    "scenario",
    ["kill", "partition", "receipts", *(pytest.param(each, marks=pytest.mark.long) for each in ("churn", "pause"))],
)
def test_receipts_claim_nothing_that_is_not_so_and_are_complete_at_rest(scenario: str) -> None:
    run_with_receipts(scenario, 1)


def test_receipt_without_a_member_that_has_the_message_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receipts, "on_report", lambda self, report, signed: None)
    with pytest.raises(GuaranteeViolation, match="members have a message, but"):
        finish_receipts(load("kill").with_receipts(TIMEOUT_S).run(1, 6))


def run_with_hostile_members(scenario: str, seed: int) -> Run:
    """Three hostile members can eclipse an honest one, and separate honest ones from each other, which the checks take
    into account."""
    return load(scenario).with_receipts(TIMEOUT_S).with_hostile(3).run(seed, 16)


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["kill", "partition"])
def test_receipts_are_true_among_hostile_members(scenario: str) -> None:
    run_with_hostile_members(scenario, 201)


@pytest.mark.long
def test_receipts_are_true_when_hostile_members_separate_honest_ones() -> None:
    run = load("partition").with_receipts(TIMEOUT_S).with_hostile(4).run(7, 12)
    assert run.simulation.is_separated


@pytest.mark.long
def test_receipts_are_true_when_both_neighbors_of_a_peer_are_hostile() -> None:
    run_with_hostile_members("partition", 400824)
