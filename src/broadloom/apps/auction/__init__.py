"""Auctions without an auction house: fair bids in one agreed order, which anyone can verify (docs/auctions.md).

The plan of the package:

- **Rules** (`lot.py`, `sale.py`, `sealed.py`): English, Dutch, sealed first-price and Vickrey auctions. Pure.
- **List** (`statements.py`, `ledger.py`, `entries.py`): every statement is signed by its author; the ledger applies
  them in the agreed order, and keeps a hash chain over all of them. Pure.
- **Auctioneer** (`auctioneer.py`): when to call. Pure, the time is passed in.
- **Proof** (`receipt.py`, `log_file.py`): signed receipts, and the log as a file.
- **Room** (`room.py`, `sealed_bids.py`): what a program uses: `auction.join(...)`.
"""

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
from broadloom.apps.auction.errors import (
    AlteredLogError,
    AuctionError,
    ClosedError,
    InvalidError,
    NoLotError,
    NoReceiptError,
    NotQualifiedError,
    TooLowError,
)
from broadloom.apps.auction.log_file import read_log
from broadloom.apps.auction.lot import Kind, Lot
from broadloom.apps.auction.receipt import Receipt
from broadloom.apps.auction.room import Room, join
from broadloom.apps.auction.sale import Phase, Sale

__all__ = [
    "AlteredLogError",
    "AuctionEntry",
    "AuctionError",
    "Bid",
    "ClosedError",
    "Extended",
    "Going",
    "InvalidError",
    "Kind",
    "Lot",
    "Lowered",
    "NoLotError",
    "NoReceiptError",
    "NotQualifiedError",
    "Opened",
    "Phase",
    "Receipt",
    "Revealed",
    "Room",
    "Sale",
    "Sold",
    "TooLowError",
    "Unsealed",
    "Unsold",
    "join",
    "read_log",
]
