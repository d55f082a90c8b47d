"""Any mix of faults, planted at random, is found exactly. `make soak` runs more seeds."""

import pytest

from tests.pipeline import planted_faults


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tape", planted_faults.TAPES)
def test_planted_faults_are_found_exactly(tape: str, seed: int) -> None:
    planted_faults.check(tape, seed)
