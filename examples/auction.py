"""An auction: everybody sees the bids in the same order, so everybody knows the winner.

python examples/auction.py                       # three bidders in this program
python examples/auction.py auction/lot-1 Ada     # one of them; start Ben and Carla elsewhere
"""

import asyncio
import sys
from uuid import uuid4

import broadloom
from broadloom.order import Entry, Rewound

BIDS = {"Ada": [10, 30, 60], "Ben": [20, 40], "Carla": [50]}


async def bid(channel_name: str, name: str, amounts: list[int]) -> str:
    """Bid, and return the line with the winner."""
    async with (
        broadloom.connect(channel_name, name=name) as channel,
        broadloom.ordered(channel, "lot-1", mode="available", from_index=1) as order,
    ):
        for amount in amounts:
            await order.submit(f"{name} bids {amount}".encode())
        bids: list[Entry] = []
        while len(bids) < sum(map(len, BIDS.values())):
            match await order.receive(timeout_s=20):
                case Entry() as entry:
                    bids.append(entry)
                case Rewound(to_index):  # we were cut off, and the others went on
                    bids = [entry for entry in bids if entry.index <= to_index]
        return max((entry.text for entry in bids), key=lambda text: int(text.split()[-1]))


async def main() -> None:
    channel_name = sys.argv[1] if len(sys.argv) > 1 else f"auction/{uuid4()}"
    names = sys.argv[2:] or list(BIDS)
    for winner in await asyncio.gather(*(bid(channel_name, name, BIDS[name]) for name in names)):
        print("highest:", winner)


if __name__ == "__main__":
    asyncio.run(main())
