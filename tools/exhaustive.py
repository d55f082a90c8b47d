"""Every sequence of joins, leaves and crashes among a few peers.

Small fabrics have the most special cases (full mesh, a lone creator, a slot that no peer can fill) and are small enough
to try everything. All peers share one host, so the remaining ones can always be found, and a new peer takes a port that
another has freed.
"""

from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import product

from broadloom.protocol import Tuning
from broadloom.testing.sim.dissemination import DisseminationMode
from broadloom.testing.sim.node import SimNode
from broadloom.testing.sim.simulation import Simulation, SimulationSettings
from broadloom.wire import Address

HOST = "h0"
LENGTH = 8
PEERS_MAX = 8
BACK_TO_BACK_S = 0.3
"""Without convergence in between, the next operation follows within this time."""
CONVERGENCE_TIMEOUT_S = Tuning().alert_s + 15.0
"""As long as peers are on alert after a crash, they wait for messages that no neighbor ever had: a member in another
partition may have them."""


class MembershipOp(Enum):
    """What happens; the seed decides to which peer."""

    JOIN = "j"
    LEAVE = "l"
    CRASH = "d"


OpSequence = tuple[MembershipOp, ...]


def all_sequences(length: int, peers_max: int) -> Iterator[OpSequence]:
    """Yield all sequences of this length that keep between one and `peers_max` peers, starting with one."""

    def extend(prefix: OpSequence, alive: int) -> Iterator[OpSequence]:
        if len(prefix) == length:
            yield prefix
            return
        if alive < peers_max:
            yield from extend((*prefix, MembershipOp.JOIN), alive + 1)
        if alive > 1:
            for operation in (MembershipOp.LEAVE, MembershipOp.CRASH):
                yield from extend((*prefix, operation), alive - 1)

    yield from extend((), 1)


def format_order(sequence: OpSequence) -> str:
    """Spell a sequence as a short word, such as `jjl`."""
    return "".join(operation.value for operation in sequence)


def parse_order(word: str) -> OpSequence:
    return tuple(MembershipOp(letter) for letter in word)


def run_order(
    sequence: OpSequence,
    seed: int,
    degree: int = 4,
    converge_between: bool = True,
    mode: DisseminationMode = DisseminationMode.MIXED,
) -> Simulation:
    """Run a sequence with traffic around each operation; raise `GuaranteeViolation` if a guarantee does not hold.

    With `converge_between`, the fabric converges after each operation; otherwise only at the end.
    """
    sim = Simulation(seed, SimulationSettings(peer=mode.apply_to(Tuning(degree=degree))))
    try:
        _run_order(sim, sequence, converge_between)
    except AssertionError as violation:
        arguments = f"parse_order({format_order(sequence)!r}), {seed}, {degree=}, {converge_between=}, mode={mode}"
        violation.add_note(f"replay: tools.exhaustive.run_order({arguments})")
        raise
    return sim


def _run_order(sim: Simulation, sequence: OpSequence, converge_between: bool) -> None:
    _join(sim)
    if not sim.run_until(lambda: bool(sim.members), CONVERGENCE_TIMEOUT_S):
        sim.checker.report_violation(4, None, "the first peer has not founded the channel")
    for operation in sequence:
        _broadcast_from_all(sim)
        _apply(sim, operation)
        _broadcast_from_all(sim)
        if converge_between:
            sim.converge(CONVERGENCE_TIMEOUT_S)
        else:
            sim.run_for(BACK_TO_BACK_S * sim.random.random())
    _broadcast_from_all(sim)
    sim.converge(CONVERGENCE_TIMEOUT_S)


@cache
def _cases() -> list[tuple[OpSequence, bool, DisseminationMode]]:
    """Every sequence of `LENGTH` in every mode, with and without convergence in between."""
    return list(product(all_sequences(LENGTH, PEERS_MAX), (True, False), DisseminationMode))


def case_count() -> int:
    return len(_cases())


def run_seed(seed: int) -> None:
    """The first seeds, from 1, run each case once; those after them run it with other random choices."""
    turn, index = divmod(seed - 1, case_count())
    sequence, converge_between, mode = _cases()[index]
    run_order(sequence, turn + 1, converge_between=converge_between, mode=mode)


def _join(sim: Simulation) -> None:
    sim.add_peer(host=HOST, bootstrap=(Address(HOST, 0),))


def _apply(sim: Simulation, operation: MembershipOp) -> None:
    match operation:
        case MembershipOp.JOIN:
            _join(sim)
        case MembershipOp.LEAVE:
            sim.leave(sim.random.sample(_removable_nodes(sim), 1))
        case MembershipOp.CRASH:
            sim.kill(sim.random.sample(_removable_nodes(sim), 1))


def _removable_nodes(sim: Simulation) -> list[SimNode]:
    return [node for node in sim.alive if node.peer.is_present]


def _broadcast_from_all(sim: Simulation) -> None:
    for node in sim.members:
        node.broadcast(b"hello")
