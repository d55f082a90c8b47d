"""`Room` for synchronous programs: same names, results and exceptions, without `await`.

    with auction.sync.join("auction/books-7", ticket="anna.ticket") as room:
        receipt = room.bid("lot-3", "25.00")

Thread-safe: `ledger`, `sales` and `entries` are copies, which do not change. Callbacks run in Broadloom's own thread
and must not block.
"""

from copy import copy
from typing import TypeVar

from broadloom.apps.auction.entries import AuctionEntry
from broadloom.apps.auction.ledger import Ledger
from broadloom.apps.auction.room import Room as AsyncRoom
from broadloom.apps.auction.room import join as async_join
from broadloom.apps.auction.sale import Sale
from broadloom.apps.sync_session import SyncSession, enters
from broadloom.sync.bridge import Attribute, awaits, calls

C = TypeVar("C", Ledger, Sale)


def _copied(changing: C) -> C:
    """With its containers, whose items do not change, apart from sales."""
    copied = copy(changing)
    for name, value in vars(changing).items():
        if isinstance(value, dict | list):
            setattr(copied, name, copy(value))
    return copied


def _copied_sales(sales: dict[str, Sale]) -> dict[str, Sale]:
    return {lot: _copied(sale) for lot, sale in sales.items()}


def _copied_ledger(ledger: Ledger) -> Ledger:
    copied = _copied(ledger)
    copied.sales = _copied_sales(ledger.sales)
    return copied


class Room(SyncSession[AsyncRoom]):
    """The synchronous twin of `auction.Room`."""

    _counterpart = AsyncRoom
    name = Attribute[str]()
    ledger = Attribute[Ledger](copy=_copied_ledger)
    entries = Attribute[list[AuctionEntry]](copy=copy)
    is_notary = Attribute[bool]()
    is_auctioneer = Attribute[bool](in_loop=True)
    stalled = Attribute[str](in_loop=True)
    sales = Attribute[dict[str, Sale]](copy=_copied_sales)
    wait_until_current = awaits(AsyncRoom.wait_until_current)
    export = calls(AsyncRoom.export)
    open_lot = awaits(AsyncRoom.open_lot)
    withdraw = awaits(AsyncRoom.withdraw)
    bid = awaits(AsyncRoom.bid)
    receipt = awaits(AsyncRoom.receipt)


join = enters(Room._of, async_join)
