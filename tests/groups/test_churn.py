"""Churn and a partition: after healing every member of a group has the same tree. `churn.py` runs larger ones."""

import pytest

from tests.groups.churn import ChurnRun


@pytest.mark.parametrize(("peers", "groups", "seed"), [(60, 6, 1), (30, 4, 2), (30, 4, 3)])
def test_the_same_tree_everywhere(peers: int, groups: int, seed: int) -> None:
    run = ChurnRun(seed, peers, groups)
    run.run()
    assert run.check() > 100, f"seed {seed}: hardly anything was said"


def test_the_same_seed_is_the_same_history() -> None:
    told = []
    for _ in range(2):
        run = ChurnRun(5, 12, 2)
        run.run()
        told.append([[(each.id, each.parent_id) for each in member.delivered] for member in run.members])
    assert told[0] == told[1]
