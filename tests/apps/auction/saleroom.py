"""An auction on loopback for tests: its authority, tickets, notaries and bidders."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import broadloom
from broadloom import Authority, Role, Ticket
from broadloom.apps import auction
from broadloom.order import OrderSettings
from broadloom.protocol import ChannelName
from broadloom.record import Tape
from tests.channel.joined import QUICK

TICKETS_END = datetime.now(UTC) + timedelta(days=1)
NOTARIES = ("notary-1", "notary-2", "notary-3")
DEADLINE_S = 30.0
HURRY_S = 0.3
ORDER = OrderSettings(stall_s=1.0)


def lot(kind: str, lot_id: str = "lot-1", **terms: Any) -> auction.Lot:
    """A lot whose calls are so far apart that only `Saleroom.hurry` leads to them."""
    values: dict[str, Any] = {"start": "10", "step": "5", "call_s": 100.0, "extension_s": 100.0, **terms}
    return auction.Lot(id=lot_id, kind=auction.Kind(kind), end=datetime.now(UTC) + timedelta(seconds=100), **values)


class Saleroom:
    """Everything that was opened through it ends with it."""

    def __init__(self, path: Path) -> None:
        self.name = f"auction/{uuid4().hex}"
        self.authority = Authority.generate(ChannelName.parse(self.name).id)
        self.path = path
        self._stack = AsyncExitStack()
        self._ahead_s = 0.0

    def now(self) -> float:
        """The clock of all notaries."""
        return time.time() + self._ahead_s

    async def hurry(self, room: auction.Room, *kinds: type, lot_id: str = "lot-1") -> Any:
        """Advance the clock until the list has an entry of this kind, and return the first."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for entry in room.entries:
                    if isinstance(entry, kinds) and entry.lot == lot_id:
                        return entry
                self._ahead_s += 101.0
                before = len(room.entries)
                with suppress(TimeoutError):  # an auctioneer that was killed does not call
                    async with asyncio.timeout(HURRY_S):
                        await room._wait_until(lambda before=before: len(room.entries) > before)  # type: ignore[misc]

    def ticket(self, name: str, role: Role = Role.PRODUCER) -> Ticket:
        return self.authority.issue_ticket(name, role, TICKETS_END)

    async def open(
        self, name: str, *, tape: Tape | None = None, order_settings: OrderSettings = ORDER, **options: Any
    ) -> auction.Room:
        channel = await broadloom.connect(self.name, ticket=self.ticket(name), settings=QUICK, tape=tape)
        self._stack.callback(channel.abort)  # the auctioneer leaves more slowly, because others watch it
        store = self.path / f"{name}.db" if name in NOTARIES else None
        room = auction.Room(channel, store=store, order_settings=order_settings, wall_clock=self.now, **options)
        return await self._stack.enter_async_context(room)

    async def notaries(self) -> list[auction.Room]:
        return [await self.open(name) for name in NOTARIES]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, problem, trace)
