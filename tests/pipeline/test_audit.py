"""The audit finds what was injected and nothing else, with the pure Arrow functions alone."""

from pathlib import Path

import pytest

from broadloom.record import read
from tests.pipeline.simulated import simulated_history
from tests.pipeline.without_spark import named, run_audit, write_simulation
from tools.synthetic.fault_injection import CannotInjectError, FaultKind, inject
from tools.synthetic.generate import SyntheticConfig, generate

CONFIG = SyntheticConfig(rows=40_000, peers=30, arrivals=5, leaves=4, crashes=4, machines=3, seconds=120)
WITHOUT_REPLIES = [fault for fault in FaultKind if fault is not FaultKind.REPLY_BEFORE_PARENT]
"""Faults for tapes without replies."""


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    generate(folder, CONFIG)
    return folder


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulation with traffic and killed peers."""
    return write_simulation(tmp_path_factory.mktemp("simulated"), "kill", 30)


def test_audit_passes_simulation_with_kills(simulation: Path) -> None:
    found = run_audit(read(simulation))
    assert found.findings == set()
    assert found.delivery_balances["due_count"].sum() == found.deliveries.height
    assert set(found.recorded_peers["end_status"]) == {"present", "crashed"}


@pytest.mark.parametrize("fault", FaultKind, ids=lambda fault: fault.value)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_audit_finds_each_fault_in_synthetic_tape(synthetic: Path, tmp_path: Path, fault: FaultKind, seed: int) -> None:
    injected = inject(synthetic, tmp_path, [fault], seed)
    found = run_audit(read(tmp_path))
    assert found.findings == named(injected)
    assert len(found.violations) == (0 if fault is FaultKind.REPORTED_MISSED else 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_audit_finds_all_faults_in_synthetic_tape(synthetic: Path, tmp_path: Path, seed: int) -> None:
    injected = inject(synthetic, tmp_path, [*FaultKind, *FaultKind, *FaultKind], seed)
    assert run_audit(read(tmp_path)).findings == named(injected)


@pytest.mark.parametrize("seed", [1, 2])
def test_audit_finds_all_faults_in_simulated_tape(simulation: Path, tmp_path: Path, seed: int) -> None:
    injected = inject(simulation, tmp_path, WITHOUT_REPLIES, seed)
    assert run_audit(read(tmp_path)).findings == named(injected)


def test_inject_raises_error_when_tape_has_no_suitable_delivery(simulation: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotInjectError, match="reply_before_parent"):
        inject(simulation, tmp_path, [FaultKind.REPLY_BEFORE_PARENT])


@pytest.mark.parametrize("scenario", ["kill-most", "long-partition", "random-faults", "churn"])
def test_audit_passes_simulated_scenarios(scenario: str) -> None:
    found = run_audit(simulated_history(scenario, 20).rows)
    assert found.violations == set()
    if scenario == "long-partition":
        assert {each[0] for each in found.findings} == {"reported_missed"}
