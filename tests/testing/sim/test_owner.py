"""What the owner signs holds in simulations: cards, revoked tickets and quotas, through kills, partitions and joins."""

from typing import Any

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.protocol.owner import meter, quotas
from broadloom.protocol.owner.card import CardState, Quota
from broadloom.protocol.owner.documents import OwnerDocuments, VerifiedDocument
from broadloom.protocol.owner.owner import Owner
from broadloom.protocol.requests.incoming import IncomingRequest
from broadloom.protocol.requests.outgoing import Outcome, OutcomeKind
from broadloom.testing.sim import steps
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.owner import OUT_S, SimOwner
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.testing.sim.state_traffic import SimProgram
from broadloom.testing.sim.step_checker import GuaranteeViolation
from broadloom.wire.owner_messages import OwnerDocumentKind
from broadloom.wire.state_messages import CHUNK_BYTES_MAX

PER_S = 4.0
QUOTAS = {"producer": Quota(messages_per_s=PER_S, bytes_per_s=200_000)}
CUT_WITHIN_S = 15.0


def owned(seed: int, peers: int, *, roster: bool = True, **peer: Any) -> tuple[Simulation, SimOwner, steps.Run]:
    settings = SimulationSettings(peer=Tuning(**peer), signed=True, roster=roster, owner=True)
    simulation = Simulation(seed, settings)
    assert simulation.owner is not None
    run = steps.Run(simulation, peers)
    steps.grow(run)
    return simulation, simulation.owner, run


def numbers(simulation: Simulation, kind: OwnerDocumentKind) -> set[int]:
    return {node.peer.owner.documents.number(kind) for node in simulation.members if not node.is_hostile}


def revocation_run(*, stubborn: bool) -> None:
    simulation, owner, _ = owned(1, 12)
    simulation.set_traffic(5)
    victim = simulation.nodes[7]
    owner.revoke(simulation.nodes[2], [victim], stubborn=stubborn)
    simulation.run_for(OUT_S)
    owner.check_out(victim)
    assert victim.is_alive == stubborn  # the other one got `Rejected`
    if stubborn:
        victim.kill()
    simulation.check()


@pytest.mark.parametrize("stubborn", [False, True])
def test_revoked_member_is_out_everywhere_within_ten_seconds(stubborn: bool) -> None:
    revocation_run(stubborn=stubborn)


def test_documents_of_the_other_side_arrive_when_a_partition_heals() -> None:
    simulation, owner, _ = owned(2, 16)
    here = simulation.nodes[:8]
    simulation.partition(here)
    simulation.run_for(12)
    owner.publish_card(here[0], text="first")
    owner.publish_card(simulation.nodes[12], text="second")
    owner.revoke(here[1], [simulation.nodes[15]])
    simulation.run_for(5)
    assert {node.peer.owner.documents.number(OwnerDocumentKind.CARD) for node in here} == {1}
    simulation.heal()
    simulation.check()
    assert numbers(simulation, OwnerDocumentKind.CARD) == {2}
    assert numbers(simulation, OwnerDocumentKind.REVOCATION_LIST) == {3}


def test_closed_card_makes_all_members_leave_and_newcomers_learn_it() -> None:
    simulation, owner, _ = owned(3, 16)
    owner.publish_card(simulation.nodes[4], state=CardState.CLOSED, text="done")
    simulation.run_for(1)
    assert {node.peer.state for node in simulation.alive} == {PeerState.LEAVING}
    newcomer = simulation.add_peer(bootstrap=tuple(node.address for node in simulation.nodes[:3]))
    simulation.run_for(1)
    assert newcomer.peer.owner.is_closed
    assert newcomer.peer.state is not PeerState.CONNECTED
    simulation.run_for(5)
    assert not simulation.alive


def test_without_documents_nothing_is_sent() -> None:
    frames = []
    for is_owned in (False, True):
        settings = SimulationSettings(signed=True, owner=is_owned)
        simulation = Simulation(4, settings)
        steps.grow(steps.Run(simulation, 12))
        simulation.run_for(30)
        frames.append((simulation.network.frames_sent, simulation.network.bytes_sent))
    assert frames[0] == frames[1]


