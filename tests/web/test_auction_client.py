"""The auction of the pages, after its room has failed."""

from pathlib import Path

import pytest

import broadloom
from broadloom.apps.auction import AuctionError
from broadloom.web.auction_client import AuctionClient
from tests.apps.auction.saleroom import Saleroom, lot
from tests.channel.joined import QUICK
from tests.support import eventually


async def test_auction_whose_room_has_failed_names_the_reason_and_is_joined_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broadloom.web.auction_client.REJOIN_S", 0.1)
    async with Saleroom(tmp_path) as saleroom:
        await saleroom.notaries()
        seller = await saleroom.open("seller")
        await seller.open_lot(lot("english"))
        async with broadloom.connect(saleroom.name, ticket=saleroom.ticket("anna"), settings=QUICK) as channel:
            client = AuctionClient(channel)
            try:
                client.start_joining()
                await eventually(lambda: client.is_joined)
                failed = client.room
                assert failed is not None
                failed._end(AuctionError("a fault"))
                assert not client.is_joined
                with pytest.raises(AuctionError, match="a fault"):
                    await client.bid("lot-1", "10")
                client.start_joining()
                await eventually(lambda: client.problem == "a fault", poll_s=0.001)
                await eventually(lambda: client.is_joined)
                assert (client.problem, client.room is failed) == ("", False)
                await client.bid("lot-1", "10")
            finally:
                await client.close()
                channel.abort()
