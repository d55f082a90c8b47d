"""`Room` for synchronous programs: same names, results and exceptions, without `await`.

    with auction.sync.join("auction/books-7", ticket="anna.ticket") as room:
        receipt = room.bid("lot-3", "25.00")

Thread-safe. Callbacks run in Broadloom's own thread and must not block.
"""

from broadloom.apps.auction.entries import AuctionEntry
from broadloom.apps.auction.ledger import Ledger
from broadloom.apps.auction.room import Room as AsyncRoom
from broadloom.apps.auction.room import join as async_join
from broadloom.apps.auction.sale import Sale
from broadloom.apps.sync_session import SyncSession, enters
from broadloom.sync.bridge import Attribute, awaits, calls


class Room(SyncSession[AsyncRoom]):
    """The synchronous twin of `auction.Room`."""

    _counterpart = AsyncRoom
    name = Attribute[str]()
    ledger = Attribute[Ledger]()
    entries = Attribute[list[AuctionEntry]]()
    is_notary = Attribute[bool]()
    is_auctioneer = Attribute[bool](in_loop=True)
    stalled = Attribute[str](in_loop=True)
    sales = Attribute[dict[str, Sale]](in_loop=True)
    wait_until_current = awaits(AsyncRoom.wait_until_current)
    export = calls(AsyncRoom.export)
    open_lot = awaits(AsyncRoom.open_lot)
    withdraw = awaits(AsyncRoom.withdraw)
    bid = awaits(AsyncRoom.bid)
    receipt = awaits(AsyncRoom.receipt)


join = enters(Room._of, async_join)
