"""Simulated auctions with auctioneers killed at every step: one winner, no receipt lost, nothing after "gone".

The mutants show that the checks can fail.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from broadloom.apps.auction import Bid, ClosedError, Kind, Phase
from broadloom.apps.auction.ledger import Outcome
from broadloom.apps.auction.sale import Sale
from broadloom.apps.auction.statements import Action
from tests.apps.auction.histories import BIDDERS, NOTARIES, SELLER, History, run_seed
from tests.histories import HistoryError

BATCHES = [range(first, first + 5) for first in range(1, 21, 5)]
"""`make soak` runs thousands."""


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_all_members_name_the_same_winner_although_auctioneers_are_killed(seeds: range) -> None:
    assert sum(len(run_seed(seed).receipts) for seed in seeds) > 20


def test_side_without_a_majority_of_notaries_accepts_nothing_and_the_other_continues() -> None:
    history = History(1)
    for name in (*NOTARIES, *BIDDERS, SELLER):
        history._start(name)
    sim, anna, ben = history.sim, history._one("anna"), history._one("ben")
    assert sim.run_until(history._is_started, 60.0)
    history.kill_at.clear()
    history._open("lot-1", Kind.ENGLISH)
    assert sim.run_until(lambda: bool(anna.ledger.sales) and bool(ben.ledger.sales), 10.0)
    cut_off = [history._one("notary-1"), anna]
    sim.partition([each.node for each in cut_off])
    anna.say(Action.BID, "lot-1", amount=Decimal(500))
    ben.say(Action.BID, "lot-1", amount=Decimal(30))
    assert sim.run_until(lambda: ben.ledger.sales["lot-1"].phase is Phase.SOLD, 60.0)
    assert ben.ledger.results()["lot-1"] == ("ben", Decimal(30))
    for each in cut_off:
        assert not any(isinstance(entry, Bid) for entry in each.entries)
    assert not any(receipt.bidder == "anna" for receipt in history.receipts)
    sim.heal()
    assert sim.run_until(lambda: all(each.ledger.results() == ben.ledger.results() for each in history.alive), 60.0)

    def late_bids() -> list[Outcome]:
        return [each for each in ben.ledger.by_number.values() if each.signed.author == "anna"]

    assert sim.run_until(lambda: bool(late_bids()), 60.0)
    assert isinstance(late_bids()[0].error, ClosedError)
    assert not any(receipt.bidder == "anna" for receipt in history.receipts)


def _bid_at_any_time(real: Callable[..., Any]) -> Callable[..., Any]:
    def bid(self: Sale, *arguments: Any) -> Any:
        phase, self.phase = self.phase, Phase.OPEN
        try:
            return real(self, *arguments)
        finally:
            self.phase = phase if phase is not Phase.OPEN else self.phase

    return bid


def _gone_at_once(_real: Callable[..., Any]) -> Any:
    return property(lambda self: (Action.GONE,) if not self.is_over else ())


MUTANTS = {
    "bids are accepted after the end": (Sale, "bid", _bid_at_any_time),
    "a lot is sold without calls": (Sale, "possible_calls", _gone_at_once),
    "the lowest sealed bid wins": (
        Sale,
        "leader",
        lambda _real: property(
            lambda self: min(
                (each for each in self.bids.values() if each.amount is not None),
                key=lambda each: each.amount,
                default=None,
            )
        ),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_checks_find_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, attribute, mutate = MUTANTS[name]
    monkeypatch.setattr(kind, attribute, mutate(getattr(kind, attribute)))
    with pytest.raises(HistoryError):
        _run_seeds(range(1, 20))


def _run_seeds(seeds: range) -> None:
    """More than one, so that another order of events elsewhere does not hide a mutant."""
    for seed in seeds:
        run_seed(seed)
