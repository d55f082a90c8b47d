"""A short and a long run of the fuzzer."""

import random

import pytest

from tests.rules.fuzz import fuzz


def test_random_rules_neither_crash_nor_hang() -> None:
    assert sum(fuzz(7, 1.0).values()) > 0


@pytest.mark.long
def test_random_rules_neither_crash_nor_hang_for_minutes() -> None:
    assert set(fuzz(random.SystemRandom().getrandbits(32), 180)) == {"sent", "refused", "rejected", "not usable"}
