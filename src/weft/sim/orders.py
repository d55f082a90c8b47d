"""Every order of joining, leaving and dying among a few peers.

Small fabrics have the most special cases (all linked to all, a founder left alone, a hole that nobody can fill), and
they are small enough to try everything that can happen to them. All peers live on one host, as when somebody tries
Weft out: whoever is left can always be found there, and a port that was freed is taken by another peer.
"""

import multiprocessing
import sys
from collections.abc import Iterator
from enum import Enum

from weft.fabric import Settings
from weft.sim.node import Node
from weft.sim.simulation import SimSettings, Simulation
from weft.sim.spread import Spread
from weft.wire import Address

HOST = "h0"
HURRY_S = 0.3
"""In a hurry, the next operation follows within this time: before the last one was dealt with."""
SETTLE_S = 60.0


class Operation(Enum):
    """What happens to a channel; to whom is left to the seed."""

    JOIN = "j"
    LEAVE = "l"
    DIE = "d"


Sequence = tuple[Operation, ...]


def sequences(length: int, peers_max: int) -> Iterator[Sequence]:
    """All sequences of so many operations that keep between one and `peers_max` peers, beginning with one."""

    def longer(begun: Sequence, alive: int) -> Iterator[Sequence]:
        if len(begun) == length:
            yield begun
            return
        if alive < peers_max:
            yield from longer((*begun, Operation.JOIN), alive + 1)
        if alive > 1:
            for operation in (Operation.LEAVE, Operation.DIE):
                yield from longer((*begun, operation), alive - 1)

    yield from longer((), 1)


def spell(sequence: Sequence) -> str:
    """A sequence as a short word, for the name of a test."""
    return "".join(operation.value for operation in sequence)


def parse(word: str) -> Sequence:
    """The sequence that a word spells."""
    return tuple(Operation(letter) for letter in word)


def play(
    sequence: Sequence, seed: int, degree: int = 4, calm: bool = True, spread: Spread = Spread.MIXED
) -> Simulation:
    """Let it happen, with traffic before and after each operation; PromiseBroken if a promise does not hold.

    Calm: after each operation the fabric comes to rest. Else the next one follows at once, and it rests at the end.
    """
    sim = Simulation(seed, SimSettings(peer=spread.settings(Settings(degree=degree))))
    try:
        _play(sim, sequence, calm)
    except AssertionError as broken:
        again = f"parse({spell(sequence)!r}), {seed}, {degree=}, {calm=}, spread={spread}"
        broken.add_note(f"again: weft.sim.orders.play({again})")
        raise
    return sim


def _play(sim: Simulation, sequence: Sequence, calm: bool) -> None:
    _join(sim)
    if not sim.run_until(lambda: bool(sim.members), SETTLE_S):
        sim.watch.broken(4, None, "the first peer does not found the channel")
    for operation in sequence:
        _everyone_speaks(sim)
        _operate(sim, operation)
        _everyone_speaks(sim)
        if calm:
            sim.settle(SETTLE_S)
        else:
            sim.run(HURRY_S * sim.random.random())
    _everyone_speaks(sim)
    sim.settle(SETTLE_S)


def count_broken(length: int, jobs: int, peers_max: int = 8) -> tuple[int, int]:
    """Play every sequence of this length, calm and in a hurry, in every way of spreading; how many were played, and how
    many broke a promise."""
    work = [
        (spell(sequence), calm, spread)
        for sequence in sequences(length, peers_max)
        for calm in (True, False)
        for spread in Spread
    ]
    failed = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for problem in pool.imap_unordered(_problem, work, chunksize=16):
            if problem is not None:
                failed += 1
                print(problem, file=sys.stderr)
    return len(work), failed


def _problem(job: tuple[str, bool, Spread]) -> str | None:
    word, calm, spread = job
    try:
        play(parse(word), seed=1, calm=calm, spread=spread)
    except AssertionError as broken:
        return "\n  ".join((str(broken), *broken.__notes__))
    return None


def _join(sim: Simulation) -> None:
    sim.add(host=HOST, portals=(Address(HOST, 0),))


def _operate(sim: Simulation, operation: Operation) -> None:
    match operation:
        case Operation.JOIN:
            _join(sim)
        case Operation.LEAVE:
            sim.leave(sim.random.sample(_staying(sim), 1))
        case Operation.DIE:
            sim.kill(sim.random.sample(_staying(sim), 1))


def _staying(sim: Simulation) -> list[Node]:
    """Whoever is on its way out already cannot go once more, and somebody must stay."""
    return [node for node in sim.alive if node.peer.is_present]


def _everyone_speaks(sim: Simulation) -> None:
    for node in sim.members:
        sim.broadcast(node, b"hello")
