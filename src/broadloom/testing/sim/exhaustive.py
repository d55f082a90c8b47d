"""Every order of joining, leaving and dying among a few peers.

Small fabrics have the most special cases (all linked to all, a founder left alone, a hole that nobody can fill), and
they are small enough to try everything that can happen to them. All peers live on one host, as when somebody tries
Broadloom out: whoever is left can always be found there, and a port that was freed is taken by another peer.
"""

import multiprocessing
import sys
from collections.abc import Iterator
from enum import Enum

from broadloom.protocol import Tuning
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.wire import Address

HOST = "h0"
BACK_TO_BACK_S = 0.3
"""In a hurry, the next operation follows within this time: before the last one was dealt with."""
CONVERGENCE_TIMEOUT_S = 60.0


class MembershipOp(Enum):
    """What happens to a channel; to whom is left to the seed."""

    JOIN = "j"
    LEAVE = "l"
    DIE = "d"


OpSequence = tuple[MembershipOp, ...]


def all_sequences(length: int, peers_max: int) -> Iterator[OpSequence]:
    """All sequences of so many operations that keep between one and `peers_max` peers, beginning with one."""

    def longer(begun: OpSequence, alive: int) -> Iterator[OpSequence]:
        if len(begun) == length:
            yield begun
            return
        if alive < peers_max:
            yield from longer((*begun, MembershipOp.JOIN), alive + 1)
        if alive > 1:
            for operation in (MembershipOp.LEAVE, MembershipOp.DIE):
                yield from longer((*begun, operation), alive - 1)

    yield from longer((), 1)


def format_order(sequence: OpSequence) -> str:
    """A sequence as a short word, for the name of a test."""
    return "".join(operation.value for operation in sequence)


def parse_order(word: str) -> OpSequence:
    """The sequence that a word spells."""
    return tuple(MembershipOp(letter) for letter in word)


def run_order(
    sequence: OpSequence,
    seed: int,
    degree: int = 4,
    converge_between: bool = True,
    mode: DisseminationMode = DisseminationMode.MIXED,
) -> Simulation:
    """Let it happen, with traffic before and after each operation; PromiseBroken if a promise does not hold.

    Calm: after each operation the fabric comes to rest. Else the next one follows at once, and it rests at the end.
    """
    sim = Simulation(seed, SimulationSettings(peer=mode.apply_to(Tuning(degree=degree))))
    try:
        _run_order(sim, sequence, converge_between)
    except AssertionError as violation:
        again = f"parse_order({format_order(sequence)!r}), {seed}, {degree=}, {converge_between=}, mode={mode}"
        violation.add_note(f"again: broadloom.testing.sim.exhaustive.run_order({again})")
        raise
    return sim


def _run_order(sim: Simulation, sequence: OpSequence, converge_between: bool) -> None:
    _join(sim)
    if not sim.run_until(lambda: bool(sim.members), CONVERGENCE_TIMEOUT_S):
        sim.checker.report_violation(4, None, "the first peer does not found the channel")
    for operation in sequence:
        _everyone_broadcasts(sim)
        _apply(sim, operation)
        _everyone_broadcasts(sim)
        if converge_between:
            sim.converge(CONVERGENCE_TIMEOUT_S)
        else:
            sim.run(BACK_TO_BACK_S * sim.random.random())
    _everyone_broadcasts(sim)
    sim.converge(CONVERGENCE_TIMEOUT_S)


def count_violations(length: int, jobs: int, peers_max: int = 8) -> tuple[int, int]:
    """Play every sequence of this length, calm and in a hurry, in every way of spreading; how many were played, and how
    many broke a promise."""
    work = [
        (format_order(sequence), calm, spread)
        for sequence in all_sequences(length, peers_max)
        for calm in (True, False)
        for spread in DisseminationMode
    ]
    failed = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for problem in pool.imap_unordered(_run_job, work, chunksize=16):
            if problem is not None:
                failed += 1
                print(problem, file=sys.stderr)
    return len(work), failed


def _run_job(job: tuple[str, bool, DisseminationMode]) -> str | None:
    word, calm, spread = job
    try:
        run_order(parse_order(word), seed=1, converge_between=calm, mode=spread)
    except AssertionError as violation:
        return "\n  ".join((str(violation), *violation.__notes__))
    return None


def _join(sim: Simulation) -> None:
    sim.add(host=HOST, bootstrap=(Address(HOST, 0),))


def _apply(sim: Simulation, operation: MembershipOp) -> None:
    match operation:
        case MembershipOp.JOIN:
            _join(sim)
        case MembershipOp.LEAVE:
            sim.leave(sim.random.sample(_removable_nodes(sim), 1))
        case MembershipOp.DIE:
            sim.kill(sim.random.sample(_removable_nodes(sim), 1))


def _removable_nodes(sim: Simulation) -> list[SimNode]:
    """Whoever is on its way out already cannot go once more, and somebody must stay."""
    return [node for node in sim.alive if node.peer.is_present]


def _everyone_broadcasts(sim: Simulation) -> None:
    for node in sim.members:
        sim.broadcast(node, b"hello")
