"""`Membership`: keeps a program on the channel of one entry, with tickets that a desk issues and renews.

A new ticket needs a new connection: a `Connection` that has a successor stops after that has joined, so that nothing is
lost in between. While no desk answers, the connection goes on with the ticket that it has.
"""

import asyncio
import base64
import random
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import broadloom
from broadloom.apps.delivery.entry import Entry
from broadloom.apps.delivery.errors import DeniedError
from broadloom.apps.delivery.messages import Action, Grant
from broadloom.channel import Channel
from broadloom.errors import BroadloomError, ChannelClosedError, ConnectError, RejectedError
from broadloom.protocol.events import ChannelClosed, Rejected
from broadloom.protocol.owner.card import SecurityLevel
from broadloom.security import RevocationList, Ticket
from broadloom.wire.exchange_messages import RejectReason

if TYPE_CHECKING:
    from broadloom.apps.delivery.service import Service

RETRY_S, RETRY_S_MAX = 0.2, 30.0
"""Pause before a failed attempt is repeated; doubles, with jitter."""
RENEW_AT = 0.5
"""Part of a ticket's lifetime after which it is renewed, plus up to a tenth at random."""


class MembershipState(StrEnum):
    WAITING = "waiting"
    """Not on the channel; `reason` says what for."""
    CONNECTED = "connected"
    REFUSED = "refused"
    """A desk has refused it."""
    WITHDRAWN = "withdrawn"
    """The ticket was revoked."""
    CLOSED = "closed"
    """The channel was closed by its owner, or this program has left it."""


FINAL = (MembershipState.REFUSED, MembershipState.WITHDRAWN, MembershipState.CLOSED)


class Connection(Protocol):
    """What a role does on the channel. It is made right after joining, before any message is lost."""

    channel: Channel

    async def start(self) -> None:
        """The predecessor, if there was one, has stopped."""

    async def stop(self) -> None:
        """Leave the channel."""


