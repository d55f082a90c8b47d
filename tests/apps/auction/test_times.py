"""How soon a bid has its receipt under load, in virtual time. `measure.py` prints it for any number of bidders."""

import pytest

from broadloom.order import sequencer
from tests.apps.auction.measure import receipt_times
from tests.apps.large_fabric import percentile

RECEIPT_S = 0.1


@pytest.mark.parametrize("bidders", [16, pytest.param(60, marks=pytest.mark.long)])
def test_receipt_comes_within_a_tenth_of_a_second_at_200_bids_a_second(bidders: int) -> None:
    assert percentile(receipt_times(bidders, 1.0), 99) <= RECEIPT_S


def test_slow_sequencer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencer, "BATCH_S", 0.06)
    assert percentile(receipt_times(16, 1.0), 99) > RECEIPT_S
