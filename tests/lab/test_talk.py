"""What peers of a lab say, and what the tape and the figures read in it."""

import time
from random import Random
from typing import Any

import pytest

from weft.lab import talk
from weft.lab.figures import Figures
from weft.lab.plan import LabPlan, Rates, WrongPlan
from weft.lab.witness import Followed


def test_every_kind_tells_when_it_was_said() -> None:
    chance = Random(1)
    prices: dict[str, float] = {}
    before = time.time()
    said = [talk.tick(chance, prices), talk.ident("Ada"), talk.advert(chance)]
    for data, kind in zip(said, (talk.TICK, talk.IDENT, talk.ADVERT), strict=True):
        at_s, told = talk.said_at(data), talk.read(data)
        assert at_s is not None
        assert before - 0.001 <= at_s <= time.time()
        assert told is not None
        assert told["kind"] == kind
        assert told["at"] == at_s


@pytest.mark.parametrize("data", [b"", b"hello", b'{"at":', b'{"at":nonsense, "kind": 1}', b'{"at":1}'])
def test_what_others_say_is_not_taken_for_ours(data: bytes) -> None:
    assert talk.read(data) is None
    assert talk.said_at(data) is None


def test_names_are_nobody_elses() -> None:
    names = [talk.name_of(number) for number in range(1, 201)]
    assert len(set(names)) == 200


def test_all_peers_follow_the_same_messages_and_few() -> None:
    here, there = Followed(), Followed()
    here.one_of = there.one_of = 10
    messages = [(author * 0x1234567, sequence) for author in range(1, 30) for sequence in range(1, 200)]
    chosen = [each for each in messages if here.chosen(*each)]
    assert chosen == [each for each in messages if there.chosen(*each)]
    assert 0.05 < len(chosen) / len(messages) < 0.2
    here.one_of = 0
    assert not any(here.chosen(*each) for each in messages)


def test_the_usual_rates_fit_two_cores() -> None:
    assert Rates.usual(24).total_per_s == Rates.usual(2).total_per_s
    assert Rates.usual(200).total_per_s == pytest.approx(3.0)
    assert Rates.usual(1000).total_per_s > 0


@pytest.mark.parametrize("wrong", [{"peers": 1}, {"peers": 100_000}, {"processes_max": 0}, {"file_s": 0}])
def test_a_plan_that_cannot_be_is_told(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongPlan):
        LabPlan(**wrong)


def counts(**told: object) -> dict[str, object]:
    empty = dict.fromkeys(("sent", "delivered", "received", "duplicates", "missed", "links_made", "links_lost"), 0)
    return {**empty, "hops": [], "latency": {}, "slow": [], **told}


def test_figures_of_a_second() -> None:
    figures = Figures()
    figures.counted(1, counts(sent=2, delivered=10, received=10, duplicates=20, hops=[[1, 4], [3, 6]], slow=[7]))
    figures.counted(2, counts(delivered=10, received=10, duplicates=20, links_made=2, slow=[7, 8]))
    sample = figures.tick(5)
    assert (sample.redundancy, sample.hops_p50, sample.hops_max) == (3.0, 3.0, 3)
    assert (sample.slow_peers, sample.links_made, sample.peers) == (2, 1, 5)
    assert figures.delivered == 20
    after = figures.tick(5)
    assert (after.delivered_per_s, after.redundancy, after.hops_max) == (0.0, 0.0, 0)
