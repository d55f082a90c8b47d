"""The file with the salts of sealed bids, which several programs share."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from broadloom.apps.auction import AuctionError
from broadloom.apps.auction.sealed_bids import SealedBid, SealedBids

BID = SealedBid(Decimal("25.50"), "5a" * 32)


def test_bid_of_another_program_is_found_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "anna.bids"
    watching, bidding = SealedBids(path), SealedBids(path)
    bidding.add("first", BID)
    assert watching.get("first") == BID
    other = SealedBids(path)
    bidding.add("second", BID)
    other.add("third", BID)
    assert all(SealedBids(path).get(each) == BID for each in ("first", "second", "third"))


def test_bids_that_are_added_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "anna.bids"
    programs = [SealedBids(path) for _ in range(8)]
    with ThreadPoolExecutor(len(programs)) as pool:
        list(pool.map(lambda number: programs[number].add(f"bid-{number}", BID), range(len(programs))))
    kept = SealedBids(path)
    assert all(kept.get(f"bid-{number}") == BID for number in range(len(programs)))


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "anna.bids"
    with pytest.raises(FileNotFoundError) as caught:
        SealedBids(path).add("first", BID)
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("text", ["", "[]", '{"first": 5}', '{"first": {"amount": "x", "salt": ""}}'])
def test_file_of_something_else_is_not_overwritten(text: str, tmp_path: Path) -> None:
    path = tmp_path / "anna.bids"
    bids = SealedBids(path)
    path.write_text(text)
    with pytest.raises(AuctionError, match="not a file of sealed bids"):
        bids.add("first", BID)
    assert path.read_text() == text
