"""Churn and a partition: after healing, all members of a group have the same tree. `churn.py` runs larger ones."""

import pytest

from tests.groups.churn import ChurnRun


def run_seed(seed: int, peers: int = 30, groups: int = 4) -> None:
    run = ChurnRun(seed, peers, groups)
    run.run()
    assert run.check() > 100, f"seed {seed}: too few messages"


@pytest.mark.parametrize(
    ("peers", "groups", "seed"),
    [pytest.param(60, 6, 1, marks=pytest.mark.long), (30, 4, 2), (30, 4, 3), (30, 4, 400826), (30, 4, 440001)],
)
def test_members_converge_to_same_tree_after_churn_and_partition(peers: int, groups: int, seed: int) -> None:
    run_seed(seed, peers, groups)


def test_same_seed_gives_same_history() -> None:
    histories = []
    for _ in range(2):
        run = ChurnRun(5, 12, 2)
        run.run()
        histories.append([[(each.id, each.parent_id) for each in member.delivered] for member in run.members])
    assert histories[0] == histories[1]
