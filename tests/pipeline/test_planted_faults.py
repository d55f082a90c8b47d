"""Any mix of faults, planted at random, is found exactly, and nobody else is accused."""

import random
from pathlib import Path

import pytest

from broadloom.record import read
from tests.pipeline.without_spark import named, run_audit, write_simulation
from tools.synthetic.fault_injection import CannotInjectError, FaultKind, inject
from tools.synthetic.generate import SyntheticConfig, generate

CONFIG = SyntheticConfig(rows=8_000, peers=20, arrivals=3, leaves=3, crashes=3, machines=3, seconds=120)
FAULTS_MAX = 8
SEEDS, LONG_SEEDS = range(6), range(6, 200)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    generate(folder, CONFIG)
    return folder


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulation with killed peers: one run, and many messages of the same size."""
    return write_simulation(tmp_path_factory.mktemp("simulated"), "kill", 20)


def check(tape: Path, copy: Path, seed: int) -> None:
    draw = random.Random(seed)
    faults = [draw.choice(list(FaultKind)) for _ in range(draw.randint(1, FAULTS_MAX))]
    try:
        injected = inject(tape, copy, faults, seed)
    except CannotInjectError:  # as a simulation has no replies
        faults = [each for each in faults if each is not FaultKind.REPLY_BEFORE_PARENT]
        injected = inject(tape, copy, faults, seed)
    found = run_audit(read(copy)).findings
    assert found == named(injected), faults


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_in_synthetic_tape_are_found_exactly(synthetic: Path, tmp_path: Path, seed: int) -> None:
    check(synthetic, tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_in_simulated_tape_are_found_exactly(simulation: Path, tmp_path: Path, seed: int) -> None:
    check(simulation, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
@pytest.mark.parametrize("tape", ["synthetic", "simulation"])
def test_faults_of_many_seeds_are_found_exactly(
    tape: str, request: pytest.FixtureRequest, tmp_path: Path, seed: int
) -> None:
    check(request.getfixturevalue(tape), tmp_path, seed)
