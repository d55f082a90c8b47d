"""Entries as sentences, for the command line and the pages."""

from broadloom.apps.auction.entries import (
    AuctionEntry,
    Bid,
    Extended,
    Going,
    Lowered,
    Opened,
    Revealed,
    Sold,
    Unsealed,
    Unsold,
)
from broadloom.apps.auction.lot import amount_text

CALLS = {1: "going once", 2: "going twice"}


def describe(entry: AuctionEntry) -> str:
    match entry:
        case Opened(terms=lot):
            return f"opened by {lot.seller}, {lot.kind}, from {amount_text(lot.start)}"
        case Bid(bidder=bidder, amount=amount):
            return f"{bidder} bids {amount_text(amount)}" if amount is not None else f"{bidder} has made a sealed bid"
        case Extended():
            return "extended"
        case Going(call=call):
            return CALLS[call]
        case Lowered(price=price):
            return f"now for {amount_text(price)}"
        case Unsealed():
            return "no more bids, bidders reveal theirs"
        case Revealed(bidder=bidder, amount=amount):
            return f"{bidder} had bid {amount_text(amount)}"
        case Sold(winner=winner, price=price):
            return f"sold to {winner} for {amount_text(price)}"
        case Unsold(reason=reason):
            return f"not sold: {reason}"