def faulty_run(seed: int, peers: int = 10, duration_s: float = 20.0) -> None:
    """Cards, revocations and traffic at the limit of the quota, under random faults."""
    simulation, owner, run = owned(seed, peers)
    random = simulation.random
    simulation.set_traffic(10 * PER_S, simulation.nodes[:4])  # more than the quotas allow: these authors wait
    end = simulation.clock.now + duration_s
    while simulation.clock.now < end:
        steps.random_faults(run, duration_s=duration_s / 4)
        honest = [node for node in simulation.members if not node.is_hostile and not node.is_paused]
        if len(honest) > peers // 2 and random.random() < 0.5:
            owner.revoke(*_publisher_and_victims(simulation, honest))
        elif honest:
            owner.publish_card(random.choice(honest), quotas=QUOTAS)
    simulation.check(90)
    simulation.run_for(OUT_S)
    for node in simulation.nodes:
        if node.is_hostile:
            owner.check_out(node)


def _publisher_and_victims(simulation: Simulation, honest: list[SimNode]) -> tuple[SimNode, list[SimNode]]:
    publisher, victim = simulation.random.sample(honest, 2)
    return publisher, [victim]


@pytest.mark.parametrize("seed", [1, 2, 3, 250])
def test_documents_and_quotas_hold_under_faults(seed: int) -> None:
    faulty_run(seed)


# -- quotas


def delays_ms(seed: int, offender_per_s: float, peers: int = 12) -> tuple[list[float], Simulation, SimNode, float]:
    """The delays of all messages of honest authors while another one ignores its quota, or does not."""
    simulation, owner, _ = owned(seed, peers, roster=False)
    owner.publish_card(simulation.nodes[0], quotas=QUOTAS)
    offender = simulation.nodes[9]
    simulation.run_for(meter.GRACE_S + 1)
    found: list[float] = []
    for node in simulation.nodes:
        node.on_message = lambda message: found.append(
            1000 * (simulation.clock.now - simulation.checker.sent_at[message.author][message.sequence - 1])
            if message.author != offender.peer.me.peer_id
            else -1.0
        )
    authors = [node for node in simulation.nodes if node is not offender]
    simulation.set_traffic(10, authors)
    simulation.run_for(2)
    began = simulation.clock.now
    if offender_per_s:
        owner.offend(offender, offender_per_s)
    simulation.run_for(18)
    return sorted(each for each in found if each >= 0), simulation, offender, began


def test_author_far_over_its_quota_is_slowed_cut_and_named_and_others_are_not_harmed() -> None:
    calm, _, _, _ = delays_ms(5, 0)
    found, simulation, offender, began = delays_ms(5, 10 * PER_S)
    assert simulation.owner is not None
    cuts = simulation.owner.cut_at[offender.peer.me.peer_id]
    assert cuts[0] - began <= CUT_WITHIN_S
    assert not len(offender.peer.links)
    assert sum(node.peer.counters.quota_held for node in simulation.members) > 0
    assert _p99(found) <= 1.2 * _p99(calm)
    simulation.set_traffic(0)
    offender.kill()
    simulation.check()


def _p99(delays: list[float]) -> float:
    return delays[int(0.99 * len(delays))]


def offender_run(seed: int) -> None:
    found, simulation, offender, began = delays_ms(seed, 10 * PER_S, 24)
    assert simulation.owner is not None
    assert simulation.owner.cut_at[offender.peer.me.peer_id][0] - began <= CUT_WITHIN_S
    assert not len(offender.peer.links)
    assert _p99(found) <= 1.2 * _p99(delays_ms(seed, 0, 24)[0])


@pytest.mark.long
def test_offender_is_cut_among_many() -> None:
    offender_run(10)


def quota_run() -> None:
    """What an author sent during a partition arrives at once when it heals."""
    simulation, owner, _ = owned(6, 8, roster=False)
    owner.publish_card(simulation.nodes[0], quotas=QUOTAS)
    simulation.set_traffic(4 * PER_S, simulation.nodes[:2])
    simulation.run_for(meter.GRACE_S + 3)
    simulation.partition(simulation.nodes[:4])
    simulation.run_for(30)
    simulation.heal()
    simulation.run_for(10)
    simulation.check()
    assert all(not node.peer.counters.quota_held for node in simulation.nodes)


def test_author_at_its_quota_is_not_harmed_by_a_partition() -> None:
    quota_run()


# -- direct requests

LAYER = 0x7A7A
REQUESTS_PER_S = 20


def with_request_quota(seed: int, quota: Quota) -> tuple[Simulation, list[SimNode]]:
    """Three members under a card, after the grace period."""
    simulation, owner, _ = owned(seed, 3)
    owner.publish_card(simulation.nodes[0], quotas={"producer": quota})
    simulation.run_for(meter.GRACE_S + 1)
    return simulation, simulation.nodes


