"""The pages of a delivery service: which one it is, and who has signed in.

Every visitor signs in with a ticket of the service, and then acts under the name on it: the desks decide what it may
do, and meters bill it, as if it ran a program of its own. Tickets are kept in memory only.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from broadloom.apps import delivery
from broadloom.channel.closable import close_all
from broadloom.errors import BroadloomError
from broadloom.security import Ticket
from broadloom.web.bills import Bills
from broadloom.web.visitor import Visitor

VISITORS_MAX = 64
"""Each has connections of its own."""
IDLE_S = 900.0
"""A visitor without an open page is signed out after this time."""
IDLE_CHECK_S = 5.0
PEM_START = "-----BEGIN"
TICKET_CHARS_MAX = 20_000


class SignInError(BroadloomError):
    """The visitor cannot be signed in; the text says why."""


class DeliverySite:
    """`name` is the channel of the directory, `options` are those of `broadloom.connect`. `tickets` are offered on the
    sign-in page to everyone who can open it. `bills_dir` has the results of the pipeline; each visitor sees its own
    bills, and those of the topics that it created."""

    def __init__(
        self,
        name: str,
        *,
        options: Mapping[str, Any] | None = None,
        tickets: Sequence[Ticket] = (),
        bills_dir: Path | None = None,
    ) -> None:
        self.name = name
        self.tickets = {each.name: each for each in tickets}
        self.bills = Bills(bills_dir) if bills_dir is not None else None
        self._options = dict(options or {})
        self._visitors: dict[str, Visitor] = {}
        """By session."""
        self._signing_in = asyncio.Semaphore(4)
        self._idle_task: asyncio.Task[None] | None = None

    def visitor(self, session: str) -> Visitor | None:
        return self._visitors.get(session)

    async def sign_in_with_text(self, session: str, text: str) -> Visitor:
        """Raises `SignInError`, or as `delivery.join`."""
        # Without this check, the text would be the name of a file of the server.
        if PEM_START not in text or len(text) > TICKET_CHARS_MAX:
            raise SignInError(f"that is not a ticket: it begins with {PEM_START} CERTIFICATE-----; copy the whole file")
        return await self.sign_in(session, Ticket.load(text))

    async def sign_in(self, session: str, ticket: Ticket) -> Visitor:
        if not session:
            raise SignInError("the browser has no session with this server: reload the page")
        if len(self._visitors) >= VISITORS_MAX:
            raise SignInError(f"{VISITORS_MAX} visitors are signed in, and more are not possible: try again later")
        async with self._signing_in:
            service = delivery.join(self.name, ticket, **self._options)
            await service.__aenter__()
            visitor, old = Visitor(service), self._visitors.pop(session, None)
            self._visitors[session] = visitor
            if old is not None:
                await old.close()
        with suppress(delivery.DeliveryError):  # without a desk, topics can be browsed, and all else says why not
            await visitor.refresh_account()
        if self._idle_task is None:
            self._idle_task = asyncio.get_running_loop().create_task(self._sign_out_idle())
        return visitor

    async def sign_out(self, session: str) -> None:
        visitor = self._visitors.pop(session, None)
        if visitor is not None:
            await visitor.close()

    async def _sign_out_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK_S)
            now = time.monotonic()
            for session, visitor in tuple(self._visitors.items()):
                if not visitor.pages and now - visitor.left_at > IDLE_S:
                    await self.sign_out(session)

    async def close(self) -> None:
        if self._idle_task is not None:
            self._idle_task.cancel()
            await asyncio.gather(self._idle_task, return_exceptions=True)
        await close_all(*(self.sign_out(session) for session in tuple(self._visitors)))
