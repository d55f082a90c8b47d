"""The server's own part in an auction, shared by all open pages: it bids under the name on the ticket of the server."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from broadloom.apps.auction import Receipt, Room
from broadloom.apps.auction.ledger import notary_names
from broadloom.apps.auction.room import NOTARIES
from broadloom.web.error_messages import describe_error
from broadloom.web.own_peer import PageClient

if TYPE_CHECKING:
    from broadloom.channel import Channel

RECEIPTS_MAX = 200
"""Kept for the pages; the oldest are dropped."""
REJOIN_S = 3.0
"""Pause before an auction that has ended in this program is joined again: all entries are fetched."""


class AuctionClient(PageClient):
    def __init__(self, channel: "Channel | None", *, notaries: int = NOTARIES, sealed_bids: Path | None = None) -> None:
        """`notaries` and `sealed_bids` are those of `Room`. Raises `ValueError`."""
        super().__init__()
        notary_names(notaries)
        self._channel = channel
        self._notaries = notaries
        self._sealed_bids = sealed_bids
        self.room: Room | None = None
        self.receipts: dict[int, Receipt] = {}
        """Receipts for bids from these pages, by number."""

    @property
    def is_available(self) -> bool:
        """Only the name on a ticket can bid."""
        return bool(self.name)

    @property
    def name(self) -> str:
        """The name on the ticket."""
        signer = self._channel._post_signer if self._channel is not None else None
        return signer.name if signer is not None else ""

    @property
    def is_joined(self) -> bool:
        return self.room is not None and not self.room.is_ended

    async def _join(self) -> None:
        assert self._channel is not None
        if self.room is not None and self.room._end_reason is not None:
            self.problem = describe_error(self.room._end_reason)
            await self._stack.aclose()
            await asyncio.sleep(REJOIN_S)
        room = Room(self._channel, notaries=self._notaries, sealed_bids=self._sealed_bids)
        self.room = await self._stack.enter_async_context(room)
        self.problem = ""

    async def bid(self, lot: str, amount: str) -> None:
        """Raises the errors of `Room.bid`."""
        if self.room is None:
            raise RuntimeError("the auction was not joined yet")
        receipt = await self.room.bid(lot, amount.strip())
        self.receipts[receipt.number] = receipt
        while len(self.receipts) > RECEIPTS_MAX:
            del self.receipts[next(iter(self.receipts))]
