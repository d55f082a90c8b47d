"""Any mix of faults, planted at random into a tape, is found exactly, and nobody else is accused."""

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from broadloom.record import read
from tests.pipeline.without_spark import named, run_audit, write_simulation
from tools.synthetic.fault_injection import CannotInjectError, FaultKind, inject
from tools.synthetic.generate import SyntheticConfig, generate

CONFIG = SyntheticConfig(rows=8_000, peers=20, arrivals=3, leaves=3, crashes=3, machines=3, seconds=120)
FAULTS_MAX = 8
TAPES = "synthetic", "simulated"


@cache
def tape_folder(kind: str) -> TemporaryDirectory[str]:
    """A tape without faults, for all seeds."""
    folder = TemporaryDirectory()
    if kind == "synthetic":
        generate(Path(folder.name), CONFIG)
    else:  # with killed peers: one run, and many messages of the same size
        write_simulation(Path(folder.name), "kill", 20)
    return folder


def check(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    faults = [draw.choice(list(FaultKind)) for _ in range(draw.randint(1, FAULTS_MAX))]
    tape = Path(tape_folder(kind).name)
    with TemporaryDirectory() as folder:
        copy = Path(folder)
        try:
            injected = inject(tape, copy, faults, seed)
        except CannotInjectError:  # as a simulation has no replies
            faults = [each for each in faults if each is not FaultKind.REPLY_BEFORE_PARENT]
            injected = inject(tape, copy, faults, seed)
        found = run_audit(read(copy)).findings
    assert found == named(injected), (faults, found ^ named(injected))


def run_seed(seed: int) -> None:
    for kind in TAPES:
        check(kind, seed)
