"""As a program, `python -m tests.web.auction_server DIRECTORY`: an auction with its notaries, a seller and bidders, and
the pages of Anna. It prints their address and its channel, and leaves a ticket for Dora. SIGUSR1 makes the room of
Anna fail."""

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import broadloom
from broadloom.apps.auction import AuctionError, Kind, Lot
from broadloom.order.channel_runtime import OrderLayer
from broadloom.web.server import serve
from tests.apps.auction.saleroom import Saleroom
from tests.channel.joined import QUICK

LOTS: dict[str, dict[str, Any]] = {
    "lot-1": {"title": "Atlas, Amsterdam 1662, eleven volumes", "kind": "english", "start": "120", "step": "10"},
    "lot-2": {"title": "Tulips, 40 crates", "kind": "dutch", "start": "90", "step": "5", "reserve": "40"},
    "lot-3": {"title": "Letter of a lens grinder", "kind": "vickrey", "start": "300"},
    "lot-4": {"title": "Brass sextant", "kind": "english", "start": "60", "step": "5"},
}

BIDS = (("ben", "lot-1", "120"), ("carl", "lot-1", "150"), ("ben", "lot-3", "350"), ("carl", "lot-4", "75"))


async def main(path: Path) -> None:
    async with AsyncExitStack() as stack:
        saleroom = await stack.enter_async_context(Saleroom(path))
        await saleroom.notaries()
        saleroom.ticket("dora").save(path / "dora.ticket")
        rooms = {name: await saleroom.open(name) for name in ("sam", "ben", "carl")}
        for lot_id, terms in LOTS.items():
            end = datetime.now(UTC) + timedelta(minutes=30)
            values = {**terms, "kind": Kind(terms["kind"])}
            await rooms["sam"].open_lot(Lot(id=lot_id, end=end, **values))
        anna = await stack.enter_async_context(
            broadloom.connect(saleroom.name, ticket=saleroom.ticket("anna"), settings=QUICK)
        )

        for name, lot_id, amount in BIDS:
            await rooms[name].bid(lot_id, amount)

        def ready(url: str) -> None:
            print(json.dumps({"url": url, "channel": saleroom.name, "process": os.getpid()}), flush=True)

        def fail() -> None:
            for runtime in OrderLayer.of(anna)._conversations.values():
                runtime.application._end(AuctionError("the list is gone"))

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, fail)
        await serve(channel=anna, port=0, on_ready=ready)


if __name__ == "__main__":
    from broadloom.cli.runner import StopSignal, command

    @command("test")
    async def work(stop: StopSignal) -> None:
        stop.interrupt_is_success = True
        await main(Path(sys.argv[1]))

    sys.exit(work())