class Membership:
    def __init__(
        self,
        service: "Service",
        entry: Entry,
        action: Action,
        make: Callable[[Channel], Connection],
        *,
        plan: str = "",
        tape: Any = None,
        on_replaced: Callable[[], None] = lambda: None,
        on_change: Callable[[], None] = lambda: None,
        stops_first: bool = True,
    ) -> None:
        """`on_replaced` is called before a successor joins, `on_change` when the state has changed. With `stops_first`,
        the successor starts only when its predecessor has stopped."""
        self.entry = entry
        self.state = MembershipState.WAITING
        self.reason = "joining"
        self.connection: Connection | None = None
        self._service = service
        self._action = action
        self._make = make
        self._plan = plan
        self._tape = tape
        self._on_replaced = on_replaced
        self._on_change = on_change
        self._stops_first = stops_first
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        """The channel has rejected us, or was closed or left."""
        self._loss: Rejected | ChannelClosed | None = None
        self._is_renewing = False
        self._task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self.state.value}: {self.reason}" if self.reason else self.state.value

    def begin(self, grant: Grant | None = None) -> None:
        """Join, with the grant if there is one already."""
        self._task = asyncio.get_running_loop().create_task(self._run(grant))

    async def end(self) -> None:
        """Leave the channel."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._stop_connection()
        if self.state not in FINAL:
            self._set(MembershipState.CLOSED, "ended")

    async def settled(self) -> None:
        """Wait until it is on the channel, or will never be."""
        while self.state is MembershipState.WAITING:
            self._changed.clear()
            await self._changed.wait()

    def renew(self) -> None:
        """Get a new ticket now, and join with it, instead of after half the lifetime of the old one."""
        self._is_renewing = True
        self._lost.set()

    def _set(self, state: MembershipState, reason: str = "") -> None:
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self._changed.set()
            self._on_change()
            self._service._on_membership(self)

    async def _run(self, grant: Grant | None) -> None:
        retry_s = RETRY_S
        while self.state not in FINAL:
            if grant is None:
                grant = await self._ask()
            if grant.refusal:
                await self._stop_connection()
                self._set(MembershipState.REFUSED, grant.refusal)
                return
            try:
                lifetime_s = await self._join(grant)
                retry_s = RETRY_S
            except ChannelClosedError as problem:
                await self._stop_connection()
                self._set(MembershipState.CLOSED, str(problem))
                return
            except (BroadloomError, ValueError, OSError) as problem:
                if self.connection is None:
                    self._set(MembershipState.WAITING, str(problem))
                await asyncio.sleep(random.uniform(0.5, 1) * retry_s)
                retry_s = min(2 * retry_s, RETRY_S_MAX)
                is_old = isinstance(problem, RejectedError) or not isinstance(problem, ConnectError)
                grant = None if is_old else grant
                continue
            grant = None
            await self._wait_for_renewal(lifetime_s)

    async def _ask(self) -> Grant:
        """Ask a desk, however long it takes."""
        while True:
            try:
                (grant,) = await self._service._grants(self._action, [self.entry.path], self._plan, timeout_s=None)
                return grant
            except DeniedError as problem:
                return Grant(path=self.entry.path, refusal=str(problem))
            except (BroadloomError, ValueError) as problem:
                if self.connection is None:
                    self._set(MembershipState.WAITING, str(problem))
                await asyncio.sleep(RETRY_S)

    async def _join(self, grant: Grant) -> float | None:
        """Returns how long the ticket is valid; None if there is none."""
        if self.connection is not None:
            self._on_replaced()
        options: dict[str, Any] = {**self._service._topic_options(self.entry), "card": self.entry.card}
        level, lifetime_s = self.entry.offer.level, None
        if level is SecurityLevel.TICKETS:
            ticket = self._service._ticket(self.entry, base64.b64decode(grant.ticket))
            lifetime_s = ticket.expires_at.timestamp() - self._service._now()
            options["ticket"] = ticket
            if grant.revoked:
                options["revocation_list"] = _revocation_list(ticket, base64.b64decode(grant.revoked))
        elif level is SecurityLevel.PLAIN:
            options["tls"] = False
        else:
            options.update(key=grant.key, signed=level is SecurityLevel.SIGNED)
        channel = await broadloom.connect(self.entry.channel, tape=self._tape, **options)
        try:
            connection, before = self._make(channel), self.connection
            self._lost.clear()
            channel.on_event(self._on_event)
            if before is not None and self._stops_first:
                await before.stop()
            self.connection = connection
            await connection.start()
            self._set(MembershipState.CONNECTED)
            if before is not None and not self._stops_first:
                await before.stop()
        except BaseException:
            channel.abort()
            raise
        return lifetime_s

    def _on_event(self, event: object) -> None:
        if isinstance(event, Rejected | ChannelClosed):
            self._loss = event
            self._lost.set()

    async def _wait_for_renewal(self, lifetime_s: float | None) -> None:
        renew_s = None if lifetime_s is None else lifetime_s * random.uniform(RENEW_AT, RENEW_AT + 0.1)
        try:
            async with asyncio.timeout(renew_s):
                await self._lost.wait()
        except TimeoutError:
            return
        if self._is_renewing:
            self._is_renewing = False
            self._lost.clear()
            return
        loss = self._loss
        if isinstance(loss, ChannelClosed):
            await self._stop_connection()
            self._set(MembershipState.CLOSED, loss.text)
        elif loss is not None and loss.reason is RejectReason.TICKET_REVOKED:
            await self._stop_connection()
            self._set(MembershipState.WITHDRAWN, loss.text)
        else:
            await self._stop_connection()
            self._set(MembershipState.WAITING, loss.text if loss is not None else "the channel was left")

    async def _stop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.stop()


def _revocation_list(ticket: Ticket, document: bytes) -> RevocationList:
    found = RevocationList(None, ticket.authority)
    found.replace(document)
    return found
