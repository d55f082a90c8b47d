"""A delivery service on loopback for tests: its authority, tickets, desks and readers."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from broadloom import Authority, Role, Ticket
from broadloom.apps import delivery
from broadloom.protocol import ChannelName
from tests.channel.joined import QUICK

END = datetime.now(UTC) + timedelta(days=1)


class Newsroom:
    """Everything that was opened through it ends with it."""

    def __init__(self) -> None:
        self.name = f"delivery/{uuid4().hex}"
        self.authority = Authority.generate(ChannelName.parse(self.name).id)
        self._stack = AsyncExitStack()

    def ticket(self, name: str) -> Ticket:
        return self.authority.issue_ticket(name, Role.CONSUMER, END)

    async def desk(self, **options: Any) -> delivery.Desk:
        options = {"creators": ["editor"], "settings": QUICK, **options}
        return await self._stack.enter_async_context(delivery.Desk(self.name, self.authority, **options))

    async def open(self, name: str, **options: Any) -> delivery.Service:
        options = {"settings": QUICK, **options}
        return await self._stack.enter_async_context(delivery.join(self.name, self.ticket(name), **options))

    async def meter(self, tape: Path, **options: Any) -> delivery.Meter:
        options = {"settings": QUICK, **options}
        meter = delivery.Meter(self.name, self.ticket("meter"), tape, **options)
        return await self._stack.enter_async_context(meter)

    async def enter(self, what: Any) -> Any:
        return await self._stack.enter_async_context(what)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, problem, trace)
