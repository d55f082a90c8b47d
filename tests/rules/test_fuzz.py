"""A short run of the fuzzer; `make soak` has longer ones."""

from tests.rules.fuzz import run_seed


def test_random_rules_neither_crash_nor_hang() -> None:
    assert set(run_seed(7)) == {"sent", "refused", "rejected", "not usable"}
