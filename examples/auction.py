"""A Dutch auction: the price falls until somebody bids. Afterwards anyone can verify who won.

python examples/auction.py

Normally the notaries, the seller and the bidder are separate programs on separate machines.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

from broadloom import Authority, Role
from broadloom.apps import auction

NOW = datetime.now(UTC)
TULIPS = auction.Lot(
    id="tulips", kind=auction.Kind.DUTCH, start=Decimal(100), step=Decimal(10), end=NOW, reserve=Decimal(20), call_s=0.2
)


async def main(folder: Path) -> None:
    name, authority = f"auction/{uuid4()}", Authority.generate()
    async with AsyncExitStack() as stack:

        async def enter(who: str) -> auction.Room:
            ticket = authority.issue_ticket(who, Role.PRODUCER, NOW + timedelta(hours=1))
            return await stack.enter_async_context(auction.join(name, ticket=ticket, store=folder / f"{who}.db"))

        rooms = [await enter(who) for who in ("notary-1", "notary-2", "notary-3", "sam", "anna")]
        *_, sam, anna = rooms
        await sam.open_lot(TULIPS)
        async for entry in anna:
            print(entry)
            if isinstance(entry, auction.Lowered) and entry.price == 70:
                print((await anna.bid("tulips", entry.price)).auctioneer, "has signed the receipt")
            if isinstance(entry, auction.Sold):
                break
        anna.export(folder / "auction.log")
        await asyncio.gather(*(room.channel.leave() for room in rooms))
    ledger, _ = auction.read_log(folder / "auction.log", authority.certificate)
    print("verified:", ledger.sale("tulips").winner)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
