"""Sealed bids: a bidder first commits to an amount, by a hash with a salt, and reveals both when bidding has ended.

The salt has 256 random bits, so nobody can find the amount by trying all of them. The hash covers auction, lot and
bidder, so that a commitment cannot be copied.
"""

from decimal import Decimal
from hashlib import sha256

from broadloom.apps.auction.lot import amount_text

PREFIX = b"broadloom sealed bid\0"


def commitment(auction: str, lot: str, bidder: str, amount: Decimal, salt: str) -> str:
    parts = (auction, lot, bidder, amount_text(amount), salt)
    return sha256(PREFIX + b"".join(sha256(each.encode()).digest() for each in parts)).hexdigest()