def refused_requests(simulation: Simulation) -> int:
    return sum(node.peer.counters.quota_refused_requests for node in simulation.nodes)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_layer_with_more_one_way_messages_than_the_quota_is_paced_and_not_cut_off(seed: int) -> None:
    simulation, (sequencer, voter, third) = with_request_quota(seed, Quota(requests_per_s=REQUESTS_PER_S))
    taken: list[bytes] = []
    replies: list[Outcome] = []

    def take(incoming: IncomingRequest) -> None:
        taken.append(incoming.data)
        incoming.reply(b"yes")
        incoming.done()

    for node in (sequencer, third):
        node.peer.requests.handlers.set(LAYER, take, 64)
    duration_s, rate = 30, 3 * REQUESTS_PER_S
    for number in range(duration_s * rate):
        voter.peer.requests.request(
            sequencer.peer.me.peer_id, b"ack", 5.0, lambda _outcome: None, layer=LAYER, is_tell=True
        )
        if number % rate == 0:
            voter.peer.requests.request(third.peer.me.peer_id, b"question", 2.0, replies.append, layer=LAYER)
        simulation.run_for(1 / rate)
    simulation.run_for(3)
    assert not refused_requests(simulation)
    assert len(taken) >= duration_s * REQUESTS_PER_S
    assert [outcome.kind for outcome in replies] == [OutcomeKind.REPLIED] * duration_s, "the others have their turn"


def test_member_that_may_send_one_request_in_twenty_seconds_is_not_refused() -> None:
    simulation, (caller, callee, _) = with_request_quota(5, Quota(requests_per_s=1 / 20))
    callee.peer.requests.handlers.set(LAYER, lambda incoming: incoming.reply(b"yes"), 64)
    replies: list[Outcome] = []
    for _ in range(5):
        caller.peer.requests.request(callee.peer.me.peer_id, b"?", 120.0, replies.append, layer=LAYER)
    simulation.run_for(100)
    assert [outcome.kind for outcome in replies] == [OutcomeKind.REPLIED] * 5


def test_newcomer_fetches_state_of_many_chunks_within_its_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    make, chunks = SimProgram._make, 24
    padding = b"".join(b" " * number + b"\n" + b" " * (CHUNK_BYTES_MAX - number - 1) for number in range(chunks))
    monkeypatch.setattr(SimProgram, "_make", lambda program: make(program) + padding)
    simulation, _ = with_request_quota(4, Quota(requests_per_s=2, burst_s=1))
    simulation.state_traffic.start()
    simulation.run_for(25)
    assert simulation.state_traffic.fetched == [True, True]
    assert not refused_requests(simulation)


# -- the checks can fail


def accept_any_number(self: OwnerDocuments, document: VerifiedDocument) -> bool:
    self._known[document.kind] = document
    self._on_adopted(document)
    return True


def test_checker_notices_a_peer_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, owner, _ = owned(1, 6)
    old = owner.revoke(simulation.nodes[1], [])
    owner.revoke(simulation.nodes[1], [])
    simulation.run_for(1)
    monkeypatch.setattr(OwnerDocuments, "_adopt", accept_any_number)
    with pytest.raises(GuaranteeViolation, match="went back to number 1"):
        simulation.nodes[3].peer.owner.documents.offer(OwnerDocumentKind.REVOCATION_LIST, old)


def charge_by_arrival(self: meter.AuthorMeter, first: int, last: int, size: int, *times: float) -> float:
    _, age_s, now = times
    return CHARGE(self, first, last, size, now, age_s, now)


CHARGE = meter.AuthorMeter.charge
MUTANTS: dict[str, tuple[object, str, object, str]] = {
    "revoked links stay": (Owner, "_close_links", lambda self: None, "has a link to"),
    "documents are not passed on": (OwnerDocuments, "on_notice", lambda self, link, notice: None, "revoked 10 s ago"),
    "the quota is smaller than on the card": (meter, "TOLERANCE", 0.3, "held back a frame of peer"),
    "time counts as messages arrive": (meter.AuthorMeter, "charge", charge_by_arrival, "held back a frame of peer"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_checker_notices_a_mutant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, name, replacement, text = MUTANTS[mutant]
    monkeypatch.setattr(target, name, replacement)
    with pytest.raises(GuaranteeViolation, match=text):
        quota_run() if target in (meter, meter.AuthorMeter) else revocation_run(stubborn=True)


def test_offender_is_not_cut_by_a_mutant_without_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "AHEAD_S_MAX", float("inf"))
    _, simulation, offender, _ = delays_ms(5, 10 * PER_S)
    assert simulation.owner is not None
    assert not simulation.owner.cut_at
    assert len(offender.peer.links)
